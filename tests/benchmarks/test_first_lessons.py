"""benchmarks/first_lessons.py: no frame is both taught and tested, and what the columns promise."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import first_lessons

CORE50 = [
    (f"{category}/s{number:02}", 30 * c + 2 * number, 30 * c + 2 * number + 2)
    for c, category in enumerate("abcdefghij")
    for number in range(1, 12)
]
SIGNS = [
    (f"{label:02}/track{k}", 12 * (9 * label + k), 12 * (9 * label + k + 1))
    for label in range(43)
    for k in range(9)
]
RENDERED = {
    part: [
        (label, number, 3 * (11 * label + number), 3 * (11 * label + number + 1))
        for label in range(50)
        for number in range(1, 12)
        if (number in (3, 7, 10)) == (part == "test")
    ]
    for part in ("train", "test")
}


def tasks() -> list[first_lessons.Task]:
    return [
        *first_lessons.core50_tasks(None, CORE50, 2),
        *first_lessons.sign_tasks(None, SIGNS, 2, 4),
        *first_lessons.rendered_tasks(None, RENDERED, 1),
    ]


def test_no_frame_is_taught_and_tested():
    for task in tasks():
        taught = np.concatenate([frames for _, frames in task.lessons])
        tested = np.concatenate([frames for _, frames in task.tests])
        assert not np.intersect1d(taught, tested).size
        assert len(np.unique(taught)) == len(taught)


def test_columns_teach_as_many_lessons_as_their_names_say():
    counts = {"core50 5x1": (5, 5), "own place": (5, 5), "core50 5x3": (5, 15), "10x2": (10, 20)}
    counts |= {"signs 5x1": (5, 5), "43x1": (43, 43), "43x3": (43, 129), "43xall": (43, 258)}
    counts |= {"rendered 5x1": (5, 5), "50x1": (50, 50), "50xall": (50, 400)}
    found = {task.column: (len(task.taught), len(task.lessons)) for task in tasks()}
    assert {column: found[column] for column in counts} == counts


def test_in_a_place_of_its_own_no_two_classes_share_a_session():
    for task in tasks():
        if task.column == "own place":
            numbers = [(frames[0] % 30) // 2 for _, frames in task.lessons]
            tested = {(frames[0] % 30) // 2 for _, frames in task.tests}
            assert len(set(numbers)) == 5
            assert not tested & set(numbers)


def test_measure_counts_frames_sessions_and_strangers():
    """Two frames of a known session, one right; its mean is right; one stranger in between."""
    tests = [(7, np.array([0, 1])), (9, np.array([2]))]
    task = first_lessons.Task("x", None, [(7, np.array([5])), (8, np.array([6]))], tests)
    scores = np.array([[3.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    scored = first_lessons.Scored(scores, np.array([0.9, 0.1, 0.5]))
    found = first_lessons.measure(lambda task, frames: scored, task)
    assert found == (pytest.approx(50), pytest.approx(100), pytest.approx(50))
