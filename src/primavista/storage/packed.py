"""A symmetric matrix in half the memory. Written for numpy and torch arrays alike."""

from __future__ import annotations

from typing import Any

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

BLOCK = 256  # rows whose product is alive at once


def packed_size(dim: int) -> int:
    """How many numbers a D x D symmetric matrix has: D (D + 1) / 2."""
    return dim * (dim + 1) // 2


def add_gram(packed: Array, z: Array) -> None:
    """G <- G + z^T z in place.

    G = [[A, B], [B^T, C]] is folded in two (LAPACK's rectangular full packed format): B as it is, and the triangles of A and
    C side by side in one rectangle. A few rows at a time: about half the work of z^T z, and never a second matrix; on a GPU
    all at once, as it waits longer for being told of a product than the product takes.
    """
    if getattr(z, "is_cuda", False):
        for part, added in zip(pieces(packed, z.shape[1]), split(z.T @ z), strict=True):
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


def pieces(packed: Array, dim: int) -> tuple[Array, Array, Array]:
    """Where B lies in it, and the squares that hold the triangles of A and of C."""
    half = dim // 2
    corner, fold = _views(packed, dim)
    return corner, fold[:half, fold.shape[1] - half :], fold[: dim - half, : dim - half]


def split(product: Array) -> tuple[Array, Array, Array]:
    """B, the upper triangle of A and the lower one of C of a symmetric tensor, or of a stack of them."""
    half = product.shape[-1] // 2
    return (
        product[..., :half, half:],
        product[..., :half, :half].triu(),
        product[..., half:, half:].tril(),
    )


def unpack(packed: Array, out: Array) -> Array:
    """Writes G whole into `out` (D x D) and returns it."""
    dim = len(out)
    half = dim // 2
    corner, fold = _views(packed, dim)
    _mirror(fold[: dim - half, : dim - half], out[half:, half:])
    if half:
        _mirror(fold[:half, -half:].T, out[:half, :half])
        out[:half, half:] = corner
        out[half:, :half] = corner.T
    return out


def diagonal(packed: Array, dim: int) -> Array:
    """The D numbers on the diagonal of G.

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


def subtract_outer(packed: Array, v: Array) -> None:
    """G <- G - v v^T in place."""
    packed *= -1
    add_gram(packed, v[None])
    packed *= -1


def _views(packed: Array, dim: int) -> tuple[Array, Array]:
    """B, and the rectangle whose lower left is the lower triangle of C, and whose upper right the upper one of A."""
    half = dim // 2
    rest = dim - half
    at = half * rest
    return packed[:at].reshape(half, rest), packed[at:].reshape(rest, -1)


def _lower(rows: Array) -> Array:
    """1 on and below the diagonal, 0 above it: a square with as many rows as there are."""
    number = (rows[:, 0] * 0 + 1).cumsum(0)
    return number[:, None] >= number


def _mirror(lower: Array, out: Array) -> None:
    """The symmetric matrix with that lower triangle; what lies above its diagonal is not read."""
    if getattr(lower, "is_cuda", False):
        out.copy_(lower.tril()).add_(lower.tril(-1).T)
        return
    mask = _lower(lower)
    out[:] = lower * mask
    out += (lower * (mask & ~mask.T)).T
