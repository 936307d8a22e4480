"""Several runs in one process, batch by batch side by side, so that what they wait for is computed at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from primavista.bench.features import now
from primavista.bench.stacked import learn_together, solve_together
from primavista.strategies import Strategy
from primavista.strategies.base import LearnReport
from primavista.strategies.embedding import EmbeddingStrategy
from primavista.streams.dataset import Patterns

Item = TypeVar("Item")


@dataclass
class Pause(ABC):
    """What a run waits for; where the others do not share it, it is `done` by the run itself."""

    strategy: Strategy

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether it is."""

    @abstractmethod
    def do(self) -> None:
        """By itself."""

    @staticmethod
    @abstractmethod
    def share(pauses: Sequence[Any]) -> None:
        """At once, as far as that can be, each charged its share of the time; what fails is left for its run to do."""


@dataclass
class Exam(Pause):
    """The labels of the highest scores; `z` are the features of the frames where the representation stays as it is."""

    patterns: Patterns
    z: Tensor | None
    found: Tensor | None = None
    seconds: float = 0.0  # at first those that the features took

    @property
    def done(self) -> bool:
        """Whether the labels are found."""
        return self.found is not None

    @property
    def right(self) -> int:
        """How many are, when it is done."""
        assert self.found is not None
        return int((self.found == self.patterns.labels).sum())

    @torch.no_grad()
    def do(self) -> None:
        """Score them."""
        began = now(self.strategy)
        self.found = self._best().cpu()
        self.seconds += now(self.strategy) - began

    @staticmethod
    @torch.no_grad()
    def share(pauses: Sequence[Any]) -> None:
        """Solve at once, and wait for all the scores at once."""
        began = now(pauses[0].strategy)
        with suppress(torch.OutOfMemoryError):  # one by one takes less than a stack
            solve_together([exam.strategy for exam in pauses])
        asked = [(exam, best) for exam in pauses if (best := exam._try()) is not None]
        if asked:
            found = (
                torch.cat([best for _, best in asked]).cpu().split([len(best) for _, best in asked])
            )
            seconds = (now(pauses[0].strategy) - began) / len(asked)
            for (exam, _), labels in zip(asked, found, strict=True):
                exam.found = labels
                exam.seconds += seconds

    def _best(self) -> Tensor:
        known = self.strategy.classes
        scores = (
            self.strategy.scores(self.patterns.images)
            if self.z is None
            else self.strategy.score_features(self.z)
        )
        return known[scores[:, : len(known)].argmax(1)]

    def _try(self) -> Tensor | None:
        try:
            return self._best()
        except Exception:
            return None


@dataclass
class Lesson(Pause):
    """A batch learned, and before that what of it was recognised already, if `exam` asks for it."""

    patterns: Patterns
    z: Tensor | None
    exam: Exam | None
    report: LearnReport | None = None
    seconds: float = 0.0

    @property
    def done(self) -> bool:
        """Whether the batch is learned."""
        return self.report is not None

    def do(self) -> None:
        """Try first, if asked to, then learn."""
        if self.exam is not None and not self.exam.done:
            self.exam.do()
        began, batch = now(self.strategy), self.patterns
        if self.z is None or not isinstance(self.strategy, EmbeddingStrategy):
            self.report = self.strategy.learn(batch.images, batch.labels, batch.sessions)
        else:
            self.report = self.strategy.learn_embedded(self.z, batch.labels, batch.sessions)
        self.seconds = now(self.strategy) - began

    @staticmethod
    def share(pauses: Sequence[Any]) -> None:
        """All try first, then those learn at once that can."""
        if exams := [lesson.exam for lesson in pauses if lesson.exam is not None]:
            Exam.share(exams)
        given = [(lesson, lesson.z) for lesson in pauses if lesson.z is not None]
        began = now(pauses[0].strategy)
        reports = learn_together(
            [(lesson.strategy, z, lesson.patterns.labels) for lesson, z in given]
        )
        seconds = (now(pauses[0].strategy) - began) / max(
            1, sum(report is not None for report in reports)
        )
        for (lesson, _), report in zip(given, reports, strict=True):
            lesson.report, lesson.seconds = report, seconds


def together(runs: Sequence[Iterator[Pause | Item]]) -> Iterator[tuple[int, Item]]:
    """What each of the runs gives between its pauses, with its number; at a pause it waits for the others."""
    at_work = dict(enumerate(runs))
    while at_work:
        paused: dict[type[Pause], list[Pause]] = {}
        for number, run in list(at_work.items()):
            for item in run:
                if isinstance(item, Pause):
                    paused.setdefault(type(item), []).append(item)
                    break
                yield number, item
            else:
                del at_work[number]
        for kind, pauses in paused.items():
            if len(pauses) > 1:
                kind.share(pauses)
