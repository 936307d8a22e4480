"""Time on a device: seconds that are charged to learning, solving and testing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from primavista.strategies.base import Strategy


def now(strategy: Strategy) -> float:
    """Return the time in seconds, after everything that was asked of the device is done.

    Args:
        strategy: Its device is waited for.
    """
    if strategy.device.type == "cuda":
        torch.cuda.synchronize(strategy.device)
    return time.perf_counter()


class Clock:
    """The seconds that one batch of a strategy took; the device is waited for.

    Args:
        strategy: The strategy.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.learn_seconds = 0.0
        self.solve_seconds = 0.0
        self.test_seconds = 0.0
        self._strategy = strategy

    def learning(self) -> AbstractContextManager[None]:
        """Charge the time of a `with` block to learning."""
        return self._charged("learn_seconds")

    def solving(self) -> AbstractContextManager[None]:
        """Charge the time of a `with` block to solving."""
        return self._charged("solve_seconds")

    def testing(self) -> AbstractContextManager[None]:
        """Charge the time of a `with` block to testing."""
        return self._charged("test_seconds")

    @contextmanager
    def _charged(self, name: str) -> Iterator[None]:
        began = now(self._strategy)
        yield
        setattr(self, name, getattr(self, name) + now(self._strategy) - began)
