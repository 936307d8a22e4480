"""Strangers as taught classes predict them, against draws and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from primavista.heads.prima import spread_of_cosines, unit_vectors
from primavista.heads.strangers import (
    GENERIC_SHIFT,
    ROOM_SLOPE,
    Strangers,
    expected_strangers,
    frame_correlation,
    lessons_lifted,
    middle_shares,
    room_lift,
    usual_room,
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
    """Classes and strangers are drawn from one distribution; so often are strangers above.

    One class is as much like another as that one is like it.
    """
    random = np.random.default_rng(classes)
    columns = np.arange(classes)
    taken = []
    for _ in range(400):
        above = np.triu(random.normal(0.3, 0.1, (classes, classes)), 1)
        strangers = expected_strangers(above + above.T, columns, 0.1)
        likeness = random.normal(0.3, 0.1, (20, classes)).max(1)
        taken.append((strangers.share_below(likeness) >= 0.9).mean())
    assert 0.05 < np.mean(taken) < 0.12


def test_two_classes_that_are_alike_are_one_observation():
    """Two classes with the likeness 0.6 to each other, and the spread 0.1 of generic frames.

    Prior: four classes with the variance 0.1^2, and a quarter of a class with the mean 0.2. The
    larger of two normal numbers is above their mean by their standard deviation / sqrt(pi).
    """
    told = expected_strangers(np.array([[0, 0.6], [0.6, 0]]), np.arange(2), 0.1)
    larger = 0.6 + 0.1 / math.pi**0.5
    assert told.usual == pytest.approx((0.25 * 0.2 + larger) / 1.25)
    assert told.spread == pytest.approx(0.1 * (1 + 1 / 1.25) ** 0.5)
    assert told.freedom == 4


def test_the_spread_is_that_of_the_values_above_the_mean():
    """Three classes; the largest values are 0.4, 0.6 and 0.9, with 0.1 between them and the next.

    Above the mean is only 0.9, a third of the classes. The prior counts for four classes, the three
    classes for two.
    """
    likeness = np.array([[0, 0.3, 0.4], [0.6, 0, 0.5], [0.9, 0.8, 0]])
    told = expected_strangers(likeness, np.arange(3), 0.1, most=2)
    mean = 1.9 / 3
    variance = (4 * 0.1**2 + 2 * 2 * (0.9 - mean) ** 2 / 3) / 5
    assert told.freedom == 5
    usual = (0.25 * 0.2 + 2 * (mean + 0.1 / 4)) / 2.25
    assert told.usual == pytest.approx(usual)
    assert told.spread == pytest.approx((variance * (1 + 1 / 2.25)) ** 0.5)
    # strangers stay well below the likeness of the mean of a class
    less = expected_strangers(likeness, np.arange(3), 0.1, most=0.8)
    assert less.spread == pytest.approx((0.8 - usual) / 2)


def test_the_correlation_of_the_frames_of_a_clip_by_hand():
    """Three lessons, whose frames differ from their means by 0.1, 0.1 and 0.4 to the nearest class.

    Less their mean of 0.2: squares 0.01 + 0.01 + 0.04. The prior is two lessons with a quarter of
    the variance of strangers, 0.3^2.
    """
    frames = np.array([[9, 0.5, 0.3], [0.6, 9, 0.2], [0.1, 0.7, 9]])
    means = np.array([[9, 0.1, 0.4], [0.4, 9, 0.5], [0.2, 0.3, 9]])
    strangers = Strangers(0.5, 0.3, 5)
    told = frame_correlation(frames, means, np.arange(3), strangers)
    within = (2 * 0.25 * 0.09 + 0.06) / 5
    assert told == pytest.approx(1 - within / 0.09)
    assert frame_correlation(np.ones((2, 1)), np.ones((2, 1)), np.zeros(2, int), strangers) == 0.75
    assert frame_correlation(frames * 9, means, np.arange(3), strangers) == 0.1  # never below


@pytest.mark.parametrize("within", [0.02, 0.06])
def test_the_correlation_is_that_of_drawn_clips(within):
    """Lessons of 20 frames, of which one and the mean are kept; strangers vary by 0.1."""
    random, lessons, classes = np.random.default_rng(0), 40, 10
    columns = np.arange(lessons) % classes
    told, clips = [], []
    for _ in range(50):
        usual = np.zeros((lessons, classes))
        usual[:, 0] = random.normal(2, (0.1**2 - within**2) ** 0.5, lessons)  # the nearest class
        usual[:, 1] = usual[:, 0] - 1  # for the lessons of class 0
        shown = usual[..., None] + within * random.normal(size=(lessons, classes, 20))
        means, frames = shown.mean(2), shown[:, :, 0]
        told.append(frame_correlation(frames, means, columns, Strangers(2, 0.1, 9)))
        clips.append(np.corrcoef(shown[:, 0, 0], shown[:, 0, 1])[0, 1])
    assert np.mean(told) == pytest.approx(np.mean(clips), abs=0.06)


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


def test_the_whole_picture_does_not_count_for_the_likeness_of_objects():
    assert middle_shares([4.0, 3.0, 1.0]).tolist() == [0, 0.75, 0.25]
    assert middle_shares([4.0]).tolist() == [1]  # nothing else to read
    beta = np.array([1.0, 1.0])
    middle_shares(beta)
    assert beta.tolist() == [1, 1]


def test_how_alike_rooms_are_pair_by_pair():
    """Over pairs of a lesson and another class; a class of two lessons counts once."""
    alike = np.array([[0.9, 0.2, 0.4], [0.8, 0.1, 0.3], [0.5, 0.9, 0.1], [0.0, 0.2, 0.9]])
    columns = np.array([0, 0, 1, 2])
    first = (0.2 + 0.4 + 0.1 + 0.3) / 4
    assert usual_room(alike, columns) == pytest.approx((first + 0.6 / 2 + 0.2 / 2) / 3)
    assert usual_room(np.ones((2, 1)), np.zeros(2, dtype=int)) == 0


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_frames_of_another_room_are_lifted_by_what_the_other_classes_lack(make):
    likeness = make(np.array([[0.5, 0.1, 0.1], [0.1, 0.6, 0.2], [0.1, 0.6, 0.2]]))
    alike = make(np.array([[0.9, 0.1, 0.2], [0.0, 0.1, 0.0], [0.9, 0.1, 0.8]]))
    lift = np.asarray(room_lift(alike, likeness, 0.4))
    assert lift[0] == pytest.approx(ROOM_SLOPE * (0.3 + 0.2) / 3)  # however alike its own is
    assert lift[1] == pytest.approx(ROOM_SLOPE * (0.4 + 0.4) / 3)
    assert lift[2] == 0  # in the room of the lessons, or one that is more alike
    assert np.asarray(room_lift(make(np.ones((2, 1))), make(np.ones((2, 1))), 0.0)).tolist() == [
        0,
        0,
    ]


def test_a_lesson_is_lifted_as_a_stranger_to_the_other_classes():
    """As a frame of a learner that was not taught its class."""
    random = np.random.default_rng(3)
    likeness, alike = random.normal(0.3, 0.1, (4, 4)), random.normal(0.3, 0.1, (4, 4))
    columns = np.array([2, 0, 3, 1])
    told = lessons_lifted(likeness, alike, columns, 0.35)
    for row, own in enumerate(columns):
        others = [c for c in range(4) if c != own]
        lift = room_lift(alike[[row]][:, others], likeness[[row]][:, others], 0.35)
        assert np.allclose(told[row], likeness[row] + lift)


def test_objects_taught_in_one_room_are_known_in_another_and_strangers_in_neither():
    """Drawn: in the room of the lessons everything is alike by 0.3, by the whole picture too.

    What `known` gains elsewhere by reading the room, and that strangers of both rooms pay no more
    than the threshold says.
    """
    random, classes = np.random.default_rng(0), 5
    columns = np.arange(classes)
    gains, taken = [], {"here": [], "elsewhere": []}
    for _ in range(200):

        def frames(count, room):
            cosines = random.normal(0, 0.08, (2, count, classes))
            return cosines + np.array([ROOM_SLOPE, 1.0])[:, None, None] * room

        likeness, alike = frames(classes, 0.3)
        usual = usual_room(alike, columns)
        plain = expected_strangers(likeness, columns, 0.1)
        told = expected_strangers(lessons_lifted(likeness, alike, columns, usual), columns, 0.1)
        for name, room in (("here", 0.3), ("elsewhere", 0.0)):
            strange, whole = frames(20, room)
            s = strange.max(1) + room_lift(whole, strange, usual)
            taken[name].append((told.share_below(s) >= 0.9).mean())
        known, whole = frames(20, 0.0)
        known[:, 0] += 0.45
        s = known.max(1) + room_lift(whole, known, usual)
        before = (plain.share_below(known.max(1)) >= 0.9).mean()
        gains.append((told.share_below(s) >= 0.9).mean() - before)
    assert np.mean(taken["here"]) < 0.15
    assert np.mean(taken["elsewhere"]) < 0.15
    assert np.mean(gains) > 0.3
