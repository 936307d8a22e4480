"""Telling what was never taught, from the means and the covariance alone. Written for numpy and torch arrays alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .statistics import lda_weights, oas  # relative: the distribution for the edge has these modules too, under its own name

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

Precision = Array | tuple[Array, ...] | None  # P whole, or the squares on its diagonal outside which it is 0; None: I

LOGIT = 10.0  # how far a class leads the average, as a logit, at its own mean
KNOWN = 0.25  # familiarity from which on a frame counts as known: about 95 in 100 frames of a new video of a known object


@dataclass(frozen=True)
class Familiarity:
    """familiarity(z) = v_c (z - m) / v_c (mu_c - m) * sqrt(E h / h(z)),  h(z) = (z - m)^T P (z - m),  v_c = w_c - mean_k w_k

    for the class c of the highest score w_c z + b_c; m is the mean of the classes' means, P a precision. It is how far a frame
    goes on the way from the average object to the mean of its class, over how far it strays from what was taught, as a
    multiple of what is usual, E h: the t-value of a regression's prediction, f / sqrt(leverage), in units of that at the
    class' mean. It has no scale, so that one threshold serves all. With a single class the first factor is 1.
    """

    v: Array
    gain: Array  # v_c (mu_c - m)
    lead: float  # its mean size
    m: Array
    precision: Precision
    usual: float  # E h

    def __call__(self, z: Array, best: Array) -> Array:
        """Of features N x D whose highest scores are in the columns `best`."""
        x = z - self.m
        stray = _square(x, self.precision)
        way = 1.0
        if len(self.v) > 1:
            way = (x * self.v[best]).sum(1) / self.gain[best]
        return way * (self.usual / stray.clip(self.usual * 1e-6 + 1e-30)) ** 0.5

    @property
    def temperature(self) -> float:
        """T of the shares softmax(scores / T): at its own mean a class leads the average by the logit `LOGIT`, on average."""
        return self.lead / LOGIT if len(self.v) > 1 else 1.0


def familiarity(w: Array, mu: Array, precision: Precision, scatter: Array | tuple[Array, ...], frames: float) -> Familiarity:
    """From the weights, the means and the covariance S within classes (its trace, where P is I) of so many frames.

    E h = tr(P S) / (1 - g) + mean_c (mu_c - m)^T P (mu_c - m),  g = tr(P S) / N, at most 0.8: a P that was estimated from N
    frames finds new ones 1 / (1 - g) times as far off as those that it was estimated from.
    """
    m = mu.mean(0)
    apart, v = mu - m, w - w.mean(0)
    between = _square(apart, precision).mean()
    scatters = _blocks(scatter)
    if precision is None:
        spread = float(scatters[0])
    else:
        spread = float(sum((p * s).sum() for p, s in zip(_blocks(precision), scatters, strict=True)))
    overfit = 0.0 if precision is None else min(spread / max(frames, 1), 0.8)
    usual = float(between) + spread / (1 - overfit)
    gain = (v * apart).sum(1)
    lead = float(abs(gain).mean()) + 1e-30
    return Familiarity(v, gain.clip(lead / 10), lead, m, precision, usual)  # a class that hardly leads is no measure of the way


def lda_familiarity(
    mu: Array, scatter: Array, t: int, shrinkage: float, one: Array, solve: Callable[[Array, Array], Array]
) -> Familiarity:
    """That of means and a scatter over t frames, with a covariance that is shrunk as much as it needs: `oas`, and no less than
    `shrinkage`. A fixed shrinkage of 1e-4 is too little for fewer frames than features. `one` is the identity, D x D.
    """
    eps, m = oas(scatter / t, t)
    precision, _ = lda_weights(one, scatter, t, eps, solve, max(m, shrinkage))
    return familiarity(mu @ precision, mu, precision, scatter / t, t)


def _square(x: Array, precision: Precision) -> Array:
    """x^T P x of each row."""
    if precision is None:
        return (x * x).sum(1)
    total, at = 0.0, 0
    for p in _blocks(precision):
        part = x[:, at : at + len(p)]
        total, at = total + ((part @ p) * part).sum(1), at + len(p)
    return total


def _blocks(matrix: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return matrix if isinstance(matrix, tuple) else (matrix,)
