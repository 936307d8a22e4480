"""Stochastic gradient descent with momentum, and the two ways to guard important weights (paper, section 2.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from primavista.nn.shuffling import pieces, seed_of


@dataclass(frozen=True)
class Weight:
    """A weight that learns: its tensor, its learning rate, and whether weight decay and the guard concern it."""

    name: str
    tensor: Tensor
    lr: float
    decays: bool
    guarded: bool = False


class SGD:
    """v <- mu v + (1 - F / max_F) (g + wd theta);   theta <- theta - eta v - eta lambda F (theta - theta*)

    `modulation` gives 1 - F / max_F (learning-rate modulation), `pull` gives lambda F and theta* (the penalty rule, equation
    5: a step outside the momentum, so that it overshoots theta* only if eta lambda F > 1); both are for the guarded weights,
    in their order, and either may be absent.
    """

    def __init__(
        self,
        weights: Sequence[Weight],
        *,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        velocity: list[Tensor] | None = None,
        modulation: list[Tensor] | None = None,
        pull: tuple[list[Tensor], list[Tensor]] | None = None,
    ) -> None:
        self.theta = [weight.tensor for weight in weights]
        self.guarded = [k for k, weight in enumerate(weights) if weight.guarded]
        self.decay = [weight_decay if weight.decays else 0.0 for weight in weights]
        self.momentum = momentum
        self.modulation = modulation if self.guarded else None
        self.pull = pull if self.guarded else None
        self.velocity = (
            [torch.zeros_like(theta) for theta in self.theta] if velocity is None else velocity
        )
        self.lr = [weight.lr for weight in weights]

    @torch.no_grad()
    def restart(
        self,
        velocity: list[Tensor] | None = None,
        modulation: list[Tensor] | None = None,
        pull: tuple[list[Tensor], list[Tensor]] | None = None,
    ) -> None:
        """Another batch: as if made anew, with the tensors where they are."""
        if velocity is None:
            torch._foreach_zero_(self.velocity)
        for own, given in (
            (self.modulation, modulation),
            *zip(self.pull or (), pull or (), strict=True),
        ):
            if own is not None and given is not None:
                torch._foreach_copy_(own, given)

    @torch.no_grad()
    def step(self, g: Sequence[Tensor], rate: Tensor | None = None) -> list[Tensor]:
        """One step down the gradients `g`, learning rates times `rate` (a scalar). Returns dtheta, what was added."""
        direction = torch._foreach_mul(self.theta, self.decay)
        torch._foreach_add_(direction, list(g))
        if self.modulation is not None:
            torch._foreach_mul_([direction[k] for k in self.guarded], self.modulation)
        torch._foreach_mul_(self.velocity, self.momentum)
        torch._foreach_add_(self.velocity, direction)
        dtheta = list(torch._foreach_mul(self.velocity, [-lr for lr in self.lr]))
        if self.pull is not None:
            strength, theta_star = self.pull
            back = torch._foreach_sub(theta_star, [self.theta[k] for k in self.guarded])
            torch._foreach_mul_(back, strength)
            torch._foreach_mul_(back, [self.lr[k] for k in self.guarded])
            torch._foreach_add_([dtheta[k] for k in self.guarded], back)
        if rate is not None:
            torch._foreach_mul_(dtheta, rate)
        torch._foreach_add_(self.theta, dtheta)
        return dtheta


def generator(*key: int) -> torch.Generator:
    """A CPU generator seeded by a tuple of integers, such as (seed, batch, epoch): no random state is ever stored."""
    return torch.Generator().manual_seed(seed_of(*key))


def minibatches(
    count: int, size: int, order: torch.Generator | None, device: torch.device | str = "cpu"
) -> Iterator[Tensor]:
    """The indices 0 .. count - 1, shuffled the same on every device, in pieces of nearly equal size, none above `size`.

    >>> [len(piece) for piece in minibatches(300, 128, generator(0))]
    [100, 100, 100]
    """
    shuffled = torch.randperm(count, generator=order).to(device)
    return iter(shuffled.tensor_split(pieces(count, size)))


def one_cycle(t: int, total: int, warm: float = 0.25) -> float:
    """The share of the peak learning rate at step `t` of `total`: up along a cosine over the first quarter, then down.

    >>> [round(one_cycle(t, 9), 2) for t in range(9)]
    [0.04, 0.52, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07, 0.0]
    """
    if total == 1:
        return 1.0
    peak = max(1, round(warm * (total - 1)))
    if t <= peak:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * t / peak)) / 2
    return (1 + math.cos(math.pi * (t - peak) / max(1, total - 1 - peak))) / 2
