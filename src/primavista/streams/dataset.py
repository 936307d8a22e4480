"""Data sets of sessions, and streams: a run of a protocol over one of them, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from primavista.errors import InputError
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


Batch = tuple[Session, ...]


@dataclass(frozen=True)
class Origin:
    """Where a CORe50 came from: the folder, which may hold official orders, and the object of each training session."""

    folder: Path
    objects: tuple[int, ...]


@dataclass(frozen=True)
class DataSet:
    """Frames, the sessions to learn from and to test on, the name and the category of each class.

    `origin` is known of CORe50 and of its packed copies.
    """

    name: str
    frames: Frames
    train: tuple[Session, ...]
    test: tuple[Session, ...]
    classes: tuple[str, ...]
    categories: tuple[int, ...]
    origin: Origin | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True)
class Patterns:
    """What a strategy takes: frames, the label of each, and which of the sessions each is of."""

    images: Selection
    labels: Tensor
    sessions: Tensor


def patterns(data: DataSet, sessions: Sequence[Session], every: int = 1) -> Patterns:
    """The frames of some sessions, in order; `every` takes one in so many of each."""
    if not sessions:
        raise InputError(f"no sessions to take frames from in the data set '{data.name}'")
    if every < 1:
        raise InputError(f"every must be 1 or more; got {every}")
    indices = [np.arange(s.start, s.stop, every) for s in sessions]
    counts = [len(index) for index in indices]

    def each(values: list[int]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array(values, np.int64), counts))

    images = Selection(data.frames, torch.from_numpy(np.concatenate(indices)))
    return Patterns(images, each([s.label for s in sessions]), each([s.number for s in sessions]))


class Stream:
    """A run over a data set: `stream[i]` is batch B_{i+1}; it can be sliced, counted and iterated.

    `batches` are the sessions of each batch; `source` says where the order comes from: our generator or an official file.
    """

    def __init__(
        self,
        data: DataSet,
        batches: Sequence[Sequence[Session]],
        name: str,
        run: int,
        source: str = "generated",
    ) -> None:
        self.data, self.name, self.run, self.source = data, name, run, source
        self.batches: Sequence[Batch] = (
            batches if isinstance(batches, _Unions) else tuple(tuple(batch) for batch in batches)
        )

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, index: int) -> Patterns: ...

    @overload
    def __getitem__(self, index: slice) -> Stream: ...

    def __getitem__(self, index: int | slice) -> Patterns | Stream:
        if isinstance(index, slice):
            return Stream(self.data, self.batches[index], self.name, self.run, self.source)
        return patterns(self.data, self.batches[index])

    def test(self, every: int = 1) -> Patterns:
        """The test set, or one frame in `every` of it."""
        return patterns(self.data, self.data.test, every)

    def cumulative(self) -> Stream:
        """The same run seen cumulatively: batch i is the union of batches 1 to i, in order. Nothing is copied."""
        if isinstance(self.batches, _Unions):
            return self
        return Stream(
            self.data, _Unions(self.batches), f"{self.name}, cumulative", self.run, self.source
        )


class _Unions(Sequence[Batch]):
    """The unions of the first batches, each made when it is asked for."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Batch, ...]: ...

    def __getitem__(self, index: int | slice) -> Batch | tuple[Batch, ...]:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return tuple(self[i] for i in chosen)
        return tuple(chain.from_iterable(self._batches[: chosen + 1]))
