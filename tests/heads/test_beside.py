"""A state stored beside a later one: what a file needs of it, and what comes back."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from primavista.arrays import to_numpy
from primavista.errors import InputError
from primavista.heads.base import (
    restored_beside,
    rows_beside,
    rows_earlier,
    stored_beside,
)
from primavista.heads.prima import LessonHead, LessonSample, LessonStatistics
from primavista.heads.statistics import add_gram, low_rank_factor, packed_size
from primavista.nn.class_rows import ArrayBuffers

BLOCKS = (40, 25)
DIM = sum(BLOCKS)
MAKE = {"numpy": np.asarray, "torch": torch.as_tensor}


def head(kind: str) -> LessonHead:
    sums, sample = LessonStatistics.empty(DIM, blocks=BLOCKS), LessonSample.empty(BLOCKS)
    made = LessonHead(sums, sample, (1.0, 1.0))
    if kind == "torch":
        made.modules = [ArrayBuffers(group) for group in made.groups.values()]  # type: ignore[attr-defined]
    return made


def learn(made: LessonHead, kind: str, column_: int, frames: int = 6, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    z = random.random((frames, DIM)) + np.random.default_rng(column_).random(DIM)
    z[:, 3] = 0  # a dead feature
    make = MAKE[kind]
    made.expand(max(column_ + 1, made.statistics.rows))
    made.learn(make(z.astype(np.float32)), make(np.full(frames, column_)), 1)


def as_saved(made: LessonHead) -> dict[str, np.ndarray]:
    return {
        f"{name}.{own}": array
        for name, group in made.groups.items()
        for own, array in group.to_file({k: to_numpy(a) for k, a in group.arrays.items()}).items()
    }


def difference(before: LessonHead, now: LessonHead) -> dict[str, np.ndarray]:
    """What a file has of the state before."""
    arrays = as_saved(now)
    whole = as_saved(before)
    different = {k: a for k, a in whole.items() if not np.array_equal(a, arrays[k])}
    return stored_beside(before.groups, now.groups, different)


CHANGES = {
    "a lesson of a known class": lambda one, kind: learn(one, kind, 1, seed=9),
    "a lesson of a new class": lambda one, kind: learn(one, kind, 4, seed=9),
    "the first class forgotten": lambda one, kind: one.forget(0),
    "the last class forgotten": lambda one, kind: one.forget(3),
    "many frames": lambda one, kind: learn(one, kind, 2, frames=300, seed=9),
    "nothing": lambda one, kind: None,
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("change", CHANGES)
def test_the_state_before_comes_back(kind, change):
    before = head(kind)
    for k in range(10):
        learn(before, kind, k % 4, seed=k)
    now = copy.deepcopy(before)
    if kind == "torch":
        for (name, group), module in zip(now.groups.items(), now.modules, strict=True):
            assert group.arrays is module._buffers, name
    CHANGES[change](now, kind)
    expected, found = as_saved(before), as_saved(now)
    found |= restored_beside(now.groups, difference(before, now))
    found = {name: found[name] for name in expected}
    for name, array in expected.items():
        if name != "moments.gram":
            assert np.array_equal(found[name], array), name
    sums = LessonStatistics.from_file("moments.", {"gram": found["moments.gram"]})["gram"]
    right = np.asarray(before.statistics.gram)
    assert np.allclose(sums, right, rtol=1e-7, atol=0 if change == "nothing" else 1e-7)


def test_only_what_changed_is_stored():
    before = head("numpy")
    for k in range(10):
        learn(before, "numpy", k % 4, seed=k)
    now = copy.deepcopy(before)
    assert difference(before, now) == {}
    learn(now, "numpy", 1, frames=5, seed=99)
    stored = difference(before, now)
    assert stored["moments.added"].shape == (5, DIM)
    assert stored["moments.rows"].tolist() == [0, -1, 2, 3]
    assert stored["moments.changed_s"].shape == (1, DIM)
    forgotten = copy.deepcopy(now)
    forgotten.forget(1)
    stored = difference(now, forgotten)
    assert stored["moments.removed"].shape == (1, DIM)
    assert stored["moments.rows"].tolist() == [0, -1, 1, 2]
    assert stored["lessons.rows"].tolist() == [0, -1, 1, 2]


def test_rows_that_are_equal_belong_to_one_each():
    ours = {"n": np.array([0.0, 0.0, 1.0])}
    stored = rows_beside(ours, {"n": np.array([1.0, 0.0])}, dict(ours))
    assert sorted(stored["rows"].tolist()) == [-1, 0, 1]
    assert stored["changed_n"].tolist() == [0.0]
    assert rows_earlier({"n": np.array([1.0, 0.0])}, "", stored)["n"].tolist() == [0, 0, 1]
    twice = {"rows": np.array([0, 0]), "changed_n": np.zeros(0)}
    with pytest.raises(InputError, match="rows is not a list"):
        rows_earlier({"n": np.array([1.0, 0.0])}, "", twice)


def test_rounding_below_0_does_not_store_all_of_the_statistics():
    # seen at the 30th lesson of twelve objects: 1.02 times the tolerance below 0
    empty = low_rank_factor(np.array([-1.02]), np.array([1.0]), 1)
    assert empty is not None
    assert len(empty) == 0
    assert low_rank_factor(np.array([-4.1]), np.array([1.0]), 1) is None


@pytest.mark.parametrize("dim", [1, 2, 9, 30])
def test_a_factor_of_low_rank(dim):
    random = np.random.default_rng(dim)
    z = random.normal(size=(4, dim))
    z[3] = z[0] - 2 * z[1]
    packed = np.zeros(packed_size(dim))
    add_gram(packed, z)
    factor = low_rank_factor(packed, np.full(dim, 1e-12), 5)
    assert factor is not None
    assert len(factor) == min(3, dim)
    assert np.allclose(factor.T @ factor, z.T @ z)
    assert low_rank_factor(-packed, np.full(dim, 1e-12), 5) is None
    assert low_rank_factor(packed, np.full(dim, 1e-12), min(3, dim) - 1) is None
    assert low_rank_factor(packed * 0, np.full(dim, 1e-12), 0).shape == (0, dim)
