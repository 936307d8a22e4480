"""What several strategies wait for, at once: on a GPU ten updates or factorisations cost little more than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from primavista.heads.base import AnalyticHead
from primavista.heads.dslda import DSLDAHead
from primavista.heads.packed import packed_parts, split
from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.frozen import DSLDA, AnalyticStrategy, FrozenStrategy, Stackable


@torch.no_grad()
def learn_together(lessons: Sequence[tuple[Strategy, Tensor, Tensor]]) -> list[LearnReport | None]:
    """Each strategy learns its features z with their labels; None: it did not, and has to by itself.

    So it is on the CPU, where a run side by side with others gives the same bits as alone; and of all but DSLDA and the
    analytic strategies, where each has as many patterns of one class.
    """
    reports: list[LearnReport | None] = [None] * len(lessons)
    alike: dict[object, list[int]] = {}
    for k, (strategy, z, labels) in enumerate(lessons):
        if _stacking(strategy, z) is not None and bool((labels == labels[0]).all()):
            alike.setdefault((type(strategy), z.device, z.shape), []).append(k)
    for numbers in alike.values():
        if len(numbers) > 1:
            chosen = [lessons[k] for k in numbers]
            batches = [
                (strategy, strategy.begin_batch(z, labels)) for strategy, z, labels in chosen
            ]
            learn = _stacking(*chosen[0][:2])
            assert learn is not None
            try:
                learn(batches)
            except torch.OutOfMemoryError:  # nothing is changed yet, and one by one takes less
                for strategy, batch in batches:
                    strategy.learn_batch(batch)
            for k, (strategy, batch) in zip(numbers, batches, strict=True):
                strategy.batches += 1
                reports[k] = LearnReport(batch.i, batch.count, batch.new)
    return reports


def _stacking(
    strategy: Strategy, z: Tensor
) -> Callable[[Sequence[tuple[Any, Batch]]], None] | None:
    # not a learn_batch that a strategy of somebody's own has in its place
    ours = isinstance(strategy, FrozenStrategy) and (
        type(strategy).learn_batch is FrozenStrategy.learn_batch
    )
    if not z.is_cuda or not ours:
        return None
    assert isinstance(strategy, FrozenStrategy)
    head = strategy.head
    if isinstance(head, DSLDAHead):
        return lda_updates if strategy.embeds and not head.base_init else None
    return statistics_updates if isinstance(head, AnalyticHead) else None


def lda_updates(lessons: Sequence[tuple[DSLDA, Batch]]) -> None:
    """`heads.dslda.lda_update` of each, for batches of one class and as many patterns."""
    statistics, columns, z = (
        [strategy.head.statistics for strategy, _ in lessons],
        _columns(lessons),
        _stack(lessons),
    )
    count = z.shape[1]
    n = torch.stack([s.n[j] for s, j in zip(statistics, columns, strict=True)])
    t = torch.stack([s.arrays["t"] for s in statistics])
    order = torch.arange(count + 1)
    before, before_all = n[:, None] + order, (t[:, None] + order).double()
    divisor, weight = torch.stack([before.clip(1), before_all / (before_all + 1)]).to(z.device)[
        ..., None
    ]
    means = [s.mu[j] for s, j in zip(statistics, columns, strict=True)]
    summed = torch.stack(means) * divisor[:, 0]  # n mu: of a class never seen, mu is 0
    delta = z - (summed[:, None] + z.cumsum(1) - z) / divisor[:, :count]
    products = torch.bmm((delta * weight[:, :count]).mT, delta)
    torch._foreach_copy_(means, list((summed + z.sum(1)) / divisor[:, count]))
    torch._foreach_add_([s.scatter for s in statistics], list(products))
    for (strategy, _), s, j in zip(lessons, statistics, columns, strict=True):
        s.n[j] += count
        s.set_frames(s.frames + count)
        strategy.derived.clear()


def statistics_updates(lessons: Sequence[tuple[AnalyticStrategy, Batch]]) -> None:
    """`SufficientStatistics.add` of each, likewise."""
    columns, z = _columns(lessons), _stack(lessons)
    statistics = [strategy.head.statistics for strategy, _ in lessons]
    counts = [float(z.shape[1])] * len(lessons)

    def rows(name: str) -> list[Tensor]:
        return [s.arrays[name][j] for s, j in zip(statistics, columns, strict=True)]

    added: list[tuple[Sequence[Tensor], Sequence[Any]]] = [
        (rows("n"), counts),
        (rows("s"), list(z.sum(1))),
    ]
    if statistics[0].has_gram:
        added.append(([s.arrays["t"] for s in statistics], counts))
        # of one block of features each
        for squares in zip(*(s.squares() for s in statistics), strict=True):
            own = z[:, :, squares[0][1]]
            where = zip(*(packed_parts(gram, own.shape[2]) for gram, _ in squares), strict=True)
            added += zip(where, split(torch.bmm(own.mT, own)), strict=True)
    else:
        added.append((rows("q"), list((z * z).sum((1, 2)))))
    for (
        into,
        values,
    ) in added:  # when all is computed: what fails for want of memory changes nothing
        torch._foreach_add_(list(into), list(values))
    for strategy, _ in lessons:
        strategy.derived.clear()


def _columns(lessons: Sequence[tuple[Strategy, Batch]]) -> list[int]:
    return [int(batch.present[0]) for _, batch in lessons]


def _stack(lessons: Sequence[tuple[Any, Batch]]) -> Tensor:
    return torch.stack(
        [strategy.phi(strategy.features(batch)) for strategy, batch in lessons]
    ).double()


@torch.no_grad()
def solve_together(strategies: Sequence[Strategy]) -> None:
    """w_s = B_s inv(A_s) of each strategy s that is `Stackable`, those of one size and device as a stack.

    On the CPU the factors are the same, bit for bit, as those that each strategy would have found by itself; on a GPU another
    kernel makes them, and they agree to the rounding of float64. Where one cannot be factorised all are left alone: each will
    try by itself, and say what is wrong with it.
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
        wanted = pad_sequence(
            [b for _, _, b in group], batch_first=True
        )  # as many classes as the one that knows most
        found = torch.cholesky_solve(wanted.mT, factors).mT
        for (stackable, _, b), w in zip(group, found, strict=True):
            stackable.accept_solution(w[: len(b)])
