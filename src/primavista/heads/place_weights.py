"""How much each place counts: as much as lessons that it has not seen say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .strangers import Floats, Integers

LOGIT_SCALE = 16.0  # the sum of the weights of the places before any lesson has judged them
WEIGHT_SPREAD = 1.0  # standard deviation of the logarithm of a weight around its prior
SCALE_SPREAD = 1.0  # standard deviation of the logarithm of their common scale


class PlaceJudgement(NamedTuple):
    """What lessons that were not seen say of the regressions.

    Args:
        beta: the weight of each place, see `place_weights`.
        trust: the mean score of such a lesson for its own class, as a share of that of a lesson
            that was seen, 0 if there is none: what scores are worth in another place.
        strange: the scores of a frame of each lesson by the regressions without its class, L x K,
            as shares.
    """

    beta: list[float]
    trust: float
    strange: Floats


def place_weights(left_out: Floats, columns: Integers, priors: Sequence[float]) -> Floats:
    """beta = exp(theta),  theta = argmax sum_l log softmax(sum_h beta_h f_hl)_c(l) + log p(theta)

    for the scores f_hl of a frame of each lesson l by regressions h that have not seen it; p is
    normal around log(LOGIT_SCALE prior_h), with the standard deviation WEIGHT_SPREAD of each and
    SCALE_SPREAD of what they share. Without lessons that is where theta stays.

    Args:
        left_out: f, L x K x H.
        columns: the column of the class of each lesson.
        priors: the prior weight of each of the H places.

    Returns:
        beta, H numbers.
    """
    share = np.asarray(priors, dtype=np.float64)
    start: Floats = np.log(LOGIT_SCALE * share / share.sum())
    count, _, places = left_out.shape
    beta: Floats = np.exp(start)
    if not count:
        return beta
    spread = WEIGHT_SPREAD**2 * np.eye(places) + SCALE_SPREAD**2
    precision = np.linalg.inv(spread)
    right = left_out[np.arange(count), columns]

    def posterior(theta: Floats) -> tuple[float, Floats, Floats]:
        """The logarithm of the posterior, the probabilities and the weights."""
        beta: Floats = np.exp(theta)
        logits = left_out @ beta
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1, keepdims=True)
        value = float((logits[np.arange(count), columns] - np.log(total[:, 0])).sum())
        off = theta - start
        return value - 0.5 * float(off @ precision @ off), p / total, beta

    theta = start
    value, p, beta = posterior(theta)
    for _ in range(50):
        mean = np.einsum("lk,lkh->lh", p, left_out)
        gradient = (right - mean).sum(0) * beta
        flat = left_out.reshape(-1, places)
        curvature = (flat * p.reshape(-1, 1)).T @ flat - mean.T @ mean
        hessian = curvature * np.outer(beta, beta) + np.diag((-gradient).clip(0)) + precision
        step = np.linalg.solve(hessian, gradient - precision @ (theta - start))
        step *= min(1.0, 2 / max(float(abs(step).max()), 1e-30))
        found = posterior(theta + step)
        while found[0] < value and float(abs(step).max()) > 1e-6:
            step = step / 2
            found = posterior(theta + step)
        if found[0] <= value + 1e-9:
            break
        theta = theta + step
        value, p, beta = found
    return beta
