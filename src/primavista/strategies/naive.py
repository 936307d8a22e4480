"""Naive: gradient descent goes on along the batches; early stopping is the only measure against forgetting."""

from __future__ import annotations

from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy


class Naive(GradientStrategy):
    """theta <- theta - eta dL_cross / dtheta, for a few epochs a batch (paper, section 4)."""

    def learn_batch(self, batch: Batch) -> LearnReport:
        weights = self._weights(batch.i)
        self.head.load(batch.present, batch.i == 1)
        losses = self._sgd(batch, weights)
        self.head.consolidate(batch.present, batch.cur, len(self.classes))
        return self._report(batch, losses)
