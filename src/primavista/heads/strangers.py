"""Familiarity by lessons: where a frame stands among strangers that look like what was taught.

Nobody shows strangers to a learner, but every taught object is a stranger to the other classes. The
middle of a picture tells the object, the whole picture the room: in another room strangers look
less like anything, and so do the objects that were taught. Everything is written for numpy and
torch arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from .base import Array, Familiarity

GENERIC_CLASSES = 4.0  # classes that the spread over generic frames counts for
GENERIC_SHIFT = 2.0  # spreads by which what one camera shows is alike, and what that may vary by
ROOM_SLOPE = 0.75  # what strangers are less alike, per cosine that the rooms are
LARGEST_OF_TWO = math.pi**-0.5  # the mean of the larger of two standard normal numbers

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]


class Strangers(NamedTuple):
    """What s of `LessonFamiliarity` is for strangers: M + sigma t, t of Student's distribution.

    Args:
        usual: M.
        spread: sigma, positive.
        freedom: the degrees of freedom of t.
    """

    usual: float
    spread: float
    freedom: float

    def share_below(self, s: Array) -> Array:
        """Compute the share of strangers that are below s.

        Args:
            s: any numbers.

        Returns:
            As many numbers from 0 to 1, to about 0.002: by D. L. Wallace's normal approximation x
            of t, and 1 / (1 + exp(-1.5976 x - 0.07056 x^3)) for the share of the normal.
        """
        xp = array_namespace(s)
        t, v = (s - self.usual) / self.spread, self.freedom
        size = (8 * v + 1) / (8 * v + 3) * (v * xp.log1p(t * t / v)) ** 0.5
        x = xp.where(t < 0, -size, size)
        return 1 / (1 + xp.exp((-1.5976 * x - 0.07056 * x**3).clip(-700, 700)))


def expected_strangers(likeness: Floats, columns: Integers, generic: float) -> Strangers:
    """Estimate how much strangers look like the most similar of K classes.

    Every class is a stranger to the others: x_l is the likeness of lesson l to the most similar of
    the K - 1 other classes. With one class less to look like, it would be smaller by
    d = mean (x_l - the second largest) / (K - 1), and with one class more larger by
    d (K - 2) / (K - 1), as the largest of normal numbers are to a hundredth. The mean and the
    spread of x_l over classes are those of a normal distribution; its prior comes from the generic
    frames, whose likeness to one another spreads by `generic`: `GENERIC_CLASSES` classes of that
    spread, and `GENERIC_SHIFT` spreads for M, give or take as many. The predictive distribution is
    Student's t.

    Args:
        likeness: of a frame of each lesson to each class, L x K. What it is to its own class does
            not matter.
        columns: the column of the class of each lesson.
        generic: the spread of the likeness of generic frames to one another.

    Returns:
        The strangers.
    """
    classes = likeness.shape[1]
    generic = max(generic, 1e-3)
    freedom, prior = GENERIC_CLASSES, GENERIC_SHIFT**-2
    if classes == 1 or not len(columns):
        return _below_1(GENERIC_SHIFT * generic, generic * (1 + 1 / prior) ** 0.5, freedom)
    others = likeness.copy()
    others[np.arange(len(columns)), columns] = -np.inf
    ordered = np.sort(others, axis=1)
    x = ordered[:, -1]
    weight = 1 / np.bincount(columns, minlength=classes)[columns]
    weight /= weight.sum()  # each class counts the same
    mean = float((weight * x).sum())
    squares = GENERIC_CLASSES * generic**2 + classes * float((weight * (x - mean) ** 2).sum())
    freedom += classes - 1
    sigma = (squares / freedom) ** 0.5
    if classes == 2:
        more = LARGEST_OF_TWO * sigma
    else:
        less = float((weight * (x - ordered[:, -2])).sum()) / (classes - 1)
        more = less * (classes - 2) / (classes - 1)
    count = prior + classes
    usual = (prior * GENERIC_SHIFT * generic + classes * (mean + more)) / count
    return _below_1(usual, sigma * (1 + 1 / count) ** 0.5, freedom)


def _below_1(usual: float, spread: float, freedom: float) -> Strangers:
    """Keep strangers well below 1, the likeness of a frame that is like the mean of a class.

    This matters if the features of all frames are alike, as those of an untrained network.
    """
    usual = min(usual, 1 - 1e-6)
    return Strangers(usual, min(spread, (1 - usual) / 2), freedom)


def middle_shares(beta: Sequence[float]) -> Floats:
    """Compute how much each place counts for the likeness of objects.

    Args:
        beta: the weights of the places, the first of which reads the whole picture.

    Returns:
        What the others are of their sum, and 0 for the first; 1 if it is the only one.
    """
    share: Floats = np.array(beta, dtype=np.float64)
    if len(share) > 1:
        share[0] = 0
    share /= share.sum()
    return share


def usual_room(alike: Floats, columns: Integers) -> float:
    """Compute how alike the rooms of different classes are: e of `room_lift`.

    Args:
        alike: the cosine of a frame of each lesson and the mean of each class, both of the whole
            picture, L x K.
        columns: the column of the class of each lesson.

    Returns:
        The mean over the other classes of each lesson, in which each class counts the same; 0 for
        a single class.
    """
    classes = alike.shape[1]
    if classes == 1 or not len(columns):
        return 0.0
    others = alike.sum(1) - alike[np.arange(len(columns)), columns]
    weight = 1 / np.bincount(columns, minlength=classes)[columns]
    return float((weight * others).sum() / weight.sum() / (classes - 1))


def room_lift(alike: Array, likeness: Array, usual: float) -> Array:
    """ROOM_SLOPE max(0, e - r),  r = (e + sum_{c not b} alike_c) / K

    for frames that are most similar to class b. r tells how much a frame shows the rooms of the
    lessons; b does not count, since it may be alike for the object's sake. A frame with r < e comes
    from another room, and the likeness of strangers there is smaller by so much. A frame with r > e
    has no such excuse.

    Args:
        alike: the cosines of frames and the means of classes, both of the whole picture, N x K.
        likeness: that of the frames to each class, N x K.
        usual: e, what r is for lessons.

    Returns:
        N numbers that are not negative.
    """
    xp = array_namespace(alike)
    others = likeness < xp.max(likeness, axis=1)[:, None]
    return ROOM_SLOPE * ((usual - alike) * others).mean(1).clip(0)


def lessons_lifted(likeness: Floats, alike: Floats, columns: Integers, usual: float) -> Floats:
    """Add to the likeness of each lesson its `room_lift` among the classes other than its own.

    Args:
        likeness: of a frame of each lesson to each class, L x K.
        alike: as in `usual_room`.
        columns: the column of the class of each lesson.
        usual: e of `room_lift`.

    Returns:
        L x K.
    """
    count, classes = likeness.shape
    if classes == 1:
        return likeness
    other = columns[:, None] != np.arange(classes)
    shape = (count, classes - 1)
    lift = room_lift(alike[other].reshape(shape), likeness[other].reshape(shape), usual)
    lifted: Floats = likeness + lift[:, None]
    return lifted


@dataclass(frozen=True)
class LessonFamiliarity(Familiarity):
    """familiarity(z) = the share of strangers with a smaller s,

    s(z) = max_c (sum_h share_h cos(z_h - g_h, mu_ch - g_h) + w_c z + b_c) + lift(z). g is a centre
    that does not depend on what was taught, the mean of the backbone's features over objects of any
    kind; around it, objects that have nothing in common are at right angles. The places h read the
    middle of the picture (`middle_shares`). w z + b are the scores times what they have proved to
    be worth on lessons that they have not seen. The lift is that of frames from another room
    (`room_lift`), by the first place, which reads the whole picture.

    The share has no scale: at the threshold 0.9 one stranger of ten is taken for an object that was
    taught, whatever the backbone, the size of the frames and the number of classes.

    Args:
        directions: share_h (mu_ch - g_h) / |mu_ch - g_h| of each place, side by side, classes x D.
        centre: g, D numbers.
        places: where in the features each place lies.
        w: classes x D.
        b: one number per class.
        rooms: (mu_c0 - g_0) / |mu_c0 - g_0| of the first place, classes x D_0; 0 if it is the only
            place.
        usual_room: e of `room_lift`.
        strangers: what s is for strangers.
    """

    directions: Array
    centre: Array
    places: tuple[slice, ...]
    w: Array
    b: Array
    rooms: Array
    usual_room: float
    strangers: Strangers

    def __call__(self, z: Array, best: Array) -> Array:
        """Compute the familiarity of frames, as `Familiarity` says; of any class, not of `best`."""
        norm = array_namespace(z).linalg.vector_norm
        off = z - self.centre
        # few classes and many frames: a product with the classes on the left is ten times as fast
        likeness, rooms = (self.w @ z.T).T + self.b, None
        for part in self.places:  # cosines without a copy of the features at unit length
            own = off[:, part]
            length = norm(own, axis=1).clip(1e-15)[:, None]
            likeness = likeness + (self.directions[:, part] @ own.T).T / length
            rooms = (self.rooms @ own.T).T / length if rooms is None else rooms
        lift = room_lift(rooms, likeness, self.usual_room)
        return self.strangers.share_below(array_namespace(z).max(likeness, axis=1) + lift)

    @property
    def temperature(self) -> float:
        """T of the probabilities softmax(scores / T): 1, since the scores are logits."""
        return 1.0
