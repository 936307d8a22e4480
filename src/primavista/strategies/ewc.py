"""EWC: elastic weight consolidation (Kirkpatrick et al. 2017), with one Fisher matrix updated over time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from primavista.backbones import Backbone
from primavista.parts.importance import Fisher, Guard
from primavista.parts.sgd import Weight
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options


@dataclass(frozen=True)
class EWCOptions(Options):
    """`tab:hyper_core50`, EWC. `guard="modulate"` is what the paper's appendix says could as well be applied to EWC."""

    lr: float = 1e-4
    max_f: float = 0.001
    lam: float = 2e6
    guard: Guard = "penalty"


class EWC(GradientStrategy):
    """L = L_cross + lambda / 2 sum_k F_k (theta_k - theta*_k)^2   (paper, equation 4)

    by the update rule of equation 5, theta' = theta - eta dL_cross / dtheta - eta lambda F (theta - theta*). Every weight is
    guarded, head and norm scales included. The step overshoots if eta lambda F > 1: lambda_max = 1 / (eta max_F).
    """

    OPTIONS = EWCOptions
    GUARDED = "everything"
    options: EWCOptions
    importance: Fisher

    def __init__(self, backbone: Backbone, *, seed: int = 0, options: Options | None = None, **overrides: object) -> None:
        super().__init__(backbone, seed=seed, options=options, **overrides)
        self.importance = Fisher(self._to_guard(), self.options.max_f, self._head_names())

    def learn_batch(self, batch: Batch) -> LearnReport:
        weights = self._weights(batch.i)
        guarded = [weight.tensor for weight in weights if weight.guarded]
        has_past = bool(self.importance.batches > 0)
        modulation = self.importance.modulation() if has_past and self.options.guard == "modulate" else None
        pull = self.importance.pull(self.options.lam, guarded) if has_past and self.options.guard == "penalty" else None
        self.head.load(batch.present, batch.i == 1)
        losses = self._sgd(batch, weights, modulation=modulation, pull=pull)
        self._update_fisher(batch, [weight for weight in weights if weight.guarded])
        self.head.consolidate(batch.present, batch.cur, len(self.classes))
        return LearnReport(batch.i, batch.count, batch.new, losses, saturated=self.importance.saturated())

    def _update_fisher(self, batch: Batch, guarded: list[Weight]) -> None:
        """The squared mean gradient of each minibatch, averaged over the minibatches of the batch."""
        if self.release.train_mode_features:
            self._train_mode()
        goal = batch.columns.to(self.device)
        parts = list(self._order(batch, 0))
        for index in parts:
            loss = F.cross_entropy(self.head(self._minibatch(batch, None, index)), goal[index.to(self.device)])
            theta = [weight.tensor for weight in guarded]
            g = torch.autograd.grad(loss, theta, allow_unused=True, materialize_grads=True)
            self.importance.add(g, len(parts))
        self.importance.finish()
        self.backbone.eval()
