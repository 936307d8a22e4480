"""Average precision and pointing accuracy, by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from locate import Answer, Picture, average_precision, pictures_without, pointing, score
from tableau import Shown, tableau

from primavista.media.boxes import Box
from primavista.streams.rendered.renderer import Scene

A, B = Box(0, 0, 10, 10), Box(50, 50, 90, 90)
FAR = Box(70, 0, 80, 10)


def test_average_precision_by_hand():
    truths = [(0, "mug", A), (0, "cup", B), (1, "mug", A)]
    right = [Answer(0, "mug", A, 0.9), Answer(0, "cup", B, 0.8), Answer(1, "mug", A, 0.7)]
    assert average_precision(right, truths) == 1
    assert average_precision([], truths) == 0
    # right, wrong, right: precision 1 at a third, 2/3 at two thirds; the third is never found
    some = [Answer(0, "mug", A, 0.9), Answer(0, "cup", FAR, 0.8), Answer(1, "mug", A, 0.7)]
    assert average_precision(some, truths) == pytest.approx((1 + 2 / 3) / 3)
    # a second box of the same object is wrong, and so is the right box with the wrong name
    twice = [Answer(0, "mug", A, 0.9), Answer(0, "mug", A, 0.8), Answer(0, "mug", B, 0.7)]
    assert average_precision(twice, truths) == pytest.approx(1 / 3)
    # a wrong one before a right one: precision 1/2
    late = [Answer(0, "cup", FAR, 0.9), Answer(0, "mug", A, 0.8)]
    assert average_precision(late, truths) == pytest.approx(1 / 2 / 3)


def test_an_overlap_of_one_half_counts():
    half = Box(0, 0, 10, 5)
    assert average_precision([Answer(0, "mug", half, 1.0)], [(0, "mug", A)]) == 1
    less = Box(0, 0, 10, 4.9)
    assert average_precision([Answer(0, "mug", less, 1.0)], [(0, "mug", A)]) == 0


def test_pointing_takes_the_best_box_of_the_label():
    answers = [Answer(0, "mug", FAR, 0.9), Answer(0, "mug", A, 0.5), Answer(0, "cup", A, 1.0)]
    assert not pointing(answers, 0, "mug", A)
    assert pointing(answers, 0, "mug", FAR)
    assert pointing(answers, 0, "cup", A)
    assert not pointing(answers, 1, "mug", A)


def test_objects_of_other_sizes_do_not_count():
    picture = Picture(np.zeros((100, 100, 3), np.uint8), (Shown(1, A), Shown(3, B)), ())
    answers = [Answer(0, "1", A, 0.9), Answer(0, "3", B, 0.8), Answer(0, "3", FAR, 0.7)]
    large = score([picture], answers, (0.25, 9))
    assert large == {"objects": 1, "pointing": 100, "AP50": 100}
    small = score([picture], answers, (0, 0.25))
    assert (small["objects"], small["AP50"]) == (1, 100)


def test_a_tableau_is_drawn_again_from_its_numbers_and_has_true_boxes():
    scene = Scene(categories=3, objects=2, sessions=11, frames=4, size=64, seed=1)
    one, same, other = (tableau(scene, [1, 3], 8, k, size=(160, 120)) for k in (0, 0, 1))
    assert (one.frame == same.frame).all()
    assert one.shown == same.shown
    assert (one.frame != other.frame).any()
    empty = tableau(scene, [], 8, 0, size=(160, 120))
    changed = (one.frame.int() - empty.frame.int()).abs().amax(-1) > 60
    assert one.shown
    for shown in one.shown:
        box = shown.box
        assert 0 <= box.left < box.right <= 160
        assert 0 <= box.top < box.bottom <= 120
        assert 0.19 <= max(box.width, box.height) / 120 <= 1.01
        inside = changed[int(box.top) : int(box.bottom), int(box.left) : int(box.right)]
        assert inside.any(0).float().mean() > 0.5  # there is something in it


def test_pictures_without_a_taught_object_show_nothing_or_strangers():
    rooms, strange = (pictures_without(3, 2, strangers) for strangers in (False, True))
    assert [(one.taught, one.strangers) for one in rooms] == [((), ()), ((), ())]
    assert [one.taught for one in strange] == [(), ()]
    assert [len(one.strangers) for one in strange] == [1, 2]
    assert all(one.object % 2 == 0 for picture in strange for one in picture.strangers)
