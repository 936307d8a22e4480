"""benchmarks/oboi.py on rendered objects, written in the layout of CORe50."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import oboi

from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.streams.core50 import CORe50
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import Scene

# two rendered categories of three objects are objects 6, 7, 8, 11, 12, 13 of CORe50 in shape;
# objects 1 and 2 are the plug adapters, which are left out
OBJECTS = (6, 7, 8, 11, 12, 13)
FRAMES = 14


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> CORe50:
    root = tmp_path_factory.mktemp("core50")
    made = rendered(Scene(categories=2, objects=3, sessions=11, frames=FRAMES, size=32), "cpu")
    sessions = [*made.train, *made.test]
    sessions += [s for s in sessions if s.label < 2]
    for position, session in enumerate(sessions):
        plug = position >= len(made.train) + len(made.test)
        thing = session.label + 1 if plug else OBJECTS[session.label]
        home = root / f"s{session.number}" / f"o{thing}"
        home.mkdir(parents=True)
        frames = made.frames[torch.arange(session.start, session.stop)].numpy()
        for k, frame in enumerate(frames):
            name = f"C_{session.number:02}_{thing:02}_{k:03}.png"
            Image.fromarray(frame).save(home / name)
    return CORe50(root, "full")


def where(data: CORe50, frame: int) -> tuple[int, int]:
    """The label and the session of a frame."""
    for session in (*data.train, *data.test):
        if session.start <= frame < session.stop:
            return session.label, session.number
    raise AssertionError(frame)


@pytest.fixture
def sessions(data):
    return oboi.sessions_of(data, oboi.PLUG_ADAPTERS, 12)


def test_every_session_gives_as_many_frames_and_plug_adapters_none(data, sessions):
    assert sorted(sessions) == [number - 1 for number in OBJECTS]
    for label, own in sessions.items():
        assert sorted(own) == list(range(1, 12))
        for number, frames in own.items():
            assert len(set(frames)) == 12
            assert {where(data, frame) for frame in frames} == {(label, number)}


def test_one_frame_of_each_session_teaches_and_eighty_percent_of_the_others_test(data, sessions):
    task = oboi.draw_task(data, sessions, 2, "same", random.Random(0))
    labels = sorted({label for label, _, _ in task.taught})
    assert len(labels) == 4
    assert [data.categories[label] for label in labels] == [1, 1, 2, 2]
    assert [(label, number) for label, number, _ in task.taught] == [
        (label, number) for label in labels for number in range(1, 12)
    ]
    assert {len(frames) for _, _, frames in task.taught} == {1}
    assert {len(frames) for _, _, frames in task.asked} == {9}  # 80 % of 11, rounded
    taught, asked = (
        {frame for *_, frames in part for frame in frames} for part in (task.taught, task.asked)
    )
    assert not taught & asked
    for label, number, frames in (*task.taught, *task.asked):
        assert {where(data, frame) for frame in frames} == {(label, number)}


def test_eleven_frames_of_one_session_teach_and_the_other_ten_test(data, sessions):
    task = oboi.draw_task(data, sessions, 3, "other", random.Random(1))
    (place,) = {number for _, number, _ in task.taught}
    assert [len(frames) for _, _, frames in task.taught] == [11] * 6
    assert {number for _, number, _ in task.asked} == set(range(1, 12)) - {place}
    assert {len(frames) for _, _, frames in task.asked} == {10}  # 80 % of 12, rounded


def test_the_accuracies_are_those_of_a_learner_asked_within_the_category(data, sessions):
    backbone = build("mobilenet_v1", "imagenet", size=32)
    task = oboi.draw_task(data, sessions, 2, "same", random.Random(2))
    given, free = oboi.accuracies("ncm", data, task, backbone)
    learner = create("ncm", backbone)
    for label, number, frames in task.taught:
        learner.learn(data.frames[frames], torch.tensor([label]), torch.tensor([number]))
    right = [0, 0]
    count = 0
    for label, _, frames in task.asked:
        for row in learner.scores(data.frames[frames]):
            count += 1
            scores = dict(zip(learner.classes.tolist(), row.tolist(), strict=True))
            rivals = {c: s for c, s in scores.items() if c // 5 == label // 5}
            right[0] += max(rivals, key=rivals.__getitem__) == label
            right[1] += max(scores, key=scores.__getitem__) == label
    assert len(rivals) == 2
    assert (given, free) == pytest.approx((100 * right[0] / count, 100 * right[1] / count))
    assert given >= free


def test_the_row_of_the_report_by_hand():
    found = oboi.row("ncm", [(50.0, 40.0), (54.0, 44.0), (58.0, 48.0)])
    assert found == "| ncm | 54.0 ± 4.0 | 44.0 ± 4.0 |"
