"""CWR* and CWR+: Algorithms 1 and 2 of the paper, line by line, in numpy or torch.

| line | Algorithm 1 (CWR*) | here |
|---|---|---|
| 2, 3 | cw = 0, past = 0 | where the arrays are made: `CWRHead`, `ConsolidatedWeights` |
| 6 | expand the output layer for new classes | `CWRHead.grow`, `ConsolidatedWeights.expand` |
| 7 | tw[j] = cw[j] if class j is in B_i, else 0 | `CWRHead.load`, `temporary_weights` |
| 8 to 10 | train tw, in batch 1 Theta too | the strategy; for `FrozenCWRHead`, `train` |
| 11 to 14 | cw[j] and past_j of the classes in B_i | `consolidate` |
| 15 | test by Theta and cw | `CWRHead.scores`, `cwr_scores` |

`CWRHead` (`heads/linear.py`) is the head as a torch module, for strategies whose representation
trains too; `FrozenCWRHead` (`heads/frozen_cwr.py`) is the head on features, for the edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace

from ..shuffling import minibatch_count, permutation, seed_of

Array = Any  # a numpy array or a torch tensor
Consolidation = Literal["cwr+", "cwr*"]
WPast = Literal["sqrt", "ratio"]


@dataclass(frozen=True)
class Training:
    """The hyperparameters of stochastic gradient descent on tw.

    Args:
        lr: the learning rate eta.
        epochs: passes over a batch.
        minibatch: the largest number of patterns in a step.
        momentum: mu.
        weight_decay: lambda.
        seed: seeds the order of the patterns, together with batch and epoch.
    """

    lr: float
    epochs: int
    minibatch: int
    momentum: float
    weight_decay: float
    seed: int


def temporary_weights(cw: Array, present: Array, consolidation: Consolidation) -> Array:
    """Algorithm 1, line 7: tw[j] = cw[j] if class j is in B_i, 0 otherwise. (CWR+: 0 for all.)

    Args:
        cw: the consolidated weights, rows x D.
        present: the columns of the classes of B_i.
        consolidation: which of the two algorithms.

    Returns:
        tw, a new array like cw.
    """
    tw = array_namespace(cw).zeros_like(cw)
    if consolidation == "cwr*":
        tw[present] = cw[present]
    return tw


def train(tw: Array, z: Array, columns: Array, i: int, options: Training) -> None:
    """g = (softmax(tw z) - onehot) z^T / m,  v <- mu v + g + lambda tw,  tw <- tw - eta v

    Algorithm 1, lines 8 and 10: train tw by stochastic gradient descent, Theta fixed.

    Args:
        tw: the temporary weights, rows x D; updated in place.
        z: the features of the batch, N x D.
        columns: the column of each pattern.
        i: the number of the batch.
        options: the hyperparameters.
    """
    xp = array_namespace(tw)
    velocity = xp.zeros_like(tw)
    for epoch in range(options.epochs):
        order = permutation(len(z), seed_of(options.seed, i, epoch))
        for index in np.array_split(order, minibatch_count(len(z), options.minibatch)):
            x = z[index]
            error = softmax(x @ tw.T)
            error[xp.arange(len(index)), columns[index]] -= 1
            velocity *= options.momentum
            velocity += error.T @ x / len(index) + options.weight_decay * tw
            tw -= options.lr * velocity


def consolidate(
    cw: Array,
    past: Array,
    tw: Array,
    columns: Array,
    cur: Array,
    consolidation: Consolidation,
    wpast: WPast,
) -> None:
    """cw[j] = (cw[j] wpast_j + (tw[j] - avg(tw))) / (wpast_j + 1),  wpast_j = sqrt(past_j / cur_j)

    Algorithm 1, lines 11 to 14, for each class j of the batch, then past_j += cur_j. CWR+
    (Algorithm 2, lines 10 and 11): cw[j] = tw[j] - avg(tw). avg(tw) is one number: the mean over
    all weights of the classes of the batch.

    Args:
        cw: the consolidated weights, rows x D; updated in place.
        past: the pattern counts, rows; updated in place.
        tw: the temporary weights of the classes of the batch only.
        columns: the columns of these classes.
        cur: the number of patterns of each in the batch.
        consolidation: which of the two algorithms.
        wpast: `sqrt`, or `ratio`, which leaves the root out.
    """
    shifted = tw - tw.mean()
    if consolidation == "cwr+":
        cw[columns] = shifted
    else:
        weight = past[columns] / cur
        if wpast == "sqrt":
            weight = weight**0.5
        cw[columns] = (cw[columns] * weight[:, None] + shifted) / (weight[:, None] + 1)
    past[columns] += cur


def cwr_scores(cw: Array, z: Array) -> Array:
    """scores = cw z (Algorithm 1, line 15).

    Args:
        cw: the consolidated weights of the known classes, K x D.
        z: features, N x D.

    Returns:
        N x K.
    """
    return z @ cw.T


def softmax(x: Array) -> Array:
    """p_k = exp(x_k) / sum_j exp(x_j) over the last dimension.

    Args:
        x: scores, ... x K.

    Returns:
        Probabilities of the same shape.
    """
    xp = array_namespace(x)
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)
