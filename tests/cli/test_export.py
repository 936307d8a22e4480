"""`primavista export`: what it never overwrites, and what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import primavista as pv
from primavista.cli.app import app
from primavista.engine.representation import onnx_installed

from .conftest import renamed

pytestmark = pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refusal(*arguments: object) -> str:
    result = call(*arguments)
    assert isinstance(result.exception, pv.PrimavistaError), (result.output, result.exception)
    return str(result.exception)


def saved(path: Path, label: str = "mug") -> Path:
    learner = pv.Learner("dslda", weights="random", width=0.25, size=32, device="cpu")
    learner.learn(np.zeros((3, 32, 32, 3), np.uint8), "mug")
    learner.save(path)
    return renamed(path, label)


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_learner_itself_is_never_overwritten(tmp_path: Path, force: tuple[str, ...]) -> None:
    model = saved(tmp_path / "kitchen.pv")
    (tmp_path / "link.pv").symlink_to(model)
    (tmp_path / "hard.pv").hardlink_to(model)
    before = model.read_bytes()
    for name in ("kitchen.pv", "link.pv", "hard.pv", f"../{tmp_path.name}/kitchen.pv"):
        told = refusal("export", model, "-o", tmp_path / name, *force)
        assert "is the source itself: give another name" in told
    assert model.read_bytes() == before
    assert (tmp_path / "link.pv").is_symlink()


def test_what_is_there_stays_unless_force_is_said(tmp_path: Path) -> None:
    model = saved(tmp_path / "kitchen.pv")
    assert call("export", model).exit_code == 0
    target = tmp_path / "kitchen.onnx"
    target.write_bytes(b"what the device has learned meanwhile")
    told = refusal("export", model)
    assert f"{target} exists: give another name with -o, or --force" in told
    assert target.read_bytes() == b"what the device has learned meanwhile"
    assert call("export", model, "--force").exit_code == 0
    assert target.stat().st_size > 1000
    (tmp_path / "folder").mkdir()
    assert "is a folder" in refusal("export", model, "-o", tmp_path / "folder", "--force")


@pytest.mark.parametrize("model", [".", "", "/"])
def test_a_folder_is_no_learner(model: str) -> None:
    assert "it is a directory" in refusal("export", model)


def test_names_cannot_talk_to_the_terminal(tmp_path: Path) -> None:
    model = saved(tmp_path / "kitchen.pv", "mug\x1b]0;gone\x07")
    result = call("export", model, "-o", tmp_path / "\x1b[2J.onnx")
    assert result.exit_code == 0, result.exception
    assert "mug\ufffd]0;gone\ufffd" in result.output
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
