"""The sufficient statistics of every analytic head: sums over frames, in numpy or torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Self

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array, to_device

from ..storage.validate import (
    MAX_FEATURE,
    NumpyArray,
    check_at_most,
    check_counts,
    check_shape,
    check_squares,
    check_that,
    check_total,
    checked_array,
)
from .arrays import Array, Arrays, ClassArrays, float64
from .packed import add_gram, diagonal, packed_size, subtract_outer, unpack

CHUNK = 1024  # frames in one product of a Gram matrix
FLOOR = 1e-6  # share of a second moment added to a variance: what hardly varies is not blown up


class SufficientStatistics(ClassArrays):
    """n_c = sum 1,  s_c = sum z  of each class, and G = sum z z^T over all t frames; in float64.

    Without G, only q_c = sum |z|^2 of each class is kept. G is symmetric and packed, D (D + 1) / 2
    numbers; if the features consist of `blocks`, one packed matrix per block. Learning and merging
    only add, so the result does not depend on the order or the split of the frames, except for
    the rounding of sums in float64.

    Args:
        arrays: `n`, `s`, and either `t` and `gram` or `q`.
        blocks: the sizes of the blocks of features; None for a single block.
    """

    def __init__(self, arrays: Arrays, blocks: Sequence[int] | None = None) -> None:
        super().__init__(arrays)
        self.dim: int = arrays["s"].shape[1]
        self.has_gram = "gram" in arrays
        self.blocks: tuple[int, ...] = tuple(blocks or (self.dim,))

    @classmethod
    def empty(
        cls,
        dim: int,
        *,
        gram: bool = True,
        blocks: Sequence[int] | None = None,
        like: Array | None = None,
    ) -> Self:
        """Make the statistics of no frames and no classes.

        Args:
            dim: D, the number of features.
            gram: whether to keep G; otherwise q is kept.
            blocks: the sizes of the blocks of features; None for a single block.
            like: an array whose library and device to use; None for numpy.

        Returns:
            The statistics.
        """
        one = np.zeros(()) if like is None else like
        xp = array_namespace(one)
        shapes: dict[str, tuple[int, ...]] = {"n": (0,), "s": (0, dim)}
        if gram:
            shapes |= {"t": (), "gram": (sum(map(packed_size, blocks or (dim,))),)}
        else:
            shapes |= {"q": (0,)}
        arrays = {
            name: xp.zeros(shape, dtype=xp.float64, device=device(one))
            for name, shape in shapes.items()
        }
        return cls(arrays, blocks)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the arrays that have one row per class."""
        return ("n", "s") if self.has_gram else ("n", "s", "q")

    @property
    def n(self) -> Array:
        """The number of frames of each class."""
        return self.arrays["n"]

    @property
    def s(self) -> Array:
        """The sum of the features of each class, classes x D."""
        return self.arrays["s"]

    @property
    def gram(self) -> Array:
        """G, packed."""
        return self.arrays["gram"]

    @property
    def frames(self) -> float:
        """The number of frames: t, those of forgotten classes included; without G, the sum of n."""
        return float(self.arrays["t"].item()) if self.has_gram else float(self.n.sum())

    def means(self, known: int) -> Array:
        """mu_c = s_c / n_c of the first classes.

        Args:
            known: the number of classes.

        Returns:
            The means, known x D.
        """
        return self.s[:known] / self.n[:known, None]

    def add(self, z: Array, columns: Array) -> None:
        """Add the frames of a batch.

        Args:
            z: their features, N x D.
            columns: the row of the class of each, on the device of z.
        """
        # torch converts CHUNK frames to float64 at a time, numpy all of them.
        size = CHUNK if is_torch_array(z) else len(z)
        for start in range(0, len(z), size):
            self._add(float64(z[start : start + size]), columns[start : start + size])

    def _add(self, z: Array, columns: Array) -> None:
        xp = array_namespace(z)
        numbers = xp.arange(self.rows, device=device(z))
        members = float64(columns == numbers[:, None])
        n, s = self.n, self.s
        n += members.sum(1)
        s += members @ z  # not index_add_, whose order is not fixed on a GPU
        if not self.has_gram:
            q = self.arrays["q"]
            q += members @ (z * z).sum(1)
            return
        self.arrays["t"] += len(z)
        for gram, features in self.squares():
            for start in range(0, len(z), CHUNK):
                add_gram(gram, z[start : start + CHUNK, features])

    def merge(self, other: SufficientStatistics, columns: Array) -> None:
        """Add all frames that `other` has seen.

        Args:
            other: statistics of the same features, on any device.
            columns: our row for each of its classes, in their order; each row once.
        """
        for name in self.row_names:
            ours = self.arrays[name]
            ours[columns] += to_device(other.arrays[name][: len(columns)], device(ours))
        if self.has_gram:
            for name in ("t", "gram"):
                ours = self.arrays[name]
                ours += to_device(other.arrays[name], device(ours))

    def drop(self, row: int) -> None:
        """Forget a class: G <- G - s s^T / n, then its row goes.

        Its scatter around its own mean is not kept per class, so it stays in G and t.

        Args:
            row: the row of the class.
        """
        if self.has_gram and self.n[row] > 0:
            for gram, features in self.squares():
                subtract_outer(gram, self.s[row, features] / self.n[row] ** 0.5)
        super().drop(row)

    def squares(self) -> Iterator[tuple[Array, slice]]:
        """Iterate over the blocks.

        Yields:
            The packed G of a block, as a view, and where in the features the block lies.
        """
        ends = accumulate(self.blocks)
        packed_ends = accumulate(map(packed_size, self.blocks))
        for size, end, packed_end in zip(self.blocks, ends, packed_ends, strict=True):
            yield self.gram[packed_end - packed_size(size) : packed_end], slice(end - size, end)

    def scatters(self) -> Iterator[tuple[Array, slice]]:
        """S = sum (z - mu)(z - mu)^T of each block, mu the mean of the frame's own class.

        Yields:
            The scatter of a block, a new array, and where in the features the block lies.
        """
        for gram, features in self.squares():
            yield self._scatter(gram, features), features

    def covariance(self) -> Array:
        """S / t, D x D, of features that are a single block.

        Returns:
            The covariance within classes, a new array.
        """
        return self.scatter() / self.arrays["t"]

    def scatter(self) -> Array:
        """S, D x D, of features that are a single block.

        Returns:
            The scatter, a new array.
        """
        ((scatter, _),) = self.scatters()
        return scatter

    def _scatter(self, gram: Array, features: slice) -> Array:
        size = features.stop - features.start
        out = array_namespace(gram).empty((size, size), dtype=gram.dtype, device=device(gram))
        return within_class_scatter(self.n, self.s[:, features], unpack(gram, out))

    def mean_square_deviation(self, known: int) -> float:
        """tr S / t: the mean of |z - mu|^2, in the last block.

        Args:
            known: the number of classes; without G the mean is over their frames.

        Returns:
            The mean.
        """
        if self.has_gram:
            *_, (gram, features) = self.squares()
            mean = self._scatter(gram, features).trace() / self.arrays["t"]
            return float(mean.item())
        n, s, q = self.n[:known], self.s[:known], self.arrays["q"][:known]
        return float((q - (s * s).sum(1) / n).sum().clip(0) / n.sum())

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check n_c whole, t >= sum n,  |s_c| <= n_c F,  |G| <= t F^2,  F the largest feature,

        q_c >= |s_c|^2 / n_c  and  G_jj >= sum_c s_cj^2 / n_c. The arguments are those of
        `ClassArrays.check`.
        """
        n = checked_array(self.arrays, prefix, "n", 1)
        s = checked_array(self.arrays, prefix, "s", 2)
        check_counts(prefix + "n", n, known, taught)
        check_shape(prefix + "s", s, (len(n), sum(self.blocks)))
        bound = (n * MAX_FEATURE)[:, None]
        check_at_most(prefix + "s", s, bound, "sum of so many features")
        squares = (s / n.clip(1)[:, None] ** 0.5) ** 2
        if self.has_gram:
            self._check_gram(prefix, n, squares.sum(0))
            return
        q = checked_array(self.arrays, prefix, "q", 1)
        check_shape(prefix + "q", q, n.shape)
        check_squares(prefix + "q", q, squares.sum(1), float(n.sum()) * self.dim)

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:
        """Check n_c = the frames of class c. The arguments are those of the base class."""
        n = checked_array(self.arrays, prefix, "n", 1)
        same = all(n[row] == frames for row, frames in taught.items())
        check_that(same, prefix + "n", "differs from the numbers of frames in the manifest")

    def _check_gram(self, prefix: str, n: NumpyArray, least: NumpyArray) -> None:
        t = checked_array(self.arrays, prefix, "t")
        check_total(prefix + "t", t, n)
        gram = checked_array(self.arrays, prefix, "gram", 1)
        check_shape(prefix + "gram", gram, (sum(map(packed_size, self.blocks)),))
        frames = float(t.item())
        for square, features in self.squares():
            found = diagonal(np.asarray(square), features.stop - features.start)
            check_squares(prefix + "gram", found, least[features], frames)
        check_at_most(prefix + "gram", gram, frames * MAX_FEATURE**2, "sum over frames")


def within_class_scatter(n: Array, s: Array, gram: Array) -> Array:
    """S = sum_i (z_i - mu_c(i)) (z_i - mu_c(i))^T = G - sum_c s_c s_c^T / n_c.

    Args:
        n: the count of each class.
        s: the sum of each class, classes x D.
        gram: G = sum_i z_i z_i^T, D x D; it is overwritten with S.

    Returns:
        S.
    """
    root = s / n.clip(1)[:, None] ** 0.5
    gram -= root.T @ root
    return gram
