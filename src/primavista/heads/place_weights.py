"""The weights of the places, estimated from lessons that the regressions have not seen.

prima fits one ridge regression per place and adds their scores with the weights beta. Some places
tell the classes of a stream apart better than others, so beta is chosen to explain the
leave-one-out scores of the kept lessons: it is the mode of the posterior of a softmax regression
with one coefficient per place and a log-normal prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from primavista.heads.strangers import Floats, Integers

USUAL_ALIKENESS = 1 / 3  # of classes, if there are no two; the priors are then as they are
MOST_EXPONENT = 2.0  # of the priors
LOGIT_SCALE = 16.0  # the sum of the weights of the places in the prior
WEIGHT_SPREAD = 1.0  # prior standard deviation of the logarithm of each weight
SCALE_SPREAD = 1.0  # prior standard deviation of the logarithm of the common scale


class PlaceJudgement(NamedTuple):
    """The judgement of the regressions by lessons that they have not seen.

    Args:
        beta: The weight of each place; see `place_weights`.
        trust: The mean score of an unseen lesson for its own class, relative to that of a lesson
            that was fitted (0 if there is no unseen lesson). It says how much of a score survives
            a change of room.
        strange: The scores of a frame of each lesson by the regressions without the class of the
            lesson, L x K: the mean over the places, weighted by beta.
    """

    beta: list[float]
    trust: float
    strange: Floats


def prior_exponent(alikeness: float) -> float:
    """e = log2((1 - a) / a),  from 0 to `MOST_EXPONENT`

    Classes of different kinds are told apart by the end of the network. Classes that look alike
    there differ in details, which earlier places show. Therefore the priors are raised to the
    power e: at a = 1/2 all places count the same, at 1/3 the priors are as they are, and at 1/5
    they are squared.

    Args:
        alikeness: a, the mean cosine similarity of lessons of different classes at the end of the
            network (`LessonHead.alikeness`).

    >>> [round(prior_exponent(a), 9) for a in (0.6, 0.5, 1 / 3, 0.2, -0.1)]
    [0.0, 0.0, 1.0, 2.0, 2.0]
    """
    if alikeness <= 0:
        return MOST_EXPONENT
    odds = (1 - alikeness) / alikeness
    return min(max(math.log2(odds) if odds > 0 else 0.0, 0.0), MOST_EXPONENT)


def place_weights(left_out: Floats, columns: Integers, priors: Sequence[float]) -> Floats:
    """beta = exp(theta),  theta = argmax sum_l log softmax(sum_h beta_h f_hl)_c(l) + log p(theta)

    f_hl are the scores of a frame of lesson l by the regression of place h on all other lessons,
    and c(l) is the class of the lesson. The prior p is a normal distribution around
    log(LOGIT_SCALE prior_h), with the standard deviation WEIGHT_SPREAD for each place and
    SCALE_SPREAD for a shift that all places share. Without lessons, theta is the mean of the prior.

    Args:
        left_out: f, L x K x H.
        columns: The column of the class of each lesson.
        priors: The prior weight of each of the H places.

    Returns:
        beta, H positive numbers.
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
        """Compute the logarithm of the posterior, the probabilities and the weights."""
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
