"""A few lessons of each class, by which the head that weighs places by lessons judges them.

Everything is written for numpy and torch arrays alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import ClassVar, NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace, device, to_device

from ..storage.validate import (
    MAX_FEATURE,
    check_at_most,
    check_shape,
    check_that,
    checked_array,
)
from .arrays import (
    Array,
    Arrays,
    ClassArrays,
    NumpyArrays,
    float32,
    float64,
    rows_beside,
    rows_earlier,
    to_library_of,
    to_numpy,
)
from .strangers import Floats, Integers, spread_of_cosines

LESSONS_KEPT = 4  # lessons per class that are kept to judge the places by
KEY_PERIOD = 0.002  # of keys: lessons of a class are several times as far apart, engines 1e-7


class Lessons(NamedTuple):
    """Lessons of a sample.

    Args:
        columns: the column of the class of each, in numpy.
        means: their means, L x D.
        frames: the features of one frame of each, L x D.
    """

    columns: Integers
    means: Array
    frames: Array

    def part(self, features: slice) -> Lessons:
        """Return the same lessons in some of the features, in float64."""
        return Lessons(
            self.columns, float64(self.means[:, features]), float64(self.frames[:, features])
        )


class LessonSample(ClassArrays):
    """A few lessons of each class, to judge by: the mean of each, and the features of one frame.

    Those with the smallest keys are kept. The key of a lesson is that of its mean, and its frame is
    the one with the smallest key (`feature_keys`). So the sample depends on the lessons alone, not
    on the order of lessons or frames, and that of a merged learner is the sample of the lessons of
    both.

    Beside the lessons there is what is known of the backbone without them: the centre that they are
    compared around (`LessonFamiliarity`), and how the likeness of any frames spreads around it
    (`spread_of_cosines`).

    Args:
        arrays: `key`, classes x kept, 0 for none, ascending; `mean` and `frame`,
            classes x kept x D, float32; `centre`, D numbers, and `spread`, places x places, both
            float32, 0 until they are set.
        blocks: the number of features of each place; D is their sum.
    """

    VECTORS: ClassVar[tuple[str, ...]] = ("mean", "frame")
    REFERENCE: ClassVar[tuple[str, ...]] = ("centre", "spread")

    def __init__(self, arrays: Arrays, blocks: Sequence[int]) -> None:
        super().__init__(arrays)
        self.blocks = tuple(blocks)
        self.dim = sum(blocks)

    @classmethod
    def empty(cls, blocks: Sequence[int], *, like: Array | None = None) -> LessonSample:
        """Make the sample of no lessons.

        Args:
            blocks: the number of features of each place.
            like: an array whose library and device to use; None for numpy.

        Returns:
            The sample.
        """
        one = np.zeros(()) if like is None else like
        xp, where = array_namespace(one), device(one)
        key = xp.zeros((0, LESSONS_KEPT), dtype=xp.int64, device=where)
        shape = (0, LESSONS_KEPT, sum(blocks))
        vectors = {name: xp.zeros(shape, dtype=xp.float32, device=where) for name in cls.VECTORS}
        centre = xp.zeros((sum(blocks),), dtype=xp.float32, device=where)
        spread = xp.zeros((len(blocks), len(blocks)), dtype=xp.float32, device=where)
        return cls({"key": key, **vectors, "centre": centre, "spread": spread}, blocks)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the arrays that have one row per class."""
        return ("key", *self.VECTORS)

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Write the lessons that there are, class by class, instead of room for more.

        `mean` and `frame` are lessons x D in files, and `key` has no rows without a lesson; see
        `ClassArrays.to_file`.
        """
        key = to_numpy(arrays["key"])
        key = key[: 1 + max(np.nonzero(key)[0], default=-1)]
        there = {name: to_numpy(arrays[name])[: len(key)][key > 0] for name in cls.VECTORS}
        return {**arrays, "key": key, **there}

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Put every lesson where its key is, as `ClassArrays.from_file` says."""
        key = checked_array(arrays, prefix, "key", 2)
        check_shape(prefix + "key", key, (len(key), LESSONS_KEPT))
        # so that little more than the file is built
        check_that(bool((key > 0).any(1).all()), prefix + "key", "has a class without a lesson")
        found = dict(arrays)
        for name in cls.VECTORS:
            there = checked_array(arrays, prefix, name, 2)
            check_that(there.dtype == np.float32, prefix + name, "is not float32")
            check_shape(prefix + name, there, (int((key > 0).sum()), there.shape[1]))
            found[name] = np.zeros((*key.shape, there.shape[1]), there.dtype)
            found[name][key > 0] = there
        return found

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Store the lessons of classes that changed, as `ClassArrays.beside` says."""
        return rows_beside(self._rows(), later._rows(), arrays)

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the lessons of all classes, as `ClassArrays.earlier` says."""
        if "rows" not in stored:
            return stored
        return self.to_file(rows_earlier(self._rows(), prefix, stored))

    def _rows(self) -> NumpyArrays:
        """The arrays with one row per class, without the empty rows at their end."""
        taught = 1 + max(np.nonzero(to_numpy(self.arrays["key"]))[0], default=-1)
        return {name: to_numpy(self.arrays[name])[:taught] for name in self.row_names}

    def add(self, row: int, frames: Array) -> None:
        """Add a lesson, if its key is among the smallest of its class.

        Args:
            row: the row of its class.
            frames: the features of its frames, N x D, in float64.
        """
        mean = float32(frames.mean(0))
        keys = feature_keys(frames)
        chosen = frames[keys.index(min(keys))]
        self._insert(row, feature_keys(mean[None])[0], [mean, float32(chosen)])

    def _insert(self, row: int, key: int, vectors: Sequence[Array]) -> None:
        """Insert a lesson where its key belongs; of one too many the last goes."""
        keys = [*self.arrays["key"][row].tolist(), key]
        order = sorted(range(len(keys)), key=lambda slot: keys[slot] or 2**63)[:LESSONS_KEPT]
        kept = np.asarray([keys[slot] for slot in order], dtype=np.int64)
        self.arrays["key"][row] = to_library_of(kept, self.arrays["key"])
        for name, vector in zip(self.VECTORS, vectors, strict=True):
            array = self.arrays[name]
            together = array_namespace(array).concat([array[row], vector[None]], axis=0)
            array[row] = together[to_library_of(np.asarray(order), array)]

    def merge(self, other: LessonSample, columns: Array) -> None:
        """Add the lessons of another sample.

        Args:
            other: a sample of the same features, on any device.
            columns: our row for each of its classes, in their order; each row once.
        """
        where = device(self.arrays["mean"])
        if not self.arrays["centre"].any():
            self.take_reference(other)
        for theirs, row in enumerate(columns.tolist()):
            for slot, key in enumerate(other.arrays["key"][theirs].tolist()):
                if key:
                    vectors = [other.arrays[name][theirs, slot] for name in self.VECTORS]
                    moved = [to_device(vector, where) for vector in vectors]
                    self._insert(int(row), int(key), moved)

    def set_reference(self, z: Array) -> None:
        """Set the centre and the spread.

        Args:
            z: the features of frames of objects of any kind, two or more, N x D.
        """
        centre = float64(z).mean(0)
        spread = spread_of_cosines(float64(z) - centre, self.places)
        self.restore_reference(float32(centre), float32(spread))

    def restore_reference(self, centre: Array, spread: Array) -> None:
        """Set the centre and the spread to what `set_reference` has made of such frames before.

        Args:
            centre: D numbers in float32, on any device.
            spread: places x places, in float32.
        """
        for name, array in zip(self.REFERENCE, (centre, spread), strict=True):
            self.arrays[name] = to_device(array, device(self.arrays[name])) + 0

    def take_reference(self, other: LessonSample) -> None:
        """Set the centre and the spread to those of another sample.

        Args:
            other: a sample of the same features, on any device.
        """
        self.restore_reference(*(other.arrays[name] for name in self.REFERENCE))

    @property
    def places(self) -> tuple[slice, ...]:
        """Where in the features each place lies."""
        stops = np.cumsum(self.blocks).tolist()
        return tuple(slice(a, b) for a, b in zip([0, *stops], stops, strict=False))

    def clear(self) -> None:
        """Return to the state before the first lesson; centre and spread stay for the next one."""
        kept = {name: self.arrays[name] for name in self.REFERENCE}
        super().clear()
        self.arrays.update(kept)

    def lessons(self, known: int) -> Lessons:
        """List the lessons that are kept.

        Args:
            known: the number of classes.

        Returns:
            The lessons, class by class.
        """
        keys = np.asarray(to_device(self.arrays["key"][:known], "cpu"))
        columns, slots = np.nonzero(keys)
        mean, frame = (self.arrays[name][:known] for name in self.VECTORS)
        at = to_library_of(columns * LESSONS_KEPT + slots, mean)
        dim = mean.shape[2]
        return Lessons(columns, mean.reshape(-1, dim)[at], frame.reshape(-1, dim)[at])

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check that keys are positive and ascending, and that the means are finite.

        The arguments are those of `ClassArrays.check`.
        """
        key = checked_array(self.arrays, prefix, "key", 2)
        mean, frame = (checked_array(self.arrays, prefix, name, 3) for name in self.VECTORS)
        check_that(len(key) >= known, prefix + "key", f"has {len(key)} rows for {known} classes")
        check_shape(prefix + "key", key, (len(key), LESSONS_KEPT))
        check_shape(prefix + "mean", mean, (*key.shape, self.dim))
        check_shape(prefix + "frame", frame, mean.shape)
        centre = checked_array(self.arrays, prefix, "centre", 1)
        check_shape(prefix + "centre", centre, (self.dim,))
        check_at_most(prefix + "centre", centre, MAX_FEATURE, "feature")
        spread = checked_array(self.arrays, prefix, "spread", 2)
        check_shape(prefix + "spread", spread, (len(self.blocks), len(self.blocks)))
        check_at_most(prefix + "spread", spread, 1, "covariance of cosines")
        check_that(bool((key >= 0).all()), prefix + "key", "contains a negative key")
        filled = key > 0
        full_first = bool((filled[:, 1:] <= filled[:, :-1]).all())
        ascending = bool(((key[:, 1:] >= key[:, :-1]) | ~filled[:, 1:]).all())
        check_that(full_first and ascending, prefix + "key", "is not in ascending order")
        check_that(not key[known:].any(), prefix + "key", "has lessons of classes not there")
        for name, array in (("mean", mean), ("frame", frame)):
            finite = bool(np.isfinite(array).all())
            check_that(finite, prefix + name, "contains NaN or infinity")
            check_that(not array[~filled].any(), prefix + name, "has a lesson without a key")


def feature_keys(z: Array) -> list[int]:
    """key = 1 + 2^53 frac(u z / (KEY_PERIOD |z|)) for a direction u of random signs.

    A key is spread evenly over many periods, so it tells nothing about the frame; but it moves only
    a little with the features, so that another engine or device, whose features differ in the last
    bits, keeps the same lessons and frames.

    Args:
        z: N x D.

    Returns:
        N numbers from 1 to 2^53.
    """
    x = float64(z)
    along = x @ to_library_of(random_signs(z.shape[1]), x) / (x * x).sum(1).clip(1e-30) ** 0.5
    periods = np.asarray(to_device(along, "cpu")) / KEY_PERIOD
    return [1 + int(share * 2**53) for share in periods - np.floor(periods)]


@cache
def random_signs(dim: int) -> Floats:
    """Return the direction of `feature_keys`: +-1 / sqrt(D), the same in every version.

    Args:
        dim: D, the number of features.
    """
    drawn = hashlib.shake_256(b"lessons").digest(dim // 8 + 1)
    bits = np.unpackbits(np.frombuffer(drawn, np.uint8))[:dim]
    signs: Floats = (2.0 * bits - 1) / dim**0.5
    return signs
