"""Ridge regression from sufficient statistics, its regularisation included. Written for numpy and torch arrays alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

FLOOR = 1e-6  # share of a feature's second moment added to its variance: one that hardly varies is not blown up
RHO = tuple(10.0 ** (k / 2) for k in range(-10, 5))  # a fixed grid: which of them is chosen does not depend on rounding


class Algebra(NamedTuple):
    """What numpy and torch name differently, in float64."""

    zeros: Callable[[tuple[int, int]], Array]
    cholesky: Callable[[Array], Array]  # the lower factor
    solve: Callable[[Array, Array], Array]  # inv(A) B for a positive definite A


NUMPY = Algebra(np.zeros, np.linalg.cholesky, np.linalg.solve)


@dataclass(frozen=True)
class Regression:
    """One-hot targets on x = (z - mean) / std: [[A, r^T], [r, I]] with the correlations A of x and r_c = E[x (y_c - pi_c)]."""

    bordered: Array
    pi: Array  # the weight of each class; they sum to 1
    mean: Array
    std: Array

    @property
    def dim(self) -> int:
        """D, how many features there are."""
        return len(self.mean)

    @property
    def diagonal(self) -> Array:
        """The diagonal of the bordered matrix, to be written to."""
        return self.bordered.reshape(-1)[:: len(self.bordered) + 1]


def within(n: Array, s: Array, gram: Array) -> Array:
    """S = sum_i (z_i - mu_c(i)) (z_i - mu_c(i))^T = G - sum_c s_c s_c^T / n_c, from counts, sums and G = sum_i z_i z_i^T.

    Overwrites `gram` with it.
    """
    root = s / n.clip(1)[:, None] ** 0.5
    gram -= root.T @ root
    return gram


def regression(n: Array, s: Array, scatter: Array, t: float, balance: float, algebra: Algebra) -> Regression:
    """C = S / t + sum_c pi_c (mu_c - m) (mu_c - m)^T,  pi_c ~ n_c^(1 - balance),  m = sum_c pi_c mu_c,  std^2 = diag C

    A = C / (std std^T),  r_c = pi_c (mu_c - m) / std; S is that of `within`, over t frames, and is overwritten.

    With balance = 0 this is exactly the regression on the frames. With balance = 1 every class weighs the same, however many
    frames it has: exactly so for the means, hence for all that lies between classes; the covariance within them is the
    pooled one, as none is kept for each class: exact where the classes share it.
    """
    dim, classes = len(scatter), len(n)
    weight = n.clip(1) ** (1 - balance)
    pi = weight / weight.sum()
    mu = s / n.clip(1)[:, None]
    mean = (pi[:, None] * mu).sum(0)
    apart = mu - mean
    scatter /= max(t, 1)
    scatter += (pi[:, None] * apart).T @ apart
    variance = scatter.reshape(-1)[:: dim + 1].clip(0)
    std = (variance + FLOOR * (variance + mean * mean) + 1e-30) ** 0.5
    scatter /= std[:, None]
    scatter /= std
    r = pi[:, None] * apart / std
    bordered = algebra.zeros((dim + classes, dim + classes))
    bordered[:dim, :dim] = scatter
    bordered[dim:, :dim] = r
    bordered[:dim, dim:] = r.T
    result = Regression(bordered, pi, mean, std)
    result.diagonal[dim:] = 1
    return result


def surprise(x: Regression, frames: float, rho: float, algebra: Algebra) -> float:
    """-(2 / K) log p(Y | rho) = (N - 1) log(yy - sum_c r_c^T inv(A + rho I) r_c) + log det(I + A / rho) + constant

    of y = w x + noise, with w ~ N(0, noise / (N rho)) and the noise at its likeliest; yy = sum_c pi_c (1 - pi_c).
    It takes one factorisation: the corner I of the bordered matrix becomes I - r inv(A + rho I) r^T.
    """
    dim, classes = x.dim, len(x.pi)
    x.diagonal[:dim] += rho
    factor = algebra.cholesky(x.bordered)
    x.diagonal[:dim] -= rho
    corner = factor[dim:, dim:]
    unexplained = float((x.pi * (1 - x.pi)).sum()) - classes + float((corner * corner).sum())
    logdet = 2 * sum(map(math.log, factor.reshape(-1)[:: dim + classes + 1][:dim].tolist()))
    return (frames - 1) * math.log(max(unexplained, 1e-12)) + logdet - dim * math.log(rho)


def choose_rho(x: Regression, frames: float, algebra: Algebra) -> float:
    """The value of `RHO` that surprises least: every fourth is tried, then those between, around the best."""
    seen: dict[int, float] = {}

    def at(k: int) -> float:
        if k not in seen:
            seen[k] = surprise(x, frames, RHO[k], algebra)
        return seen[k]

    best = min(range(0, len(RHO), 4), key=at)
    for step in (2, 1):
        best = min((k for k in (best - step, best, best + step) if 0 <= k < len(RHO)), key=at)
    return RHO[best]


def ridge_weights(x: Regression, rho: float, algebra: Algebra) -> tuple[Array, Array]:
    """w_c = inv(A + rho I) r_c for x = (z - mean) / std, returned for z: scores = w z + b,  b = pi - w mean."""
    dim = x.dim
    x.diagonal[:dim] += rho
    w = algebra.solve(x.bordered[:dim, :dim], x.bordered[:dim, dim:]).T / x.std
    x.diagonal[:dim] -= rho
    return w, x.pi - (w * x.mean).sum(1)
