"""benchmarks/changes.py in its shortest form: every change is timed, every file measured."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest

from primavista.storage import learner_file

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "changes.py"


@pytest.mark.slow
def test_every_change_is_timed_and_every_file_measured(capsys, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("changes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    changes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(changes)
    monkeypatch.setattr(changes, "FRAMES", 3)
    args = argparse.Namespace(objects=[2, 3], size=32, repeats=1)
    two, three = changes.measure(args)
    assert set(two["milliseconds"]) == {"frame", "save", *changes.CHANGES}
    assert all(value >= 0 for value in two["milliseconds"].values())
    sizes = two["bytes"]
    assert sizes["after a lesson"] > sizes["after forgetting"] > sizes["without undo"]
    assert three["bytes"]["without undo"] > sizes["without undo"]
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["| 2 ", "| 3 "]
    one = changes.Measured(32, tmp_path)
    one.teach(2)
    before = learner_file.encode(*one.learner.content())
    one.after("forget", changes.lesson(0, 0, 32)[0])
    assert learner_file.encode(*one.learner.content()) == before
