"""Telling what was never taught, from weights, means and covariance alone. Written for numpy and torch arrays alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .dslda import (
    lda_weights,
    oas,
)  # relative: the distribution for the edge has these modules too, under its own name
from .ridge import FLOOR

Array = Any  # a numpy array or a torch tensor: only what both understand is used here

LOGIT = 10.0  # how far a class leads the average, as a logit, at its own mean
KNOWN = 0.25  # familiarity from which on a frame counts as known: most frames of a new video of a known object have it
ALIKE = 0.3  # the same of `Alike`, in any place


@dataclass(frozen=True)
class Familiarity:
    """way(z) = v_c (z - m) / v_c (mu_c - m),  v_c = w_c - mean_k w_k

    for the class c of the highest score w_c z + b_c; m is the mean of the classes' means. It is how far a frame goes on the way
    from the average object to the mean of its class, in the scores. `Strayed` and `Alike` say what else makes it familiar.
    Neither has a scale, so that one threshold of each serves all backbones and data.
    """

    v: Array
    gain: Array  # v_c (mu_c - m)
    lead: float  # its mean size
    m: Array

    def __call__(self, z: Array, best: Array) -> Array:
        """Of features N x D whose highest scores are in the columns `best`."""
        raise NotImplementedError

    def way(self, apart: Array, best: Array) -> Array:
        """Of z - m: 1 at the mean of the class, 0 at m."""
        return (apart * self.v[best]).sum(1) / self.gain[best]

    @property
    def temperature(self) -> float:
        """T of the shares softmax(scores / T): at its own mean a class leads the average by the logit `LOGIT`, on average."""
        return self.lead / LOGIT if len(self.v) > 1 else 1.0


@dataclass(frozen=True)
class Strayed(Familiarity):
    """familiarity(z) = way * sqrt(E h / h(z)),  h(z) = (z - m)^T P (z - m),  P a precision

    The way, over how far a frame strays from what was taught, as a multiple of what is usual, E h: the t-value of a
    regression's prediction, f / sqrt(leverage), in units of that at the class' mean. With a single class the way is 1.
    """

    precision: Array | None  # None: I
    usual: float  # E h

    def __call__(self, z: Array, best: Array) -> Array:
        """As in `Familiarity`."""
        apart = z - self.m
        stray = _square(apart, self.precision)
        way = self.way(apart, best) if len(self.v) > 1 else 1.0
        return way * (self.usual / stray.clip(self.usual * 1e-6 + 1e-30)) ** 0.5


@dataclass(frozen=True)
class Alike(Familiarity):
    """familiarity(z) = (way cos^4 B / (B + S))^(1/3),  cos = z mu_c / (|z| |mu_c|)

    The way, and how like the mean of its class a frame looks to the backbone's own features, those from column `own` on: what
    P says of frames that differ from those of one video by place and light is worth nothing, a likeness is. In the
    same features B = sum_k |mu_k - m|^2 / (K - 1) for K classes and S = E |z - mu|^2: the less of the variance lies between
    the classes, the less a high score says. With a single class, which there is no other to tell from, it is cos^4.
    """

    looks: Array  # mu_c / |mu_c|
    between: float  # B / (B + S)
    own: int

    def __call__(self, z: Array, best: Array) -> Array:
        """As in `Familiarity`."""
        seen = z[:, self.own :]
        size = (seen * seen).sum(1).clip(1e-30) ** 0.5
        alike = ((seen * self.looks[best]).sum(1) / size).clip(0) ** 4
        if len(self.v) == 1:
            return alike
        return (self.way(z - self.m, best).clip(0) * alike * self.between) ** (1 / 3)


def familiarity(
    w: Array, mu: Array, precision: Array | None, scatter: Array, frames: float
) -> Strayed:
    """From the weights, the means and the covariance S within classes (its trace, where P is I) of so many frames.

    E h = tr(P S) / (1 - g) + mean_c (mu_c - m)^T P (mu_c - m),  g = tr(P S) / N, at most 0.8: a P that was estimated from N
    frames finds new ones 1 / (1 - g) times as far off as those that it was estimated from. And at least a millionth of
    mean_c mu_c^T P mu_c: frames all alike do not vary, but for rounding.
    """
    v, gain, lead, m = _ways(w, mu)
    spread = max(float(scatter if precision is None else (precision * scatter).sum()), 0.0)
    overfit = 0.0 if precision is None else min(spread / max(frames, 1), 0.8)
    usual = (
        float(_square(mu - m, precision).mean())
        + spread / (1 - overfit)
        + FLOOR * float(_square(mu, precision).mean())
    )
    return Strayed(v, gain, lead, m, precision, usual)


def likeness(w: Array, mu: Array, spread: float, own: int) -> Alike:
    """From the weights, the means, and S, the mean of |z - mu|^2 in the features from column `own` on."""
    v, gain, lead, m = _ways(w, mu)
    seen = mu[:, own:]
    between = float(((seen - m[own:]) ** 2).sum()) / max(len(mu) - 1, 1)
    looks = seen / (seen * seen).sum(1).clip(1e-30)[:, None] ** 0.5
    return Alike(v, gain, lead, m, looks, between / (between + spread + 1e-30), own)


def lda_familiarity(
    mu: Array,
    scatter: Array,
    t: int,
    shrinkage: float,
    one: Array,
    solve: Callable[[Array, Array], Array],
) -> Familiarity:
    """That of means and a scatter over t frames, with a covariance that is shrunk as much as it needs: `oas`, and no less than
    `shrinkage`. A fixed shrinkage of 1e-4 is too little for fewer frames than features. `one` is the identity, D x D.
    """
    eps, m = oas(scatter / t, t)
    precision, _ = lda_weights(one, scatter, t, eps, solve, max(m, shrinkage))
    return familiarity(mu @ precision, mu, precision, scatter / t, t)


def _ways(w: Array, mu: Array) -> tuple[Array, Array, float, Array]:
    m = mu.mean(0)
    v = w - w.mean(0)
    gain = (v * (mu - m)).sum(1)
    lead = float(abs(gain).mean()) + 1e-30
    return v, gain.clip(lead / 10), lead, m  # a class that hardly leads is no measure of the way


def _square(x: Array, precision: Array | None) -> Array:
    """x^T P x of each row."""
    return ((x if precision is None else x @ precision) * x).sum(1)
