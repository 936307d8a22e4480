"""Systems of linear equations with a positive definite matrix, in numpy or torch.

The two libraries use different routines: Cholesky factors in torch, LU in numpy. Neither may be
changed, so that learning the same stream again gives the same bits as the files that exist.
"""

from __future__ import annotations

import sys

import numpy as np

from primavista.arrays import Array, array_namespace, is_torch_array

FLOOR = 1e-6  # fraction of the second moment added to a variance, so that it is never near 0
SOLVE_BLOCK = 96  # rows of the triangular blocks that `solve_rows` inverts


def solve_positive_definite(a: Array, b: Array) -> Array:
    """Solve A X = B for a positive definite A, by Cholesky factors in torch, by LU in numpy.

    Args:
        a: D x D.
        b: D x K.

    Returns:
        inv(A) B, D x K.

    Raises:
        LinAlgError: A cannot be factorised. The class depends on the library; see
            `linear_algebra_error`.
    """
    if not is_torch_array(a):
        return np.linalg.solve(a, b)
    torch = sys.modules["torch"]
    return torch.cholesky_solve(b, torch.linalg.cholesky(a))


def solve_rows(a: Array, b: Array) -> Array:
    """Solve X A = B for a positive definite A = L L^T, block by block.

    Everything except the small triangles on the diagonal is done by matrix products, so on one
    thread this takes about two thirds of the time of the library's own factorisation. On a GPU the
    library's own factorisation is used.

    Args:
        a: D x D in float64; the part above the diagonal is not read. The array is overwritten.
        b: K x D in float64; the array is overwritten with the solution.

    Returns:
        B inv(A), K x D.

    Raises:
        LinAlgError: A cannot be factorised. The class depends on the library; see
            `linear_algebra_error`.
    """
    xp = array_namespace(a)
    if getattr(a, "is_cuda", False):
        return sys.modules["torch"].cholesky_solve(b.T, xp.linalg.cholesky(a)).T
    blocks = [slice(k, min(k + SOLVE_BLOCK, len(a))) for k in range(0, len(a), SOLVE_BLOCK)]
    inverses = []  # of the triangular blocks on the diagonal of L
    for own in blocks:  # A becomes L and B becomes Y = B inv(L)^T
        before, below = slice(0, own.start), slice(own.stop, len(a))
        if own.start:
            a[own.start :, own] -= a[own.start :, before] @ a[own, before].T
            b[:, own] -= b[:, before] @ a[own, before].T
        inverse = xp.linalg.inv(xp.linalg.cholesky(a[own, own]))
        a[below, own] = a[below, own] @ inverse.T
        b[:, own] = b[:, own] @ inverse.T
        inverses.append(inverse)
    for own, inverse in zip(reversed(blocks), reversed(inverses), strict=True):  # X = Y inv(L)
        below = slice(own.stop, len(a))
        b[:, own] = (b[:, own] - b[:, below] @ a[below, own]) @ inverse
    return b


def invert_positive_definite(a: Array) -> Array:
    """Invert a positive definite A, by Cholesky factors in torch, by LU in numpy.

    Args:
        a: D x D.

    Returns:
        inv(A).
    """
    if not is_torch_array(a):
        return np.linalg.inv(a)
    torch = sys.modules["torch"]
    return torch.cholesky_inverse(torch.linalg.cholesky(a))


def linear_algebra_error(array: Array) -> type[Exception]:
    """Return the exception that the library of an array raises for a matrix it cannot factorise.

    Args:
        array: A numpy array or a torch tensor.

    Returns:
        The class of the exception.
    """
    found: type[Exception] = array_namespace(array).linalg.LinAlgError
    return found
