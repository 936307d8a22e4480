"""`primavista undo`, `rename` and `forget`: the same as in Python, under the same lock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import primavista as pv
from primavista.storage.disk import BusyError, file_lock

from .conftest import call, done


@pytest.fixture
def model(tmp_path: Path) -> Path:
    learner = pv.Learner("dslda", weights="random", width=0.25, size=32, device="cpu")
    for name, grey in (("mug", 0), ("cup", 255)):
        learner.learn(np.full((3, 32, 32, 3), grey, np.uint8), name)
    learner.save(tmp_path / "kitchen.pv")
    return tmp_path / "kitchen.pv"


def test_each_does_what_python_does_to_the_last_bit(model: Path) -> None:
    learner = pv.Learner.load(model, device="cpu")
    for command, change, known in (
        (
            ("rename", "mug", "beaker"),
            lambda: learner.rename("mug", "beaker"),
            "2 objects (frames): beaker (3), cup (3)",
        ),
        (("forget", "cup"), lambda: learner.forget("cup"), "1 object (frames): beaker (3)"),
        (("undo",), learner.undo, "2 objects (frames): beaker (3), cup (3)"),
    ):
        change()
        assert done(command[0], model, *command[1:]).strip() == f"kitchen.pv knows {known}"
        learner.save(model.with_name("python.pv"))
        assert model.read_bytes() == model.with_name("python.pv").read_bytes()
    for name in ("cup", "beaker"):
        text = done("forget", model, name)
    assert text.strip() == "kitchen.pv knows nothing yet"


@pytest.mark.slow
def test_what_is_refused_changes_nothing(model: Path) -> None:
    done("rename", model, "mug", "beaker")
    done("undo", model)
    before = model.read_bytes()
    for command, words in (
        (("undo",), "nothing to undo"),
        (("rename", "jug", "cup"), "there is no 'jug'; known are mug, cup"),
        (("rename", "mug", "cup"), "there is a 'cup' already"),
        (("rename", "mug", " "), "a name must be a text of 1 to 200 characters"),
        (("forget", "jug"), "there is no 'jug'"),
    ):
        assert words in str(call(command[0], model, *command[1:]).exception)
    with file_lock(model):
        assert isinstance(call("forget", model, "mug").exception, BusyError)
    assert model.read_bytes() == before
    assert isinstance(call("undo", model.with_name("gone.pv")).exception, pv.FileError)
    assert not model.with_name("gone.pv").exists()
