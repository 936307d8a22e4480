"""Which of many frames are kept, and what happens to those that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from primavista.errors import FileError
from primavista.images import ImageArray
from primavista.streams.decode import DecodedItem, without_skip

MAX_PROBLEMS = 100
log = logging.getLogger("primavista")


class FrameSampler:
    """Keeps at most `limit` frames, evenly spread over all that were offered.

    Args:
        limit: The largest number of frames to keep.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.step, self.offered = limit, 1, 0
        self.frames: list[ImageArray] = []
        self.on_offer: Callable[[int], None] = lambda offered: None

    def expect(self, count: int) -> None:
        """Announce how many frames will be offered, if that is known.

        Then every k-th frame is kept from the start, with the least k that keeps no more than
        `limit`; frames that would be dropped later are not decoded at all. If more frames come than
        were announced, k is doubled as often as needed.

        Args:
            count: The number of frames.
        """
        self.step = max(self.step, -(-count // self.limit))

    def offer(self, frames: Iterable[DecodedItem], bad: BadFiles) -> None:
        """Offer frames, in order; those that are not kept are not converted either.

        Args:
            frames: Functions that convert a frame, or errors in place of frames.
            bad: Where frames that cannot be decoded are counted.
        """
        for read in frames:
            self.offered += 1
            self.on_offer(self.offered)
            with bad.guard():
                if isinstance(read, FileError):
                    raise read
                if self._wants(self.offered - 1):
                    self.frames.append(read())

    def _wants(self, index: int) -> bool:
        if index % self.step == 0 and len(self.frames) == self.limit:
            del self.frames[1::2]
            self.step *= 2
        return index % self.step == 0 and len(self.frames) < self.limit


class ToldError(FileError):
    """Raised if nothing of a source could be read and each reason has been logged already."""


class BadFiles:
    """Counts files and frames that could not be read, or raises their errors.

    Args:
        skip: Count them; otherwise the first one raises its error.
        quiet: Do not log them.
    """

    def __init__(self, skip: bool = False, quiet: bool = False) -> None:
        self.skip, self.quiet, self.skipped = skip, quiet, 0
        self.problems: list[str] = []

    @property
    def note(self) -> str:
        """The number that were skipped, and the first reason; empty if there were none."""
        if not self.skipped:
            return ""
        return f"skipped {self.skipped} that could not be decoded, the first: {self.problems[0]}"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Guard the reading of one file or frame.

        Yields:
            Nothing; a `FileError` of the block is counted if files are skipped, and raised
            otherwise.
        """
        try:
            yield
        except FileError as error:
            if not self.skip:
                raise
            self.skipped += 1
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.append(without_skip(error))
            if not self.quiet and not isinstance(error, ToldError):
                log.warning("skipped: %s", without_skip(error))
