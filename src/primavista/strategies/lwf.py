"""LwF: learning without forgetting (Li and Hoiem 2016).

The implementation follows the single-incremental-task form of Maltoni and Lomonaco (2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Lambda, Options, Rate


@dataclass(frozen=True)
class LwFOptions(Options):
    """Table 4 (`tab:hyper_core50`), LWF.

    Args:
        lam: lambda, the weight of the previous model in the targets.
    """

    lr: Rate = 5e-5
    lam: Lambda = 0.1


class LwF(GradientStrategy):
    """y = (1 - lambda) onehot + lambda softmax(previous model)

    The targets y are computed once per batch, before training.
    """

    OPTIONS = LwFOptions
    options: LwFOptions

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        B = self.on_device(B)
        weights = self.set_trainable(B.i)  # sections 2.3, 4
        has_previous_model = B.i > 1 and len(B.new) < len(self.classes)
        targets = self.targets(B) if has_previous_model else None
        self.head.load(B.present)
        sgd = self.sgd(B, weights)

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))
            sgd.step(g)

        self.train(B, sgd, step, targets)  # section 4 sets r_max and d_max before each step
        self.head.consolidate(B.present, B.cur)
        return self.report(B, sgd)

    @torch.no_grad()
    def targets(self, B: Batch) -> Tensor:
        """Return the soft targets of a batch before it is learned, N x rows."""
        lam = self.options.lam
        previous = self.head.scores(self._target_features(B)).softmax(1)
        onehot = F.one_hot(B.columns, self.head.rows).to(previous)
        return (1 - lam) * onehot + lam * previous

    def _target_features(self, B: Batch) -> Tensor:
        """Return the features of the previous model, in evaluation mode."""
        return self.features(B)
