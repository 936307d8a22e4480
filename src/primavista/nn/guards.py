"""Guards: the importance F of each weight, and the two rules that protect important weights.

Synaptic Intelligence measures F for AR1 and AR1* (section 2.4); the Fisher matrix of EWC is in
`strategies/ewc.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from primavista.caches import NotCopiedCache
from primavista.nn.class_rows import PerWeight

GuardRule = Literal["modulate", "penalty", "none"]
PathRule = Literal["gradient", "displacement"]


class Guard:
    """Protects the guarded weights during a batch. This one does nothing."""

    def protect(self, direction: list[Tensor], theta: list[Tensor]) -> None:
        """Change the direction of a step in place, before the momentum.

        Args:
            direction: g + wd theta of each guarded weight.
            theta: the guarded weights.
        """

    def tensors(self) -> list[Tensor]:
        """Return the tensors that it was made of."""
        return []


UNGUARDED = Guard()  # one for all batches: a captured step belongs to its guard


class Modulation(Guard):
    """Learning-rate modulation: g <- (1 - F / max_F) g   (section 2.4, AR1*)

    Args:
        factor: 1 - F / max_F of each guarded weight.
    """

    def __init__(self, factor: list[Tensor]) -> None:
        self.factor = factor

    def protect(self, direction: list[Tensor], theta: list[Tensor]) -> None:
        """Scale by 1 - F / max_F."""
        torch._foreach_mul_(direction, self.factor)

    def tensors(self) -> list[Tensor]:
        """Return 1 - F / max_F."""
        return self.factor


class Penalty(Guard):
    """g <- g + lambda F (theta - theta*)   (equation 5, with lambda of equation 4)

    The second term is the gradient of lambda / 2 F (theta - theta*)^2. theta* are the weights that
    the last batch left. With momentum mu the step is stable if eta lambda F < 2 (1 + mu).

    Args:
        strength: lambda F of each guarded weight.
        theta_star: theta*.
    """

    def __init__(self, strength: list[Tensor], theta_star: list[Tensor]) -> None:
        self.strength, self.theta_star = strength, theta_star

    def protect(self, direction: list[Tensor], theta: list[Tensor]) -> None:
        """Add lambda F (theta - theta*)."""
        moved = torch._foreach_sub(theta, self.theta_star)
        torch._foreach_addcmul_(direction, list(moved), self.strength)

    def tensors(self) -> list[Tensor]:
        """Return lambda F and theta*."""
        return [*self.strength, *self.theta_star]


class Importance(PerWeight):
    """F, one value per guarded weight, clipped to [0, max_F].

    Args:
        weights: the guarded weights by name.
        max_f: max_F.
        row_weights: the names of those that have one row per class.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, row_weights: Collection[str] = ()
    ) -> None:
        super().__init__(weights, row_weights)
        self.max_f = max_f
        self._made = NotCopiedCache()  # the guard of the batch before; a copy starts without it

    @torch.no_grad()
    def clipped(self) -> list[Tensor]:
        """Return F = clip(total, 0, max_F), one tensor per guarded weight."""
        totals = self.tensors
        if not totals:
            return []
        if self._divisor() != 1:
            totals = list(torch._foreach_div(totals, self._divisor()))
        f = list(torch._foreach_clamp_min(totals, 0.0))
        torch._foreach_clamp_max_(f, self.max_f)
        return f

    @torch.no_grad()
    def guard(self, rule: GuardRule, lam: float, theta: Sequence[Tensor]) -> Guard:
        """Make the guard for one batch from F as it is now.

        The guard of the batch before is reused, with new values in the same memory. On a GPU a
        captured step reads them there; on a CPU two new copies of the weights per batch would
        leave holes in the heap, which grew by 300 MB over 25 batches.

        Args:
            rule: `modulate`, `penalty`, or `none`, which protects nothing.
            lam: lambda, of the penalty.
            theta: the guarded weights as the batch begins: theta*.
        """
        f = self.clipped()
        if not f or rule == "none":
            return UNGUARDED
        if rule == "modulate":
            torch._foreach_div_(f, -self.max_f)
            torch._foreach_add_(f, 1.0)
            made: Guard = Modulation(f)
        else:
            torch._foreach_mul_(f, lam)
            made = Penalty(f, list(torch._foreach_mul([t.detach() for t in theta], 1.0)))
        before: Guard = self._made.get("guard", UNGUARDED)
        if _in_place(before.tensors(), made.tensors()):
            return before
        self._made["guard"] = made
        return made

    def saturated(self) -> Tensor:
        """Return the share of weights with F = max_F; near 1 the guard leaves nothing to learn."""
        totals = self.tensors
        if not totals:
            return torch.zeros(())
        flat = torch.cat([values.flatten() for values in totals])
        if self._divisor() != 1:
            flat = flat / self._divisor()
        full = flat >= self.max_f
        return full.sum().double() / len(full)

    def _divisor(self) -> float:
        """Return the number that totals are divided by to give F."""
        return 1.0


class SynapticIntelligence(Importance):
    """Omega_k += w_i sum_steps(-g_k dtheta_k) / ((theta_end - theta_start)^2 + 1e-7)

    at the end of batch i (Zenke et al. 2017). F is Omega, clipped; g is the gradient of the
    cross-entropy alone.

    Args:
        weights: the guarded weights by name.
        max_f: max_F.
        path: `gradient` as above; with `displacement` the sum is of dtheta_k^2.
    """

    EPSILON = 1e-7

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, path: PathRule = "gradient"
    ) -> None:
        super().__init__(weights, max_f)
        self.path = path
        self._sum: list[Tensor] = []
        self._theta_start: list[Tensor] = []

    @torch.no_grad()
    def start(self, theta: Sequence[Tensor]) -> None:
        """Remember theta_start. It is copied: a view of the weights would make every Omega 0.

        Args:
            theta: the guarded weights as the batch begins.
        """
        if _in_place(self._theta_start, list(theta)):
            torch._foreach_zero_(self._sum)
            return
        self._theta_start = [t.detach().clone() for t in theta]
        self._sum = [torch.zeros_like(t) for t in self._theta_start]

    @torch.no_grad()
    def observe(self, g: Sequence[Tensor], dtheta: Sequence[Tensor]) -> None:
        """Add one step of the path.

        Args:
            g: the gradient of the cross-entropy of each guarded weight.
            dtheta: the step of each guarded weight.
        """
        if not self._sum:  # everything that could be guarded is frozen
            return
        if self.path == "gradient":
            torch._foreach_addcmul_(self._sum, list(g), list(dtheta), -1.0)
        else:
            torch._foreach_addcmul_(self._sum, list(dtheta), list(dtheta), 1.0)

    @torch.no_grad()
    def consolidate(self, theta: Sequence[Tensor], w: float) -> None:
        """Add the batch to Omega, and forget its path.

        Args:
            theta: the guarded weights as the batch ends: theta_end.
            w: the weight w_i of the batch.
        """
        if not self._sum:
            return
        moved = torch._foreach_sub(list(theta), self._theta_start)
        torch._foreach_mul_(moved, moved)
        torch._foreach_add_(moved, self.EPSILON)
        torch._foreach_addcdiv_(self.tensors, self._sum, moved, w)
        if not any(path.is_cuda for path in self._sum):
            self._sum, self._theta_start = [], []


def _in_place(own: list[Tensor], new: list[Tensor]) -> bool:
    """Copy new values to where the old ones are; False if they do not fit there."""
    if not own or len(own) != len(new):
        return False
    for old, value in zip(own, new, strict=True):
        if old.device != value.device or old.shape != value.shape:
            return False
    torch._foreach_copy_(own, new)
    return True
