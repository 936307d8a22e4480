"""Strangers as taught classes predict them, against draws and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from primavista.heads.strangers import (
    GENERIC_SHIFT,
    Strangers,
    expected_strangers,
    spread_of_cosines,
    unit_vectors,
)


def share_of_t(t: float, freedom: float) -> float:
    """The share of Student's distribution below t, by the trapezoidal rule."""
    x = np.linspace(0, abs(t), 2001)
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    density = math.exp(log_scale) / (freedom * math.pi) ** 0.5
    heights = density * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
    return 0.5 + math.copysign(float(np.trapezoid(heights, x)), t)


@pytest.mark.parametrize("freedom", [4.0, 8.0, 60.0])
def test_the_share_of_strangers_below_is_that_of_students_t(freedom):
    s = np.linspace(-3, 4, 50)
    told = Strangers(0.5, 0.7, freedom).share_below(s)
    assert np.allclose(told, [share_of_t((x - 0.5) / 0.7, freedom) for x in s], atol=4e-3)
    assert (np.diff(told) > 0).all()
    same = Strangers(0.5, 0.7, freedom).share_below(torch.from_numpy(s)).numpy()
    assert np.allclose(told, same, atol=1e-12)


def test_it_never_leaves_0_to_1():
    told = Strangers(0.0, 1e-3, 4.0).share_below(np.array([-1e6, -1.0, 0.0, 1.0, 1e6]))
    assert np.isfinite(told).all()
    assert (told >= 0).all()
    assert (told <= 1).all()
    assert told[2] == 0.5


@pytest.mark.parametrize("classes", [2, 3, 5, 12, 50])
def test_strangers_are_taken_as_often_as_the_threshold_says(classes):
    """Classes and strangers are drawn from one distribution; so often are strangers above."""
    random = np.random.default_rng(classes)
    columns = np.arange(classes)
    taken = []
    for _ in range(400):
        likeness = random.normal(0.3, 0.1, size=(classes + 20, classes))
        strangers = expected_strangers(likeness[:classes], columns, 0.1)
        taken.append((strangers.share_below(likeness[classes:].max(1)) >= 0.9).mean())
    assert 0.04 < np.mean(taken) < 0.14


def test_a_single_class_is_compared_with_the_generic_frames_alone():
    told = expected_strangers(np.ones((2, 1)), np.zeros(2, dtype=int), 0.1)
    assert told.usual == pytest.approx(GENERIC_SHIFT * 0.1)
    assert told.spread == pytest.approx(0.1 * (1 + GENERIC_SHIFT**2) ** 0.5)


def test_lessons_of_a_class_share_its_weight():
    """A class of many lessons counts as much as one of a single lesson."""
    likeness = np.array([[0, 0.2, 0.1], [0.4, 0, 0.3], [0.1, 0.3, 0]])
    once = expected_strangers(likeness, np.arange(3), 0.1)
    rows = [0, 1, 2, 2, 2]
    again = expected_strangers(likeness[rows], np.array(rows), 0.1)
    assert np.allclose(once, again)


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_the_spread_of_cosines_pair_by_pair(make):
    x = np.random.default_rng(0).normal(size=(6, 5))
    places = (slice(0, 3), slice(3, 5))
    unit = unit_vectors(x, places)
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    cosines = [[unit[i, part] @ unit[j, part] for i, j in pairs] for part in places]
    told = np.asarray(spread_of_cosines(make(x), places))
    assert np.allclose(told, np.cov(np.array(cosines), bias=True))
