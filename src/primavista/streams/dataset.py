"""Data sets of sessions, and streams: one run of a protocol over a data set, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from primavista.errors import InputError
from primavista.media.frames import Frames, Selection

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Session:
    """One video of one object.

    Args:
        label: The index of its class in `DataSet.classes`.
        number: The number of the session among those of its class, from 1.
        start: The index of its first frame in `DataSet.frames`.
        stop: The index after its last frame.
    """

    label: int
    number: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def consecutive_sessions(
    rows: Iterable[tuple[int, int, int, bool]],
) -> tuple[tuple[Session, ...], tuple[Session, ...]]:
    """Return the training and the test sessions of frames that follow one another.

    Args:
        rows: The label, number and length of each session, and whether it is for testing.

    >>> consecutive_sessions([(0, 1, 5, False), (0, 2, 3, True)])[1]
    (Session(label=0, number=2, start=5, stop=8),)
    """
    train: list[Session] = []
    test: list[Session] = []
    start = 0
    for label, number, count, is_test in rows:
        session = Session(label, number, start, start + count)
        (test if is_test else train).append(session)
        start = session.stop
    return tuple(train), tuple(test)


# The training sessions that make up one batch B_i.
BatchSessions = tuple[Session, ...]
TestFrames = Literal["reduced", "full"]
# (session, object), both from 1, as in the folder s1/o1 of CORe50.
SessionKey = tuple[int, int]


@dataclass(frozen=True)
class CORe50Facts:
    """The facts about a data set that is CORe50, however it is stored and whatever it is called.

    Args:
        test_set: The test frames: the official "reduced" list (1 in 20), or the "full" one.
        complete: True if no frame of CORe50 is missing.
    """

    test_set: TestFrames
    complete: bool


@dataclass(frozen=True)
class DataSet:
    """Frames, the sessions to learn from and those to test on, and the classes.

    Args:
        name: A short name.
        frames: All frames; sessions refer to them by index.
        train: The training sessions.
        test: The test sessions.
        classes: The name of each class.
        categories: The category of each class.
        origin: The folder of CORe50 that the data was read or packed from, which may hold official
            orders; None for other data.
        core50: The facts of CORe50 and of its packed copies; None for other data.
        note: What the user should know: how the data was split, what was left out.
    """

    name: str
    frames: Frames
    train: tuple[Session, ...]
    test: tuple[Session, ...]
    classes: tuple[str, ...]
    categories: tuple[int, ...]
    origin: Path | None = field(default=None, kw_only=True, compare=False)
    core50: CORe50Facts | None = field(default=None, kw_only=True, compare=False)
    note: str = field(default="", kw_only=True)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {len(self.classes)} classes, "
            f"{len(self.train)} training and {len(self.test)} test sessions, "
            f"{len(self.frames)} frames)"
        )


@dataclass(frozen=True)
class Patterns:
    """Labelled frames that a strategy learns from or is tested on.

    Args:
        images: The frames.
        labels: The label of each frame, int64.
        sessions: The number of the session that each frame comes from, int64.
    """

    images: Selection
    labels: Tensor
    sessions: Tensor


def patterns(
    data: DataSet, sessions: Sequence[Session], every: int = 1, *, across: bool = False
) -> Patterns:
    """Select the frames of some sessions, in order.

    Args:
        data: The data set of the sessions.
        sessions: The sessions, at least one.
        every: Take one frame in `every` of each session, beginning with the first.
        across: Count across the sessions instead of anew in each, as CORe50's reduced list does.

    Returns:
        The frames, not yet read, with their labels.

    Raises:
        InputError: If there are no sessions, or `every` is less than 1.
    """
    import torch  # data sets without streams need none

    if not sessions:
        raise InputError(f"no sessions to take frames from in the data set '{data.name}'")
    if every < 1:
        raise InputError(f"every must be 1 or more; got {every}")
    first = 0  # the next frame to take, counted from the start of its session
    indices = []
    for session in sessions:
        indices.append(np.arange(session.start + first, session.stop, every))
        first = (first - len(session)) % every if across else 0
    counts = [len(index) for index in indices]

    def per_frame(values: list[int]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array(values, np.int64), counts))

    images = Selection(data.frames, np.concatenate(indices))
    labels = per_frame([s.label for s in sessions])
    return Patterns(images, labels, per_frame([s.number for s in sessions]))


class Stream:
    """One run of a protocol over a data set: `stream[i]` is batch B_{i+1}.

    A stream can be sliced, counted and iterated.

    Args:
        data: The data set.
        batches: The sessions of each batch.
        name: The name of the protocol, such as "nicv2-391".
        run: The number of the random order.
        source: Where the order comes from: "generated", or the path of an official file.
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
        self.batches: tuple[BatchSessions, ...] = tuple(tuple(batch) for batch in batches)

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

    def __iter__(self) -> Iterator[Patterns]:
        return (self[i] for i in range(len(self)))

    def test(self, every: int = 1) -> Patterns:
        """Select the test set.

        Args:
            every: Take one frame in `every` of each test session. Of the full test set of CORe50,
                one frame in `every` of the whole list is taken, as the authors do: 20 gives the
                official reduced list.

        Returns:
            The frames of all test sessions, not yet read, with their labels.
        """
        core50 = self.data.core50
        across = core50 is not None and core50.test_set == "full"
        return patterns(self.data, self.data.test, every, across=across)

    def __repr__(self) -> str:
        return (
            f"Stream({self.name!r}, run {self.run}, {len(self)} batches of "
            f"{self.data.name!r}, {self.source})"
        )
