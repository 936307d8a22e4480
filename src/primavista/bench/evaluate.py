"""`evaluate`: a strategy learns a stream batch by batch, and is tested as it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.backbones.registry import build
from primavista.bench import metrics
from primavista.bench.features import FeatureCache, now
from primavista.bench.kept_frames import keep_decoded
from primavista.bench.metrics import Tally
from primavista.bench.resolve import preset_options
from primavista.errors import InputError
from primavista.frames import Selection
from primavista.notebook import html_table
from primavista.progress import Progress
from primavista.storage.settings import OptionValue
from primavista.strategies import Strategy, create
from primavista.strategies.base import LearnReport
from primavista.strategies.embedding import is_frozen
from primavista.streams.dataset import Patterns, Stream

# With the backbone, these tensors are the model that anybody would keep.
SCORING = ("head.weight", "head.bias", "head.cw")
# Not state of its own: the network, the one that Cumulative begins anew with, and stored data,
# which `LearnReport.stored_bytes` counts. The network has hundreds of tensors, too.
NOT_STATE = ("backbone", "scratch", "memory")


@dataclass(frozen=True)
class Step:
    """The measurements after one batch; `bench.metrics` defines the measures.

    Args:
        batch: the number of the batch, from 1.
        batches: how many batches the stream has.
        accuracy: percent over the whole test set; None, like every measure, if there was no test.
        class_accuracy: percent for each class in the test set, taught or not; empty without a test.
        confusion: classes x classes; rows are true classes, columns predicted ones.
        average: the average incremental accuracy, in percent.
        forgetting: in points.
        forward_transfer: in points.
        learn_seconds: time spent learning the batch, the features included.
        test_seconds: time spent testing.
        state_bytes: bytes beyond the backbone and the scoring head.
        stored_bytes: bytes of stored data.
        saturated: the share of guarded weights whose importance is at its limit.
        report: what the strategy reported about the batch.
    """

    batch: int
    batches: int
    accuracy: float | None
    class_accuracy: dict[int, float]
    confusion: Tensor | None
    average: float | None
    forgetting: float | None
    forward_transfer: float | None
    learn_seconds: float
    test_seconds: float
    state_bytes: int
    stored_bytes: int
    saturated: float | None
    report: LearnReport

    def _repr_html_(self) -> str:
        measures = {
            "accuracy (%)": self.accuracy,
            "average incremental accuracy (%)": self.average,
            "forgetting (points)": self.forgetting,
            "forward transfer (points)": self.forward_transfer,
            "learning (s)": self.learn_seconds,
            "testing (s)": self.test_seconds,
        }
        rows = [(name, value) for name, value in measures.items() if value is not None]
        return html_table(rows, caption=f"batch {self.batch} of {self.batches}")


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
    features: FeatureCache | None = None,
    progress: Progress | None = None,
    **options: OptionValue,
) -> Iterator[Step]:
    """Learn every batch of a stream in order, with tests after some of them.

    The test set is the same throughout and contains classes that are not taught yet, so accuracy
    starts low, as in the paper. Features of a frozen representation are computed once.

    Args:
        strategy: a strategy, or the name of one, which is then created with the paper's
            hyperparameters for the stream's protocol.
        stream: the batches.
        backbone: for a strategy by name: the network (default: MobileNet v1 with ImageNet weights
            at the size of the frames).
        seed: for a strategy by name: the seed of every random choice.
        test_every: test after the first batch, every `test_every`-th, and the last.
        test_thin: test on one frame in `test_thin` of each test session.
        retrain: for Cumulative with `every=None`: retrain so many times, evenly spaced, the last
            time after the last batch, and test only then.
        start: how many batches `strategy` has learned already; the next one comes first.
        tally: the tally after those batches, which continues.
        features: a cache of features; runs that share one compute each feature once.
        progress: called after each batch with the number of batches learned and their total.
        **options: for a strategy by name: options that replace its hyperparameters.

    Yields:
        One `Step` per batch, as soon as it is learned and tested.

    Raises:
        InputError: if an argument is wrong; nothing has been learned then.
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
            f"retrain is a number of retrainings, for Cumulative; got {retrain} for {name}"
        )
    schedule = TestSchedule(len(stream), test_every, retrain)
    test_set = TestSet(stream, test_thin, features or FeatureCache())
    return _learn_and_test(strategy, stream, schedule, test_set, start, tally or Tally(), progress)


def _learn_and_test(
    strategy: Strategy,
    stream: Stream,
    schedule: TestSchedule,
    test_set: TestSet,
    start: int,
    tally: Tally,
    progress: Progress | None,
) -> Iterator[Step]:
    for i in range(start, len(stream)):
        batch, tested = stream[i], schedule.tests(i + 1)
        clock = Clock(strategy)
        z = None
        if is_frozen(strategy):
            z, clock.learn_seconds = test_set.features.of_batch(strategy, batch)

        if tested and i > 0 and (known := known_before(batch, z, tally)):
            with clock.testing():
                tally.transfer(known.right(known.predict(strategy).cpu()), known.count)

        with clock.learning():
            if z is not None and is_frozen(strategy):
                report = strategy.learn_embedded(z, batch.labels, batch.sessions)
            else:
                report = strategy.learn(batch.images, batch.labels, batch.sessions)
            if schedule.retrains(i + 1) and isinstance(strategy, Retrainable):
                report = replace(report, losses=strategy.retrain())
        tally.teach(sorted(set(batch.labels.tolist())))

        confusion = None
        if tested:
            frames = test_set.frames(strategy, clock)
            with clock.testing():
                confusion = test_set.confusion(frames.predict(strategy).cpu())
        step = make_step(i + 1, stream, strategy, report, tally, confusion, clock)
        if progress is not None:
            progress(i + 1, len(stream))
        yield step


def collect(
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
    features: FeatureCache | None = None,
    progress: Progress | None = None,
    **options: OptionValue,
) -> list[Step]:
    """Return all the steps of `evaluate`, which has the same arguments, as a list."""
    steps = evaluate(
        strategy,
        stream,
        backbone=backbone,
        seed=seed,
        test_every=test_every,
        test_thin=test_thin,
        retrain=retrain,
        start=start,
        tally=tally,
        features=features,
        progress=progress,
        **options,
    )
    return list(steps)


@runtime_checkable
class Retrainable(Protocol):
    """A joint strategy, which is retrained from scratch on everything that it has seen."""

    def retrain(self) -> tuple[float, ...]:
        """Train from scratch; return the mean loss of each epoch."""


@dataclass(frozen=True)
class TestSchedule:
    """The batches after which a run is tested and, for joint strategies, retrained.

    Args:
        batches: how many batches the stream has.
        test_every: test after the first batch, every `test_every`-th, and the last.
        retrain: retrain so many times, evenly spaced, and test only then.

    >>> [batch for batch in range(1, 9) if TestSchedule(8, test_every=3).tests(batch)]
    [1, 3, 6, 8]
    """

    batches: int
    test_every: int = 1
    retrain: int | None = None
    __test__ = False  # for pytest, which takes Test* for tests

    def __post_init__(self) -> None:
        if self.test_every < 1:
            raise InputError(f"test_every must be 1 or more; got {self.test_every}")

    def retrains(self, batch: int) -> bool:
        """Return whether the strategy is retrained after a batch.

        Args:
            batch: the number of the batch, from 1.
        """
        return self.retrain is not None and batch in spaced(self.retrain, self.batches)

    def tests(self, batch: int) -> bool:
        """Return whether the strategy is tested after a batch.

        Args:
            batch: the number of the batch, from 1.
        """
        if self.retrain is not None:
            return self.retrains(batch)
        return batch in (1, self.batches) or batch % self.test_every == 0


def spaced(count: int, batches: int) -> set[int]:
    """Return evenly spaced batches, the last one among them.

    Args:
        count: how many.
        batches: how many batches there are.

    >>> sorted(spaced(4, 10))
    [2, 5, 8, 10]
    """
    return {max(1, round(k * batches / count)) for k in range(1, count + 1)}


@dataclass(frozen=True)
class LabelledFrames:
    """Frames that a strategy is asked to recognise.

    Args:
        patterns: the frames and their labels.
        z: the features of the frames; None if the representation is still learning.
    """

    patterns: Patterns
    z: Tensor | None

    @property
    def count(self) -> int:
        """The number of frames."""
        return len(self.patterns.labels)

    @torch.no_grad()
    def predict(self, strategy: Strategy) -> Tensor:
        """Return the label with the highest score for each frame, on the strategy's device.

        Args:
            strategy: the strategy to ask.
        """
        classes = strategy.classes
        if self.z is None:
            scores = strategy.scores(self.patterns.images)
        else:
            scores = strategy.score_features(self.z)
        return classes[scores[:, : len(classes)].argmax(1)]

    def right(self, predicted: Tensor) -> int:
        """Return how many predictions are right.

        Args:
            predicted: a label for each frame, on the CPU.
        """
        return int((predicted == self.patterns.labels).sum())


class TestSet:
    """The test frames of a stream: decoded once, with features that are kept until the
    representation changes.

    Args:
        stream: the stream whose data set is tested on.
        thin: one frame in so many of each test session is taken.
        features: the cache to take features from.
    """

    __test__ = False  # for pytest, which takes Test* for tests

    def __init__(self, stream: Stream, thin: int, features: FeatureCache) -> None:
        self.patterns = keep_decoded(stream.test(thin))
        self.classes = len(stream.data.classes)
        self.features = features
        self._z: Tensor | None = None
        self._version = -1

    def frames(self, strategy: Strategy, clock: Clock) -> LabelledFrames:
        """Return the frames, with features if the representation of the strategy is frozen.

        Args:
            strategy: the strategy that is to be tested.
            clock: charged with the time that new features took.
        """
        if not is_frozen(strategy):
            return LabelledFrames(self.patterns, None)
        version = int(strategy.embedding_version)
        if self._z is None or version != self._version:
            self._z, seconds = self.features.of(strategy, self.patterns.images)
            self._version = version
            clock.test_seconds += seconds
        return LabelledFrames(self.patterns, self._z)

    def confusion(self, predicted: Tensor) -> Tensor:
        """Return the confusion matrix: rows are true classes, columns predicted ones.

        Args:
            predicted: a label for each test frame, on the CPU.
        """
        return metrics.confusion(self.patterns.labels, predicted, self.classes)


class Clock:
    """The seconds that one batch of a strategy took; the device is waited for.

    Args:
        strategy: the strategy.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.learn_seconds = 0.0
        self.test_seconds = 0.0
        self._strategy = strategy

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Charge the time of a `with` block to learning."""
        began = now(self._strategy)
        yield
        self.learn_seconds += now(self._strategy) - began

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Charge the time of a `with` block to testing."""
        began = now(self._strategy)
        yield
        self.test_seconds += now(self._strategy) - began


def known_before(batch: Patterns, z: Tensor | None, tally: Tally) -> LabelledFrames | None:
    """Return the frames of a batch whose classes were taught before; None if there are none.

    Args:
        batch: the batch, which is not learned yet.
        z: its features, if the representation is frozen.
        tally: knows the classes that were taught.
    """
    shown = set(batch.labels.tolist())
    if shown <= tally.taught.keys():
        return LabelledFrames(batch, z)
    if not shown & tally.taught.keys():
        return None
    is_known = torch.tensor([label in tally.taught for label in batch.labels.tolist()])
    known = is_known.nonzero().flatten()
    images = Selection(batch.images.source, batch.images.indices[known])
    some = Patterns(images, batch.labels[known], batch.sessions[known])
    return LabelledFrames(some, None if z is None else z[known.to(z.device)])


def make_step(
    number: int,
    stream: Stream,
    strategy: Strategy,
    report: LearnReport,
    tally: Tally,
    confusion: Tensor | None,
    clock: Clock,
) -> Step:
    """Return the measurements after one batch, and enter its test into the tally.

    Args:
        number: the number of the batch, from 1.
        stream: the stream.
        strategy: the strategy, which has learned the batch.
        report: what it reported.
        tally: what earlier tests left behind.
        confusion: the confusion matrix of the test; None if there was none.
        clock: the time that the batch took.
    """
    accuracy = forgetting = None
    by_class: dict[int, float] = {}
    if confusion is not None:
        accuracy, by_class = metrics.accuracy(confusion), metrics.class_accuracy(confusion)
        forgetting = tally.test(accuracy, by_class)
    return Step(
        batch=number,
        batches=len(stream),
        accuracy=accuracy,
        class_accuracy=by_class,
        confusion=confusion,
        average=None if confusion is None else tally.average,
        forgetting=forgetting,
        forward_transfer=None if confusion is None else tally.forward_transfer,
        learn_seconds=clock.learn_seconds,
        test_seconds=clock.test_seconds,
        state_bytes=state_bytes(strategy),
        stored_bytes=report.stored_bytes,
        saturated=report.saturated,
        report=report,
    )


def state_bytes(strategy: Strategy) -> int:
    """Return the bytes that a strategy needs beyond the backbone and the scoring head.

    The temporary weights tw of CWR* are counted; stored data are not.

    Args:
        strategy: the strategy.
    """
    own = chain(strategy.named_parameters(recurse=False), strategy.named_buffers(recurse=False))
    for part, module in strategy.named_children():
        if part not in NOT_STATE:
            own = chain(own, module.named_parameters(part), module.named_buffers(part))
    return sum(t.numel() * t.element_size() for name, t in own if name not in SCORING)


def _created(
    name: str,
    stream: Stream,
    backbone: Backbone | None,
    seed: int,
    options: dict[str, OptionValue],
) -> Strategy:
    if backbone is None:
        backbone = build(size=int(stream[0].images[torch.tensor([0])].shape[1]))
    chosen = preset_options(name, stream.name, options)
    return create(name, backbone, seed=seed, **chosen)
