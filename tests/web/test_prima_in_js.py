"""The head of the page's learner gives the numbers of Python's, on random features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from web_support import node

from primavista.heads.prima import LessonHead, LessonSample, LessonStatistics

BLOCKS, PRIORS = (9, 131, 64, 20), (1.0, 0.5, 0.5, 0.25)
DIM = sum(BLOCKS)


def lessons(seed: int, columns: list[int], frames: int = 5) -> list[dict[str, Any]]:
    """Lessons of classes around their means, in rooms of their own; float32 features."""
    draw = np.random.default_rng(seed)
    means = np.random.default_rng(1).normal(size=(20, DIM))
    found = []
    for column in columns:
        room = draw.normal(size=DIM) * 0.5
        z = means[column] + room + 0.3 * draw.normal(size=(frames + column, DIM))
        found.append({"column": column, "frames": z.astype(np.float32).tolist()})
    return found


def reference() -> tuple[np.ndarray, np.ndarray]:
    z = np.random.default_rng(5).normal(size=(12, DIM)) * 0.8
    sample = LessonSample.empty(BLOCKS)
    sample.set_reference(z)
    return sample.arrays["centre"], sample.arrays["spread"]


def given(taught: list[dict[str, Any]], classes: int, **more: Any) -> dict[str, Any]:
    centre, spread = reference()
    return {
        "blocks": BLOCKS,
        "priors": PRIORS,
        "centre": centre.tolist(),
        "spread": spread.tolist(),
        "lessons": taught,
        "classes": classes,
        "shown": shown().tolist(),
        **more,
    }


def shown() -> np.ndarray:
    z = [frame for one in lessons(9, [0, 1, 2, 3], frames=2) for frame in one["frames"]]
    strange = np.random.default_rng(77).normal(size=(3, DIM))
    return np.concatenate([np.array(z), strange.astype(np.float32).astype(np.float64)])


def head_in_python(taught: list[dict[str, Any]], classes: int, forget: tuple[int, ...] = ()) -> Any:
    head = LessonHead(
        LessonStatistics.empty(DIM, blocks=BLOCKS), LessonSample.empty(BLOCKS), PRIORS
    )
    head.sample.restore_reference(*reference())
    head.expand(classes)
    for i, one in enumerate(taught):
        z = np.array(one["frames"], np.float32)
        head.learn(z, np.full(len(z), one["column"]), i + 1)
    for column in forget:
        head.forget(column)
    return head


def compare(found: dict[str, Any], head: Any, classes: int) -> None:
    """The numbers that JavaScript found are those of a head of Python."""
    own = head.statistics
    assert found["n"] == own.n.tolist()
    assert found["t"] == own.frames
    np.testing.assert_allclose(found["s"], own.s, rtol=1e-12, atol=1e-12)
    # G is rounded to 29 bits: a last bit may fall to the other side
    np.testing.assert_allclose(found["gram"], own.gram, rtol=4e-9, atol=1e-12)
    keys = np.array([int(key) for key in found["key"]]).reshape(-1, 4)
    np.testing.assert_allclose(keys / 2**53, head.sample.arrays["key"] / 2**53, atol=1e-9)
    for name in ("mean", "frame"):
        saved = head.sample.arrays[name]
        np.testing.assert_allclose(
            np.reshape(found[name], saved.shape), saved, rtol=1e-6, atol=1e-7
        )
    fits = head.fits(classes)
    judged = head.judge(fits)
    for mine, fit in zip(found["left_out"], fits, strict=True):
        expected = fit.left_out
        np.testing.assert_allclose(np.reshape(mine, expected.shape), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["beta"], judged.beta, rtol=1e-5)
    assert found["trust"] == pytest.approx(judged.trust, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(
        np.reshape(found["strange"], judged.strange.shape), judged.strange, rtol=1e-5, atol=1e-7
    )
    w, b = head.solution(classes)
    np.testing.assert_allclose(found["w"], w, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found["b"], b, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found["scores"], head.scores(shown(), classes), atol=1e-5)
    familiar = head.familiarity(classes)
    np.testing.assert_allclose(found["familiarity"], familiar(shown(), None), atol=1e-6)
    assert found["correlation"] == pytest.approx(familiar.correlation, rel=1e-6)
    for name, expected in familiar.strangers._asdict().items():
        assert found[name] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("columns", "classes"),
    [
        ([0], 1),
        ([0, 0, 0], 1),
        ([0, 1], 2),
        ([0, 1, 2, 0, 1], 3),
        ([0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 3, 2], 4),
        ([k % 12 for k in range(40)], 12),
    ],
)
def test_the_numbers_are_those_of_python(columns, classes):
    taught = lessons(3, columns)
    found = node("cases.mjs", "learn", given=given(taught, classes))
    compare(found, head_in_python(taught, classes), classes)


def test_without_a_reference_too():
    taught = lessons(4, [0, 1, 2, 0])
    asked = given(taught, 3)
    asked["centre"] = [0.0] * DIM
    asked["spread"] = np.zeros((4, 4)).tolist()
    found = node("cases.mjs", "learn", given=asked)
    head = head_in_python(taught, 3)
    head.sample.restore_reference(np.zeros(DIM, np.float32), np.zeros((4, 4), np.float32))
    compare(found, head, 3)


def test_forgetting_gives_the_numbers_of_python():
    taught = lessons(5, [0, 1, 2, 3, 1, 3])
    found = node("cases.mjs", "learn", given=given(taught, 4, forget=[1]))
    compare(found, head_in_python(taught, 4, forget=(1,)), 3)


def test_the_order_of_lessons_and_merging_do_not_matter():
    taught = lessons(6, [0, 1, 2, 0, 1, 2, 0])
    forwards = node("cases.mjs", "learn", given=given(taught, 3))
    backwards = node("cases.mjs", "learn", given=given(taught[::-1], 3))
    parts = {"one": given(taught[:2], 2), "other": given(taught[2:], 3), "shown": shown().tolist()}
    merged = node("cases.mjs", "merge", given={**parts, "columns": [0, 1, 2], "classes": 3})
    for other in (backwards, merged):
        np.testing.assert_allclose(other["gram"], forwards["gram"], rtol=1e-7, atol=3e-8)
        np.testing.assert_allclose(other["scores"], forwards["scores"], atol=1e-5)
        np.testing.assert_allclose(other["familiarity"], forwards["familiarity"], atol=1e-6)
        assert other["key"] == forwards["key"]
