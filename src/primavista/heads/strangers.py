"""Familiarity from lessons: the rank of a frame among strangers, that is, untaught objects.

A learner is never shown strangers, but every taught object is a stranger to the other classes. How
much each lesson looks like the classes other than its own therefore gives the distribution of the
likeness of strangers, and the familiarity of a frame is its quantile in this distribution.

The centre of a picture shows the object, the whole picture shows the room. In another room, taught
objects and strangers alike look less similar to every class; `room_lift` corrects for this.
Everything is written for numpy and torch arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from primavista.arrays import Array, array_namespace
from primavista.heads.base import Familiarity

GENERIC_CLASSES = 4.0  # the number of classes that the spread over generic frames counts for
GENERIC_SHIFT = 2.0  # prior mean and standard deviation of M, in units of the generic spread
ROOM_SLOPE = 0.75  # decrease of the likeness of strangers per unit of the cosine of the rooms
SIMILAR = 0.75  # prior correlation of the likeness of two frames of one clip
SIMILAR_LESSONS = 2.0  # the number of lessons that this prior counts for
LEAST_CORRELATION = 0.1
LARGEST_OF_TWO = math.pi**-0.5  # the mean of the larger of two standard normal numbers

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]


class Strangers(NamedTuple):
    """M + sigma t, the distribution of s of `LessonFamiliarity` for strangers.

    t has Student's distribution, because M and sigma are estimated from few classes.

    Args:
        usual: M, the location.
        spread: sigma, the scale; positive.
        freedom: The degrees of freedom of t.
    """

    usual: float
    spread: float
    freedom: float

    def share_below(self, s: Array) -> Array:
        """Compute the fraction of strangers with a value below s.

        Wallace's approximation turns t into a standard normal x, whose distribution function is
        approximately 1 / (1 + exp(-1.5976 x - 0.07056 x^3)).

        Args:
            s: Real numbers, an array of any shape.

        Returns:
            Numbers from 0 to 1 in the same shape, accurate to about 0.002.
        """
        xp = array_namespace(s)
        t, v = (s - self.usual) / self.spread, self.freedom
        size = (8 * v + 1) / (8 * v + 3) * (v * xp.log1p(t * t / v)) ** 0.5
        x = xp.where(t < 0, -size, size)
        return 1 / (1 + xp.exp((-1.5976 * x - 0.07056 * x**3).clip(-80, 80)))


def expected_strangers(
    likeness: Floats, columns: Integers, generic: float, most: float = 1.0
) -> Strangers:
    """Estimate the distribution of the likeness of strangers to the most similar of K classes.

    Every class is a stranger to the others: x_l is the likeness of lesson l to the most similar of
    the K - 1 other classes. A stranger is compared with K classes, one more. With one class fewer,
    x_l would decrease by d = mean (x_l - the second largest likeness) / (K - 1); with one class
    more, it increases by d (K - 2) / (K - 1). For the maxima of normal numbers this holds to 1 %.

    x_l is modelled as normal over the classes, with a conjugate prior from generic frames, whose
    likeness to one another has the standard deviation `generic`. The prior of the variance counts
    like `GENERIC_CLASSES` classes with this standard deviation; the prior of M has the mean and
    the standard deviation `GENERIC_SHIFT` times `generic`. The predictive distribution is
    Student's t. The K classes count like K - 1, because two classes that are most similar to each
    other are one observation. The variance is that of the values above the mean: a cosine cannot
    exceed 1, so the values below it scatter further, and strangers are told by the values above.

    Args:
        likeness: The likeness of a frame of each lesson to each class, L x K. The likeness to the
            own class is not used.
        columns: The column of the class of each lesson.
        generic: The standard deviation of the likeness of generic frames to one another.
        most: The likeness of a frame that equals the mean of a class.

    Returns:
        The predictive distribution.
    """
    classes = likeness.shape[1]
    generic = max(generic, 1e-3)
    freedom, prior = GENERIC_CLASSES, GENERIC_SHIFT**-2
    if classes == 1 or not len(columns):
        return _below(most, GENERIC_SHIFT * generic, generic * (1 + 1 / prior) ** 0.5, freedom)
    others = likeness.copy()
    others[np.arange(len(columns)), columns] = -np.inf
    ordered = np.sort(others, axis=1)
    x = ordered[:, -1]
    weight = 1 / np.bincount(columns, minlength=classes)[columns]
    weight /= weight.sum()  # each class counts the same
    mean = float((weight * x).sum())
    above = 2 * float((weight * (x - mean).clip(0) ** 2).sum())
    pairs = classes - 1
    squares = GENERIC_CLASSES * generic**2 + pairs * above
    freedom += pairs - 1
    sigma = (squares / freedom) ** 0.5
    if classes == 2:
        more = LARGEST_OF_TWO * sigma
    else:
        less = float((weight * (x - ordered[:, -2])).sum()) / (classes - 1)
        more = less * (classes - 2) / (classes - 1)
    count = prior + pairs
    usual = (prior * GENERIC_SHIFT * generic + pairs * (mean + more)) / count
    return _below(most, usual, sigma * (1 + 1 / count) ** 0.5, freedom)


def _below(most: float, usual: float, spread: float, freedom: float) -> Strangers:
    """Keep strangers well below `most`, the likeness of a frame that equals the mean of a class.

    This matters if the features of all frames are nearly equal, as in an untrained network.
    """
    usual = min(usual, most - 1e-6)
    return Strangers(usual, min(spread, (most - usual) / 2), freedom)


def frame_correlation(
    frames: Floats, means: Floats, columns: Integers, strangers: Strangers
) -> float:
    """rho = 1 - W / sigma^2,  W = (n (1 - SIMILAR) sigma^2 + sum_l d_l^2) / (n + L)

    Estimate the correlation of the likeness of two frames of one clip of a stranger. d_l is the
    difference of the likeness of a frame of lesson l and of the mean of the lesson, both to the
    most similar other class, less its mean over the L lessons. W is thus the variance within clips.
    It has a prior, as if n = `SIMILAR_LESSONS` lessons had the correlation `SIMILAR`.

    Args:
        frames: The likeness of a frame of each lesson to each class, L x K.
        means: The likeness of the mean of each lesson, L x K.
        columns: The column of the class of each lesson.
        strangers: The distribution of the likeness of strangers.

    Returns:
        rho, from `LEAST_CORRELATION` to 1.
    """
    count, classes = frames.shape
    if classes == 1 or not count:
        return SIMILAR
    own = np.arange(classes) == columns[:, None]
    of_frames, of_means = (np.where(own, -np.inf, x).max(1) for x in (frames, means))
    d = of_frames - of_means
    variance = strangers.spread**2
    squares = SIMILAR_LESSONS * (1 - SIMILAR) * variance + float(((d - d.mean()) ** 2).sum())
    return float(max(1 - squares / (SIMILAR_LESSONS + count) / variance, LEAST_CORRELATION))


def middle_shares(beta: Sequence[float]) -> Floats:
    """Compute the weight of each place in the likeness of objects.

    The first place reads the whole picture, which shows the room, so it gets no weight.

    Args:
        beta: The weights of the places; the first reads the whole picture.

    Returns:
        beta with 0 for the first place, divided by its sum; 1 if there is only one place.
    """
    share: Floats = np.array(beta, dtype=np.float64)
    if len(share) > 1:
        share[0] = 0
    share /= share.sum()
    return share


def usual_room(alike: Floats, columns: Integers) -> float:
    """Compute the mean similarity of the rooms of different classes, e of `room_lift`.

    Args:
        alike: The cosine similarity of a frame of each lesson to the mean of each class, both of
            the whole picture, L x K.
        columns: The column of the class of each lesson.

    Returns:
        The mean similarity of a lesson to the classes other than its own, in which each class has
        the same weight; 0 for a single class.
    """
    classes = alike.shape[1]
    if classes == 1 or not len(columns):
        return 0.0
    others = alike.sum(1) - alike[np.arange(len(columns)), columns]
    weight = 1 / np.bincount(columns, minlength=classes)[columns]
    return float((weight * others).sum() / weight.sum() / (classes - 1))


def room_lift(alike: Array, likeness: Array, usual: float) -> Array:
    """ROOM_SLOPE max(0, e - r),  r = (e + sum_{c not b} alike_c) / K

    The lift corrects the likeness of frames that come from a room in which nothing was taught. b is
    the class that a frame is most similar to, and r measures how much the frame shows the rooms of
    the lessons; class b counts as e, because its similarity may be due to the object. If r < e, the
    frame comes from another room, where the likeness of strangers is smaller by this amount. If
    r >= e, there is nothing to correct.

    Args:
        alike: The cosine similarities of frames to the means of classes, both of the whole
            picture, N x K.
        likeness: The likeness of the frames to each class, N x K.
        usual: e, the mean of r over lessons.

    Returns:
        N numbers, none of them negative.
    """
    xp = array_namespace(alike)
    others = likeness < xp.max(likeness, axis=1)[:, None]
    return ROOM_SLOPE * ((usual - alike) * others).mean(1).clip(0)


def lessons_lifted(likeness: Floats, alike: Floats, columns: Integers, usual: float) -> Floats:
    """Add to the likeness of each lesson its `room_lift` among the classes other than its own.

    Args:
        likeness: The likeness of a frame of each lesson to each class, L x K.
        alike: The cosine similarities, as in `usual_room`.
        columns: The column of the class of each lesson.
        usual: e of `room_lift`.

    Returns:
        The corrected likeness, L x K.
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
    """familiarity(z) = the fraction of strangers with a smaller s,

    s(z) = max_c (sum_h share_h cos(z_h - g_h, mu_ch - g_h) + w_c z + b_c) + lift(z)

    s is the likeness to the most similar class. Its first term is the cosine similarity to the mean
    of the class in the places h that read the centre of the picture (`middle_shares`). The cosines
    are taken around g, the mean of the backbone's features over arbitrary objects, because around g
    unrelated objects are nearly orthogonal; g does not depend on what was taught. The second term,
    w z + b, is the score of the class, scaled by the `trust` of a `PlaceJudgement`. The third term
    corrects for frames from another room (`room_lift`); it is computed from the first place, which
    reads the whole picture.

    The familiarity does not depend on scale: at the threshold 0.9, one stranger in ten is taken for
    a taught object, for every backbone, frame size and number of classes.

    Args:
        directions: share_h (mu_ch - g_h) / |mu_ch - g_h| of each place, side by side, classes x D.
        centre: g, D numbers.
        places: The slice of the features that belongs to each place.
        w: The scaled weights, classes x D.
        b: The scaled offsets, one number per class.
        rooms: (mu_c0 - g_0) / |mu_c0 - g_0| of the first place, classes x D_0; 0 if it is the only
            place.
        usual_room: e of `room_lift`.
        strangers: The distribution of s for strangers.
        correlation: That of s for two frames of one clip of a stranger.
    """

    directions: Array
    centre: Array
    places: tuple[slice, ...]
    w: Array
    b: Array
    rooms: Array
    usual_room: float
    strangers: Strangers
    correlation: float

    def __call__(self, z: Array, best: Array) -> Array:
        """Compute the familiarity of frames (see `Familiarity`) with any class; ignores `best`."""
        norm = array_namespace(z).linalg.vector_norm
        off = z - self.centre
        # with few classes and many frames, having the classes on the left is ten times as fast
        likeness, rooms = (self.w @ z.T).T + self.b, None
        for part in self.places:  # cosines without a normalised copy of the features
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
