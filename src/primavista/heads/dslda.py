"""Streaming linear discriminant analysis, exact and in batches. Written for numpy and torch arrays alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # a numpy array or a torch tensor: only what both understand is used here
STRIP = 256


def lda_update(mu: Array, n: Array, scatter: Array, t: Array, z: Array, y: Array) -> Array:
    """Sigma <- (t Sigma + t / (t + 1) delta delta^T) / (t + 1),  delta = z - mu_y before the update  (Hayes & Kanan 2020)

    for every sample in turn, as one product: with S = t Sigma the recursion is S <- S + t / (t + 1) delta delta^T, a Gram
    product with weights t / (t + 1), where delta needs only the running mean of its class before each sample. Updates
    `mu` (classes x D), `n` (classes) and `scatter` = S (D x D) in place and returns the new t. `y` are rows of `mu`; `y` and
    `n` are on the CPU, so that no GPU is asked for a count. The mean of a class without samples counts as 0, as in the
    published code.
    """
    labels, order = np.asarray(y), np.arange(len(z), dtype=np.float64)
    present = sorted(set(labels.tolist()))
    mine = [np.flatnonzero(labels == j) if len(present) > 1 else slice(None) for j in present]
    before = np.empty(len(z))  # samples of its class before each
    for j, own in zip(present, mine, strict=True):
        before[own] = float(n[j]) + order[: len(labels[own])]
    before_all = t + order  # samples of any class before each
    put = getattr(z, "new_tensor", np.asarray)  # to where z is
    divisor, weight = put(np.stack([before.clip(1), before_all / (before_all + 1)]))[:, :, None]
    if len(present) == 1:
        delta = _class_update(mu, n, present[0], z, divisor)
    else:
        delta = z * 1
        for j, own in zip(present, mine, strict=True):
            delta[own] = _class_update(mu, n, j, z[own], divisor[own])
    add_symmetric(scatter, delta * weight, delta)
    return t + len(z)


def _class_update(mu: Array, n: Array, j: int, z: Array, divisor: Array) -> Array:
    """delta of the samples z of class j, and its new mean and count; `divisor` counts those before each, at least 1."""
    known = float(n[j])
    summed = mu[j] * known
    delta = z - (summed + z.cumsum(0) - z) / divisor
    mu[j] = (summed + z.sum(0)) / (known + len(z))
    n[j] += len(z)
    return delta


def add_symmetric(total: Array, a: Array, b: Array) -> None:
    """total += a^T b where that is symmetric: in strips from the diagonal on, mirrored, for two thirds of the work.

    On a GPU in one: it waits longer for being told of a product than the product takes.
    """
    if getattr(total, "is_cuda", False):
        total.addmm_(a.T, b)
        return
    for i in range(0, len(total), STRIP):
        j = i + STRIP
        total[i:j, i:] += a[:, i:j].T @ b[:, i:]
        total[j:, i:j] = total[i:j, j:].T


def lda_weights(
    mu: Array,
    scatter: Array,
    t: int,
    shrinkage: float,
    solve: Callable[[Array, Array], Array],
    target: float = 1.0,
) -> tuple[Array, Array]:
    """Lambda = inv((1 - eps) Sigma + eps target I),  w_k = Lambda mu_k,  b_k = -mu_k^T Lambda mu_k / 2,  scores = w z + b.

    `solve(A, B)` gives inv(A) B for a positive definite A.
    """
    w = solve(shrunk(scatter, t, shrinkage, target), mu.T).T
    return w, offsets(w, mu)


def shrunk(scatter: Array, t: int, shrinkage: float, target: float = 1.0) -> Array:
    """(1 - eps) S / t + eps target I."""
    a = scatter * ((1 - shrinkage) / max(t, 1))
    a.reshape(-1)[:: len(a) + 1] += shrinkage * target  # the diagonal
    return a


def offsets(w: Array, mu: Array) -> Array:
    """b_k = -w_k mu_k / 2."""
    return (w * mu).sum(1) * -0.5


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
