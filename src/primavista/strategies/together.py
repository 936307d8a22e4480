"""What several strategies wait for, at once: on a GPU ten updates or factorisations cost little more than one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.dslda import DSLDA


@torch.no_grad()
def learn_together(lessons: Sequence[tuple[Strategy, Tensor, Tensor]]) -> list[LearnReport | None]:
    """Each strategy learns its features z with their labels; None: it did not, and has to by itself.

    So it is on the CPU, where a run side by side with others gives the same bits as alone, and of all but batches of DSLDA that
    have one class and the same count.
    """
    able = [
        (k, strategy, z, labels)
        for k, (strategy, z, labels) in enumerate(lessons)
        if z.is_cuda and isinstance(strategy, DSLDA) and not strategy.options.base_init
        if z.shape == lessons[0][1].shape and bool((labels == labels[0]).all())
    ]
    reports: list[LearnReport | None] = [None] * len(lessons)
    if len(able) > 1:
        found = lda_updates([(strategy, strategy._enter(None, z, labels, None)) for _, strategy, z, labels in able])
        for (k, *_), report in zip(able, found, strict=True):
            reports[k] = report
    return reports


def lda_updates(lessons: Sequence[tuple[DSLDA, Batch]]) -> list[LearnReport]:
    """`parts.statistics.lda_update` of each, for batches of one class and as many patterns: in stacks, a run a layer."""
    statistics = [strategy.statistics for strategy, _ in lessons]
    columns = [int(batch.present[0]) for _, batch in lessons]
    z = torch.stack([strategy.features(batch) for strategy, batch in lessons]).double()
    count = z.shape[1]
    n = torch.stack([s.n[j] for s, j in zip(statistics, columns, strict=True)])
    t = torch.stack([s.t for s in statistics])
    order = torch.arange(count + 1)
    before, before_all = n[:, None] + order, (t[:, None] + order).double()
    divisor, weight = torch.stack([before.clip(1), before_all / (before_all + 1)]).to(z.device)[..., None]
    means = [s.mu[j] for s, j in zip(statistics, columns, strict=True)]
    summed = torch.stack(means) * divisor[:, 0]  # n mu: of a class never seen, mu is 0
    delta = z - (summed[:, None] + z.cumsum(1) - z) / divisor[:, :count]
    products = torch.bmm((delta * weight[:, :count]).mT, delta)
    torch._foreach_copy_(means, list((summed + z.sum(1)) / divisor[:, count]))
    torch._foreach_add_([s.scatter for s in statistics], list(products))
    for (strategy, _), s, j in zip(lessons, statistics, columns, strict=True):
        s.n[j] += count
        s.t += count
        strategy.batches += 1
        strategy._solved = None
    return [LearnReport(batch.i, batch.count, batch.new) for _, batch in lessons]


@torch.no_grad()
def solve_together(strategies: Sequence[Strategy]) -> None:
    """w_s = B_s inv(A_s) of each strategy s that has a `system`, those of one size and device as a stack.

    On the CPU the factors are the same, bit for bit, as those that each strategy would have found by itself; on a GPU another
    kernel makes them, and they agree to the rounding of float64. Where one cannot be factorised all are left alone: each will
    try by itself, and say what is wrong with it.
    """
    alike: dict[object, list[tuple[Strategy, Tensor, Tensor]]] = {}
    for strategy in strategies:
        if (system := strategy.system()) is not None:
            a, b = system
            alike.setdefault((a.shape, a.device), []).append((strategy, a, b))
    for group in alike.values():
        factors, info = torch.linalg.cholesky_ex(torch.stack([a for _, a, _ in group]))
        if bool(info.any()):
            continue
        wanted = pad_sequence([b for _, _, b in group], batch_first=True)  # as many classes as the one that knows most
        found = torch.cholesky_solve(wanted.mT, factors).mT
        for (strategy, _, b), w in zip(group, found, strict=True):
            strategy.solved(w[: len(b)])
