"""Stochastic gradient descent with momentum, weight decay and a guard (paper, section 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from primavista.engine.cuda_graph import CapturedFunction
from primavista.nn.guards import Guard


@dataclass(frozen=True)
class Weight:
    """A weight that learns.

    Args:
        name: its name in the strategy's state.
        tensor: the weight itself; it is updated in place.
        lr: its learning rate eta.
        decays: whether weight decay concerns it.
        guarded: whether the guard concerns it.
    """

    name: str
    tensor: Tensor
    lr: float
    decays: bool
    guarded: bool = False


class SGD:
    """v <- mu v + guard(g + wd theta),  theta <- theta - eta v

    The guard changes the direction of the guarded weights alone: `Modulation` to
    (1 - F / max_F) (g + wd theta), `Penalty` to g + wd theta + lambda F (theta - theta*). All terms
    go through the momentum, so that theta comes to rest at the minimum of the loss.

    Args:
        weights: the weights theta.
        momentum: mu.
        weight_decay: wd.
        guard: what protects the guarded weights; by default nothing does.
        velocity: v, if it goes on from an earlier batch; by default it starts at 0.
    """

    def __init__(
        self,
        weights: Sequence[Weight],
        *,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        guard: Guard | None = None,
        velocity: list[Tensor] | None = None,
    ) -> None:
        self.theta = [weight.tensor for weight in weights]
        self.lr = [weight.lr for weight in weights]
        self.decay = [weight_decay if weight.decays else 0.0 for weight in weights]
        self.momentum = momentum
        self.guard = guard or Guard()
        self.velocity = velocity or [torch.zeros_like(theta) for theta in self.theta]
        self.losses: list[Tensor] = []  # the mean loss of each epoch of this batch
        self._guarded = [k for k, weight in enumerate(weights) if weight.guarded]
        self._loss_sum = torch.zeros((), device=self.theta[0].device)
        self._captured: CapturedFunction | None = None
        self._rate: Tensor | None = None  # in a captured step: where the rate is written

    def restart(self, *, keep_velocity: bool = False) -> None:
        """Start another batch with the same weights, in the same place in memory.

        Args:
            keep_velocity: whether the momentum goes on.
        """
        self.losses = []
        if not keep_velocity:
            torch._foreach_zero_(self.velocity)

    def guarded(self, per_weight: Sequence[Tensor]) -> list[Tensor]:
        """Select the entries of the guarded weights.

        Args:
            per_weight: one tensor per weight, such as `theta` or a gradient.
        """
        return [per_weight[k] for k in self._guarded]

    def gradient(self, loss: Tensor, count: int) -> Sequence[Tensor]:
        """Return g = dL / dtheta, one tensor per weight, and count the loss.

        Args:
            loss: the mean loss L of a minibatch.
            count: the number of patterns in the minibatch.
        """
        g = gradient(loss, self.theta)
        self._loss_sum += loss.detach() * count
        return g

    @torch.no_grad()
    def step(self, g: Sequence[Tensor], rate: Tensor | None = None) -> list[Tensor]:
        """Take one step down the gradient.

        Args:
            g: the gradient, one tensor per weight.
            rate: a factor of all learning rates (a scalar).

        Returns:
            dtheta, what was added to each weight.
        """
        self._rate = rate
        direction = torch._foreach_mul(self.theta, self.decay)
        torch._foreach_add_(direction, list(g))
        if self._guarded:
            self.guard.protect(self.guarded(direction), self.guarded(self.theta))
        torch._foreach_mul_(self.velocity, self.momentum)
        torch._foreach_add_(self.velocity, direction)
        dtheta = list(torch._foreach_mul(self.velocity, [-lr for lr in self.lr]))
        if rate is not None:
            torch._foreach_mul_(dtheta, rate)
        torch._foreach_add_(self.theta, dtheta)
        return dtheta

    @contextmanager
    def observed(self) -> Iterator[list[float]]:
        """Measure the step that is taken inside the block; the sums of losses are the same after.

        Yields:
            A list which has, after the block, the loss of the step summed over its patterns, and
            the learning rate of the first weight.
        """
        before, found = self._loss_sum.clone(), list[float]()
        self._loss_sum.zero_()
        yield found
        rate = 1.0 if self._rate is None else float(self._rate)
        found += [float(self._loss_sum), self.lr[0] * rate]
        self._loss_sum += before

    def captured(self, step: Callable[..., Tensor | None]) -> CapturedFunction:
        """Return a step that runs as a CUDA graph on a GPU: a decorator for the step of a strategy.

        In a later batch the graph of an earlier one is returned, which reads and writes the same
        memory.

        Args:
            step: one training step with these weights, a function of tensors.
        """
        if self._captured is None:
            self._captured = CapturedFunction(step)
        return self._captured

    def end_epoch(self, count: int) -> None:
        """Append the mean loss of an epoch, or of any other span of steps, to `losses`.

        Args:
            count: the number of patterns in it.
        """
        self.losses.append(self._loss_sum / count)
        self._loss_sum.zero_()


def gradient(loss: Tensor, theta: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return dL / dtheta, one tensor per weight; 0 for a weight that the loss does not depend on.

    Args:
        loss: L, a scalar.
        theta: the weights.
    """
    return torch.autograd.grad(loss, theta, allow_unused=True, materialize_grads=True)
