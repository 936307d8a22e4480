"""A symmetric matrix in half the memory: its upper triangle, row after row. Written for numpy and torch arrays alike."""

from __future__ import annotations

from typing import Any

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

BLOCK = 256  # rows whose product is alive at once


def packed_size(dim: int) -> int:
    """How many numbers a D x D symmetric matrix has: D (D + 1) / 2."""
    return dim * (dim + 1) // 2


def add_gram(packed: Array, z: Array, block: int = BLOCK) -> None:
    """G <- G + z^T z in place, G packed: row i is G[i, i:].

    One product for each `block` rows, over the columns from the diagonal on: half the work of z^T z, and never a second matrix.
    """
    dim, at = z.shape[1], 0
    for start in range(0, dim, block):
        product = z[:, start : start + block].T @ z[:, start:]
        for i in range(len(product)):
            length = dim - start - i
            packed[at : at + length] += product[i, i:]
            at += length


def unpack(packed: Array, out: Array) -> Array:
    """Writes G whole into `out` (D x D) and returns it."""
    dim, at = len(out), 0
    for i in range(dim):
        row = packed[at : at + dim - i]
        out[i, i:] = row
        out[i:, i] = row
        at += dim - i
    return out


def subtract_outer(packed: Array, v: Array) -> None:
    """G <- G - v v^T in place."""
    dim, at = len(v), 0
    for i in range(dim):
        packed[at : at + dim - i] -= v[i] * v[i:]
        at += dim - i
