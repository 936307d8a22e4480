"""`evaluate`: a strategy learns a stream, and is tested as it goes; one step a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from primavista.strategies import Strategy
from primavista.strategies.base import LearnReport
from primavista.streams.base import Patterns, Stream


@dataclass(frozen=True)
class Step:
    """After batch `batch` (from 1): accuracy over the whole test set, in percent; None where this batch was not tested."""

    batch: int
    batches: int
    accuracy: float | None
    class_accuracy: dict[int, float]  # of each class in the test set, known or not
    learn_seconds: float
    test_seconds: float
    state_bytes: int  # beyond the backbone
    report: LearnReport


def evaluate(strategy: Strategy, stream: Stream, *, test_every: int = 1, test_thin: int = 1) -> Iterator[Step]:
    """Learn every batch of `stream` in order, testing after each `test_every` (and after the last).

    The test set is `stream.test(test_thin)`: classes not taught yet are in it, so accuracy starts low, as in the paper.
    Where the representation is frozen, the test features are computed once and kept until it changes.
    """
    examiner = Examiner(stream.test(test_thin))
    for i in range(len(stream)):
        began = time.perf_counter()
        batch = stream[i]
        report = strategy.learn(batch.images, batch.labels, batch.sessions)
        learned = time.perf_counter()
        due = (i + 1) % test_every == 0 or i + 1 == len(stream)
        by_class = examiner.examine(strategy) if due else {}
        accuracy = 100 * examiner.right / examiner.count if due else None
        done = time.perf_counter()
        yield Step(i + 1, len(stream), accuracy, by_class, learned - began, done - learned, state_bytes(strategy), report)


class Examiner:
    """Tests a strategy on one set of frames."""

    def __init__(self, test: Patterns) -> None:
        self.test, self.count, self.right = test, len(test.labels), 0
        self._features: Tensor | None = None
        self._version = -1

    @torch.no_grad()
    def examine(self, strategy: Strategy) -> dict[int, float]:
        """The accuracy of each class, in percent."""
        scores = strategy.scores_embedded(self._embedded(strategy)) if strategy.embeds else strategy.scores(self.test.images)
        best = strategy.classes[scores.argmax(1)].cpu() if scores.shape[1] else torch.full((self.count,), -1)
        right = best == self.test.labels
        self.right = int(right.sum())
        return {int(c): 100 * float(right[self.test.labels == c].float().mean()) for c in self.test.labels.unique()}

    def _embedded(self, strategy: Strategy) -> Tensor:
        version = int(strategy.embedding_version)
        if self._features is None or version != self._version:
            self._features, self._version = strategy.embed(self.test.images), version
        return self._features


def state_bytes(strategy: Strategy) -> int:
    """Bytes of state beyond the backbone: what the strategy remembers."""
    own = strategy.state_dict()
    return sum(t.numel() * t.element_size() for name, t in own.items() if not name.startswith("backbone."))
