"""Sums over lessons: what the head that weighs places by lessons keeps of all frames.

The unit of independence is the lesson: the frames of one class that come in one batch. Every lesson
has the weight 1, however many frames it has. Everything is written for numpy and torch arrays
alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
from array_api_compat import array_namespace, device

from ..storage.validate import MAX_FEATURE, check_at_most, check_that, checked_array
from .arrays import (
    Array,
    NumpyArrays,
    five_bytes,
    float64,
    from_five_bytes,
    rows_beside,
    rows_earlier,
    shorten,
    to_library_of,
    to_numpy,
)
from .statistics import (
    CHUNK,
    SufficientStatistics,
    add_gram,
    diagonal,
    low_rank_factor,
    unpack_lower,
)

MOST_CHANGED = 128  # rows of the difference of two G in a file; more are not worth it
CHANGE_PRECISION = 2.0**-26  # what that difference may be off by, as a share of G


class LessonStatistics(SufficientStatistics):
    """n_c = sum_l 1,  s_c = sum_l mean_l z  and  G = sum_l mean_l (z z^T) over the lessons l.

    These are the sums of `SufficientStatistics` with the weight 1 / n_l for each of the n_l frames
    of a lesson, so n_c and t count lessons. A lesson is all frames of a class in one call of
    `add`: the order of lessons, their grouping into calls and merging do not matter, but the frames
    of one lesson must come together.

    The sums are float64. After every change G is rounded to the five bytes per number that files
    have, so a learner that was saved and loaded in between goes on to the same bits.
    """

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Turn G into five bytes per number, which loses nothing; see `ClassArrays.to_file`."""
        return {**arrays, "gram": np.ascontiguousarray(five_bytes(to_numpy(arrays["gram"])))}

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Return the numbers of G, as `ClassArrays.from_file` says."""
        check_that("gram" in arrays, prefix + "gram", "is missing")
        return {**arrays, "gram": from_five_bytes(prefix + "gram", arrays["gram"])}

    def add(self, z: Array, columns: Array) -> None:
        """Add one lesson per class in the batch.

        Args:
            z: the features of its frames, N x D.
            columns: the row of the class of each, on the device of z.
        """
        numbers = array_namespace(z).arange(self.rows, device=device(z))
        frames = float64(columns == numbers[:, None]).sum(1)  # n_l, 0 of a class without a lesson
        n = self.n
        n += float64(frames > 0)
        self.arrays["t"] += float((frames > 0).sum())
        for start in range(0, len(z), CHUNK):
            some = slice(start, start + CHUNK)
            root = frames[columns[some]] ** 0.5
            self._add_weighted(float64(z[some]) / root[:, None], columns[some], root)
        self._shorten()

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:
        """Check n_c <= the frames of class c: a lesson has one at least."""
        n = checked_array(self.arrays, prefix, "n", 1)
        enough = all(n[row] <= frames for row, frames in taught.items())
        check_that(enough, prefix + "n", "counts more lessons than the manifest has frames")

    def merge(self, other: SufficientStatistics, columns: Array) -> None:
        """Add all lessons that `other` has seen, as `SufficientStatistics.merge` says."""
        super().merge(other, columns)
        self._shorten()

    def drop(self, row: int) -> None:
        """Forget a class, as `SufficientStatistics.drop` says."""
        super().drop(row)
        self._shorten()

    def _shorten(self) -> None:
        shorten(self.gram)

    def _add_weighted(self, x: Array, columns: Array, root: Array) -> None:
        """Add frames x = z / root, each with the root of the number of frames of its lesson."""
        numbers = array_namespace(x).arange(self.rows, device=device(x))
        members = float64(columns == numbers[:, None])
        s = self.s
        s += (members / root) @ x
        for gram, features in self.squares():
            add_gram(gram, x[:, features])

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Store the rows that changed, and the difference of G from the later one as F^T F.

        A lesson of N frames adds an F of at most N rows to G, in `added`; forgetting a class takes
        a single row from it, in `removed`. An F of more than `MOST_CHANGED` rows is not worth it.
        G is restored to the precision of float32. The arguments are those of `ClassArrays.beside`.
        """
        stored = rows_beside(self._rows(), later._rows(), arrays)
        if "gram" not in stored:
            return stored
        difference = to_numpy(later.gram) - to_numpy(self.gram)
        sign, name = (1, "added") if difference.sum() >= 0 else (-1, "removed")
        largest = later.gram if sign == 1 else self.gram
        factors = []
        for packed, features in self._packed_parts():
            squares = diagonal(to_numpy(largest)[packed], features.stop - features.start)
            tolerance = CHANGE_PRECISION * squares + 1e-300
            factor = low_rank_factor(sign * difference[packed], tolerance, MOST_CHANGED)
            if factor is None:
                return stored
            factors.append(factor.astype(np.float32))
        most = max(map(len, factors))
        padded = [np.pad(factor, ((0, most - len(factor)), (0, 0))) for factor in factors]
        del stored["gram"]
        return {**stored, name: np.concatenate(padded, axis=1)}

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the rows and G, as `ClassArrays.earlier` says."""
        found = dict(rows_earlier(self._rows(), prefix, stored))
        for name, sign in (("added", 1), ("removed", -1)):
            if name in found:
                factor = checked_array(found, prefix, name, 2)
                check_that(factor.dtype == np.float32, prefix + name, "is not float32")
                fits = len(factor) <= MOST_CHANGED and factor.shape[1] == self.dim
                check_that(fits, prefix + name, f"has shape {factor.shape}")
                check_at_most(prefix + name, factor, MAX_FEATURE, "feature")
                gram = self.gram * 0
                if np.asarray(found.get("t", 1)).any():  # before the first lesson G is 0
                    x = float64(to_library_of(factor, gram))
                    for packed, features in self._packed_parts():
                        add_gram(gram[packed], x[:, features])
                    gram = self.gram - sign * gram
                    shorten(gram)
                found["gram"] = five_bytes(to_numpy(gram))
                del found[name]
        return found

    def _rows(self) -> NumpyArrays:
        return {name: to_numpy(self.arrays[name]) for name in self.row_names}

    def _packed_parts(self) -> Iterator[tuple[slice, slice]]:
        """Where each block lies in G, and where in the features."""
        end = 0
        for gram, features in self.squares():
            end += len(gram)
            yield slice(end - len(gram), end), features

    def lower_grams(self) -> Iterator[tuple[Array, slice]]:
        """G of each block, of which the lower triangle alone means something.

        Yields:
            G of a block, a new array, and where in the features the block lies.
        """
        for gram, features in self.squares():
            yield unpack_lower(gram, features.stop - features.start), features
