"""Streaming linear discriminant analysis, exact and in batches. Written for numpy and torch arrays alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any  # a numpy array or a torch tensor: only what both understand is used here
STRIP = 256


def lda_update(mu: Array, n: Array, scatter: Array, t: int, z: Array, y: Array) -> int:
    """Sigma <- (t Sigma + t / (t + 1) delta delta^T) / (t + 1),  delta = z - mu_y before the update  (Hayes & Kanan 2020)

    for every sample in turn, as one product: with S = t Sigma the recursion is S <- S + t / (t + 1) delta delta^T, a Gram
    product with weights t / (t + 1), where delta needs only the running mean of its class before each sample. Updates
    `mu` (classes x D), `n` (classes) and `scatter` = S (D x D) in place and returns the new t. `y` are rows of `mu`; the
    mean of a class without samples counts as 0, as in the published code.
    """
    delta = z * 1
    before_all = t + (y >= 0).cumsum(0) - 1  # samples of any class before each
    for j in sorted(set(y.tolist())):
        mine = y == j
        own = z[mine]
        before = n[j] + mine.cumsum(0)[mine] - 1  # samples of class j before each
        mean_before = (mu[j] * n[j] + own.cumsum(0) - own) / before.clip(1)[:, None]
        delta[mine] = own - mean_before
        mu[j] = (mu[j] * n[j] + own.sum(0)) / (n[j] + len(own))
        n[j] = n[j] + len(own)
    before_all = n.sum() * 0 + before_all  # in the dtype of the statistics: integers would be divided in float32
    weight = before_all / (before_all + 1.0)
    add_symmetric(scatter, delta * weight[:, None], delta)
    return t + len(z)


def add_symmetric(total: Array, a: Array, b: Array) -> None:
    """total += a^T b where that is symmetric: in strips from the diagonal on, mirrored, for two thirds of the work."""
    for i in range(0, len(total), STRIP):
        j = i + STRIP
        total[i:j, i:] += a[:, i:j].T @ b[:, i:]
        total[j:, i:j] = total[i:j, j:].T


def lda_weights(
    mu: Array, scatter: Array, t: int, shrinkage: float, solve: Callable[[Array, Array], Array], target: float = 1.0
) -> tuple[Array, Array]:
    """Lambda = inv((1 - eps) Sigma + eps target I),  w_k = Lambda mu_k,  b_k = -mu_k^T Lambda mu_k / 2,  scores = w z + b.

    `solve(A, B)` gives inv(A) B for a positive definite A.
    """
    a = scatter * ((1 - shrinkage) / max(t, 1))
    a.reshape(-1)[:: len(a) + 1] += shrinkage * target  # the diagonal
    w = solve(a, mu.T).T
    return w, (w * mu).sum(1) * -0.5


def oas_covariance(centred: Array) -> Array:
    """(1 - s) C + s m I,  C = X^T X / N, with s and m of `oas`."""
    count, dim = centred.shape
    c = centred.T @ centred / count
    s, m = oas(c, count)
    c = c * (1 - s)
    c.reshape(-1)[:: dim + 1] += s * m
    return c


def oas(c: Array, count: float) -> tuple[float, float]:
    """s = (mean(C^2) + m^2) / ((N + 1) (mean(C^2) - m^2 / D)), at most 1,  m = tr C / D; returns s and m.

    Oracle approximating shrinkage of a covariance C of N samples (Chen et al. 2010, without its 2 / D terms).
    """
    dim = len(c)
    m = float(c.reshape(-1)[:: dim + 1].sum()) / dim
    spread = float((c * c).mean())
    denominator = (count + 1) * (spread - m * m / dim)
    return (1.0 if denominator <= 0 else min(1.0, (spread + m * m) / denominator)), m
