"""Ridge regression from sufficient statistics, its regularisation included. Written for numpy and torch arrays alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

FLOOR = 1e-6  # share of a feature's second moment added to its variance: one that hardly varies is not blown up
ROUNDING = 1e-8  # the same of the mean over all features: what rounding leaves of a feature that never varied is not either
RHO: tuple[float, ...] = tuple(
    10.0 ** (k / 2) for k in range(-10, 5)
)  # a fixed grid: which of them is chosen does not depend on rounding


class Algebra(NamedTuple):
    """What numpy and torch name differently, in float64."""

    zeros: Callable[[tuple[int, int]], Array]
    cholesky: Callable[[Array], Array]  # the lower factor
    solve: Callable[[Array, Array], Array]  # inv(A) B for a positive definite A
    eigh: Callable[[Array], tuple[Array, Array]]  # eigenvalues and vectors of a symmetric A
    qr: Callable[[Array], tuple[Array, Array]]
    asarray: Callable[[np.ndarray[Any, Any]], Array]


NUMPY = Algebra(
    np.zeros, np.linalg.cholesky, np.linalg.solve, np.linalg.eigh, np.linalg.qr, np.asarray
)


@dataclass(frozen=True)
class Regression:
    """One-hot targets on x = (z - mean) / std: [[A, r^T], [r, I]] with the correlations A of x and r_c = E[x (y_c - pi_c)]."""

    bordered: Array
    pi: Array  # the weight of each class; they sum to 1
    mean: Array
    std: Array
    frames: float  # N = 1 / sum_c pi_c^2 / n_c: as many of equal weight would say as much; all of them, if none weighs more

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


def regression(
    n: Array, s: Array, scatter: Array, t: float, balance: float, algebra: Algebra
) -> Regression:
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
    moment = variance + mean * mean
    std = (variance + FLOOR * moment + ROUNDING * moment.mean() + 1e-30) ** 0.5
    scatter /= std[:, None]
    scatter /= std
    r = pi[:, None] * apart / std
    bordered = algebra.zeros((dim + classes, dim + classes))
    bordered[:dim, :dim] = scatter
    bordered[dim:, :dim] = r
    bordered[:dim, dim:] = r.T
    result = Regression(bordered, pi, mean, std, 1 / float((pi * pi / n.clip(1)).sum()))
    result.diagonal[dim:] = 1
    return result


def surprise(x: Regression, rho: float, algebra: Algebra) -> float:
    """-(2 / K) log p(Y | rho) = (N + K - 1) log(u + K yy / N) + log det(I + A / rho) + constant

    u = yy - sum_c r_c^T inv(A + rho I) r_c

    The evidence of y = w x + noise with w ~ N(0, noise / (N rho)), an offset of any size and the noise at its likeliest;
    yy = sum_c pi_c (1 - pi_c) is the variance of the targets, u what a regression leaves unexplained. One more frame a class is
    counted that is pure noise: the frames of a video are so alike that a few lessons are always fitted perfectly, which says
    nothing of the next video; without it rho would vanish then. Once there are more frames than features it hardly matters.

    It takes one factorisation: the corner I of the bordered matrix becomes I - r inv(A + rho I) r^T.
    """
    dim, classes = x.dim, len(x.pi)
    x.diagonal[:dim] += rho
    factor = algebra.cholesky(x.bordered)
    x.diagonal[:dim] -= rho
    corner = factor[dim:, dim:]
    yy = float((x.pi * (1 - x.pi)).sum())
    unexplained = max(yy - classes + float((corner * corner).sum()), 0.0)
    logdet = 2 * sum(map(math.log, factor.reshape(-1)[:: dim + classes + 1][:dim].tolist()))
    noise = unexplained + classes * yy / x.frames
    return (x.frames + classes - 1) * math.log(noise or 1) + logdet - dim * math.log(rho)


def choose_rho(x: Regression, algebra: Algebra) -> float:
    """The value of `RHO` that surprises least, the largest of equals: every fourth is tried, then those around the best."""
    seen: dict[int, tuple[float, int]] = {}

    def at(k: int) -> tuple[float, int]:
        if k not in seen:
            seen[k] = round(surprise(x, RHO[k], algebra), 6), -k
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
