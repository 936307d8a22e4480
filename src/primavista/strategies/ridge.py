"""Ridge regression on frozen features, exact over the whole stream, with nothing to set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.errors import InputError
from primavista.heads.ridge import Regression, choose_rho, regression, ridge_weights
from primavista.strategies.analytic import AnalyticStrategy

MAX_EXPAND = 2**15


@dataclass(frozen=True)
class RidgeOptions:
    """Everything that may be set."""

    expand: int | None = None  # how many random features; None: the backbone's own
    balance: float = 1.0  # 1: every class weighs the same; 0: every frame does
    rho: float | None = (
        None  # regularisation, in units of a feature's variance; None: from the statistics
    )

    def __post_init__(self) -> None:
        if self.expand is not None and (
            type(self.expand) is not int or not 1 <= self.expand <= MAX_EXPAND
        ):
            raise InputError(
                f"expand is a number of random features, 1 to {MAX_EXPAND}, or None; got {self.expand!r}"
            )
        if not isinstance(self.balance, int | float) or not 0 <= self.balance <= 1:
            raise InputError(f"balance must be a number from 0 to 1; got {self.balance!r}")
        if self.rho is not None and (
            not isinstance(self.rho, int | float) or not 1e-8 <= self.rho <= 1e8
        ):
            raise InputError(f"rho must be a number from 1e-8 to 1e8, or None; got {self.rho!r}")


class Ridge(AnalyticStrategy):
    """scores = w x + pi,  w = inv(A + rho I) r,  x the standardised features, A their correlations, r theirs with the classes

    all from counts, sums and one Gram matrix (`parts/ridge.py`); rho is the likeliest given those.
    With `expand=M` the features are relu(z R), R fixed and random, D x M, from the seed.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        expand: int | None = None,
        balance: float = 1.0,
        rho: float | None = None,
    ) -> None:
        options = RidgeOptions(expand, balance, rho)
        super().__init__(backbone, seed=seed, dim=expand)
        self.options = options
        self._rho: float | None = None  # as it was chosen
        self._random: tuple[int, Tensor] | None = None  # the seed, R

    def solve(self) -> tuple[Tensor, Tensor]:
        x, self._rho = self._regression(self.options.rho)
        return ridge_weights(x, self._rho, self.moments.algebra)

    def precision(self) -> Tensor:
        self._solution()
        x, rho = self._regression(self._rho)
        x.diagonal[: x.dim] += rho
        root = torch.linalg.cholesky(x.bordered[: x.dim, : x.dim])
        precision: Tensor = torch.cholesky_inverse(root) / x.std / x.std[:, None]
        return precision

    def _regression(self, rho: float | None) -> tuple[Regression, float]:
        m, (n, s) = self.moments, self.sums
        x = regression(n, s, m.scatter(), float(m.t), self.options.balance, m.algebra)
        return x, choose_rho(x, m.algebra) if rho is None else rho

    def phi(self, z: Tensor) -> Tensor:
        if self.options.expand is None:
            return z
        seed = int(self.seed)
        if self._random is None or self._random[0] != seed or self._random[1].device != z.device:
            # numpy's legacy generator: its numbers are the same for ever, so they need not be kept
            draw = np.random.RandomState(seed % 2**32).standard_normal(
                (self.backbone.dim, self.options.expand)
            )
            self._random = seed, torch.from_numpy(draw / self.backbone.dim**0.5).to(z.device)
        return (z.double() @ self._random[1]).relu()  # in float32 the company of a frame would show
