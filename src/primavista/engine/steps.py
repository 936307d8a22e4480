"""Utilities for training loops: sums of losses, steps captured as CUDA graphs, and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from primavista.engine.cuda_graph import CapturedFunction
from primavista.progress import OnStep, TrainingStep


class CountedSteps:
    """Sums the losses of training steps on their device, so that no step waits for a GPU.

    Args:
        lr: the learning rate of the first weight, for logs.
        device: the device on which the steps are taken.
    """

    def __init__(self, lr: float, device: torch.device) -> None:
        self.losses: list[Tensor] = []  # the mean loss of each epoch of this batch
        self._lr = lr
        self._rate: Tensor | None = None  # the memory of the rate in a captured step
        self._loss_sum = torch.zeros((), device=device)
        self._captured: CapturedFunction | None = None

    def add_loss(self, loss: Tensor, patterns: int) -> None:
        """Add the loss of a step.

        Args:
            loss: the mean loss of the minibatch.
            patterns: the number of patterns in the minibatch.
        """
        self._loss_sum += loss.detach() * patterns

    def end_epoch(self, patterns: int) -> None:
        """Append the mean loss of an epoch, or of any other span of steps, to `losses`.

        Args:
            patterns: the number of patterns in this span.
        """
        self.losses.append(self._loss_sum / patterns)
        self._loss_sum.zero_()

    def captured(self, step: Callable[..., Tensor | None]) -> CapturedFunction:
        """Decorate the step of a strategy, so that it runs as a CUDA graph on a GPU.

        In a later batch the graph of an earlier batch is returned, which reads and writes the same
        memory.

        Args:
            step: one training step with these weights, a function of tensors.
        """
        if self._captured is None:
            self._captured = CapturedFunction(step)
        return self._captured

    @contextmanager
    def reporting_step(
        self, on_step: OnStep | None, i: int, epoch: int, t: int, patterns: int
    ) -> Iterator[None]:
        """Report the step that is taken inside the block to `on_step`, unless it is None.

        Args:
            on_step: the function that is called; see `Strategy.on_step`.
            i: the number of the batch.
            epoch: the number of the epoch, from 0.
            t: the number of the step in the batch, from 0.
            patterns: the number of patterns in the minibatch.
        """
        if on_step is None:
            yield
            return
        before = self._loss_sum.clone()
        self._loss_sum.zero_()
        yield
        loss = float(self._loss_sum) / patterns
        rate = 1.0 if self._rate is None else float(self._rate)
        self._loss_sum += before
        on_step(TrainingStep(i, epoch, t, loss, self._lr * rate, patterns))
