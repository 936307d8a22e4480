"""Stochastic gradient descent under a guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from primavista.engine.cuda_graph import CapturedFunction
from primavista.engine.loss_meter import LossMeter
from primavista.nn.guards import UNGUARDED, Guard

StepFunction = Callable[..., Tensor | None]


@dataclass(frozen=True)
class Weight:
    """A weight to train: its name in the state, and the tensor, which is updated in place."""

    name: str
    tensor: Tensor
    lr: float  # the learning rate eta
    decays: bool  # True if weight decay applies


class SGD:
    """v <- mu v + guard(g + wd theta),  theta <- theta - eta v

    Gradients and changes have one tensor per weight, by the name of the weight. The momentum
    applies to the terms of the guard too, so under a penalty theta converges to the minimum of the
    penalised loss.

    Args:
        weights: The weights theta.
        momentum: mu.
        weight_decay: wd.
        guard: The protection of the guarded weights; by default there is none.
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
        self.theta = {weight.name: weight.tensor for weight in weights}
        self.lr = [weight.lr for weight in weights]
        self.decay = [weight_decay if weight.decays else 0.0 for weight in weights]
        self.momentum = momentum
        self.guard = guard
        self.velocity = velocity or [torch.zeros_like(theta) for theta in self.theta.values()]
        self.rate: Tensor | None = None
        self.meter = LossMeter(weights[0].tensor.device)
        self._captured: CapturedFunction | None = None

    @torch.enable_grad()  # the caller may have disabled gradients
    def run(self, step: StepFunction, *inputs: Tensor) -> Tensor | None:
        """Call a step; on a GPU as described at `GradientStrategy.train`.

        The first step that is given is kept and called every time; later ones are not looked at.
        """
        if self._captured is None:
            self._captured = CapturedFunction(step)
        return self._captured(*inputs)

    def gradient(self, loss: Tensor) -> dict[str, Tensor]:
        """Return g = dL / dtheta, and count the loss, the mean over the minibatch."""
        self.meter.add(loss)
        return gradient(loss, self.theta)

    @torch.no_grad()
    def step(self, g: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take one step down the gradient g; return dtheta, the change of each weight."""
        theta = list(self.theta.values())
        direction = torch._foreach_mul(theta, self.decay)
        torch._foreach_add_(direction, list(g.values()))
        self.guard.protect(dict(zip(self.theta, direction, strict=True)), self.theta)
        torch._foreach_mul_(self.velocity, self.momentum)
        torch._foreach_add_(self.velocity, direction)
        dtheta = torch._foreach_mul(self.velocity, [-lr for lr in self.lr])
        if self.rate is not None:
            torch._foreach_mul_(dtheta, self.rate)
        torch._foreach_add_(theta, dtheta)
        return dict(zip(self.theta, dtheta, strict=True))

    def set_rate(self, rate: float) -> None:
        """Multiply all learning rates by `rate` from the next step on."""
        if self.rate is None:
            self.rate = torch.zeros((), device=self.velocity[0].device)
            self._captured = None  # a step that was captured before has no such factor
        self.rate.fill_(rate)

    @property
    def present_lr(self) -> float:
        """The learning rate of the first weight, for logs."""
        return self.lr[0] * (1.0 if self.rate is None else float(self.rate))


def gradient(loss: Tensor, theta: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return dL / dtheta by the names of the weights; 0 if the loss does not depend on a weight."""
    found = torch.autograd.grad(
        loss, list(theta.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(theta, found, strict=True))
