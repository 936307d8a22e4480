"""Stochastic gradient descent under a guard: minibatches, steps, and the guard of the weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from primavista.engine.cuda_graph import copied_in_place
from primavista.engine.steps import CountedSteps
from primavista.heads.caches import NotCopiedCache
from primavista.heads.shuffling import minibatch_count, seed_of
from primavista.nn.class_rows import Rows

GuardRule = Literal["modulate", "penalty", "none"]


def generator(*key: int) -> torch.Generator:
    """Return a new CPU generator, seeded by integers such as (seed, batch, epoch)."""
    return torch.Generator().manual_seed(seed_of(*key))


def shuffled_minibatches(
    count: int, size: int, order: torch.Generator | None, device: torch.device | str = "cpu"
) -> Iterator[Tensor]:
    """Shuffle the indices 0 .. count - 1 and split them evenly into minibatches of at most `size`.

    >>> [len(index) for index in shuffled_minibatches(300, 128, generator(0))]
    [100, 100, 100]
    """
    shuffled = torch.randperm(count, generator=order).to(device)
    return iter(shuffled.tensor_split(minibatch_count(count, size)))


@dataclass(frozen=True)
class Weight:
    """A weight to train: its name in the state, and the tensor, which is updated in place."""

    name: str
    tensor: Tensor
    lr: float  # the learning rate eta
    decays: bool  # True if weight decay applies
    guarded: bool = False  # True if the guard applies


@dataclass(frozen=True, eq=False)
class Guard:
    """direction <- factor direction + strength (theta - theta*),  direction = g + wd theta

    Learning-rate modulation (section 2.4, AR1*): factor = 1 - F / max_F. Penalty (equation 5, with
    lambda of equation 4): strength = lambda F, and theta* are the weights before this batch.
    With momentum mu its step is stable if eta lambda F < 2 (1 + mu). Unused fields are empty.
    """

    factor: tuple[Tensor, ...] = ()  # each has one tensor per guarded weight
    strength: tuple[Tensor, ...] = ()
    theta_star: tuple[Tensor, ...] = ()

    def protect(self, direction: list[Tensor], theta: list[Tensor]) -> None:
        """Change the direction of a step in place, before the momentum."""
        if self.factor:
            torch._foreach_mul_(direction, self.factor)
        if self.strength:
            moved = torch._foreach_sub(theta, self.theta_star)
            torch._foreach_addcmul_(direction, moved, self.strength)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of the guard."""
        return [*self.factor, *self.strength, *self.theta_star]


UNGUARDED = Guard()  # one object for all batches, because a captured step belongs to its guard


class PerWeight(Rows):
    """One tensor per weight, of the same shape; those of `row_weights` have one row per class."""

    def __init__(self, weights: Mapping[str, Tensor], row_weights: Collection[str] = ()) -> None:
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


class Importance(PerWeight):
    """F, one value per guarded weight, clipped to [0, max_F]; subclasses measure it."""

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, row_weights: Collection[str] = ()
    ) -> None:
        super().__init__(weights, row_weights)
        self.max_f = max_f
        self._made = NotCopiedCache()  # the guard of the previous batch

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
    def make_guard(self, rule: GuardRule, lam: float, theta: Sequence[Tensor]) -> Guard:
        """Make the guard for one batch from the present F; it overwrites the previous guard.

        `lam` is lambda of the penalty; theta are the guarded weights before the batch, its theta*.
        """
        f = self.clipped()
        if not f or rule == "none":
            return UNGUARDED
        if rule == "modulate":
            torch._foreach_div_(f, -self.max_f)
            torch._foreach_add_(f, 1.0)
            made = Guard(factor=tuple(f))
        else:
            torch._foreach_mul_(f, lam)
            theta_star = torch._foreach_mul([t.detach() for t in theta], 1.0)
            made = Guard(strength=tuple(f), theta_star=tuple(theta_star))
        before: Guard = self._made.get("guard", UNGUARDED)
        if copied_in_place(made.tensors, before.tensors):
            return before
        self._made["guard"] = made
        return made

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


class SGD(CountedSteps):
    """v <- mu v + guard(g + wd theta),  theta <- theta - eta v

    The momentum applies to the terms of the guard too, so under a penalty theta converges to the
    minimum of the penalised loss.

    Args:
        weights: the weights theta.
        momentum: mu; `weight_decay` is wd.
        guard: the protection of the guarded weights; by default there is none.
        velocity: v, to continue from an earlier batch; by default it starts at 0.
    """

    def __init__(
        self,
        weights: Sequence[Weight],
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        guard: Guard = UNGUARDED,
        velocity: list[Tensor] | None = None,
    ) -> None:
        super().__init__(weights[0].lr, weights[0].tensor.device)
        self.theta = [weight.tensor for weight in weights]
        self.lr = [weight.lr for weight in weights]
        self.decay = [weight_decay if weight.decays else 0.0 for weight in weights]
        self.momentum = momentum
        self.guard = guard
        self.velocity = velocity or [torch.zeros_like(theta) for theta in self.theta]
        self._guarded = [k for k, weight in enumerate(weights) if weight.guarded]

    def select_guarded(self, per_weight: Sequence[Tensor]) -> list[Tensor]:
        """Select the entries that belong to guarded weights, from `theta` or a gradient."""
        return [per_weight[k] for k in self._guarded]

    def gradient(self, loss: Tensor, patterns: int) -> Sequence[Tensor]:
        """Return g = dL / dtheta; `count` is the weight of the minibatch in the reported loss."""
        self.add_loss(loss, patterns)
        return gradient(loss, self.theta)

    @torch.no_grad()
    def step(self, g: Sequence[Tensor], rate: Tensor | None = None) -> list[Tensor]:
        """Take one step down the gradient g; return dtheta, the change of each weight.

        `rate`, a scalar, multiplies all learning rates.
        """
        self._rate = rate
        direction = torch._foreach_mul(self.theta, self.decay)
        torch._foreach_add_(direction, list(g))
        if self._guarded:
            self.guard.protect(self.select_guarded(direction), self.select_guarded(self.theta))
        torch._foreach_mul_(self.velocity, self.momentum)
        torch._foreach_add_(self.velocity, direction)
        dtheta = list(torch._foreach_mul(self.velocity, [-lr for lr in self.lr]))
        if rate is not None:
            torch._foreach_mul_(dtheta, rate)
        torch._foreach_add_(self.theta, dtheta)
        return dtheta


def gradient(loss: Tensor, theta: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return dL / dtheta, one tensor per weight; 0 if the loss does not depend on a weight."""
    return torch.autograd.grad(loss, theta, allow_unused=True, materialize_grads=True)
