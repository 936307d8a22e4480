"""How much each weight matters to the past: Synaptic Intelligence, for AR1 and AR1*, and the Fisher matrix, for EWC."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from primavista.nn.class_rows import PerWeight

Path = Literal["gradient", "displacement"]
Guard = Literal["modulate", "penalty"]


class Importance(PerWeight):
    """F, one value a guarded weight, clipped to [0, max_F]; and the two update rules that use it (section 2.4)."""

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, row_weights: Collection[str] = ()
    ) -> None:
        super().__init__(weights, row_weights)
        self.max_f = max_f

    @torch.no_grad()
    def f(self) -> list[Tensor]:
        """F_k in [0, max_F], in the order of the weights."""
        if not (totals := self.tensors):
            return []
        f = list(
            torch._foreach_clamp_min(
                totals if self._divisor() == 1 else torch._foreach_div(totals, self._divisor()), 0.0
            )
        )
        torch._foreach_clamp_max_(f, self.max_f)
        return f

    def modulation(self) -> list[Tensor]:
        """1 - F_k / max_F."""
        if not (f := self.f()):
            return []
        torch._foreach_div_(f, -self.max_f)
        torch._foreach_add_(f, 1.0)
        return f

    def pull(self, lam: float, theta: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """lambda F_k and theta*_k: the weights as they stand when a batch begins are those that the last one left."""
        if not (f := self.f()):
            return [], []
        torch._foreach_mul_(f, lam)
        return f, list(torch._foreach_mul([t.detach() for t in theta], 1.0))

    def saturated(self) -> Tensor:
        """The share of weights at F = max_F: the guard's fuel gauge."""
        if not (totals := self.tensors):
            return torch.zeros(())
        flat = torch.cat([values.flatten() for values in totals])
        full = (flat if self._divisor() == 1 else flat / self._divisor()) >= self.max_f
        return full.sum().double() / len(full)

    def _divisor(self) -> float:
        """F is what was added up over it."""
        return 1.0


class SynapticIntelligence(Importance):
    """Omega_k += w_i sum_steps(-g_k dtheta_k) / ((theta_end - theta_start)^2 + 1e-7) at the end of batch i (Zenke et al. 2017)

    g is the gradient of the cross-entropy alone. `path="displacement"` is what the authors' release computes: its stored
    gradient was already overwritten by the update, so the sum is of dtheta^2.
    """

    EPSILON = 1e-7

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, path: Path = "gradient"
    ) -> None:
        super().__init__(weights, max_f)
        self.path = path
        self._sum: list[Tensor] = []
        self._theta_start: list[Tensor] = []

    @torch.no_grad()
    def start(self, theta: Sequence[Tensor]) -> None:
        """Remember where the batch begins. Copies: a view of the live weights would make every importance 0."""
        if self._sum and all(
            kept.is_cuda and kept.device == t.device
            for kept, t in zip(self._sum, theta, strict=True)
        ):
            torch._foreach_copy_(
                self._theta_start, list(theta)
            )  # in place: a recorded step adds to them
            torch._foreach_zero_(self._sum)
            return
        self._theta_start = [t.detach().clone() for t in theta]
        self._sum = [torch.zeros_like(t) for t in self._theta_start]

    @torch.no_grad()
    def add(self, g: Sequence[Tensor], dtheta: Sequence[Tensor]) -> None:
        """One step of the path."""
        if not self._sum:  # everything that could be guarded is frozen
            return
        if self.path == "gradient":
            torch._foreach_addcmul_(self._sum, list(g), list(dtheta), -1.0)
        else:
            torch._foreach_addcmul_(self._sum, list(dtheta), list(dtheta), 1.0)

    @torch.no_grad()
    def finish(self, theta: Sequence[Tensor], w: float) -> None:
        """The batch is learned: add its share to Omega and forget its path."""
        if not self._sum:
            return
        moved = torch._foreach_sub(list(theta), self._theta_start)
        torch._foreach_mul_(moved, moved)
        torch._foreach_add_(moved, self.EPSILON)
        torch._foreach_addcdiv_(self.tensors, self._sum, moved, w)
        if not any(path.is_cuda for path in self._sum):
            self._sum, self._theta_start = [], []


class Fisher(Importance):
    """F = clip(sum_batches(mean_minibatches(g^2)) / batches, 0, max_F);  g is the mean gradient of a minibatch

    One matrix updated over time, not one a batch; in evaluation mode the moments are untouched.
    """

    batches: Tensor

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, row_weights: Collection[str] = ()
    ) -> None:
        super().__init__(weights, max_f, row_weights)
        self.register_buffer("batches", torch.zeros(()))

    @torch.no_grad()
    def add(self, g: Sequence[Tensor], minibatches: int) -> None:
        """One minibatch of the `minibatches` of a batch."""
        torch._foreach_addcmul_(self.tensors, list(g), list(g), 1.0 / minibatches)

    def finish(self) -> None:
        """The batch is counted."""
        self.batches += 1

    def _divisor(self) -> float:
        return max(float(self.batches), 1.0)
