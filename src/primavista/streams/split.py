"""Which sessions are for testing, where nobody said."""

from __future__ import annotations


def held_out(count: int) -> tuple[int, ...]:
    """Which of `count` sessions are the test set: CORe50's 3, 7, 10 of 11; else every fourth from 3 (2 of 2; none of 1).

    >>> held_out(11), held_out(8), held_out(2)
    ((3, 7, 10), (3, 7), (2,))
    """
    if count == 11:
        return 3, 7, 10
    return (2,) if count == 2 else tuple(range(3, count + 1, 4))
