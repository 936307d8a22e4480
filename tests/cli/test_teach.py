"""`primavista teach`: what it says in the terminal; the service has tests of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import primavista as pv
from primavista.cli import app


def test_names_cannot_talk_to_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("multipart")
    server = pytest.importorskip("primavista.serve.server")

    def serve(*_: Any, ready: Any, **__: Any) -> None:
        ready("http://localhost:1")

    monkeypatch.setattr(server, "serve", serve)
    learner = pv.Learner("ncm", weights="random", width=0.25, size=32, device="cpu")
    learner.learn(np.zeros((3, 32, 32, 3), np.uint8), "mug\x1b]0;gone\x07")
    learner.save(tmp_path / "\x1b[2J.pv")
    result = CliRunner().invoke(app, ["teach", str(tmp_path / "\x1b[2J.pv"), "--no-browser"])
    assert result.exit_code == 0, result.exception
    assert "\ufffd[2J.pv (mug\ufffd]0;gone\ufffd)" in result.output
    assert "\x1b" not in result.output
