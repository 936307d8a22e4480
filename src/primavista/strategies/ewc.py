"""EWC: elastic weight consolidation (Kirkpatrick et al. 2017) with a single Fisher matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from primavista.networks.base import Backbone
from primavista.nn.guards import Fisher, GuardRule
from primavista.nn.renorm import set_limits
from primavista.nn.sgd import Weight, gradient
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Lambda, MaxF, Options, Rate


@dataclass(frozen=True)
class EWCOptions(Options):
    """Table 4 (`tab:hyper_core50`), EWC.

    Args:
        max_f: max_F, the upper limit of F.
        lam: lambda, the weight of the penalty.
        guard: `penalty`, or `modulate`, which the paper's appendix suggests for EWC too.
    """

    lr: Rate = 1e-4
    max_f: MaxF = 0.001
    lam: Lambda = 2e6
    guard: GuardRule = "penalty"


class EWC(GradientStrategy):
    """L = L_cross + lambda / 2 sum_k F_k (theta_k - theta*_k)^2   (paper, equation 4)

    The update rule is equation 5; see `Penalty`. The momentum applies to both terms. Every weight
    with weight decay is guarded: the convolutions and the head, but not norm scales, shifts and
    biases.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = EWCOptions
    options: EWCOptions
    importance: Fisher

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        o = self.options
        # The weights that still train after `freeze_from`, without tw, which restarts every batch.
        guarded = {
            weight.name: weight.tensor
            for weight in self.set_trainable(max(o.freeze_from, 2))
            if weight.decays and weight.name != "head.tw"
        }
        rows = self._head_names()
        self.importance = Fisher(guarded, o.max_f, o.guard, lam=o.lam, row_weights=rows)

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        B = self.on_device(B)
        self.head.load(B.present)
        weights = self.set_trainable(B.i)  # sections 2.3, 4
        sgd = self.sgd(B, weights, self.importance.guard(weights))  # equations 4 and 5

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))
            sgd.step(g)

        self.train(B, sgd, step)  # section 4 sets r_max and d_max before each step
        self.update_fisher(B, weights)
        self.head.consolidate(B.present, B.cur)
        return self.report(B, sgd)

    @torch.enable_grad()
    def update_fisher(self, B: Batch, weights: Sequence[Weight]) -> None:
        """total <- total + mean over the minibatches of B_i of g^2,  g = dL_cross / dtheta

        F is the total divided by the number of batches, clipped; see `Fisher`.
        """
        minibatches = list(self.shuffled(B, 0))
        count = len(minibatches)
        theta = {weight.name: weight.tensor for weight in weights}
        guarded = {name: theta[name] for name in self.importance.names}

        def square(x: Tensor, y: Tensor) -> None:
            g = gradient(self.cross_entropy(x, y), guarded)
            self.importance.observe(g, count)

        add_square = self._accelerated(square, count)
        y = B.columns.to(self.device)
        for k, index in enumerate(minibatches):
            self._fisher_mode(B, k)
            add_square(self._select(B.inputs, index), y[index])
        self.backbone.eval()
        self.importance.count_batch()

    def _fisher_mode(self, B: Batch, k: int) -> None:
        """Let the norms see minibatch k as in the last step of the batch; the moments stay.

        F is the curvature of the loss that was minimised, so it has equation 2 in it.
        """
        self._train_mode(B)
        per_epoch = self._per_epoch(B)
        last = self.renorm.at(B.i, self.epochs_of(B.i) * per_epoch - 1, per_epoch)
        set_limits(self.backbone, replace(last, decay=1.0))
