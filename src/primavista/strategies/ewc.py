"""EWC: elastic weight consolidation (Kirkpatrick et al. 2017) with a single Fisher matrix."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from primavista.engine.cuda_graph import CapturedFunction
from primavista.networks.base import Backbone
from primavista.nn.sgd import UNGUARDED, GuardRule, Importance, gradient
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


class Fisher(Importance):
    """F = clip(sum_batches(mean_minibatches(g^2)) / batches, 0, max_F)

    g is the mean gradient of a minibatch. A single matrix is updated over time, instead of one
    matrix per batch.

    Args:
        weights: the guarded weights by name.
        max_f: max_F.
        row_weights: the names of the weights that have one row per class.
    """

    batches: Tensor

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, row_weights: Collection[str] = ()
    ) -> None:
        super().__init__(weights, max_f, row_weights)
        self.register_buffer("batches", torch.zeros(()))

    @torch.no_grad()
    def observe(self, g: Sequence[Tensor], minibatches: int) -> None:
        """Add the squared gradient of one minibatch.

        Args:
            g: the mean gradient over the minibatch.
            minibatches: the number of minibatches in the batch.
        """
        torch._foreach_addcmul_(self.tensors, list(g), list(g), 1.0 / minibatches)

    def count_batch(self) -> None:
        """Count a batch after all its squared gradients were observed."""
        self.batches += 1

    def _divisor(self) -> float:
        return max(float(self.batches), 1.0)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # version 0.1 also guarded norm scales, shifts and biases; their F is ignored
        own = set(self.state_dict())
        for name, values in list(state_dict.items()):
            key = name.removeprefix(prefix)
            if key not in own and key.startswith(("backbone/", "head/")) and values.ndim == 1:
                del state_dict[name]
        super()._load_from_state_dict(state_dict, prefix, *args)


class EWC(GradientStrategy):
    """L = L_cross + lambda / 2 sum_k F_k (theta_k - theta*_k)^2   (paper, equation 4)

    The update rule is equation 5, with the factor lambda, which the paper omits there:
    theta' = theta - eta dL_cross / dtheta - eta lambda F (theta - theta*).

    The momentum applies to both terms. Every weight with weight decay is guarded: the convolutions
    and the head, but not norm scales, shifts and biases.

    Args:
        backbone: the network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = EWCOptions
    options: EWCOptions
    importance: Fisher

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        # The weights that still train after `freeze_from`, without tw, which restarts every batch.
        guarded = {
            weight.name: weight.tensor
            for weight in self.set_trainable(max(self.options.freeze_from, 2))
            if weight.decays and weight.name != "head.tw"
        }
        self.importance = Fisher(guarded, self.options.max_f, self._head_names())

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        o, fisher = self.options, self.importance
        B = self.on_device(B)
        weights = self.set_trainable(B.i)  # sections 2.3, 4
        guarded = [weight.tensor for weight in weights if weight.guarded]
        has_fisher = bool(fisher.batches > 0)
        guard = fisher.make_guard(o.guard, o.lam, guarded) if has_fisher else UNGUARDED
        self.head.load(B.present)
        sgd = self.sgd(B, weights, guard)

        @sgd.captured
        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y), len(x))  # dL_cross / dtheta
            sgd.step(g)  # equation 5, with lambda

        for x, y in self.minibatches(B, sgd):  # renormalised by the schedule of section 4
            step(x, y)
        self.update_fisher(B, guarded)
        self.head.consolidate(B.present, B.cur, len(self.classes))
        return self.report(B, sgd)

    def update_fisher(self, B: Batch, guarded: list[Tensor]) -> None:
        """total <- total + mean over the minibatches of B_i of g^2,  g = dL_cross / dtheta

        F is the total divided by the number of batches, clipped; see `Fisher`.

        Args:
            B: the batch that was just learned.
            guarded: the guarded weights.
        """
        minibatches = list(self.shuffled(B, 0))
        y = B.columns.to(self.device)
        square = self._squared_gradient(guarded, len(minibatches))
        for k, index in enumerate(minibatches):
            self._fisher_mode(B, k)
            square(self._select(B.inputs, index), y[index])
        self.backbone.eval()
        self.importance.count_batch()

    def _squared_gradient(self, guarded: list[Tensor], minibatches: int) -> CapturedFunction:
        """Return the function that adds g^2 of a minibatch to the total, reused if possible."""

        def square(x: Tensor, y: Tensor) -> None:
            self.importance.observe(gradient(self.cross_entropy(x, y), guarded), minibatches)

        key = (minibatches, len(guarded))
        return self._reused("fisher", key, lambda: CapturedFunction(square), most=1)

    def _fisher_mode(self, B: Batch, k: int) -> None:
        """Keep the backbone in evaluation mode, so that minibatch k does not change the moments."""
