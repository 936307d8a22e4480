"""Data sets of sessions, and streams: a run of a protocol over one of them, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from primavista.frames import Frames, Selection


@dataclass(frozen=True)
class Session:
    """One video of one object: its class, its number (from 1), and where its frames lie in the data set."""

    label: int
    number: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class DataSet:
    """Frames, the sessions to learn from and to test on, the name and the category of each class."""

    name: str
    frames: Frames
    train: tuple[Session, ...]
    test: tuple[Session, ...]
    classes: tuple[str, ...]
    categories: tuple[int, ...]


@dataclass(frozen=True)
class Patterns:
    """What a strategy takes: frames, the label of each, and which of the sessions each is of."""

    images: Selection
    labels: Tensor
    sessions: Tensor


def patterns(data: DataSet, sessions: Sequence[Session], every: int = 1) -> Patterns:
    """The frames of some sessions, in order; `every` takes one in so many of each."""
    indices = [torch.arange(s.start, s.stop, every) for s in sessions]
    counts = torch.tensor([len(index) for index in indices])
    labels = torch.tensor([s.label for s in sessions])
    numbers = torch.tensor([s.number for s in sessions])
    return Patterns(
        Selection(data.frames, torch.cat(indices)), labels.repeat_interleave(counts), numbers.repeat_interleave(counts)
    )


class Stream:
    """A run over a data set: `stream[i]` is batch B_{i+1}; it can be sliced, counted and iterated."""

    def __init__(self, data: DataSet, batches: Sequence[Sequence[Session]], name: str, run: int) -> None:
        self.data, self.name, self.run = data, name, run
        self.batches = tuple(tuple(batch) for batch in batches)

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, index: int) -> Patterns: ...

    @overload
    def __getitem__(self, index: slice) -> Stream: ...

    def __getitem__(self, index: int | slice) -> Patterns | Stream:
        if isinstance(index, slice):
            return Stream(self.data, self.batches[index], self.name, self.run)
        return patterns(self.data, self.batches[index])

    def test(self, every: int = 1) -> Patterns:
        """The test set, or one frame in `every` of it."""
        return patterns(self.data, self.data.test, every)
