"""Ridge regressions on several groups of features, each judged by its own sums. Written for numpy and torch arrays alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .ridge import (
    RHO,
    Algebra,
    Regression,
)  # relative: the distribution for the edge has this module too, under its own name

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

LEVELS: tuple[float, ...] = tuple(
    10.0 ** (k / 2) for k in range(-4, 7)
)  # a fixed grid, as that of `RHO`
POWER = 1.0  # of a head's ratio of signal to noise
CERTAIN = 1e-3  # no head is believed to be better than that, nor to know less than nothing


class Head(NamedTuple):
    """w and b of one group, and what share of the targets' variance it is expected to leave unexplained in a new frame."""

    w: Array
    b: Array
    error: float
    rho: float


def judged_ridge(x: Regression, t: float, algebra: Algebra) -> Head:
    """error(rho) = u / (yy (1 - (1 + tr H) / N)^2),  H = inv(A + rho I) A,  u = yy - sum_c r_c^T (2 I - H) inv(A + rho I) r_c

    generalised cross-validation: u is what the regression leaves of the variance yy of the targets in the t frames that it
    was made from, the bracket corrects for having seen them; N, `x.frames`, is t unless some of them weigh more, as those of
    a class with few frames do. The rho of the least error is taken, from `LEVELS` times the mean of the eigenvalues of A that
    are not 0; from 0.1 on where there are few frames: those are fitted perfectly, what little is left of their variance is
    rounding.
    """
    dim = x.dim
    yy = float((x.pi * (1 - x.pi)).sum())
    if yy < 1e-12:  # one class: there is nothing to tell apart
        return Head(x.bordered[dim:, :dim] * 0, x.pi, 1.0, 1.0)
    values, vectors = _spectrum(x.bordered[:dim, :dim], t, algebra)
    q = vectors.T @ x.bordered[:dim, dim:]
    power = (q * q).sum(1)
    mean = float(values.sum()) / max(1.0, min(t - 1, dim))
    best = (math.inf, 1.0)
    for level in LEVELS:
        if level < 0.1 and x.frames < 2 * dim:
            continue
        rho = max(level * mean, RHO[0])  # of frames all alike, rounding would decide
        unexplained = max(yy - float((power * (values + 2 * rho) / (values + rho) ** 2).sum()), 0.0)
        seen = 1 - (1 + float((values / (values + rho)).sum())) / x.frames
        error = unexplained / (yy * max(seen, 1e-9) ** 2)
        if error < best[0] * (1 - 1e-7):
            best = error, rho
    error, rho = best
    w = (vectors @ (q / (values + rho)[:, None])).T / x.std
    return Head(w, x.pi - (w * x.mean).sum(1), error, rho)


def shares(errors: Sequence[float], votes: Sequence[float], power: float = POWER) -> list[float]:
    """omega_h ~ votes_h ((1 - error_h) / error_h)^power: how much each head counts, by its ratio of signal to noise; sum 1.

    >>> [round(share, 2) for share in shares([0.5, 0.5, 0.75], [1, 2, 1], power=1)]
    [0.3, 0.6, 0.1]
    """
    clipped = [min(max(error, CERTAIN), 1 - CERTAIN) for error in errors]
    weights = [
        vote * ((1 - error) / error) ** power for vote, error in zip(votes, clipped, strict=True)
    ]
    return [weight / sum(weights) for weight in weights]


def _spectrum(a: Array, frames: float, algebra: Algebra) -> tuple[Array, Array]:
    """The eigenvalues of A and their vectors; those that are 0 may be left out.

    N frames give A a rank below N: where that is small, A is first turned into the space that it spans, found exactly by what A
    makes of N random vectors.
    """
    dim = len(a)
    if frames >= dim / 2:
        values, vectors = algebra.eigh(a)
        return values.clip(0), vectors
    draw = np.random.RandomState(0).standard_normal((dim, int(frames) + 1))
    basis = algebra.qr(a @ algebra.asarray(draw))[0]
    values, vectors = algebra.eigh(basis.T @ (a @ basis))
    return values.clip(0), basis @ vectors
