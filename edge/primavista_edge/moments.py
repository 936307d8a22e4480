"""The sufficient statistics of the analytic strategies in numpy: sums over frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .heads.ridge import within
from .storage.packed import add_gram, packed_size, subtract_outer, unpack
from .storage.validate import check_moments

Array = np.ndarray[Any, Any]
CHUNK = 1024


class Moments:
    """n_c = sum 1,  s_c = sum z  of each class, and G = sum z z^T of each block of features; or q_c = sum |z|^2 in place of G.

    It works on the arrays of a file whose names begin with `prefix`.
    """

    def __init__(
        self, arrays: dict[str, Array], prefix: str, blocks: Sequence[int] | None = None
    ) -> None:
        self.arrays, self.prefix = arrays, prefix
        self.has_gram = prefix + "gram" in arrays
        self.blocks = tuple(blocks or (self.s.shape[1],))

    @property
    def n(self) -> Array:
        """Frames of each class."""
        return self.arrays[self.prefix + "n"]

    @property
    def s(self) -> Array:
        """The sum of the features of each class."""
        return self.arrays[self.prefix + "s"]

    @property
    def t(self) -> float:
        """Frames in G."""
        return float(self.arrays[self.prefix + "t"].item())

    def means(self, known: int) -> Array:
        """mu = s / n of the first `known` classes."""
        means: Array = self.s[:known] / self.n[:known, None]
        return means

    def grow(self, rows: int) -> None:
        """Append rows of 0 until there are so many."""
        for name in self._rows():
            old = self.arrays[name]
            self.arrays[name] = np.concatenate(
                [old, np.zeros((max(rows - len(old), 0), *old.shape[1:]))]
            )

    def add(self, z: Array, columns: Array) -> None:
        """Learn features (N x D) of classes in `columns`."""
        z = z.astype(np.float64)
        members = (columns == np.arange(len(self.n))[:, None]).astype(np.float64)
        self.n[:] += members.sum(1)
        self.s[:] += members @ z
        if not self.has_gram:
            self.arrays[self.prefix + "q"] += members @ (z * z).sum(1)
            return
        self.arrays[self.prefix + "t"] = self.arrays[self.prefix + "t"] + len(z)
        for gram, features in self._squares():
            for start in range(0, len(z), CHUNK):
                add_gram(gram, z[start : start + CHUNK, features])

    def drop(self, row: int) -> None:
        """Forget a class: G <- G - s s^T / n, then its row goes."""
        if self.has_gram and self.n[row] > 0:
            for gram, features in self._squares():
                subtract_outer(gram, self.s[row, features] / self.n[row] ** 0.5)
        for name in self._rows():
            self.arrays[name] = dropped(self.arrays[name], row)

    def clear(self) -> None:
        """As before the first lesson."""
        for name in self._rows():
            self.arrays[name] = self.arrays[name][:0]
        if self.has_gram:
            for name in ("t", "gram"):
                self.arrays[self.prefix + name] = np.zeros_like(self.arrays[self.prefix + name])

    def check(self, known: int, taught: Sequence[int]) -> None:
        """Refuse what cannot be sums over frames."""
        check_moments(self.arrays, self.prefix, self.blocks, known, taught)

    def scatters(self) -> Iterator[tuple[Array, slice]]:
        """The scatter around the classes' means of each block, and where in the features the block lies."""
        for gram, features in self._squares():
            yield self._within(gram, features), features

    def spread(self, known: int) -> float:
        """The mean of |z - mu|^2, in the last block; without G over the first `known` classes."""
        if self.has_gram:
            *_, (gram, features) = self._squares()
            return float(self._within(gram, features).trace() / self.t)
        n, s, q = self.n[:known], self.s[:known], self.arrays[self.prefix + "q"][:known]
        return float((q - (s * s).sum(1) / n).sum().clip(0) / n.sum())

    def _within(self, gram: Array, features: slice) -> Array:
        size = features.stop - features.start
        scatter: Array = within(self.n, self.s[:, features], unpack(gram, np.empty((size, size))))
        return scatter

    def _rows(self) -> list[str]:
        return [self.prefix + name for name in ("n", "s", *(() if self.has_gram else ("q",)))]

    def _squares(self) -> Iterator[tuple[Array, slice]]:
        packed = self.arrays[self.prefix + "gram"]
        at = start = 0
        for size in self.blocks:
            end = at + packed_size(size)
            yield packed[at:end], slice(start, start + size)
            at, start = end, start + size


def dropped(array: Array, row: int) -> Array:
    """Without that row; those below move up, and a row of 0 is appended."""
    return np.concatenate([np.delete(array, row, 0), np.zeros_like(array[:1])])
