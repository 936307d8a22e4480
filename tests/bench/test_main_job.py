"""`primavista run` on a folder of the user's own: which frames are tested, and what is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from primavista.bench import identity
from primavista.cli.app import app

SESSIONS, FRAMES = 4, 8  # one session of each class in four is for tests


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """Two classes of four sessions of eight pictures."""
    root = tmp_path / "toys"
    draw = np.random.default_rng(0)
    for name in ("cup", "ball"):
        for session in range(SESSIONS):
            place = root / name / f"s{session}"
            place.mkdir(parents=True)
            for frame in range(FRAMES):
                pixels = draw.integers(0, 255, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{frame}.png")
    return root


def run(data: str | Path, out: Path) -> Result:
    small = ["--objects", "1", "--size", "32", "--weights", "random", "--threads", "1"]
    given = ["run", "ncm", "--data", str(data), "--out", str(out), *small]
    return CliRunner().invoke(app, given, catch_exceptions=False)


def only(out: Path, name: str) -> dict:
    (path,) = out.rglob(name)
    return json.loads(path.read_text())


def test_every_test_frame_of_a_folder_is_tested(toys, tmp_path):
    """`--frames` is about drawn videos; because of it a folder was tested on 1 frame in 4."""
    done = run(toys, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert only(tmp_path / "out", "run.json")["test_thin"] == 1
    assert only(tmp_path / "out", "result.json")["data"]["test_frames"] == 2 * FRAMES


def test_rendered_videos_are_tested_on_two_frames_of_each(tmp_path):
    data = "rendered:categories=2,sessions=4"
    done = run(data, tmp_path / "out")  # 8 frames per video
    assert done.exit_code == 0, done.output
    assert only(tmp_path / "out", "run.json")["test_thin"] == FRAMES // 2


def test_a_bar_shows_that_the_files_are_read(toys, tmp_path, monkeypatch):
    """The plan was made twice, the first time without telling how far the reading is."""
    asked = []
    compute = identity.data_fingerprint

    def spy(path: Path, progress=None):
        asked.append(progress is not None)
        return compute(path, progress)

    monkeypatch.setattr(identity, "data_fingerprint", spy)
    assert run(toys, tmp_path / "out").exit_code == 0
    assert asked[0], "the files were read without a progress bar"


def test_an_unknown_strategy_is_told_before_the_data_is_read(toys, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(identity, "data_fingerprint", lambda *given: asked.append(given))
    done = CliRunner().invoke(app, ["run", "ar2", "--data", str(toys)])
    assert done.exit_code != 0
    assert not asked
