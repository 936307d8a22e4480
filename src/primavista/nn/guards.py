"""Guards: what protects weights while the representation trains (paper, section 2.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from primavista.engine.cuda_graph import KeptTensors
from primavista.nn.class_rows import Rows

if TYPE_CHECKING:
    from primavista.nn.sgd import Weight

GuardRule = Literal["modulate", "penalty", "none"]
PathRule = Literal["gradient", "displacement"]
Tensors = Mapping[str, Tensor]  # one tensor per weight, by the name of the weight


class Guard:
    """Protects no weight; the base class of `Modulation` and `Penalty`.

    A guard changes the direction of a step, dL_cross / dtheta + wd theta. `SGD.step` applies the
    momentum afterwards, so it applies to the terms of the guard too.
    """

    def __init__(self, names: Sequence[str] = (), *tensors: Sequence[Tensor]) -> None:
        self.names = list(names)  # of the guarded weights
        self.tensors = [tensor for per_weight in tensors for tensor in per_weight]

    def protect(self, direction: Tensors, theta: Tensors) -> None:
        """Change the direction of a step in place."""


UNGUARDED = Guard()


class Modulation(Guard):
    """theta'_k = theta_k - eta (1 - F_k / max_F) dL_cross / dtheta_k   (equation 6, AR1*)

    A weight with F_k = max_F stands still, also against weight decay.
    """

    def __init__(self, names: Sequence[str], factor: list[Tensor]) -> None:
        super().__init__(names, factor)
        self.factor = factor  # 1 - F / max_F

    def protect(self, direction: Tensors, theta: Tensors) -> None:
        """direction_k <- (1 - F_k / max_F) direction_k"""
        torch._foreach_mul_([direction[name] for name in self.names], self.factor)


class Penalty(Guard):
    """theta'_k = theta_k - eta dL_cross / dtheta_k - eta lambda F_k (theta_k - theta*_k)

    This is equation 5 with the factor lambda of equation 4, which the paper omits there:
    L = L_cross + lambda / 2 sum_k F_k (theta_k - theta*_k)^2. theta* are the weights before this
    batch. With momentum mu a step is stable if eta lambda F < 2 (1 + mu).
    """

    def __init__(
        self, names: Sequence[str], strength: list[Tensor], theta_star: list[Tensor]
    ) -> None:
        super().__init__(names, strength, theta_star)
        self.strength, self.theta_star = strength, theta_star  # strength = lambda F

    def protect(self, direction: Tensors, theta: Tensors) -> None:
        """direction_k <- direction_k + lambda F_k (theta_k - theta*_k)"""
        moved = torch._foreach_sub([theta[name] for name in self.names], self.theta_star)
        torch._foreach_addcmul_([direction[name] for name in self.names], moved, self.strength)


class PerWeight(Rows):
    """One tensor per weight, of the same shape; those of `row_weights` have one row per class."""

    def __init__(self, weights: Tensors, row_weights: Collection[str] = ()) -> None:
        super().__init__()
        self.names = list(weights)
        for name, tensor in weights.items():
            zeros = torch.zeros_like(tensor, requires_grad=False)
            key = name.replace(".", "/")  # torch reserves dots for the module tree
            if name in row_weights:
                self.add_rows(key, zeros)
            else:
                self.register_buffer(key, zeros)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors, in the order of the weights."""
        return [self.get_buffer(name.replace(".", "/")) for name in self.names]

    def select(self, tensors: Tensors) -> list[Tensor]:
        """Select the tensors of these weights, in their order."""
        return [tensors[name] for name in self.names]


class Importance(PerWeight):
    """F, one value per guarded weight, clipped to [0, max_F]; subclasses measure it.

    Args:
        weights: The guarded weights by name.
        max_f: max_F.
        rule: The guard that uses F: `modulate`, `penalty` or `none`.
        lam: lambda of the penalty.
        row_weights: The names of the weights that have one row per class.
    """

    def __init__(
        self,
        weights: Tensors,
        max_f: float,
        rule: GuardRule = "modulate",
        lam: float = 1.0,
        row_weights: Collection[str] = (),
    ) -> None:
        super().__init__(weights, row_weights)
        self.max_f, self.rule, self.lam = max_f, rule, lam
        self._kept = KeptTensors()

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
    def guard(self, weights: Sequence[Weight]) -> Guard:
        """Guard the weights during one batch, by the present F; replaces the previous guard."""
        if not self.names or self.rule == "none":
            return UNGUARDED
        F = self.clipped()
        if self.rule == "modulate":
            # not tensor by tensor, which would lose their strides: a step would take many kernels
            factor = torch._foreach_div(F, -self.max_f)
            torch._foreach_add_(factor, 1.0)  # 1 - F / max_F
            return Modulation(self.names, self._kept.put("factor", factor))
        strength = self._kept.put("strength", torch._foreach_mul(F, self.lam))
        theta = self.select({weight.name: weight.tensor for weight in weights})
        return Penalty(self.names, strength, self._kept.put("theta_star", theta))

    def saturated(self) -> Tensor:
        """Return the fraction of weights with F = max_F; near 1, modulation fixes them all."""
        f = self.clipped()
        if not f:
            return torch.zeros(())
        full = torch.cat([values.flatten() for values in f]) >= self.max_f
        return full.sum().double() / len(full)

    def _divisor(self) -> float:
        """Return the number by which the totals are divided to get F."""
        return 1.0


class SynapticIntelligence(Importance):
    """Omega_k += w_i sum_steps(-g_k dtheta_k) / ((theta_end - theta_start)^2 + 1e-7)

    Omega is updated at the end of batch i (Zenke et al. 2017). F is Omega, clipped; g is the
    gradient of the cross-entropy alone. With `path="displacement"`, dtheta_k^2 is summed instead.
    The other arguments are those of `Importance`.
    """

    EPSILON = 1e-7

    def __init__(
        self, weights: Tensors, max_f: float, path: PathRule = "gradient", **settings: Any
    ) -> None:
        super().__init__(weights, max_f, **settings)
        self.path = path

    @torch.no_grad()
    def guard(self, weights: Sequence[Weight]) -> Guard:
        """Guard the weights during one batch, whose path starts here; see `Importance.guard`."""
        if self.names:
            theta = self.select({weight.name: weight.tensor for weight in weights})
            self._kept["theta"] = theta  # SGD updates these in place
            self._kept.put("theta_start", theta)
            torch._foreach_zero_(self._kept.put("path_sum", theta))
        return super().guard(weights)

    @torch.no_grad()
    def observe(self, g: Tensors, dtheta: Tensors) -> None:
        """Add one step dtheta to the path; g is the gradient of the cross-entropy."""
        if not self.names:
            return
        path_sum, moved = self._kept["path_sum"], self.select(dtheta)
        if self.path == "gradient":
            torch._foreach_addcmul_(path_sum, self.select(g), moved, -1.0)
        else:
            torch._foreach_addcmul_(path_sum, moved, moved, 1.0)

    @torch.no_grad()
    def consolidate(self, w: float) -> None:
        """Add the batch to Omega, with its weight w_i."""
        if not self.names:
            return
        divisor = torch._foreach_sub(self._kept.pop("theta"), self._kept["theta_start"])
        torch._foreach_mul_(divisor, divisor)
        torch._foreach_add_(divisor, self.EPSILON)
        torch._foreach_addcdiv_(self.tensors, self._kept["path_sum"], divisor, w)


class Fisher(Importance):
    """F = clip(sum_batches(mean_minibatches(g^2)) / batches, 0, max_F)

    g is the mean gradient of a minibatch. A single matrix is updated over time, instead of one
    matrix per batch. The arguments are those of `Importance`.
    """

    batches: Tensor

    def __init__(
        self, weights: Tensors, max_f: float, rule: GuardRule = "penalty", **settings: Any
    ) -> None:
        super().__init__(weights, max_f, rule, **settings)
        self.register_buffer("batches", torch.zeros(()))

    def guard(self, weights: Sequence[Weight]) -> Guard:
        """Guard the weights from the second batch on; see `Importance.guard`."""
        return super().guard(weights) if self.batches > 0 else UNGUARDED

    @torch.no_grad()
    def observe(self, g: Tensors, minibatches: int) -> None:
        """Add g^2 of one minibatch, out of the number of minibatches of a batch."""
        own = self.select(g)
        torch._foreach_addcmul_(self.tensors, own, own, 1.0 / minibatches)

    def count_batch(self) -> None:
        """Count a batch after all its squared gradients were observed."""
        self.batches += 1

    def _divisor(self) -> float:
        return max(float(self.batches), 1.0)
