"""Several runs side by side on one GPU: ten updates or factorisations cost little more than one.

`evaluate_stacked` is `evaluate` for several runs: they advance batch by batch, and their updates
and solutions are computed as one stack. On the CPU each run gives the same bits as alone; on a GPU
other kernels work on stacks, and the results agree to the rounding of float64. `stacked_cells.py`
runs the cells of a plan in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from primavista.bench import metrics
from primavista.bench.clock import Clock, now
from primavista.bench.evaluate import (
    LabelledFrames,
    Step,
    TestSchedule,
    TestSet,
    known_before,
    learn_patterns,
    make_step,
)
from primavista.bench.features import FeatureCache
from primavista.bench.metrics import Measures, Tally
from primavista.errors import InputError
from primavista.heads.dslda import DSLDAHead
from primavista.heads.statistics import AnalyticHead, packed_blocks, split_symmetric
from primavista.strategies.base import Batch, LearnReport, Strategy, is_frozen
from primavista.strategies.frozen import DSLDA, AnalyticStrategy, FrozenStrategy, Stackable
from primavista.streams.dataset import Patterns, Stream


def evaluate_stacked(
    strategies: Sequence[Strategy],
    streams: Sequence[Stream],
    *,
    test_every: int = 1,
    test_thin: int = 1,
    features: FeatureCache | None = None,
) -> Iterator[tuple[int, Step]]:
    """Let several strategies learn one stream each, side by side; see `evaluate`.

    Args:
        strategies: strategies that have not learned anything.
        streams: the stream of each strategy; they may have different lengths.
        test_every: test after the first batch, every `test_every`-th, and the last.
        test_thin: test on one frame in `test_thin` of each test session.
        features: a cache of features that the runs share.

    Yields:
        The number of a run, from 0, and its next step; runs advance batch by batch.

    Raises:
        InputError: if there is not one stream per strategy, or if an argument is wrong.
    """
    if len(strategies) != len(streams):
        raise InputError(f"got {len(strategies)} strategies and {len(streams)} streams")
    shared = features or FeatureCache()
    runs = []
    for strategy, stream in zip(strategies, streams, strict=True):
        schedule = TestSchedule(len(stream), test_every)
        test_set = TestSet(stream, test_thin, shared)
        runs.append(StackedRun(strategy, stream, schedule, test_set, 0, Tally()))
    active = [run for run in runs if not run.done]
    while active:
        advance(active)
        for run in active:
            yield runs.index(run), run.next_step()
        active = [run for run in active if not run.done]


class StackedRun:
    """One strategy and its stream among those that learn side by side.

    Args:
        strategy: the strategy.
        stream: its batches.
        schedule: when it is tested.
        test_set: what it is tested on, and the cache of features.
        position: how many batches it has learned.
        tally: the tally after those batches.
    """

    def __init__(
        self,
        strategy: Strategy,
        stream: Stream,
        schedule: TestSchedule,
        test_set: TestSet,
        position: int,
        tally: Tally,
    ) -> None:
        self.strategy = strategy
        self.stream = stream
        self.schedule = schedule
        self.test_set = test_set
        self.position = position
        self.tally = tally
        self.error: Exception | None = None
        self.clock = Clock(strategy)
        self.batch: Patterns
        self.z: Tensor | None = None
        self.report: LearnReport | None = None
        self.confusion: Tensor | None = None
        self.measures: Measures | None = None

    @property
    def done(self) -> bool:
        """True if every batch is learned."""
        return self.position >= len(self.stream)

    @property
    def tested(self) -> bool:
        """True if there is a test after the batch at hand."""
        return self.schedule.tests(self.position + 1)

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Keep an error of this run from the others; `next_step` raises it."""
        try:
            yield
        except Exception as error:
            self.error = error

    def begin_batch(self) -> None:
        """Take the next batch, and its features if the representation is frozen."""
        self.batch = self.stream[self.position]
        self.clock = Clock(self.strategy)
        self.report = self.confusion = self.measures = self.z = None
        if is_frozen(self.strategy):
            self.z, seconds = self.test_set.features.of_batch(self.strategy, self.batch)
            self.clock.learn_seconds += seconds

    def learn(self) -> None:
        """Learn the batch alone."""
        with self.clock.learning():
            self.report = learn_patterns(self.strategy, self.batch, self.z)

    def next_step(self) -> Step:
        """Return the step of the batch at hand, and move on; raise the error if it met one."""
        if self.error is not None:
            raise self.error
        assert self.report is not None
        self.position += 1
        return make_step(
            self.position,
            self.stream,
            self.strategy,
            self.report,
            self.measures or Measures(),
            self.confusion,
            self.clock,
        )


def advance(runs: Sequence[StackedRun]) -> None:
    """Learn and test the next batch of every run.

    A run that meets an error keeps it for `next_step`, and is left out of what follows.

    Args:
        runs: runs that are not done.
    """
    for run in runs:
        with run.catching():
            run.begin_batch()
    _measure_transfer([run for run in runs if run.error is None])
    _learn([run for run in runs if run.error is None])
    for run in runs:
        if run.error is None:
            run.tally.teach(sorted(set(run.batch.labels.tolist())), run.position + 1)
    _test([run for run in runs if run.error is None])


def _measure_transfer(runs: Sequence[StackedRun]) -> None:
    """Measure forward transfer: predict frames of taught classes before their batch is learned."""
    asked = []
    for run in runs:
        if run.tested and run.position > 0:
            known = known_before(run.batch, run.z, run.tally)
            if known is not None:
                asked.append((run, known))
    for (run, known), predicted in zip(asked, _predict(asked), strict=True):
        if predicted is not None:
            run.tally.transfer(known.right(predicted), known.count)


def _learn(runs: Sequence[StackedRun]) -> None:
    """Let the runs that can be stacked learn as a stack, and each of the others alone."""
    given = [(run, run.z) for run in runs if run.z is not None]
    if len(given) > 1:
        began = now(given[0][0].strategy)
        reports = learn_together([(run.strategy, z, run.batch.labels) for run, z in given])
        learned = sum(report is not None for report in reports)
        seconds = (now(given[0][0].strategy) - began) / max(1, learned)
        for (run, _), report in zip(given, reports, strict=True):
            if report is not None:
                run.report = report
                run.clock.learn_seconds += seconds
    for run in runs:
        if run.report is None:
            with run.catching():
                run.learn()


def _test(runs: Sequence[StackedRun]) -> None:
    asked = []
    for run in runs:
        if run.tested:
            with run.catching():
                asked.append((run, run.test_set.frames(run.strategy, run.clock)))
    for (run, _), predicted in zip(asked, _predict(asked), strict=True):
        if predicted is not None:
            run.confusion = run.test_set.confusion(predicted)
            run.measures = run.tally.test(metrics.class_counts(run.confusion))


@torch.no_grad()
def _predict(asked: Sequence[tuple[StackedRun, LabelledFrames]]) -> list[Tensor | None]:
    """Return the predictions of each run, on the CPU; None if it met an error.

    Everything is asked for before the device is waited for, and each run is charged its share of
    the time.
    """
    if not asked:
        return []
    began = now(asked[0][0].strategy)
    _solve(asked)
    solved = now(asked[0][0].strategy)
    best: list[Tensor | None] = [None] * len(asked)
    for k, (run, frames) in enumerate(asked):
        with run.catching():
            best[k] = frames.predict(run.strategy)
    found = [labels for labels in best if labels is not None]
    if not found:
        return best
    predicted = iter(torch.cat(found).cpu().split([len(labels) for labels in found]))
    ended = now(asked[0][0].strategy)
    for run, _ in asked:
        run.clock.solve_seconds += (solved - began) / len(found)
        run.clock.test_seconds += (ended - solved) / len(found)
    return [None if labels is None else next(predicted) for labels in best]


def _solve(asked: Sequence[tuple[StackedRun, LabelledFrames]]) -> None:
    """Solve the equations of all runs, as one stack if possible."""
    if len(asked) > 1:
        with suppress(torch.OutOfMemoryError):  # one after the other takes less memory
            solve_together([run.strategy for run, _ in asked])
    for run, frames in asked:
        with run.catching():
            frames.solve(run.strategy)


StackedUpdate = Callable[[Sequence[tuple[Any, Batch]]], None]


@torch.no_grad()
def learn_together(given: Sequence[tuple[Strategy, Tensor, Tensor]]) -> list[LearnReport | None]:
    """Let strategies learn one batch each, as stacks.

    A stack has strategies of one kind on a GPU whose batches have the same number of patterns, all
    of one class. On the CPU there are no stacks, so a run gives the same bits as alone.

    Args:
        given: strategies, each with the features and the labels of its batch.

    Returns:
        The report of each strategy; None if it was in no stack, and has to learn alone.
    """
    reports: list[LearnReport | None] = [None] * len(given)
    for numbers in _stacks_of(given):
        chosen = [given[k] for k in numbers]
        batches = [(strategy, strategy.begin_batch(z, labels)) for strategy, z, labels in chosen]
        update = _stacking(*chosen[0][:2])
        assert update is not None
        try:
            update(batches)
        except torch.OutOfMemoryError:  # nothing has changed yet, and one at a time takes less
            for strategy, batch in batches:
                strategy.learn_batch(batch)
        for k, (strategy, batch) in zip(numbers, batches, strict=True):
            strategy.end_batch()
            reports[k] = LearnReport(batch.i, batch.count, batch.new)
    return reports


def _stacks_of(given: Sequence[tuple[Strategy, Tensor, Tensor]]) -> list[list[int]]:
    """Return the numbers of those that can be stacked, at least two in each stack."""
    alike: dict[object, list[int]] = {}
    for k, (strategy, z, labels) in enumerate(given):
        if _stacking(strategy, z) is not None and bool((labels == labels[0]).all()):
            alike.setdefault((type(strategy), z.device, z.shape), []).append(k)
    return [numbers for numbers in alike.values() if len(numbers) > 1]


def _stacking(strategy: Strategy, z: Tensor) -> StackedUpdate | None:
    """Return the update of a stack of such strategies; None if they cannot be stacked."""
    if not z.is_cuda or not isinstance(strategy, FrozenStrategy):
        return None
    if type(strategy).learn_batch is not FrozenStrategy.learn_batch:
        return None  # a class of somebody's own that learns differently
    head = strategy.head
    if isinstance(head, DSLDAHead):
        return lda_updates if strategy.embeds and not head.base_init else None
    return statistics_updates if isinstance(head, AnalyticHead) else None


def lda_updates(lessons: Sequence[tuple[DSLDA, Batch]]) -> None:
    """Apply `heads.dslda.lda_update` to a stack of strategies.

    Args:
        lessons: strategies and their batches, which have the same number of patterns, all of one
            class.
    """
    statistics, columns = [strategy.head.statistics for strategy, _ in lessons], _columns(lessons)
    z = _stacked_features(lessons)
    count = z.shape[1]
    n = torch.stack([s.n[j] for s, j in zip(statistics, columns, strict=True)])
    t = torch.stack([s.arrays["t"] for s in statistics])
    order = torch.arange(count + 1)
    before, before_all = n[:, None] + order, (t[:, None] + order).double()
    factors = torch.stack([before.clip(1), before_all / (before_all + 1)]).to(z.device)
    divisor, weight = factors[..., None]
    means = [s.mu[j] for s, j in zip(statistics, columns, strict=True)]
    summed = torch.stack(means) * divisor[:, 0]  # n mu; mu is 0 for a class never seen
    delta = z - (summed[:, None] + z.cumsum(1) - z) / divisor[:, :count]
    products = torch.bmm((delta * weight[:, :count]).mT, delta)
    torch._foreach_copy_(means, list((summed + z.sum(1)) / divisor[:, count]))
    torch._foreach_add_([s.scatter for s in statistics], list(products))
    for s, j in zip(statistics, columns, strict=True):
        s.n[j] += count
        s.set_frames(s.frames + count)


def statistics_updates(lessons: Sequence[tuple[AnalyticStrategy, Batch]]) -> None:
    """Apply `SufficientStatistics.add` to a stack of strategies.

    Args:
        lessons: strategies and their batches, which have the same number of patterns, all of one
            class.
    """
    columns, z = _columns(lessons), _stacked_features(lessons)
    statistics = [strategy.head.statistics for strategy, _ in lessons]
    counts = [float(z.shape[1])] * len(lessons)

    def rows(name: str) -> list[Tensor]:
        return [s.arrays[name][j] for s, j in zip(statistics, columns, strict=True)]

    sums: list[tuple[Sequence[Tensor], Sequence[Any]]] = [
        (rows("n"), counts),
        (rows("s"), list(z.sum(1))),
    ]
    if statistics[0].has_gram:
        sums.append(([s.arrays["t"] for s in statistics], counts))
        for squares in zip(*(s.squares() for s in statistics), strict=True):
            own = z[:, :, squares[0][1]]  # one block of the features
            parts = zip(*(packed_blocks(gram, own.shape[2]) for gram, _ in squares), strict=True)
            sums += zip(parts, split_symmetric(torch.bmm(own.mT, own)), strict=True)
    else:
        sums.append((rows("q"), list((z * z).sum((1, 2)))))
    # Nothing is added before everything is computed: too little memory then changes nothing.
    for targets, values in sums:
        torch._foreach_add_(list(targets), list(values))


def _columns(lessons: Sequence[tuple[Strategy, Batch]]) -> list[int]:
    return [int(batch.present[0]) for _, batch in lessons]


def _stacked_features(lessons: Sequence[tuple[Any, Batch]]) -> Tensor:
    features = [strategy.phi(strategy.features(batch)) for strategy, batch in lessons]
    return torch.stack(features).double()


@torch.no_grad()
def solve_together(strategies: Sequence[Strategy]) -> None:
    """w_s = B_s inv(A_s): solve the equations of all strategies s that are `Stackable`.

    Those of one size and device are one stack. On the CPU the factors are bit for bit those that
    each strategy would have found alone; on a GPU they agree to the rounding of float64. If one
    matrix cannot be factorised, its stack is left alone: each strategy then tries by itself, and
    the wrong one raises the error.

    Args:
        strategies: any strategies.
    """
    alike: dict[object, list[tuple[Stackable, Tensor, Tensor]]] = {}
    for strategy in strategies:
        if isinstance(strategy, Stackable) and (equations := strategy.equations()) is not None:
            a, b = equations
            alike.setdefault((a.shape, a.device), []).append((strategy, a, b))
    for group in alike.values():
        factors, info = torch.linalg.cholesky_ex(torch.stack([a for _, a, _ in group]))
        if bool(info.any()):
            continue
        # padded to the number of classes of the one that knows most
        padded = pad_sequence([b for _, _, b in group], batch_first=True)
        found = torch.cholesky_solve(padded.mT, factors).mT
        for (stackable, _, b), w in zip(group, found, strict=True):
            stackable.accept_solution(w[: len(b)])
