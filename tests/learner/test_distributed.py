"""Parts learned apart and merged: the same learner as one that was taught everything."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from primavista import FileError, InputError, Learner, open_frames
from primavista.bench.ray_cluster import ray_cluster
from primavista.learner import teaching
from primavista.learner.teaching import teach
from primavista.media.video import Clip, Lesson


def clip(seed: int, size: int = 32) -> np.ndarray:
    base = (
        np.random.default_rng(seed % 4)
        .integers(0, 200, (1, 4, 4, 3))
        .repeat(size // 4, 1)
        .repeat(size // 4, 2)
    )
    noise = np.random.default_rng(seed + 100).integers(0, 55, (5 + seed % 3, size, size, 3))
    return (base + noise).astype(np.uint8)


@pytest.fixture(autouse=True)
def sources_are_numbers(monkeypatch):
    """Frames are made from a number; -1 cannot be read, and -2 is a fault of the reader."""

    def opened(source, size):
        if source == -2:
            raise OSError("the disk has gone")
        if source == -1:
            raise FileError("cannot read video -1")
        return Clip(clip(source, size), "")

    monkeypatch.setattr(teaching, "open_frames", opened)


class RayError(Exception):
    pass


class HereInsteadOfRay:
    """What `teach` uses of Ray, in this process. `lost` are the tasks that Ray gives up."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, processors=1, lost=()):
        self.processors, self.lost, self.results = processors, lost, []

    def cluster_resources(self):
        return {"CPU": float(self.processors)}

    def put(self, value):
        return value

    def remote(self, **options):
        def start(function, *arguments):
            self.results.append(function(*arguments))
            return len(self.results) - 1

        return lambda function: SimpleNamespace(remote=partial(start, function))

    def get(self, number):
        if number in self.lost:
            raise RayError("the node has died")
        return self.results[number]


def tiny(strategy: str = "ridge") -> Learner:
    return Learner(strategy, weights="random", width=0.125, size=32, device="cpu")


NAMES = ["mug", "kettle", "cup", "pot"]
LESSONS = [Lesson(NAMES[k % 4], k) for k in (3, 1, 0, 2, 7, 4, 5, 9, 11)]


def alone(lessons: list[Lesson], strategy: str = "ridge") -> Learner:
    learner = tiny(strategy)
    for lesson in lessons:
        learner.learn(clip(lesson.source), lesson.label, coach=False)
    return learner


def assert_same(a: Learner, b: Learner) -> None:
    assert (a.labels, a.counts, a.lessons) == (b.labels, b.counts, b.lessons)
    frames = np.concatenate([clip(k) for k in range(20, 28)])
    for ours, theirs in zip(a.predict(frames), b.predict(frames), strict=True):
        assert ours.scores == pytest.approx(theirs.scores, rel=1e-4, abs=1e-9)
        assert ours.familiarity == pytest.approx(theirs.familiarity, rel=1e-4)
    ours, theirs = (one.strategy.head.groups for one in (a, b))
    if "moments" in ours:
        for name, array in ours["moments"].arrays.items():
            assert np.allclose(array, theirs["moments"].arrays[name], rtol=1e-4, atol=1e-4)


def taught(learner, lessons, ray=None):
    parts = list(teach(learner, lessons, ray or HereInsteadOfRay()))
    return [outcome for part in parts for outcome in part]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["prima", "ridge", "lda", "ncm"])
@pytest.mark.parametrize("processors", [1, 50])  # parts of three lessons, and of one
def test_any_number_of_parts_gives_what_one_learner_gives(strategy, processors):
    learner = tiny(strategy)
    outcomes = taught(learner, LESSONS, HereInsteadOfRay(processors))
    assert [o.status for o in outcomes] == ["learned"] * 9
    assert [o.frames for o in outcomes] == [len(clip(lesson.source)) for lesson in LESSONS]
    assert tuple(o.id for o in outcomes) == alone(LESSONS, strategy).lessons
    assert_same(learner, alone(LESSONS, strategy))


def test_on_top_of_what_was_taught_and_the_last_part_back():
    learner = alone(LESSONS[:3])
    taught(learner, LESSONS[3:])  # parts of two, two and two lessons
    assert_same(learner, alone(LESSONS))
    learner.undo()
    assert_same(learner, alone(LESSONS[:7]))


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
    outcomes = taught(learner, lessons)
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


def test_whatever_reading_raises_the_other_lessons_go_on():
    learner = tiny()
    outcomes = taught(learner, [LESSONS[0], Lesson("pot", -2), LESSONS[1]])
    assert [o.status for o in outcomes] == ["learned", "failed", "learned"]
    assert outcomes[1].reason == "OSError: the disk has gone"
    assert_same(learner, alone(LESSONS[:2]))


def test_a_part_that_ray_gives_up_fails_alone_and_the_next_call_learns_it():
    learner = tiny()
    outcomes = taught(learner, LESSONS[:4], HereInsteadOfRay(lost=[1]))
    assert [o.status for o in outcomes] == ["learned", "failed", "learned", "learned"]
    assert outcomes[1].reason == "on the cluster: the node has died"
    again = taught(learner, LESSONS[:4])
    assert [o.status for o in again] == [
        "already taught",
        "learned",
        "already taught",
        "already taught",
    ]


def test_what_was_merged_before_an_interruption_is_kept():
    """Each part is merged before its outcomes are told, so a stop loses only the later ones."""
    learner = tiny()
    parts = teach(learner, LESSONS, HereInsteadOfRay())
    next(parts)
    parts.close()
    assert_same(learner, alone(LESSONS[:3]))
    statuses = [o.status for o in taught(learner, LESSONS)]
    assert statuses == ["already taught"] * 3 + ["learned"] * 6
    assert_same(learner, alone(LESSONS))


def test_a_machine_without_the_engine_fails_its_own_lessons_alone(monkeypatch):
    pytest.importorskip("onnxruntime")
    learner = tiny()
    assert learner.engine == "onnx"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    outcomes = taught(learner, LESSONS[:2])
    assert [o.status for o in outcomes] == ["failed", "failed"]
    assert "onnx" in outcomes[0].reason


def test_no_machine_sends_the_state_before_its_last_lesson():
    ray = HereInsteadOfRay()
    taught(tiny("prima"), LESSONS[:1], ray)
    taught(tiny("prima"), [LESSONS[0], LESSONS[4], *[Lesson("pot", -1)] * 3], ray)
    (one, _), (two, _) = ray.results[:2]
    assert len(two) < 1.1 * len(one)


def test_nothing_new_changes_nothing():
    learner = alone(LESSONS[:2])
    before = learner.strategy
    assert [o.status for o in taught(learner, LESSONS[:2])] == ["already taught"] * 2
    assert taught(learner, []) == []
    assert learner.strategy is before


def test_strategies_that_depend_on_the_order_are_refused():
    with pytest.raises(InputError, match=r"depends on the order.*ridge"):
        taught(tiny("cwr*"), LESSONS)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")
def test_on_ray_the_same_though_a_node_is_lost(cluster, tmp_path):
    """Folders of pictures, opened where they are learned.

    The second node goes when the first part has come.
    """
    for k in range(24):
        folder = tmp_path / f"{k:02}"
        folder.mkdir()
        for number, image in enumerate(clip(k)):
            Image.fromarray(image).save(folder / f"{number}.png")
    lessons = [Lesson(NAMES[k % 4], (tmp_path / f"{k:02}",)) for k in range(24)]
    one_by_one = tiny()
    for lesson in lessons:
        one_by_one.learn(open_frames(lesson.source, size=32), lesson.label)
    missing = Lesson("pot", (tmp_path / "gone",))
    learner, outcomes = tiny(), []
    with ray_cluster() as ray:
        for part in teach(learner, [*lessons, missing], ray):
            outcomes += part
            if cluster.second is not None:
                cluster.remove_node(cluster.second, allow_graceful=False)
                cluster.second = None
    assert cluster.second is None
    assert [o.status for o in outcomes] == ["learned"] * 24 + ["failed"]
    assert "gone" in outcomes[-1].reason
    assert_same(learner, one_by_one)
