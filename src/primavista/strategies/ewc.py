"""EWC: elastic weight consolidation (Kirkpatrick et al. 2017), with one Fisher matrix updated over time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.engine.cuda_graph import CapturedFunction
from primavista.nn.guards import Fisher, Guard
from primavista.nn.sgd import Weight
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

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: object,
    ) -> None:
        super().__init__(backbone, seed=seed, options=options, **overrides)
        self.importance = Fisher(self._to_guard(), self.options.max_f, self._head_names())

    def learn_batch(self, batch: Batch) -> LearnReport:
        batch = replace(batch, inputs=self._at_hand(batch))
        weights = self._weights(batch.i)
        guarded = [weight.tensor for weight in weights if weight.guarded]
        has_past = bool(self.importance.batches > 0)
        modulation = (
            self.importance.modulation() if has_past and self.options.guard == "modulate" else None
        )
        pull = (
            self.importance.pull(self.options.lam, guarded)
            if has_past and self.options.guard == "penalty"
            else None
        )
        self.head.load(batch.present, batch.i == 1)
        losses = self._sgd(batch, weights, modulation=modulation, pull=pull)
        self._update_fisher(batch, [weight for weight in weights if weight.guarded])
        self.head.consolidate(batch.present, batch.cur, len(self.classes))
        return self._report(batch, losses, self.importance)

    def _update_fisher(self, batch: Batch, guarded: list[Weight]) -> None:
        """The squared mean gradient of each minibatch, averaged over the minibatches of the batch."""
        if self.release.train_mode_features:
            self._train_mode()
        goal, images = batch.columns.to(self.device), self._at_hand(batch)
        theta = [weight.tensor for weight in guarded]
        parts = list(self._order(batch, 0))
        add = self._adder(theta, len(parts))
        for index in parts:
            add(self._frames_at(images, index), goal[index])
        self.importance.finish()
        self.backbone.eval()

    def _adder(self, theta: list[Tensor], parts: int) -> CapturedFunction:
        """Adds the share of one minibatch of `parts`; on a GPU the one of earlier batches, as long as it fits."""

        def add(x: Tensor, goal: Tensor) -> None:
            with torch.enable_grad():
                loss = F.cross_entropy(self._logits(x), goal)
            g = torch.autograd.grad(loss, theta, allow_unused=True, materialize_grads=True)
            self.importance.add(g, parts)

        touched = (
            *self.head.parameters(),
            *self.head.buffers(),
        )  # see `_trainer`; the importance grows with the head
        key = (
            "fisher",
            parts,
            len(theta),
            self.backbone.precision,
            tuple(tensor.data_ptr() for tensor in touched),
        )
        if key not in self.captured:
            for old in [k for k in self.captured if k[0] == "fisher"]:
                del self.captured[old]
            self.captured[key] = CapturedFunction(add)
        return self.captured[key]  # type: ignore[no-any-return]
