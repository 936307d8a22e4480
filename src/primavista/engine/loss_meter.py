"""The mean loss of each epoch, summed where the steps are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class LossMeter:
    """Sums the losses of training steps on their device, so that no step waits for a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.means: list[Tensor] = []  # the mean loss of each epoch of this batch
        self._patterns = 0
        self._sum = torch.zeros((), device=device)

    def add(self, loss: Tensor) -> None:
        """Add the mean loss of a minibatch, with the weight of its number of patterns."""
        self._sum += loss.detach() * self._patterns

    def end_epoch(self, patterns: int) -> None:
        """Append the mean loss of an epoch, or of another span of steps, with so many patterns."""
        self.means.append(self._sum / patterns)
        self._sum.zero_()

    @contextmanager
    def measuring(
        self, patterns: int, tell: Callable[[float], None] | None = None
    ) -> Iterator[None]:
        """Measure the step that is taken inside the block, on a minibatch of so many patterns.

        Unless `tell` is None, it is called with the loss of this step.
        """
        self._patterns = patterns
        if tell is None:
            yield
            return
        before = self._sum.clone()
        self._sum.zero_()
        yield
        loss = float(self._sum) / patterns
        self._sum += before
        tell(loss)
