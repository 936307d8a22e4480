"""Shards taught apart and merged: the same learner as one that was taught everything."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from primavista import FileError, InputError, Learner, open_frames
from primavista.learner.fleet import RayMachines, ThisProcess, ray_cluster, teach, teach_shard
from primavista.media.video import Lesson


def clip(seed: int, size: int = 32) -> np.ndarray:
    base = (
        np.random.default_rng(seed % 4)
        .integers(0, 200, (1, 4, 4, 3))
        .repeat(size // 4, 1)
        .repeat(size // 4, 2)
    )
    noise = np.random.default_rng(seed + 100).integers(0, 55, (5 + seed % 3, size, size, 3))
    return (base + noise).astype(np.uint8)


def opener(source: int, size: int) -> np.ndarray:
    if source == -2:
        raise OSError("the disk has gone")
    if source < 0:
        raise FileError(f"cannot read video {source}")
    return clip(source, size)


def tiny(strategy: str = "ridge") -> Learner:
    return Learner(strategy, weights="random", width=0.125, size=32, device="cpu")


NAMES = ["mug", "kettle", "cup", "pot"]
LESSONS = [Lesson(NAMES[k % 4], k) for k in (3, 1, 0, 2, 7, 4, 5, 9, 11)]


def alone(lessons: list[Lesson], strategy: str = "ridge") -> Learner:
    learner = tiny(strategy)
    for lesson in lessons:
        learner.learn(clip(lesson.source), lesson.label)
    return learner


def assert_same(a: Learner, b: Learner) -> None:
    assert (a.labels, a.counts, a.lessons) == (b.labels, b.counts, b.lessons)
    frames = np.concatenate([clip(k) for k in range(20, 28)])
    for ours, theirs in zip(a.predict(frames), b.predict(frames), strict=True):
        assert ours.scores == pytest.approx(theirs.scores, rel=1e-4, abs=1e-9)
        assert ours.familiarity == pytest.approx(theirs.familiarity, rel=1e-4)
    for name, tensor in a.strategy.state_dict().items():
        if name.startswith("moments."):
            assert np.allclose(tensor, b.strategy.state_dict()[name], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["prima", "ridge", "lda", "ncm"])
@pytest.mark.parametrize("shards", [1, 3, 50])  # one, some, more than there are lessons
def test_any_number_of_shards_gives_what_one_learner_gives(strategy, shards):
    learner, told = tiny(strategy), []
    outcomes = teach(learner, LESSONS, shards=shards, opener=opener, listen=told.extend)
    assert [o.status for o in outcomes] == ["learned"] * 9
    assert [o.lesson for o in outcomes] == LESSONS
    assert len(told) == 9
    assert_same(learner, alone(LESSONS, strategy))


def test_on_top_of_what_was_taught_and_back():
    learner = alone(LESSONS[:3])
    teach(learner, LESSONS[3:], shards=3, opener=opener)
    assert_same(learner, alone(LESSONS))
    learner.undo()
    assert_same(learner, alone(LESSONS[:3]))


def test_lessons_that_fail_or_come_twice_are_left_out_and_named():
    learner = alone(LESSONS[:1])
    lessons = [
        LESSONS[0],
        LESSONS[1],
        LESSONS[2],
        Lesson("pot", -1),
        LESSONS[1],
        LESSONS[4],
        LESSONS[2],
    ]
    outcomes = teach(learner, lessons, shards=4, opener=opener)
    assert [o.status for o in outcomes] == [
        "already taught",
        "learned",
        "learned",
        "failed",
        "already taught",
        "learned",
        "already taught",
    ]
    assert outcomes[3].reason == "cannot read video -1"
    assert_same(learner, alone([LESSONS[0], LESSONS[1], LESSONS[2], LESSONS[4]]))


def test_whatever_an_opener_raises_the_other_lessons_go_on():
    learner = tiny()
    outcomes = teach(learner, [LESSONS[0], Lesson("pot", -2), LESSONS[1]], shards=1, opener=opener)
    assert [o.status for o in outcomes] == ["learned", "failed", "learned"]
    assert outcomes[1].reason == "OSError: the disk has gone"
    assert_same(learner, alone(LESSONS[:2]))


class Apart(ThisProcess):
    """Machines that are not this one.

    Every second has no ONNX Runtime. What goes over the line is counted.
    """

    def __init__(self):
        self.calls, self.sent = 0, []

    def call(self, results, function, *arguments):
        self.calls += 1
        with pytest.MonkeyPatch.context() as patch:
            if function is teach_shard and self.calls % 2 == 0:
                patch.setitem(sys.modules, "onnxruntime", None)
            handles = super().call(results, function, *arguments)
        self.sent.append(len(handles[0].value))
        return handles


def test_a_machine_without_the_engine_fails_its_own_lessons_alone():
    pytest.importorskip("onnxruntime")
    learner = tiny()
    assert learner.engine == "onnx"
    outcomes = teach(learner, LESSONS[:4], Apart(), shards=4, opener=opener)
    assert [o.status for o in outcomes] == ["learned", "failed", "learned", "failed"]
    assert "onnx" in outcomes[1].reason
    assert_same(learner, alone([LESSONS[0], LESSONS[2]]))


def test_no_machine_sends_the_state_before_its_last_lesson():
    machines = Apart()
    teach(tiny("prima"), LESSONS[:1], machines, opener=opener)
    one = machines.sent.pop()
    teach(tiny("prima"), LESSONS[:1] + LESSONS[4:5], machines, shards=1, opener=opener)
    assert machines.sent.pop() < 1.1 * one


def test_what_was_taught_before_is_not_learned_again():
    learner = alone(LESSONS[:2])
    learned = []

    class Watched(ThisProcess):
        def call(self, results, function, *arguments):
            handles = super().call(results, function, *arguments)
            learned.extend(o.status for o in handles[1].value)
            return handles

    assert [o.status for o in teach(learner, LESSONS[:2], Watched(), opener=opener)] == [
        "already taught"
    ] * 2
    assert learned == ["already taught"] * 2


def test_a_number_of_shards_that_is_none():
    with pytest.raises(InputError, match="at least 1; got -1"):
        teach(tiny(), LESSONS, shards=-1, opener=opener)


def test_nothing_new_changes_nothing():
    learner = alone(LESSONS[:2])
    before = learner.strategy
    statuses = [o.status for o in teach(learner, LESSONS[:2], opener=opener)]
    assert statuses == ["already taught", "already taught"]
    assert teach(learner, [], opener=opener) == []
    assert learner.strategy is before


def test_strategies_that_depend_on_the_order_are_refused():
    with pytest.raises(InputError, match=r"depends on the order.*ridge"):
        teach(tiny("cwr*"), LESSONS, opener=opener)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")
def test_on_ray_the_same_though_a_node_is_lost(cluster, tmp_path):
    """Folders of pictures, opened where they are learned.

    The second node goes when the first shard has come.
    """
    for k in range(24):
        folder = tmp_path / f"{k:02}"
        folder.mkdir()
        for number, image in enumerate(clip(k)):
            Image.fromarray(image).save(folder / f"{number}.png")
    lessons = [Lesson(NAMES[k % 4], str(tmp_path / f"{k:02}")) for k in range(24)]
    one_by_one = tiny()
    for lesson in lessons:
        one_by_one.learn(open_frames(lesson.source, size=32), lesson.label)

    def lose(outcomes):
        if cluster.second is not None:
            cluster.remove_node(cluster.second, allow_graceful=False)
            cluster.second = None

    learner = tiny()
    with ray_cluster() as machines:
        assert isinstance(machines, RayMachines)
        outcomes = teach(learner, lessons, machines, shards=8, listen=lose)
    assert cluster.second is None
    assert [o.status for o in outcomes] == ["learned"] * 24
    assert_same(learner, one_by_one)
