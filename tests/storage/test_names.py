"""One rule for names, wherever they come from; names of earlier versions stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from primavista import InputError, Learner
from primavista.learner.history import History
from primavista.storage.names import checked_name

BAD = [
    "",
    "  ",
    "x" * 201,
    "a\nb",
    "a\0",
    "a\x1b[2J",
    "a\x85b",
    "a\u2028b",
    "\udcff",
    "mug\u200b",  # a space without width: looks like "mug"
    "mug\u202egnp.exe",  # what follows is shown backwards
    "\u2066mug",
    "mu\u00adg",
    "mug\u200d",
    "m\u200cug",
    "mug\ufe0f",
    "\ufeffmug",
    "mug\u3164",
    "mug\U000e0041",
    None,
    3,
    ["mug"],
]
FRAMES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)


def tiny() -> Learner:
    return Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")


def old(name: str) -> Learner:
    """One whose file an earlier version wrote."""
    learner = tiny()
    learner.learn(FRAMES, "mug")
    learner._history = History(replace(learner._state, names={0: name}))
    return Learner.from_bytes(learner.to_bytes(), device="cpu")


@pytest.mark.parametrize("label", BAD)
def test_what_is_no_name(label):
    with pytest.raises(InputError, match="a name must be a text of 1 to 200 characters"):
        checked_name(label)


def test_names_of_any_language_are_kept_composed_and_without_blanks_around_them():
    assert checked_name("\t Kännchen 茶碗 <b>☕</b> ") == "Kännchen 茶碗 <b>☕</b>"
    assert checked_name("e\u0301") == "é"
    assert checked_name("👩\u200d🍳") == "👩\u200d🍳"  # joined by a character that cannot be seen
    assert checked_name("می\u200cخواهم") == "می\u200cخواهم"
    assert checked_name("❤\ufe0f 1\ufe0f\u20e3") == "❤\ufe0f 1\ufe0f\u20e3"
    assert checked_name(" " + "x" * 200) == "x" * 200


@pytest.mark.parametrize("label", [bad for bad in BAD if not isinstance(bad, list)])
def test_a_learner_takes_no_bad_name(label):
    learner = tiny()
    learner.learn(FRAMES, "mug")
    before = learner.to_bytes()
    for refused in (lambda: learner.learn(FRAMES, label), lambda: learner.rename("mug", label)):
        with pytest.raises(InputError, match="a name must be a text"):
            refused()
    assert learner.to_bytes() == before


def test_a_learner_keeps_one_object_however_blanks_are_typed():
    learner = tiny()
    learner.learn(FRAMES, " mug")
    learner.learn(FRAMES, ["mug ", "mug", " cup ", "cup"])
    assert learner.counts == {"mug": 6, "cup": 2}
    learner.rename(" cup", "kettle ")
    assert learner.labels == ["mug", "kettle"]
    with pytest.raises(InputError, match="there is a 'mug' already"):
        learner.rename("kettle", " mug ")
    learner.forget("kettle ")
    assert learner.labels == ["mug"]


@pytest.mark.parametrize("name", [" mug ", "a\nb", "e\u0301"])
def test_names_of_earlier_versions_load_go_on_and_can_be_changed(name):
    learner = old(name)
    learner.learn(FRAMES + 1, name)
    assert learner.counts == {name: 8}
    assert {one.label for one in learner.predict(FRAMES)} == {name}
    learner.rename(name, "cup")
    assert learner.labels == ["cup"]
    forgetful = old(name)
    forgetful.forget(name)
    assert forgetful.labels == []
