"""examples/teach.py, with rendered films and with folders of pictures."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "teach.py"
COLOURS = {"rose": (200, 20, 40), "leaf": (20, 180, 40), "sky": (40, 60, 220)}


@pytest.fixture
def teach(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(SCRIPT))["main"]


@pytest.mark.slow
def test_rendered_films(teach, tmp_path, capsys):
    teach([])
    said = capsys.readouterr().out
    assert said.count("learned from 20 frames") == 3
    assert (tmp_path / "objects.pv").exists()


def test_folders_of_pictures(teach, tmp_path, capsys):
    random = np.random.default_rng(0)
    for name, colour in {**COLOURS, "question": COLOURS["leaf"]}.items():
        (tmp_path / name).mkdir()
        for number in range(4):
            picture = np.full((64, 64, 3), colour) + random.integers(-15, 15, (64, 64, 3))
            Image.fromarray(picture.astype(np.uint8)).save(tmp_path / name / f"{number}.png")
    teach([*COLOURS, "question"])
    said = capsys.readouterr().out
    assert "shows leaf (" in said
    assert "objects.pv knows rose, leaf, sky." in said
