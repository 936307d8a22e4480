"""A lesson that is taken in frame by frame is the lesson that is given at once."""

from __future__ import annotations

import numpy as np
import pytest

from primavista import InputError, Learner
from primavista.engine.representation import Representation
from primavista.learner.lesson import CHUNK
from primavista.strategies.registry import names

TINY = {"weights": "random", "width": 0.0625, "size": 32, "device": "cpu"}
FRAMES = np.random.default_rng(0).integers(0, 255, (2 * CHUNK + 5, 40, 50, 3)).astype(np.uint8)


def filled(learner: Learner, prepare_every: int = 0):
    lesson = learner.open_lesson()
    for k, frame in enumerate(FRAMES, 1):
        lesson.add(frame)
        if prepare_every and k % prepare_every == 0:
            lesson.prepare()
    return lesson


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", sorted(set(names()) & {"cwr*", "cwr+", "ar1*", "dslda", "naive", "prima", "ridge"})
)
def test_frame_by_frame_or_at_once(strategy):
    """The same scores, up to the order of sums.

    Features of 16 frames and of 37 are computed by other kernels.
    """
    piecewise, whole = Learner(strategy, **TINY), Learner(strategy, **TINY)
    for learner, lesson in ((piecewise, filled(piecewise, 3)), (whole, FRAMES)):
        learner.learn(FRAMES[::-1].copy(), "before")
        learner.learn(lesson, "mug")
    assert piecewise.counts == whole.counts == {"before": len(FRAMES), "mug": len(FRAMES)}
    for frame in FRAMES[:4]:
        assert piecewise.predict(frame).scores == pytest.approx(
            whole.predict(frame).scores, abs=1e-3
        )


def test_the_result_does_not_depend_on_when_frames_came():
    learners = [Learner("cwr*", **TINY) for _ in range(3)]
    for learner, every in zip(learners, (0, 1, 20), strict=True):
        learner.learn(filled(learner, every), "mug")
    assert len({learner.to_bytes() for learner in learners}) == 1


def test_features_are_computed_while_frames_come_and_once(monkeypatch):
    learner = Learner("cwr*", **TINY)
    seen = []
    forward = Representation.some_features
    monkeypatch.setattr(
        Representation,
        "some_features",
        lambda self, f, i, **how: seen.append(len(i)) or forward(self, f, i, **how),
    )
    lesson = filled(learner, 1)
    assert seen == [CHUNK, CHUNK]
    told = []
    lesson.features_for(learner.strategy, lambda done, total: told.append((done, total)))
    assert told == [(len(FRAMES), len(FRAMES))]
    learner.learn(lesson, "mug")
    assert seen == [CHUNK, CHUNK, 5]


@pytest.mark.parametrize("size", [32, 64])
def test_features_of_another_learner_are_not_used(size):
    """A lesson opened on one network and learned by another is learned from its frames."""
    lesson = filled(Learner("dslda", **TINY), 1)
    other, alone = (Learner("dslda", **{**TINY, "size": size}, seed=5) for _ in range(2))
    other.learn(lesson, "mug")
    alone.learn(list(lesson[np.arange(len(lesson))]), "mug")
    assert other.to_bytes() == alone.to_bytes()


def test_features_are_not_used_after_an_undo_and_another_training_of_the_network():
    """The first lesson trains the network; undo takes the number of such trainings back."""
    learner = Learner("cwr*", first_batch=True, **TINY)
    learner.learn(FRAMES[:8], "before")
    lesson = filled(learner, 1)
    kept = lesson.without_frames()
    learner.undo()
    learner.learn(255 - FRAMES[:8], "other")
    alone = learner.copy()
    alone.learn(list(lesson[np.arange(len(lesson))]), "mug")
    with pytest.raises(InputError, match="another learner"):
        learner.learn_again(kept, "mug")
    learner.learn(lesson, "mug")
    assert learner.to_bytes() == alone.to_bytes()


def test_a_lesson_may_be_learned_by_a_copy_and_leaves_the_original_alone():
    learner = Learner("cwr*", **TINY)
    before = learner.to_bytes()
    draft = learner.copy()
    draft.learn(filled(learner), "mug")
    assert learner.to_bytes() == before
    assert draft.labels == ["mug"]
    draft.undo()
    assert draft.labels == []


def test_an_empty_lesson_is_refused():
    learner = Learner("cwr*", **TINY)
    with pytest.raises(InputError, match="no frames"):
        learner.learn(learner.open_lesson(), "mug")


def test_bytes_are_the_file(tmp_path):
    learner = Learner("cwr*", **TINY)
    learner.learn(FRAMES[:3], "mug")
    learner.save(tmp_path / "a.pv")
    assert learner.to_bytes() == (tmp_path / "a.pv").read_bytes()
    assert Learner.from_bytes(learner.to_bytes(), device="cpu").to_bytes() == learner.to_bytes()


def test_half_a_character_is_no_name():
    with pytest.raises(InputError, match="a name must be a text"):
        Learner("cwr*", **TINY).learn(FRAMES[:2], "a\ud800")
