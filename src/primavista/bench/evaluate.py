"""`evaluate`: a strategy learns a stream, and is tested as it goes; one step a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.backbones.registry import build
from primavista.bench import metrics
from primavista.bench.features import Features, now
from primavista.bench.metrics import Tally
from primavista.bench.resolve import preset_options
from primavista.bench.together import Exam, Lesson, Pause
from primavista.errors import InputError
from primavista.frames import Selection
from primavista.strategies import Strategy, create
from primavista.strategies.base import LearnReport
from primavista.streams.dataset import Patterns, Stream

SCORING = (
    "head.weight",
    "head.bias",
    "head.cw",
)  # with the backbone, the model that anybody would keep


@dataclass(frozen=True)
class Step:
    """After batch `batch` (from 1); see `metrics` for what is measured. None and empty where this batch was not tested."""

    batch: int
    batches: int
    accuracy: float | None  # percent, over the whole test set
    class_accuracy: dict[int, float]  # of each class in the test set, known or not
    confusion: Tensor | None  # classes x classes: rows are true, columns predicted
    average: float | None
    forgetting: float | None
    forward_transfer: float | None
    learn_seconds: float
    test_seconds: float
    state_bytes: int  # beyond the backbone and the head that scores
    stored_bytes: int  # of data kept
    saturated: float | None  # share of guarded weights at F = max_F
    report: LearnReport


def evaluate(
    strategy: Strategy | str,
    stream: Stream,
    *,
    backbone: Backbone | None = None,
    seed: int = 0,
    test_every: int = 1,
    test_thin: int = 1,
    retrain: int | None = None,
    start: int = 0,
    tally: Tally | None = None,
    features: Features | None = None,
    **options: Any,
) -> Iterator[Step]:
    """Learn every batch of `stream` in order, testing after the first, each `test_every`-th and the last.

    A strategy by name is made with its preset, its `options`, and `backbone` (default: MobileNet v1 with ImageNet weights at
    the frames' size). The test set is `stream.test(test_thin)`: classes not taught yet are in it, so accuracy starts low, as in
    the paper. Where the representation is frozen, test features are computed once and kept until it changes. `retrain` is for
    Cumulative with `every=None`: so many retrainings, evenly spaced, the last at the end, and tests only then. To go on after
    `start` batches, give the strategy and the `tally` as they were. Runs that share `features` compute them once.
    """
    if isinstance(strategy, str):
        size = int(stream[0].images[torch.tensor([0])].shape[1])
        given = preset_options(
            strategy, stream.name, stream.data.name.startswith("core50"), options
        )
        strategy = create(
            strategy, build(size=size) if backbone is None else backbone, seed=seed, **given
        )
    elif backbone is not None or options:
        raise InputError(
            'backbone and options are for a strategy by name: evaluate("cwr*", stream, backbone=...)'
        )
    steps = pausing_steps(
        strategy,
        stream,
        test_every=test_every,
        test_thin=test_thin,
        retrain=retrain,
        start=start,
        tally=tally,
        features=features,
    )
    return (step for step in steps if isinstance(step, Step))


def pausing_steps(
    strategy: Strategy,
    stream: Stream,
    *,
    test_every: int = 1,
    test_thin: int = 1,
    retrain: int | None = None,
    start: int = 0,
    tally: Tally | None = None,
    features: Features | None = None,
) -> Iterator[Pause | Step]:
    """`evaluate` with a pause before each batch and each test, for runs `together`."""
    if test_every < 1:
        raise InputError(f"test_every must be 1 or more; got {test_every}")
    if retrain is not None and (not hasattr(strategy, "retrain") or retrain < 1):
        raise InputError(
            f"retrain is a number of retrainings, for Cumulative; got {retrain} for {type(strategy).__name__}"
        )
    plan = _Plan(len(stream), test_every, test_thin, retrain)
    return _steps(strategy, stream, plan, start, tally or Tally(), features or Features())


def collect(strategy: Strategy | str, stream: Stream, **settings: Any) -> list[Step]:
    """All the steps of `evaluate` at once."""
    return list(evaluate(strategy, stream, **settings))


@dataclass(frozen=True)
class _Plan:
    batches: int
    test_every: int
    test_thin: int
    retrain: int | None

    def retrains(self, batch: int) -> bool:
        return self.retrain is not None and batch in spaced(self.retrain, self.batches)

    def tests(self, batch: int) -> bool:
        if self.retrain is not None:
            return self.retrains(batch)
        return batch in (1, self.batches) or batch % self.test_every == 0


def spaced(count: int, batches: int) -> set[int]:
    """`count` batches, evenly spaced, the last among them.

    >>> sorted(spaced(4, 10))
    [2, 5, 8, 10]
    """
    return {max(1, round(k * batches / count)) for k in range(1, count + 1)}


def _steps(
    strategy: Strategy, stream: Stream, plan: _Plan, start: int, tally: Tally, features: Features
) -> Iterator[Pause | Step]:
    examiner = Examiner(stream.test(plan.test_thin), len(stream.data.classes), features)
    for i in range(start, len(stream)):
        patterns, due = stream[i], plan.tests(i + 1)
        z, learn_seconds = features.of_batch(strategy, patterns) if strategy.embeds else (None, 0.0)
        lesson = Lesson(
            strategy,
            patterns,
            z,
            _known_before(strategy, patterns, z, tally) if due and i else None,
        )
        yield from _waited(lesson)
        assert lesson.report is not None
        report, learn_seconds, test_seconds = lesson.report, learn_seconds + lesson.seconds, 0.0
        if lesson.exam is not None:
            test_seconds = lesson.exam.seconds
            tally.transfer(lesson.exam.right, len(lesson.exam.patterns.labels))
        if plan.retrains(i + 1):
            began = now(strategy)
            report = _retrained(strategy, report)
            learn_seconds += now(strategy) - began
        tally.teach(sorted(set(patterns.labels.tolist())))
        matrix = overall = forgetting = None
        by_class: dict[int, float] = {}
        if due:
            yield from _waited(exam := examiner.exam(strategy))
            began = time.perf_counter()
            matrix = examiner.confusion(exam)
            overall, by_class = metrics.accuracy(matrix), metrics.class_accuracy(matrix)
            forgetting = tally.test(overall, by_class)
            test_seconds += exam.seconds + time.perf_counter() - began
        yield Step(
            batch=i + 1,
            batches=len(stream),
            accuracy=overall,
            class_accuracy=by_class,
            confusion=matrix,
            average=tally.average if due else None,
            forgetting=forgetting,
            forward_transfer=tally.forward_transfer if due else None,
            learn_seconds=learn_seconds,
            test_seconds=test_seconds,
            state_bytes=state_bytes(strategy),
            stored_bytes=report.stored_bytes,
            saturated=report.saturated,
            report=report,
        )


def _waited(pause: Pause) -> Iterator[Pause]:
    yield pause
    if not pause.done:
        pause.do()


class Examiner:
    """Tests a strategy on one set of frames."""

    def __init__(self, test: Patterns, classes: int, features: Features | None = None) -> None:
        self.test, self.classes, self._shared = test, classes, features or Features()
        self._features: Tensor | None = None
        self._version = -1

    def exam(self, strategy: Strategy) -> Exam:
        """The test that it is to sit."""
        z, seconds = self._embedded(strategy) if strategy.embeds else (None, 0.0)
        return Exam(strategy, self.test, z, seconds=seconds)

    def confusion(self, exam: Exam) -> Tensor:
        """The confusion matrix of an exam that is done."""
        assert exam.found is not None
        return metrics.confusion(self.test.labels, exam.found, self.classes)

    def examine(self, strategy: Strategy) -> Tensor:
        """The confusion matrix."""
        (exam := self.exam(strategy)).do()
        return self.confusion(exam)

    def _embedded(self, strategy: Strategy) -> tuple[Tensor, float]:
        version, seconds = int(strategy.embedding_version), 0.0
        if self._features is None or version != self._version:
            (self._features, seconds), self._version = (
                self._shared.of(strategy, self.test.images),
                version,
            )
        return self._features, seconds


def state_bytes(strategy: Strategy) -> int:
    """Bytes beyond the backbone and the head that scores: what the strategy needs besides the model, tw of CWR* included."""
    own = chain(strategy.named_parameters(recurse=False), strategy.named_buffers(recurse=False))
    for part, module in strategy.named_children():
        if (
            part != "backbone"
        ):  # not looked through: it has hundreds of tensors, and this is asked after every batch
            own = chain(own, module.named_parameters(part), module.named_buffers(part))
    return sum(t.numel() * t.element_size() for name, t in own if name not in SCORING)


def _known_before(
    strategy: Strategy, patterns: Patterns, z: Tensor | None, tally: Tally
) -> Exam | None:
    """An exam on the patterns of classes taught before; None where there are none."""
    there = set(patterns.labels.tolist())
    if there <= tally.taught.keys():
        return Exam(strategy, patterns, z)
    if not there & tally.taught.keys():
        return None
    known = (
        torch.tensor([label in tally.taught for label in patterns.labels.tolist()])
        .nonzero()
        .flatten()
    )
    images = Selection(patterns.images.source, patterns.images.indices[known])
    some = Patterns(images, patterns.labels[known], patterns.sessions[known])
    return Exam(strategy, some, None if z is None else z[known.to(z.device)])


def _retrained(strategy: Any, report: LearnReport) -> LearnReport:
    losses = strategy.retrain()
    return LearnReport(
        report.batch,
        report.patterns,
        report.new_classes,
        losses,
        report.saturated,
        report.stored_bytes,
    )
