"""The waiting time before something that failed is tried again."""

from __future__ import annotations

import random


class Backoff:
    """Waits that double with each failure, up to a limit, each shortened at random by up to a half.

    Many clients that lost the same server thus do not come back to it at the same moment.

    Args:
        first: The first wait in seconds.
        most: The longest wait in seconds.
        seed: The seed of the random part; None differs in each process.

    >>> waits = Backoff(first=1.0, most=4.0, seed=0)
    >>> [0.5 * most <= waits.next() <= most for most in (1, 2, 4, 4)]
    [True, True, True, True]
    """

    def __init__(self, first: float = 1.0, most: float = 30.0, seed: int | None = None) -> None:
        self.first, self.most = first, most
        self._random = random.Random(seed)
        self._wait = first

    def next(self) -> float:
        """Return the seconds to wait now, and double the next wait."""
        wait = self._wait
        self._wait = min(2 * wait, self.most)
        return wait * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin with the first wait again, after a success."""
        self._wait = self.first
