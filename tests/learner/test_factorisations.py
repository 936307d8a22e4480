"""After a change: what is solved, how often, and what changes nothing in the scores."""

from __future__ import annotations

import numpy as np
import pytest

from primavista import Learner
from primavista.heads import place_fit
from primavista.serve.journal import ChangeJob
from primavista.serve.learner_service import LearnerService

TINY = {"weights": "random", "width": 0.0625, "size": 32}
PLACES = 7


def clip(seed: int, count: int = 4) -> np.ndarray:
    """A noisy video of one colour."""
    random = np.random.default_rng(seed)
    colour = np.random.default_rng(seed % 10).integers(60, 200, 3)
    return (colour + random.integers(-40, 40, (count, 32, 32, 3))).clip(0, 255).astype(np.uint8)


@pytest.fixture
def factorised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all matrices that prima has factorised."""
    found: list[int] = []
    solve_rows = place_fit.solve_rows

    def counted(a, b):
        found.append(len(a))
        return solve_rows(a, b)

    monkeypatch.setattr(place_fit, "solve_rows", counted)
    return found


def taught(lessons: int = 6) -> Learner:
    learner = Learner("prima", **TINY)
    for k in range(lessons):
        learner.learn(clip(k), f"object {k % 3}", coach=False)
    learner.predict(clip(0))
    return learner


def test_each_change_factorises_each_place_once_however_many_lessons_there_were(
    factorised, tmp_path
):
    learner = taught(6)
    after = []
    for k in range(6, 40):
        factorised.clear()
        learner.learn(clip(k), f"object {k % 3}")  # the coach predicts from what is solved already
        learner.predict(clip(0))
        after.append(len(factorised))
    assert set(after) == {PLACES}
    for change in (lambda: learner.forget("object 1"), learner.undo):
        factorised.clear()
        change()
        learner.predict(clip(0))
        learner.predict(clip(1))
        assert len(factorised) <= PLACES
    learner.save(tmp_path / "a.pv")
    factorised.clear()
    again = Learner.load(tmp_path / "a.pv", device="cpu")
    again.predict(clip(0))
    again.predict(clip(1))
    assert len(factorised) == PLACES


def test_a_rename_and_its_undo_solve_nothing(factorised):
    learner = taught()
    before = learner.predict(clip(1))
    factorised.clear()
    learner.rename("object 1", "mug")
    learner.free_undo_cache()
    assert learner.predict(clip(1))[0].scores["mug"] == before[0].scores["object 1"]
    learner.undo()
    assert learner.predict(clip(1)) == before
    learner.threshold = 0.5
    learner.predict(clip(1))
    assert factorised == []


def test_rest_frees_what_the_state_before_a_lesson_has_computed(factorised):
    learner = taught()
    learner.learn(clip(7), "object 1")
    learner.predict(clip(1))
    learner.free_undo_cache()
    factorised.clear()
    learner.predict(clip(1))
    assert factorised == []
    learner.undo()
    learner.predict(clip(1))
    assert len(factorised) == PLACES


def test_a_rename_in_the_service_solves_nothing_and_predictions_go_on(factorised, tmp_path):
    learner = taught()
    learner.save(tmp_path / "kitchen.pv")
    service = LearnerService(learner, tmp_path / "kitchen.pv")
    service.start()
    try:
        factorised.clear()
        job = service.submit(ChangeJob("rename", lambda draft, _: draft.rename("object 1", "mug")))
        job.ended.result(30)
        prediction, version = service.predict(clip(1)[0]).result(30)
        assert (version, "mug" in prediction.scores) == (1, True)
        assert factorised == []
    finally:
        service.stop()


def test_a_service_has_solved_before_its_first_frame(factorised, tmp_path):
    path = tmp_path / "kitchen.pv"
    taught(3).save(path)
    service = LearnerService(Learner.load(path), path)
    service.start()
    factorised.clear()
    service.predict(clip(0)[0]).result(30)
    service.stop()
    assert factorised == []
