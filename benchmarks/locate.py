"""Where, not only what: how well taught objects are found in rendered pictures, and how fast.

    python benchmarks/locate.py                      # the table, about three minutes
    python benchmarks/locate.py --pictures 200       # more pictures
    python benchmarks/locate.py --annotate FOLDER    # ten pictures with boxes

Ten objects are taught with two lessons each, hand-held in the middle of frames as ever. The test
pictures show one to four of them and up to two strangers in rooms that were not taught in, from a
fifth of the height of the picture to all of it. Two baselines: the whole picture as the box of what
`predict` says, and a sliding window of separate passes, 24 crops per picture.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from primavista import Learner
from primavista.boxes import Box, non_maximum_suppression
from primavista.locating import Located
from primavista.streams.rendered.renderer import Scene, render
from primavista.streams.rendered.tableau import Shown, Tableau, tableau

SIZES = ((0.2, 0.25), (0.25, 0.4), (0.4, 0.6), (0.6, 1.01))  # in heights of the picture
AIM_FROM = 0.25  # the aims are for objects at least this large
LESSONS = (1, 2)
ROOMS = (7, 8, 9, 10, 11)
CATEGORIES = 10


@dataclass(frozen=True)
class Picture:
    """A test picture: the frame, the objects that were taught in it, and the strangers."""

    frame: np.ndarray
    taught: tuple[Shown, ...]
    strangers: tuple[Shown, ...]


@dataclass(frozen=True)
class Answer:
    """One box of a method, in one picture."""

    picture: int
    label: str
    box: Box
    rank: float


def average_precision(
    answers: Sequence[Answer], truths: Sequence[tuple[int, str, Box]], iou: float = 0.5
) -> float:
    """The area under precision over recall, each precision the best at that recall or beyond.

    Answers are taken in the order of their rank, over all labels. One is right if an object of its
    label that no better answer has taken overlaps with it by at least `iou`.
    """
    taken: set[int] = set()
    right = []
    for answer in sorted(answers, key=lambda one: -one.rank):
        best, at = 0.0, -1
        for k, (picture, label, box) in enumerate(truths):
            if k not in taken and (picture, label) == (answer.picture, answer.label):
                overlap = box.iou(answer.box)
                if overlap > best:
                    best, at = overlap, k
        right.append(best >= iou)
        if best >= iou:
            taken.add(at)
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(right) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1] if len(right) else precision
    return float((best_beyond * right).sum() / len(truths)) if truths else float("nan")


def pointing(answers: Sequence[Answer], picture: int, label: str, box: Box) -> bool:
    """Whether the centre of the best box of a label lies inside the object."""
    own = [one for one in answers if (one.picture, one.label) == (picture, label)]
    if not own:
        return False
    best = max(own, key=lambda one: one.rank).box
    x, y = (best.left + best.right) / 2, (best.top + best.bottom) / 2
    return box.left <= x <= box.right and box.top <= y <= box.bottom


def size_of(box: Box, height: int) -> float:
    """The longer side of a box, in heights of the picture."""
    return max(box.width, box.height) / height
