"""Familiarity: recognising objects that were never taught (strangers).

Familiarity is computed from the weights of a head, the means of its classes and a covariance, which
the head keeps anyway, so no frames are stored. A frame is familiar if one class leads clearly and
if the frame is not unusually far from the taught objects. Everything is written for numpy and torch
arrays alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from primavista.arrays import Array
from primavista.heads.base import Familiarity
from primavista.heads.solving import FLOOR

LOGIT_AT_MEAN = 10.0  # the logit by which a class leads the average at its own mean
KNOWN_THRESHOLD = 0.25  # most frames of a new video of a known object reach this familiarity
LESSON_THRESHOLD = 0.9  # for `LessonFamiliarity`: one stranger in ten is taken for known


@dataclass(frozen=True)
class MahalanobisFamiliarity(Familiarity):
    """familiarity(z) = margin * sqrt(E h / h(z)),  h(z) = (z - m)^T P (z - m),

    margin = v_c (z - m) / v_c (mu_c - m),  v_c = w_c - mean_k w_k

    c is the class with the highest score w_c z + b_c, and m is the mean of the class means. The
    margin is 0 at m, the average object, and 1 at the mean of class c; with a single class it is
    set to 1. P is a precision matrix and sqrt(h) the Mahalanobis distance from m. The familiarity
    is the margin divided by this distance, relative to its usual value. It is the t-value of the
    prediction of a regression, f / sqrt(leverage), relative to the t-value at the mean of the
    class.

    Args:
        v: The centred weights, classes x D.
        gain: v_c (mu_c - m) for each class c.
        lead: The mean absolute value of the gain.
        m: The mean of the class means, D numbers.
        precision: P, D x D; None for the identity.
        usual: E h, the expected value of h for frames of taught objects.
    """

    v: Array
    gain: Array
    lead: float
    m: Array
    precision: Array | None
    usual: float

    def __call__(self, z: Array, best: Array) -> Array:
        """Compute the familiarity of frames; see `Familiarity`."""
        offset = z - self.m
        distance = _squared_distance(offset, self.precision)
        margin = 1.0
        if len(self.v) > 1:
            margin = (offset * self.v[best]).sum(1) / self.gain[best]
        return margin * (self.usual / distance.clip(self.usual * 1e-6 + 1e-30)) ** 0.5

    @property
    def temperature(self) -> float:
        """T of the probabilities softmax(scores / T).

        With this T, a class at its own mean leads the average of all classes by the logit
        `LOGIT_AT_MEAN`, on average over the classes.
        """
        return self.lead / LOGIT_AT_MEAN if len(self.v) > 1 else 1.0


def mahalanobis_familiarity(
    w: Array, mu: Array, precision: Array | None, scatter: Array, frames: float
) -> MahalanobisFamiliarity:
    """E h = tr(P S) / (1 - g) + mean_c (mu_c - m)^T P (mu_c - m),  g = tr(P S) / N, at most 0.8

    The factor 1 / (1 - g) corrects for overfitting: P was estimated from N frames, and h is larger
    by this factor for new frames than for these. E h is increased by a millionth of
    mean_c mu_c^T P mu_c, because frames that are all equal vary only by rounding.

    Args:
        w: The weights, classes x D.
        mu: The means, classes x D.
        precision: P, D x D; None for the identity.
        scatter: The covariance S within classes, D x D; its trace if P is the identity.
        frames: N, the number of frames.

    Returns:
        The familiarity.
    """
    m = mu.mean(0)
    v = w - w.mean(0)
    gain = (v * (mu - m)).sum(1)
    lead = float(abs(gain).mean()) + 1e-30
    gain = gain.clip(lead / 10)  # a class that hardly leads cannot set the scale
    spread = max(float(scatter if precision is None else (precision * scatter).sum()), 0.0)
    overfit = 0.0 if precision is None else min(spread / max(frames, 1), 0.8)
    usual = (
        float(_squared_distance(mu - m, precision).mean())
        + spread / (1 - overfit)
        + FLOOR * float(_squared_distance(mu, precision).mean())
    )
    return MahalanobisFamiliarity(v, gain, lead, m, precision, usual)


def _squared_distance(x: Array, precision: Array | None) -> Array:
    """x^T P x for each row x."""
    return ((x if precision is None else x @ precision) * x).sum(1)
