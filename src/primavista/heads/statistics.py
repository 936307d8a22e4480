"""Sufficient statistics (sums over frames), and the base class of heads solved from them.

NCM, LDA, ridge and prima need only three sums of the features z: their number n and sum s for each
class, and the Gram matrix G = sum z z^T over all frames. Sums do not depend on the order of the
frames, those of two learners can be added, and they take the same memory for any number of frames.
The weights of a head are solved from the sums whenever they are needed.

G = [[A, B], [B^T, C]] is symmetric, so only half of it is stored, in LAPACK's rectangular full
packed format: first B, then one rectangle that holds a triangle of A and a triangle of C side by
side.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Self

import numpy as np

from primavista.arrays import (
    Array,
    array_namespace,
    float64,
    is_torch_array,
    to_device,
    zeros_like,
)
from primavista.errors import InputError
from primavista.heads.base import Arrays, ClassArrays, Familiarity, Head
from primavista.heads.open_set import mahalanobis_familiarity
from primavista.heads.solving import linear_algebra_error
from primavista.storage.validate import MAX_FEATURE, ArrayChecks, NumpyArray

CHUNK = 1024  # frames that are added to a Gram matrix at a time
BLOCK = 256  # rows of G that are computed at a time
ROUNDING = 4  # times the tolerance: how far rounding may take a diagonal element below 0


class AnalyticHead(Head):
    """scores = w phi(z) + b

    w and b are solved from the sums of phi(z) over all frames when scores are first requested. The
    scores are float64. They do not depend on the order of the frames or on their split into batches
    (of the lessons, if the sums are over lessons). `forget` removes the count and the sum of a
    class exactly, and with them its mean; the scatter of the class around its mean remains in the
    pooled scatter.

    Args:
        statistics: The sums.
    """

    def __init__(self, statistics: SufficientStatistics) -> None:
        super().__init__({"moments": statistics})  # the name of the statistics in files
        self.statistics = statistics

    @abstractmethod
    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights.

        Args:
            classes: The number of known classes, at least 1.

        Returns:
            w (classes x D) and b (classes).
        """

    def precision(self, classes: int) -> Array | None:
        """Return the inverse of the regularised covariance that `solve` uses.

        Args:
            classes: The number of known classes.

        Returns:
            P of `MahalanobisFamiliarity`, D x D; None for the identity.
        """
        return None

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        self.statistics.add(self.features(z), columns)

    def scores(self, z: Array, classes: int) -> Array:
        """Score features by w phi(z) + b; see `Head.scores`."""
        if not classes:
            return zeros_like((len(z), 0), z)
        w, b = self.solution(classes)
        return float64(self.features(z)) @ w.T + b

    def solution(self, classes: int) -> tuple[Array, Array]:
        """Return w and b; they are solved once and cached until the state changes.

        Args:
            classes: The number of known classes, at least 1.

        Returns:
            w (classes x D) and b (classes).

        Raises:
            InputError: If the equations cannot be solved.
        """
        try:
            return self.derived.get_or_compute("solution", lambda: self.solve(classes))
        except linear_algebra_error(self.statistics.s) as error:
            raise InputError(
                f"the saved statistics are inconsistent ({error}); the file may be corrupted"
            ) from error

    def familiarity(self, classes: int) -> Familiarity:
        """Return the familiarity function; see `Head.familiarity`."""
        found = super().familiarity(classes)
        assert found is not None
        return found

    def _familiarity(self, classes: int) -> Familiarity:
        """Make the familiarity by Mahalanobis distance; a head may override this."""
        (w, _), own = self.solution(classes), self.statistics
        if own.has_gram:
            spread = own.scatter() / own.arrays["t"]
        else:
            spread = own.mean_square_deviation(classes)
        means = own.means(classes)
        return mahalanobis_familiarity(w, means, self.precision(classes), spread, own.frames)

    def merge(self, other: Self, columns: Array) -> None:
        """Learn everything that another head has learned.

        Args:
            other: A head of the same kind, with the same options.
            columns: The column in this head of each class of the other head.
        """
        self.statistics.merge(other.statistics, columns)
        self.derived.clear()


class SufficientStatistics(ClassArrays):
    """n_c = sum 1,  s_c = sum z  over the frames of class c,  G = sum z z^T  over all t frames.

    Without G, only q_c = sum |z|^2 of each class is kept. G is symmetric and packed into
    D (D + 1) / 2 numbers; if the features consist of several `blocks`, there is one packed matrix
    per block. All sums are float64. Learning and merging only add, so the result does not depend on
    the order of the frames or on their split into batches, except for rounding.

    Args:
        arrays: `n` and `s`, and either `t` and `gram` or `q`.
        blocks: The sizes of the blocks of features; None for a single block.
    """

    def __init__(self, arrays: Arrays, blocks: Sequence[int] | None = None) -> None:
        super().__init__(arrays)
        self.dim: int = arrays["s"].shape[1]
        self.has_gram = "gram" in arrays
        self.row_names = ("n", "s") if self.has_gram else ("n", "s", "q")
        self.blocks: tuple[int, ...] = tuple(blocks or (self.dim,))

    @classmethod
    def empty(
        cls,
        dim: int,
        *,
        gram: bool = True,
        blocks: Sequence[int] | None = None,
    ) -> Self:
        """Make statistics without frames and classes, in numpy.

        Args:
            dim: D, the number of features.
            gram: True to keep G, False to keep q instead.
            blocks: The sizes of the blocks of features; None for a single block.

        Returns:
            The empty statistics.
        """
        shapes: dict[str, tuple[int, ...]] = {"n": (0,), "s": (0, dim)}
        if gram:
            shapes |= {"t": (), "gram": (sum(map(packed_size, blocks or (dim,))),)}
        else:
            shapes |= {"q": (0,)}
        return cls({name: np.zeros(shape) for name, shape in shapes.items()}, blocks)

    @property
    def n(self) -> Array:
        """The number of frames of each class; in `LessonStatistics`, the number of lessons."""
        return self.arrays["n"]

    @property
    def s(self) -> Array:
        """The sum of the features of each class, classes x D."""
        return self.arrays["s"]

    @property
    def gram(self) -> Array:
        """G in packed form, all blocks one after the other."""
        return self.arrays["gram"]

    @property
    def frames(self) -> float:
        """t, the number of all frames; with G, it includes the frames of forgotten classes."""
        return float(self.arrays["t"].item()) if self.has_gram else float(self.n.sum())

    def means(self, known: int) -> Array:
        """mu_c = s_c / n_c for the first `known` classes.

        Args:
            known: The number of classes.

        Returns:
            The means, known x D.
        """
        return self.s[:known] / self.n[:known, None]

    def add(self, z: Array, columns: Array) -> None:
        """Add the frames of a batch.

        Args:
            z: The features of the frames, N x D.
            columns: The row of the class of each frame, on the device of z.
        """
        # torch converts CHUNK frames to float64 at a time, numpy all of them.
        size = CHUNK if is_torch_array(z) else len(z)
        for start in range(0, len(z), size):
            self._add(float64(z[start : start + size]), columns[start : start + size])

    def _add(self, z: Array, columns: Array) -> None:
        xp = array_namespace(z)
        numbers = xp.arange(self.rows, device=z.device)
        members = float64(columns == numbers[:, None])
        n, s = self.n, self.s
        n += members.sum(1)
        s += members @ z  # index_add_ is not deterministic on a GPU
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
            other: Statistics of the same features, on any device.
            columns: The row in these statistics of each class of `other`, without repetition.
        """
        for name in self.row_names:
            ours = self.arrays[name]
            ours[columns] += to_device(other.arrays[name][: len(columns)], ours.device)
        if self.has_gram:
            for name in ("t", "gram"):
                ours = self.arrays[name]
                ours += to_device(other.arrays[name], ours.device)

    def drop(self, row: int) -> None:
        """Forget a class: G <- G - s s^T / n, then delete its row.

        The scatter of a class around its mean is not kept per class, so it remains in G, and its
        frames remain in t.

        Args:
            row: The row of the class.
        """
        if self.has_gram and self.n[row] > 0:
            for gram, features in self.squares():
                subtract_outer(gram, self.s[row, features] / self.n[row] ** 0.5)
        super().drop(row)

    def parts(self) -> Iterator[tuple[slice, slice]]:
        """Iterate over the slice of the packed G and the slice of the features of each block."""
        packed = consecutive(map(packed_size, self.blocks))
        yield from zip(packed, consecutive(self.blocks), strict=True)

    def squares(self) -> Iterator[tuple[Array, slice]]:
        """Iterate over the blocks.

        Yields:
            The packed G of a block, as a view, and the slice of the features that belongs to it.
        """
        for packed, features in self.parts():
            yield self.gram[packed], features

    def scatter(self) -> Array:
        """S = sum (z - mu)(z - mu)^T, where mu is the mean of the class of z; for a single block.

        Returns:
            The scatter within classes, D x D, a new array.
        """
        return within_class_scatter(self.n, self.s, self.second_moments())

    def second_moments(self) -> Array:
        """Return G, D x D, a new array; for a single block."""
        xp, shape = array_namespace(self.gram), (self.dim, self.dim)
        return unpack(self.gram, xp.empty(shape, dtype=self.gram.dtype, device=self.gram.device))

    def mean_square_deviation(self, known: int) -> float:
        """tr S / t, the mean of |z - mu|^2 over the frames of the known classes, without G.

        Args:
            known: The number of classes.

        Returns:
            The mean squared deviation.
        """
        n, s, q = self.n[:known], self.s[:known], self.arrays["q"][:known]
        return float((q - (s * s).sum(1) / n).sum().clip(0) / n.sum())

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check that t >= sum n,  |s_c| <= n_c F,  |G| <= t F^2,  q_c >= |s_c|^2 / n_c,

        G_jj >= sum_c s_cj^2 / n_c, and that every n_c is an integer. F is the largest feature
        allowed. The arguments are those of `ClassArrays.check`.
        """
        own = ArrayChecks(self.arrays, prefix)
        n = own.counts("n", known, taught)
        s = own.array("s", (len(n), sum(self.blocks)))
        own.at_most("s", (n * MAX_FEATURE)[:, None], "sum of so many features")
        squares = (s / n.clip(1)[:, None] ** 0.5) ** 2
        if not self.has_gram:
            q = own.array("q", n.shape)
            own.squares("q", q, squares.sum(1), float(n.sum()) * self.dim)
            return
        frames, least = own.total("t", n), squares.sum(0)
        own.array("gram", (sum(map(packed_size, self.blocks)),))
        for square, features in self.squares():
            found = diagonal(np.asarray(square), features.stop - features.start)
            own.squares("gram", found, least[features], frames)
        own.at_most("gram", frames * MAX_FEATURE**2, "sum over frames")

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:
        """Check that n_c is the number of frames of class c; see `ClassArrays.check_frames`."""
        same = all(self.n[row] == frames for row, frames in taught.items())
        problem = "differs from the numbers of frames in the manifest"
        ArrayChecks(self.arrays, prefix).that(same, "n", problem)


def within_class_scatter(n: Array, s: Array, gram: Array) -> Array:
    """S = sum_i (z_i - mu_c(i)) (z_i - mu_c(i))^T = G - sum_c s_c s_c^T / n_c.

    Args:
        n: The number of frames of each class.
        s: The sum of the features of each class, classes x D.
        gram: G = sum_i z_i z_i^T, D x D; it is overwritten with S.

    Returns:
        S.
    """
    root = s / n.clip(1)[:, None] ** 0.5
    gram -= root.T @ root
    return gram


def consecutive(sizes: Iterable[int]) -> list[slice]:
    """Return slices of these sizes, one after the other.

    Args:
        sizes: The sizes.

    >>> consecutive([2, 3])
    [slice(0, 2, None), slice(2, 5, None)]
    """
    stops = [0, *accumulate(sizes)]
    return [slice(start, stop) for start, stop in pairwise(stops)]


def packed_size(dim: int) -> int:
    """Count the numbers in a packed symmetric matrix: D (D + 1) / 2.

    Args:
        dim: D, the number of rows of the matrix.

    Returns:
        The length of the packed array.
    """
    return dim * (dim + 1) // 2


def add_gram(packed: Array, z: Array) -> None:
    """G <- G + z^T z, in place.

    A few rows of one triangle are computed at a time. This takes about half the work of z^T z and
    no memory for a second matrix. A GPU computes the whole product at once, because launching a
    small product takes longer than the product itself.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        z: N x D.
    """
    half = z.shape[1] // 2
    if getattr(z, "is_cuda", False):
        product, (corner, upper, lower) = z.T @ z, packed_blocks(packed, z.shape[1])
        corner += product[:half, half:]
        upper += product[:half, :half].triu()
        lower += product[half:, half:].tril()
        return
    corner, fold = _views(packed, z.shape[1])
    first, second = z[:, :half], z[:, half:]
    for start in range(0, half, BLOCK):
        rows = first[:, start : start + BLOCK].T
        corner[start : start + BLOCK] += rows @ second
        upper = rows @ first[:, start:]
        upper[:, : len(rows)] *= _lower(upper).T
        fold[start : start + len(rows), -(half - start) :] += upper
    for start in range(0, second.shape[1], BLOCK):
        rows = second[:, start : start + BLOCK].T
        lower = rows @ second[:, : start + BLOCK]
        lower[:, start:] *= _lower(lower)
        fold[start : start + len(rows), : start + len(rows)] += lower


def packed_blocks(packed: Array, dim: int) -> tuple[Array, Array, Array]:
    """Return writable views of B and of the squares that hold the triangles of A and C.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        dim: D.

    Returns:
        B; a square whose upper triangle is that of A; a square whose lower triangle is that of C.
    """
    half = dim // 2
    corner, fold = _views(packed, dim)
    return corner, fold[:half, fold.shape[1] - half :], fold[: dim - half, : dim - half]


def unpack(packed: Array, out: Array) -> Array:
    """Write the full matrix G into `out`.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        out: D x D; it is overwritten.

    Returns:
        `out`.
    """
    dim = len(out)
    half = dim // 2
    corner, fold = _views(packed, dim)
    _mirror(fold[: dim - half, : dim - half], out[half:, half:])
    if half:
        _mirror(fold[:half, -half:].T, out[:half, :half])
        out[:half, half:] = corner
        out[half:, :half] = corner.T
    return out


def unpack_lower(packed: Array, dim: int) -> Array:
    """Return the lower triangle of G in float64, which suffices for a Cholesky factorisation.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        dim: D.

    Returns:
        D x D, a new array; the part above the diagonal is meaningless.
    """
    xp, half = array_namespace(packed), dim // 2
    corner, fold = _views(packed, dim)
    out = xp.empty((dim, dim), dtype=xp.float64, device=packed.device)
    out[half:, half:] = fold[: dim - half, : dim - half]
    if half:
        out[:half, half:] = 0
        out[:half, :half] = fold[:half, -half:].T
        out[half:, :half] = corner.T
    return out


def diagonal(packed: Array, dim: int) -> Array:
    """Read the diagonal of G.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        dim: D.

    Returns:
        The D numbers on the diagonal.

    >>> z, packed = np.array([[1.0, 2.0, 3.0]]), np.zeros(6)
    >>> add_gram(packed, z); sorted(diagonal(packed, 3).tolist())
    [1.0, 4.0, 9.0]
    """
    _, upper, lower = packed_blocks(packed, dim)
    return array_namespace(packed).concat([upper.diagonal(), lower.diagonal()])


def low_rank_factor(packed: NumpyArray, tolerance: NumpyArray, most: int) -> NumpyArray | None:
    """G = F^T F: find an F with as few rows as possible, by a pivoted Cholesky factorisation.

    Args:
        packed: G, D (D + 1) / 2 numbers, in numpy.
        tolerance: The error allowed for each diagonal element of F^T F, D positive numbers; that of
            one below 0 is at most `ROUNDING` times as large. The errors of the other elements are
            at most the largest of these.
        most: The largest number of rows allowed.

    Returns:
        F; None if G is not positive semidefinite, or if F would need more rows.

    >>> packed = np.zeros(6)
    >>> add_gram(packed, np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]))
    >>> factor = low_rank_factor(packed, np.full(3, 1e-9), most=2)
    >>> (factor.T @ factor).round(6).tolist()
    [[5.0, 10.0, 15.0], [10.0, 20.0, 30.0], [15.0, 30.0, 45.0]]
    """
    dim = len(tolerance)
    whole = unpack(packed, np.empty((dim, dim)))
    factor, rest = np.empty((most, dim)), whole.diagonal()
    for rank in range(most + 1):
        if bool((rest < -ROUNDING * tolerance).any()):
            return None
        pivot = int((rest / tolerance).argmax())
        if rest[pivot] <= tolerance[pivot]:
            return factor[:rank]
        if rank < most:
            above = factor[:rank]
            row = (whole[pivot] - above[:, pivot] @ above) / rest[pivot] ** 0.5
            factor[rank] = row
            rest = rest - row * row
            rest[pivot] = 0
    return None


def subtract_outer(packed: Array, v: Array) -> None:
    """G <- G - v v^T, in place.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        v: D numbers.
    """
    packed *= -1
    add_gram(packed, v[None])
    packed *= -1


def _views(packed: Array, dim: int) -> tuple[Array, Array]:
    """Return views of B and of the rectangle: C's lower triangle, and A's upper at the right."""
    half = dim // 2
    rest = dim - half
    at = half * rest
    return packed[:at].reshape(half, rest), packed[at:].reshape(rest, -1)


def _lower(rows: Array) -> Array:
    """Make a square mask of the same number of rows: 1 on and below the diagonal, 0 above."""
    number = (rows[:, 0] * 0 + 1).cumsum(0)
    return number[:, None] >= number


def _mirror(lower: Array, out: Array) -> None:
    """Write into `out` the symmetric matrix with this lower triangle; the upper is not read."""
    xp = array_namespace(lower)
    out[:] = xp.tril(lower)
    out += xp.tril(lower, k=-1).T
