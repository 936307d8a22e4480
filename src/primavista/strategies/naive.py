"""Naive: gradient descent that continues from batch to batch, without a guard."""

from __future__ import annotations

from torch import Tensor

from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy


class Naive(GradientStrategy):
    """theta <- theta - eta dL_cross / dtheta,  for a few epochs per batch   (paper, section 4)

    Early stopping is the only measure against forgetting.
    """

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        self.head.load(B.present)
        sgd = self.sgd(B, self.set_trainable(B.i))  # sections 2.3, 4

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))
            sgd.step(g)

        self.train(B, sgd, step)  # section 4 sets r_max and d_max before each step
        self.head.consolidate(B.present, B.cur)
        return self.report(B, sgd)
