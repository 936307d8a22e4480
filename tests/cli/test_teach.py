"""`primavista teach`: what it prints in the terminal; the service has tests of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import primavista as pv
from primavista.cli.app import app


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"),
    [((), 0.9), (("--threshold", "0.6"), 0.6), (("--strategy", "ridge"), 0.25)],
)
def test_a_new_model_has_the_default_threshold_and_an_old_one_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], expected: float
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("multipart")
    server = pytest.importorskip("primavista.serve.server")
    seen = []
    monkeypatch.setattr(
        server,
        "serve",
        lambda learner, path, **_: (seen.append(learner.threshold), learner.save(path)),
    )
    for arguments in (given, (), ("--threshold", "0.7")):
        result = CliRunner().invoke(
            app, ["teach", str(tmp_path / "a.pv"), "--no-browser", "--size", "32", *arguments]
        )
        assert result.exit_code == 0, result.exception
    assert seen == [expected, expected, 0.7]


def test_names_cannot_talk_to_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("multipart")
    server = pytest.importorskip("primavista.serve.server")

    def serve(*_: Any, ready: Any, **__: Any) -> None:
        ready("http://localhost:1")

    monkeypatch.setattr(server, "serve", serve)
    learner = pv.Learner("ncm", weights="random", width=0.25, size=32, device="cpu")
    learner.save(tmp_path / "\x1b[2J.pv")
    result = CliRunner().invoke(app, ["teach", str(tmp_path / "\x1b[2J.pv"), "--no-browser"])
    assert result.exit_code == 0, result.exception
    assert "\ufffd[2J.pv can be taught at" in result.output
    assert "\x1b" not in result.output


def test_a_token_is_made_unless_one_is_given_or_none_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("multipart")
    server = pytest.importorskip("primavista.serve.server")
    tokens: list[str | None] = []

    def serve(*_: Any, ready: Any, token: str | None, **__: Any) -> None:
        tokens.append(token)
        ready("http://127.0.0.1:1", "http://192.0.2.7:1")

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.delenv("PRIMAVISTA_TOKEN", raising=False)
    path = tmp_path / "a.pv"
    pv.Learner("ncm", weights="random", width=0.25, size=32, device="cpu").save(path)

    def teach(*options: str, environment: str | None = None) -> Any:
        command = ["teach", str(path), "--no-browser", *options]
        given = {"PRIMAVISTA_TOKEN": environment} if environment else {}
        return CliRunner().invoke(app, command, env=given)

    for _ in range(2):
        shown = teach("--host", "0.0.0.0")
        assert f"  http://127.0.0.1:1/#token={tokens[-1]}\n" in shown.output
        assert f"other machines at\n  http://192.0.2.7:1/#token={tokens[-1]}\n" in shown.output
    assert tokens[0] != tokens[1]
    assert min(len(token or "") for token in tokens) >= 32
    teach("--token", "t" * 16)
    teach(environment="e" * 16)
    plain = teach("--no-token")
    assert tokens[2:] == ["t" * 16, "e" * 16, None]
    assert "token" not in plain.output
    for refused in (
        teach("--no-token", "--host", "0.0.0.0"),
        teach("--no-token", "--token", "t" * 16),
        teach("--no-token", environment="e" * 16),
    ):
        assert isinstance(refused.exception, pv.InputError)
    assert len(tokens) == 5


@pytest.mark.parametrize(
    ("count", "line"),
    [(0, ""), (2, "It knows a, b"), (9, "It knows a, b, c, d, e, f, g, h ...")],
)
def test_what_the_file_knows_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, line: str
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("multipart")
    server = pytest.importorskip("primavista.serve.server")
    monkeypatch.setattr(server, "serve", lambda *_, ready, **__: ready("http://localhost:1"))
    learner = pv.Learner("ncm", weights="random", width=0.25, size=32, device="cpu")
    for label in "abcdefghi"[:count]:
        learner.learn(np.zeros((1, 32, 32, 3), np.uint8), label)
    learner.save(tmp_path / "a.pv")
    result = CliRunner().invoke(app, ["teach", str(tmp_path / "a.pv"), "--no-browser"])
    rows = [row for row in result.stdout.splitlines() if "knows" in row]
    assert rows == [line] * bool(line)
