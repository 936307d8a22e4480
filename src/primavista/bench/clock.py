"""Time on a device: seconds that are charged to learning, solving and testing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from primavista.strategies.base import Strategy


def now(strategy: Strategy) -> float:
    """Return the time in seconds, after everything that was asked of the device is done.

    Args:
        strategy: its device is waited for.
    """
    if strategy.device.type == "cuda":
        torch.cuda.synchronize(strategy.device)
    return time.perf_counter()


class Clock:
    """The seconds that one batch of a strategy took; the device is waited for.

    Args:
        strategy: the strategy.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.learn_seconds = 0.0
        self.solve_seconds = 0.0
        self.test_seconds = 0.0
        self._strategy = strategy

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Charge the time of a `with` block to learning."""
        began = now(self._strategy)
        yield
        self.learn_seconds += now(self._strategy) - began

    @contextmanager
    def solving(self) -> Iterator[None]:
        """Charge the time of a `with` block to solving."""
        began = now(self._strategy)
        yield
        self.solve_seconds += now(self._strategy) - began

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Charge the time of a `with` block to testing."""
        began = now(self._strategy)
        yield
        self.test_seconds += now(self._strategy) - began
