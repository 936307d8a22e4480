"""`evaluate`: a strategy learns a stream batch by batch, and is tested as it goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from primavista.bench import metrics
from primavista.bench.cost import Clock, Retrainable, state_bytes
from primavista.bench.features import FeatureCache, keep_decoded
from primavista.bench.metrics import Measures, Tally
from primavista.errors import InputError
from primavista.media.frames import Selection
from primavista.networks.base import Backbone, build
from primavista.progress import OnStep
from primavista.storage.settings import OptionValue
from primavista.strategies.base import LearnReport, Strategy, is_frozen
from primavista.strategies.creation import create
from primavista.strategies.registry import protocol_options, strategy_info
from primavista.streams.dataset import Patterns, Stream


@dataclass(frozen=True)
class Step:
    """The measurements after one batch.

    Args:
        batch: The number of the batch, from 1.
        batches: The number of batches of the stream.
        report: The strategy's report about the batch.
        measures: Accuracy, forgetting and the like, which `bench.metrics` defines; each is None if
            there was no test.
        confusion: Classes x classes; rows are true classes, columns predicted ones. None without a
            test.
        learn_seconds: Time spent learning the batch, the features included.
        solve_seconds: Time to solve for the weights of a head that keeps sums, measured as the
            first prediction of one frame after a batch, and before it if forward transfer is
            measured. 0 if there are no features.
        test_seconds: Time spent predicting the test frames, and those for forward transfer.
        state_bytes: Bytes beyond the network, its head and stored data; see `bench.cost`.
    """

    batch: int
    batches: int
    report: LearnReport
    measures: Measures
    confusion: Tensor | None
    learn_seconds: float
    solve_seconds: float
    test_seconds: float
    state_bytes: int

    @property
    def accuracy(self) -> float | None:
        """The accuracy over all test frames, in percent; None if there was no test."""
        return self.measures.accuracy

    @property
    def class_accuracy(self) -> dict[int, float]:
        """Percent for each class in the test set, taught or not; empty without a test."""
        return {} if self.confusion is None else metrics.class_accuracy(self.confusion)


def evaluate(
    strategy: Strategy | str,
    stream: Stream,
    *,
    backbone: Backbone | nn.Module | None = None,
    seed: int = 0,
    test_every: int = 1,
    test_thin: int = 1,
    retrain: int | None = None,
    start: int = 0,
    tally: Tally | None = None,
    features: FeatureCache | None = None,
    on_step: OnStep | None = None,
    **options: OptionValue,
) -> Iterator[Step]:
    """Learn every batch of a stream in order, with tests after some of them.

    The test set is the same throughout and contains classes that are not taught yet, so accuracy
    starts low, as in the paper. Features of a frozen representation are computed once.

    Args:
        strategy: A strategy, or the name of one, which is then created with the paper's
            hyperparameters for the stream's protocol.
        stream: The batches.
        backbone: For a strategy by name: a network, or any module that `build_backbone` takes
            (default: MobileNet v1 with ImageNet weights), at the size of the frames.
        seed: For a strategy by name: the seed of every random choice.
        test_every: Test after the first batch, every `test_every`-th, and the last.
        test_thin: Test on one frame in `test_thin` of each test session.
        retrain: For Cumulative or GDumb with `every=None`: the number of retrainings. They are
            evenly spaced, the last one after the last batch, and there are no other tests.
        start: How many batches `strategy` has learned already; the next one comes first.
        tally: The tally after those batches, which continues.
        features: A cache of features; runs that share one compute each feature once.
        on_step: Called after each step of gradient descent within a batch; see `Strategy.on_step`.
        **options: For a strategy by name: options that replace its hyperparameters.

    Yields:
        One `Step` per batch, as soon as it is learned and tested.

    Raises:
        InputError: If an argument is wrong; nothing has been learned then.
    """
    if isinstance(strategy, str):
        strategy = _created(strategy, stream, backbone, seed, options)
    elif backbone is not None or options:
        raise InputError(
            "backbone and options are for a strategy by name: "
            'evaluate("cwr*", stream, backbone=...)'
        )
    if retrain is not None and (not isinstance(strategy, Retrainable) or retrain < 1):
        name = type(strategy).__name__
        raise InputError(
            "retrain is a number of retrainings, for Cumulative and GDumb; "
            f"got {retrain} for {name}"
        )
    if on_step is not None:
        strategy.on_step = on_step
    if test_every < 1:
        raise InputError(f"test_every must be 1 or more; got {test_every}")
    count = len(stream)
    retrained = set() if retrain is None else spaced(retrain, count)
    tested = retrained or {1, *range(test_every, count, test_every), count}
    test_set = TestSet(stream, test_thin, features or FeatureCache())
    return _learn_and_test(strategy, stream, test_set, tested, retrained, start, tally or Tally())


def _learn_and_test(
    strategy: Strategy,
    stream: Stream,
    test_set: TestSet,
    tested: set[int],
    retrained: set[int],
    start: int,
    tally: Tally,
) -> Iterator[Step]:
    """Learn batch after batch, test after some of them, and yield the measurements.

    Before a batch is learned, its classes that are known already are tested: forward transfer.
    """
    for i in range(start, len(stream)):
        batch, number = stream[i], i + 1
        clock = Clock(strategy)
        z = None
        if is_frozen(strategy):
            z, seconds = test_set.features.of_batch(strategy, batch)
            clock.learn_seconds += seconds

        known = torch.tensor([label in tally.met for label in batch.labels.tolist()])
        if number in tested and known.any():
            some = select_patterns(batch, known.nonzero().flatten())
            answer = answers(strategy, some, None if z is None else z[known.to(z.device)], clock)
            tally.transfer(int((answer == some.labels).sum()), len(some.labels))

        with clock.charge("learn_seconds"):
            if z is not None and is_frozen(strategy):
                report = strategy.learn_embedded(z, batch.labels, batch.sessions)
            else:
                report = strategy.learn(batch.images, batch.labels, batch.sessions)
            if number in retrained and isinstance(strategy, Retrainable):
                report = replace(report, losses=strategy.retrain())
        tally.teach(sorted(set(batch.labels.tolist())), number)

        confusion, measures = None, Measures()
        if number in tested:
            confusion = test_set.confusion(strategy, clock)
            measures = tally.test(metrics.class_counts(confusion))
        yield Step(
            batch=number,
            batches=len(stream),
            report=report,
            measures=measures,
            confusion=confusion,
            learn_seconds=clock.learn_seconds,
            solve_seconds=clock.solve_seconds,
            test_seconds=clock.test_seconds,
            state_bytes=state_bytes(strategy, report.stored_bytes),
        )


def spaced(count: int, batches: int) -> set[int]:
    """Return evenly spaced batches, the last one among them.

    Args:
        count: How many.
        batches: How many batches there are.

    >>> sorted(spaced(4, 10))
    [2, 5, 8, 10]
    """
    return {max(1, round(k * batches / count)) for k in range(1, count + 1)}


@torch.no_grad()
def answers(strategy: Strategy, patterns: Patterns, z: Tensor | None, clock: Clock) -> Tensor:
    """Return the label with the highest score for each frame, on the CPU.

    With features, the strategy first solves for the weights of its head by scoring one frame. It
    keeps the solution until it learns again.

    Args:
        strategy: The strategy to ask.
        patterns: The frames.
        z: Their features; None if the representation is still learning.
        clock: Charged with the time of solving and of testing.

    Raises:
        InputError: If a score is not finite.
    """
    if z is not None:
        with clock.charge("solve_seconds"):
            strategy.score_features(z[:1])
    with clock.charge("test_seconds"):
        scores = strategy.scores(patterns.images) if z is None else strategy.score_features(z)
        classes = strategy.classes
        scores = scores[:, : len(classes)]
        if not bool(scores.isfinite().all()):
            raise InputError(
                f"{type(strategy).__name__} gives scores that are NaN or infinite, from which no "
                "class follows: check its learning rate and its `score_features`"
            )
        return classes[scores.argmax(1)].cpu()


def select_patterns(patterns: Patterns, chosen: Tensor) -> Patterns:
    """Return some patterns, by their positions."""
    images = Selection(patterns.images.source, patterns.images.indices[chosen.numpy()])
    return Patterns(images, patterns.labels[chosen], patterns.sessions[chosen])


class TestSet:
    """The test frames of a stream, with features that are kept until the representation changes.

    The frames are decoded once, by `keep_decoded`, if they are few enough.

    Args:
        stream: The stream whose data set is tested on.
        thin: One frame in `thin` of each test session is taken.
        features: The cache to take features from.
    """

    __test__ = False  # for pytest, which takes Test* for tests

    def __init__(self, stream: Stream, thin: int, features: FeatureCache) -> None:
        self.patterns = keep_decoded(stream.test(thin))
        self.classes = len(stream.data.classes)
        self.features = features
        self._z: Tensor | None = None
        self._version = -1

    def confusion(self, strategy: Strategy, clock: Clock) -> Tensor:
        """Test a strategy: rows of the confusion matrix are true classes, columns predicted ones.

        Args:
            strategy: The strategy.
            clock: Charged with the time, that of new features included.
        """
        if is_frozen(strategy) and int(strategy.embedding_version) != self._version:
            self._z, seconds = self.features.of(strategy, self.patterns.images)
            self._version = int(strategy.embedding_version)
            clock.test_seconds += seconds
        z = self._z if is_frozen(strategy) else None
        predicted = answers(strategy, self.patterns, z, clock)
        return metrics.confusion(self.patterns.labels, predicted, self.classes)


def _created(
    name: str,
    stream: Stream,
    backbone: Backbone | nn.Module | None,
    seed: int,
    options: dict[str, OptionValue],
) -> Strategy:
    if not isinstance(backbone, Backbone):
        size = int(stream[0].images[np.array([0])].shape[1])
        backbone = build(size=size) if backbone is None else build(backbone, size=size)
    chosen: dict[str, Any] = {**protocol_options(strategy_info(name), stream.name), **options}
    return create(name, backbone, seed=seed, **chosen)
