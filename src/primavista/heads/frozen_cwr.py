"""CWR* and CWR+ on the features of a fixed representation, in numpy or torch.

From batch 2 on, CWR trains only its last layer, so batches can be learned from features alone and
without automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from primavista.arrays import (
    Array,
    array_namespace,
    float32,
    float64,
    softmax,
    to_library_of,
    to_numpy,
)
from primavista.errors import InputError
from primavista.heads.base import ClassArrays, Familiarity, Head
from primavista.heads.cwr import Consolidation, consolidate
from primavista.heads.open_set import mahalanobis_familiarity
from primavista.heads.shuffling import minibatch_count, permutation, seed_of
from primavista.heads.statistics import SufficientStatistics
from primavista.storage.validate import ArrayChecks


class ConsolidatedWeights(ClassArrays):
    """The consolidated weights cw (rows x D) and the pattern counts past (rows).

    Both begin as 0 (Algorithm 1, lines 2 and 3).
    """

    row_names = ("cw", "past")

    @property
    def cw(self) -> Array:
        """The consolidated weights, rows x D."""
        return self.arrays["cw"]

    @property
    def past(self) -> Array:
        """The number of patterns of each class that cw was consolidated from."""
        return self.arrays["past"]

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check that past_c >= 0 and that every class has a row; see `ClassArrays.check`."""
        own = ArrayChecks(self.arrays, prefix)
        past, cw = own.past("past"), own.array("cw", (None, None))
        problem = f"and {prefix}past do not have a row for each of {known} classes"
        own.that(len(cw) == len(past) >= known, "cw", problem)


class FrozenCWRHead(Head):
    """Algorithm 1 (CWR*) or Algorithm 2 (CWR+) from batch 2 on, on features of a fixed Theta.

    Args:
        weights: cw and past.
        options: Those of CWR: the algorithm, the rule for wpast, and how tw is trained.
        seed: The seed of the order of the patterns, together with batch and epoch.
        seen: The means of the classes, to recognise strangers; None if this is not needed.
    """

    def __init__(
        self,
        weights: ConsolidatedWeights,
        options: Any,
        seed: int,
        seen: SufficientStatistics | None = None,
    ) -> None:
        super().__init__({"head": weights} if seen is None else {"head": weights, "seen": seen})
        self.weights, self.options, self.seed = weights, options, seed
        self.seen = seen

    def expand(self, classes: int) -> None:
        """Make room for classes (line 6): the capacity doubles when it is full.

        Args:
            classes: The number of known classes.
        """
        rows = self.weights.rows
        while rows < classes:
            rows *= 2
        super().expand(rows)

    def _learn(self, z: Array, columns: Array, i: int) -> tuple[float, ...]:
        if i == 1:
            raise InputError(
                "the paper's batch 1 trains the network too (line 9), which needs torch: "
                "teach the first objects there"
            )
        cw, past = self.weights.cw, self.weights.past
        found = np.unique(to_numpy(columns), return_counts=True)
        present, cur = (to_library_of(numbers, cw) for numbers in found)
        options = self.options
        tw = temporary_weights(cw, present, options.head)  # line 7
        losses = train(tw, z, columns, i, options, self.seed)  # lines 8 and 10
        counts = float32(cur)
        consolidate(cw, past, tw[present], present, counts, options.head, options.wpast)
        if self.seen is not None:
            self.seen.add(z, columns)
        return losses

    def scores(self, z: Array, classes: int) -> Array:
        """Score features by cw; see `Head.scores`."""
        return z @ self.weights.cw[:classes].T  # line 15

    def _familiarity(self, classes: int) -> Familiarity | None:
        if self.seen is None:
            return None
        return cwr_familiarity(self.weights.cw, self.seen, classes)


def temporary_weights(cw: Array, present: Array, consolidation: Consolidation) -> Array:
    """Algorithm 1, line 7: tw[j] = cw[j] if class j is in B_i, 0 otherwise. (CWR+: 0 for all.)

    `cw` has one row per class; `present` holds the columns of the classes of B_i.
    """
    tw = array_namespace(cw).zeros_like(cw)
    if consolidation == "cwr*":
        tw[present] = cw[present]
    return tw


def train(
    tw: Array, z: Array, columns: Array, i: int, options: Any, seed: int
) -> tuple[float, ...]:
    """g = (softmax(tw z) - onehot) z^T / m,  v <- mu v + g + wd tw,  tw <- tw - eta v

    Algorithm 1, lines 8 and 10: train tw by stochastic gradient descent, with Theta fixed.

    Args:
        tw: The temporary weights, rows x D; updated in place.
        z: The features of the batch, N x D.
        columns: The column of the class of each pattern.
        i: The number of the batch.
        options: The hyperparameters of stochastic gradient descent, those of CWR.
        seed: The seed of the order of the patterns, together with batch and epoch.

    Returns:
        The mean cross-entropy of each epoch.
    """
    xp = array_namespace(tw)
    velocity = xp.zeros_like(tw)
    eta = options.lr if options.lr_head is None else options.lr_head
    losses = []
    for epoch in range(options.epochs):
        total = 0.0
        order = permutation(len(z), seed_of(seed, i, epoch))
        for index in np.array_split(order, minibatch_count(len(z), options.minibatch)):
            x, rows = z[index], xp.arange(len(index), device=z.device)
            error = softmax(x @ tw.T)
            total -= float(xp.sum(xp.log(error[rows, columns[index]])))
            error[rows, columns[index]] -= 1
            velocity *= options.momentum
            velocity += error.T @ x / len(index) + options.weight_decay * tw
            tw -= eta * velocity
        losses.append(total / len(z))
    return tuple(losses)


def cwr_familiarity(cw: Array, seen: SufficientStatistics, classes: int) -> Familiarity:
    """Make the familiarity of CWR from its weights and the means of the classes.

    Args:
        cw: The consolidated weights, rows x D.
        seen: The means of the classes, without a Gram matrix.
        classes: The number of known classes, at least 1.

    Returns:
        The familiarity.
    """
    spread = seen.mean_square_deviation(classes)
    means = seen.means(classes)
    return mahalanobis_familiarity(float64(cw[:classes]), means, None, spread, seen.frames)
