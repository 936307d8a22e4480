"""prima: streaming ridge regressions on what a frozen backbone sees at several depths, weighed by the stream itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.backbones.multidepth import MultiDepthBackbone
from primavista.errors import InputError
from primavista.heads.open_set import ALIKE, Alike, likeness
from primavista.heads.prima import Head, judged_ridge, shares
from primavista.heads.ridge import Regression, regression
from primavista.strategies.analytic import AnalyticStrategy

OWN = 2.0  # votes of the backbone's own features; neighbouring depths see much the same, and have one each


@dataclass(frozen=True)
class PrimaOptions:
    """Everything that may be set."""

    balance: float = 1.0  # 1: every class weighs the same; 0: every frame does

    def __post_init__(self) -> None:
        if not isinstance(self.balance, int | float) or not 0 <= self.balance <= 1:
            raise InputError(f"balance must be a number from 0 to 1; got {self.balance!r}")


class Prima(AnalyticStrategy):
    """scores = sum_h omega_h (w_h x_h + b_h),  omega_h ~ votes_h (1 - error_h) / error_h

    with a ridge regression w_h for the maps of each of four depths and for the backbone's own features (`backbones/multidepth.py`).
    Its regularisation and the error that it will make come from its own sums (`parts/committee.py`): which depths tell the
    classes of a stream apart is found from the stream.

    The state is one Gram matrix a depth, in float64: 42 MB for MobileNet v1, and 57 kB a class.
    """

    known_from: ClassVar[float] = ALIKE

    def __init__(self, backbone: Backbone, *, seed: int = 0, balance: float = 1.0) -> None:
        options = PrimaOptions(balance)
        deep = MultiDepthBackbone(backbone)
        super().__init__(deep, seed=seed, blocks=deep.sizes)
        self.options = options

    def heads(self) -> list[Head]:
        """The regression of each depth, the backbone's own features last, with its error."""
        t, algebra = float(self.moments.t), self.moments.algebra
        return [judged_ridge(x, t, algebra) for x in self._regressions()]

    def solve(self) -> tuple[Tensor, Tensor]:
        heads = self.heads()
        omega = shares([head.error for head in heads], [1.0] * (len(heads) - 1) + [OWN])
        w = torch.cat([share * head.w for share, head in zip(omega, heads, strict=True)], 1)
        return w, torch.stack(
            [share * head.b for share, head in zip(omega, heads, strict=True)]
        ).sum(0)

    def familiarity(self, w: Tensor) -> Alike:
        m = self.moments
        return likeness(w, self.means, m.spread(len(self.classes)), own=sum(m.blocks[:-1]))

    def _regressions(self) -> Iterator[Regression]:
        m, (n, s) = self.moments, self.sums
        for scatter, columns in m.scatters():
            yield regression(n, s[:, columns], scatter, float(m.t), self.options.balance, m.algebra)
