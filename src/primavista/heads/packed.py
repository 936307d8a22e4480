"""A symmetric matrix in half the memory, in numpy or torch.

G = [[A, B], [B^T, C]] is folded in two (LAPACK's rectangular full packed format): B as it is, then
one rectangle with the triangles of A and C side by side.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from ..storage.validate import NumpyArray
from .arrays import Array

BLOCK = 256  # rows whose product exists at one time


def packed_size(dim: int) -> int:
    """Count the numbers in a packed symmetric matrix: D (D + 1) / 2.

    Args:
        dim: D, the number of rows of the matrix.

    Returns:
        The length of the packed array.
    """
    return dim * (dim + 1) // 2


def add_gram(packed: Array, z: Array) -> None:
    """G <- G + z^T z in place.

    A few rows at a time: that is about half the work of z^T z, and there is never a second matrix.
    A GPU does it all at once, because launching a product takes it longer than the product.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        z: N x D.
    """
    if getattr(z, "is_cuda", False):
        for part, added in zip(packed_parts(packed, z.shape[1]), split(z.T @ z), strict=True):
            part += added
        return
    half = z.shape[1] // 2
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


def packed_parts(packed: Array, dim: int) -> tuple[Array, Array, Array]:
    """Find B and the squares that hold the triangles of A and of C, as views to write to.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        dim: D.

    Returns:
        B; a square whose upper triangle is that of A; a square whose lower triangle is that of C.
    """
    half = dim // 2
    corner, fold = _views(packed, dim)
    return corner, fold[:half, fold.shape[1] - half :], fold[: dim - half, : dim - half]


def split(product: Array) -> tuple[Array, Array, Array]:
    """Split symmetric tensors into what `packed_parts` finds: B, the triangle of A, that of C.

    Args:
        product: a symmetric torch tensor, or a stack of them, ... x D x D.

    Returns:
        B, the upper triangle of A and the lower triangle of C; 0 elsewhere.
    """
    half = product.shape[-1] // 2
    return (
        product[..., :half, half:],
        product[..., :half, :half].triu(),
        product[..., half:, half:].tril(),
    )


def unpack(packed: Array, out: Array) -> Array:
    """Write the whole of G into `out`.

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
    """Return the lower triangle of G in float64, which is all that a Cholesky factor needs.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        dim: D.

    Returns:
        D x D, a new array; what stands above the diagonal means nothing.
    """
    xp, half = array_namespace(packed), dim // 2
    corner, fold = _views(packed, dim)
    out = xp.empty((dim, dim), dtype=xp.float64, device=device(packed))
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

    >>> import numpy as np
    >>> z, packed = np.array([[1.0, 2.0, 3.0]]), np.zeros(6)
    >>> add_gram(packed, z); sorted(diagonal(packed, 3).tolist())
    [1.0, 4.0, 9.0]
    """
    half = dim // 2
    _, fold = _views(packed, dim)
    found = packed[:dim] * 0
    found[:half] = fold[:half, fold.shape[1] - half :].diagonal()
    found[half:] = fold[: dim - half, : dim - half].diagonal()
    return found


def column(packed: Array, dim: int, k: int) -> Array:
    """Read one column of G.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        dim: D.
        k: the number of the column.

    Returns:
        Its D numbers, a new array.

    >>> import numpy as np
    >>> packed = np.zeros(6)
    >>> add_gram(packed, np.array([[1.0, 2.0, 3.0]])); column(packed, 3, 1).tolist()
    [2.0, 4.0, 6.0]
    """
    half = dim // 2
    corner, upper, lower = packed_parts(packed, dim)
    found = packed[:dim] * 0
    if k < half:
        found[:k] = upper[:k, k]
        found[k:half] = upper[k, k:]
        found[half:] = corner[k]
    else:
        found[:half] = corner[:, k - half]
        found[half:k] = lower[k - half, : k - half]
        found[k:] = lower[k - half :, k - half]
    return found


def low_rank_factor(packed: NumpyArray, tolerance: NumpyArray, most: int) -> NumpyArray | None:
    """F with G = F^T F, a row for each rank, by Cholesky factors with pivots.

    Args:
        packed: G, D (D + 1) / 2 numbers, in numpy.
        tolerance: how far off each number on the diagonal of F^T F may be, D positive numbers; none
            of the numbers beside the diagonal is farther off than the largest.
        most: the most rows that are of use.

    Returns:
        F; None if G is not positive semidefinite, or if F needs more rows.

    >>> import numpy as np
    >>> packed = np.zeros(6)
    >>> add_gram(packed, np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]))
    >>> factor = low_rank_factor(packed, np.full(3, 1e-9), most=2)
    >>> (factor.T @ factor).round(6).tolist()
    [[5.0, 10.0, 15.0], [10.0, 20.0, 30.0], [15.0, 30.0, 45.0]]
    """
    dim = len(tolerance)
    factor, rest = np.empty((most, dim)), diagonal(packed, dim)
    for rank in range(most + 1):
        if bool((rest < -tolerance).any()):
            return None
        pivot = int((rest / tolerance).argmax())
        if rest[pivot] <= tolerance[pivot]:
            return factor[:rank]
        if rank < most:
            above = factor[:rank]
            row = (column(packed, dim, pivot) - above[:, pivot] @ above) / rest[pivot] ** 0.5
            factor[rank] = row
            rest = rest - row * row
            rest[pivot] = 0
    return None


def subtract_outer(packed: Array, v: Array) -> None:
    """G <- G - v v^T in place.

    Args:
        packed: G, D (D + 1) / 2 numbers.
        v: D numbers.
    """
    packed *= -1
    add_gram(packed, v[None])
    packed *= -1


def _views(packed: Array, dim: int) -> tuple[Array, Array]:
    """B, and the rectangle with C's lower triangle at its lower left and A's upper at its right."""
    half = dim // 2
    rest = dim - half
    at = half * rest
    return packed[:at].reshape(half, rest), packed[at:].reshape(rest, -1)


def _lower(rows: Array) -> Array:
    """A square with as many rows as there are: 1 on and below the diagonal, 0 above it."""
    number = (rows[:, 0] * 0 + 1).cumsum(0)
    return number[:, None] >= number


def _mirror(lower: Array, out: Array) -> None:
    """Write the symmetric matrix with that lower triangle; the upper triangle is not read."""
    xp = array_namespace(lower)
    out[:] = xp.tril(lower)
    out += xp.tril(lower, k=-1).T
