"""What the learner without torch takes and refuses, as the one with torch does."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from primavista import Learner
from primavista.learner.export import export


@pytest.fixture(scope="module")
def small(edge, tmp_path_factory):
    learner = Learner("ncm", weights="random", width=0.25, size=32, threshold=0)
    learner.learn(plain(200, 20, 20), "red")
    learner.learn(plain(20, 20, 200), "blue")
    path = export(learner, tmp_path_factory.mktemp("small") / "small.edge.pv", "edge")
    return edge.Learner.load(path)


def plain(red: int, green: int, blue: int, count: int = 4) -> np.ndarray:
    noise = np.random.default_rng(red + blue).integers(0, 20, (count, 40, 40, 3))
    return (noise + np.array([red, green, blue])).astype(np.uint8)


def test_a_lesson_has_a_report(edge, small):
    learner = copy.deepcopy(small)
    report = learner.learn(plain(90, 90, 90, count=3), ["grey", "red", "grey"])
    assert isinstance(report, edge.LessonReport)
    assert (report.frames, report.new) == ({"grey": 2, "red": 1}, ("grey",))
    assert report.total == 3
    assert small.labels == ["red", "blue"]


def test_a_learner_shows_what_it_knows_and_is_not_pickled(edge, small):
    assert repr(small) == "Learner('ncm', size=32, objects={'red': 4, 'blue': 4})"
    with pytest.raises(edge.InputError, match="save"):
        pickle.dumps(small)


def test_bgr_frames_are_those_in_the_other_order(small):
    frames = plain(200, 20, 20)
    swapped = np.ascontiguousarray(frames[..., ::-1])
    assert small.predict(swapped, bgr=True) == small.predict(frames)
    assert small.predict(swapped[0], bgr=True) == small.predict(frames[0])
    assert small.predict(swapped[0]).label == "blue"
    assert small.predict_video(list(swapped), bgr=True) == small.predict_video(frames)
    assert small.watch(bgr=True).predict(swapped[0]) == small.predict(frames[0])
    one, two = copy.copy(small), copy.copy(small)
    one.learn(plain(20, 200, 90), "green")
    two.learn(plain(20, 200, 90)[..., ::-1], "green", bgr=True)
    assert one.predict(frames) == two.predict(frames)


@pytest.mark.parametrize(
    ("frames", "right"),
    [
        ((frame for frame in plain(1, 2, 3)), r"list\(frames\)"),
        (None, "got NoneType"),
        (np.zeros((3, 40, 40), np.uint8), r"frame\.transpose\(1, 2, 0\)"),
        (np.zeros((4, 3, 40, 40), np.uint8), r"frames\.transpose\(0, 2, 3, 1\)"),
        (np.full((40, 40, 3), 200, np.int64), r'frame\.astype\("uint8"\)'),
        (np.full((40, 40, 3), 0.5), r'\(frame \* 255\)\.round\(\)\.astype\("uint8"\)'),
    ],
)
def test_advice_for_what_are_no_frames_is_a_call_that_works(edge, small, frames, right):
    with pytest.raises(edge.InputError, match=right):
        small.predict(frames)
    with pytest.raises(edge.InputError, match=right):
        small.learn(frames, "mug")


@pytest.mark.parametrize("name", ["unknown", "Unknown"])
def test_the_word_unknown_is_not_a_name(edge, small, name):
    with pytest.raises(edge.InputError, match="strangers"):
        small.learn(plain(1, 2, 3), name)
    with pytest.raises(edge.InputError, match="strangers"):
        small.rename("red", name)
