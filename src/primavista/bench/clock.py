"""Time on a device: seconds that are charged to learning, solving and testing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

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


@dataclass
class Clock:
    """The seconds that one batch of a strategy took; the device is waited for.

    Args:
        strategy: The strategy.
        learn_seconds: Time charged to learning.
        solve_seconds: Time charged to solving for the weights of a head.
        test_seconds: Time charged to testing.
    """

    strategy: Strategy
    learn_seconds: float = 0.0
    solve_seconds: float = 0.0
    test_seconds: float = 0.0

    @contextmanager
    def charge(
        self, name: Literal["learn_seconds", "solve_seconds", "test_seconds"]
    ) -> Iterator[None]:
        """Add the time of a `with` block to one of the three."""
        began = now(self.strategy)
        yield
        setattr(self, name, getattr(self, name) + now(self.strategy) - began)
