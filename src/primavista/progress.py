"""Progress reports: the one form in which long calls say how far they are."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A function that long calls (`learn`, `evaluate`, `pack`, ...) inform of how far they are.

    Any callable with two positional arguments is one. It runs in the thread that does the work, so
    it should return quickly; an exception that it raises stops the work.

    >>> def show(done: int, total: int | None) -> None:
    ...     print(f"{done} of {total}")
    >>> report: Progress = show
    >>> report(3, 10)
    3 of 10
    """

    def __call__(self, done: int, total: int | None, /) -> None:
        """Report progress.

        Args:
            done: How many units (frames, batches, bytes) are done so far; never decreases.
            total: How many there are in all, or None if that is unknown.
        """
