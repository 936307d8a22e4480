"""The default split into training and test sessions."""

from __future__ import annotations


def held_out(count: int) -> tuple[int, ...]:
    """Return which of a number of sessions are the test set, from 1.

    These are CORe50's 3, 7 and 10 of 11, otherwise every fourth from the third (the second of 2,
    and none of 1).

    Args:
        count: The number of sessions.

    >>> held_out(11), held_out(8), held_out(2)
    ((3, 7, 10), (3, 7), (2,))
    """
    if count == 11:
        return 3, 7, 10
    return (2,) if count == 2 else tuple(range(3, count + 1, 4))
