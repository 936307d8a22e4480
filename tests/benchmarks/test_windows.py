"""The counting of benchmarks/watch.py, by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from primavista.learner.prediction import AnswerRule, Prediction
from primavista.streams.dataset import DataSet, Session

TEST = [Session(0, 1, 10, 13), Session(1, 1, 20, 22)]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The scripts import one another by name."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])
    return importlib.import_module("watch")


def named(label: str, share: float = 0.6) -> Prediction:
    other = "1" if label == "0" else "0"
    return Prediction(label, share, "known", {label: share, other: 1 - share}, 0.5)


def test_windows_end_with_their_frame_and_stay_in_their_video(watch):
    rows = list("abcde")
    assert ["".join(rows[part]) for part in watch.windows(TEST, 2)] == ["a", "ab", "bc", "d", "de"]
    whole = ["".join(rows[part]) for part in watch.windows(TEST, 0)]
    assert whole == ["abc", "abc", "abc", "de", "de"]


def test_changes_are_counted_within_videos(watch):
    """a b b | a a: one change in the three steps within a video."""
    found = [named(label) for label in "01100"]
    assert watch.changes(found, np.array([0, 3])) == pytest.approx(100 / 3)
    found[2] = Prediction("1", 0.6, "unknown")  # and one to unknown
    assert watch.changes(found, np.array([0, 3])) == pytest.approx(200 / 3)


def test_the_other_rules(watch):
    three = [
        named("0", 0.55),
        named("0", 0.55),
        Prediction("1", 0.95, "known", {"0": 0.05, "1": 0.95}),
    ]
    assert watch.vote(three, 0.3).label == "0"
    assert watch.mean_share(three, 0.3).label == "1"  # 1.85 of 3 against 1.15
    assert watch.vote(three[1:], 0.3).label == "1"  # one each: the larger share


def test_the_stream_sees_the_cut_or_not(watch):
    """Three frames of 0.6 for 0 and two of 0.55 for 1, in two scenes."""
    predictions = [named("0")] * 3 + [named("1", 0.55)] * 2
    random = np.random.default_rng(0)
    scenes = random.integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    images = scenes[[0, 0, 0, 1, 1]]
    taught = watch.Taught(None, AnswerRule(0.3))
    labels = [one.label for one in watch.streamed(taught, predictions, images, 5)]
    assert labels == list("00011")
    blind = [one.label for one in watch.streamed(taught, predictions, None, 5)]
    assert blind == list("00000")
    videos = [Session(0, 1, 0, 3), Session(1, 1, 3, 5)]
    assert watch.cuts(images, videos) == (100.0, 0.0)


def test_lessons_are_drawn_per_class(watch):
    train = tuple(Session(label, number, 0, 1) for label in range(4) for number in range(5))
    data = DataSet("x", np.zeros((1, 1, 1, 3), np.uint8), train, (), tuple("abcd"), (0, 1, 2, 3))
    chosen = watch.lessons(data, 0, classes=2, videos=3)
    assert len(chosen) == 6
    assert len({s.label for s in chosen}) == 2
    assert len({(s.label, s.number) for s in chosen}) == 6
    assert len(watch.lessons(data, 0, classes=0, videos=0)) == 20
