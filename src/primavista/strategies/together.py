"""Several strategies that wait for a solution get it from one factorisation: on a GPU ten cost little more than one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from primavista.strategies.base import Strategy


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
