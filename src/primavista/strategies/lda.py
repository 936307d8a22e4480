"""LDA: DSLDA with the exact pooled covariance, so that the order of the frames does not matter."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.errors import InputError
from primavista.heads.dslda import oas, offsets, shrunk
from primavista.heads.ridge import FLOOR
from primavista.strategies.analytic import AnalyticStrategy


@dataclass(frozen=True)
class LDAOptions:
    """What may be set."""

    shrinkage: float | None = (
        None  # of the covariance towards I (DSLDA has 1e-4); None: towards m I, as much as `oas` says
    )

    def __post_init__(self) -> None:
        value = self.shrinkage
        if value is not None and (not isinstance(value, int | float) or not 1e-12 <= value <= 1):
            raise InputError(f"shrinkage must be a number from 1e-12 to 1, or None; got {value!r}")


class LDA(AnalyticStrategy):
    """scores = w z + b,  w_c = Lambda mu_c,  b_c = -mu_c^T Lambda mu_c / 2,  Lambda = inv((1 - eps) S / t + eps m I)

    with S = sum (z - mu)(z - mu)^T, mu the mean of the frame's class over the whole stream, where DSLDA's recursion takes the
    mean as it was when the frame came; eps and m are those of oracle approximating shrinkage (`parts/statistics.py`).
    """

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, shrinkage: float | None = None
    ) -> None:
        super().__init__(backbone, seed=seed)
        self.options = LDAOptions(shrinkage)

    def solve(self) -> tuple[Tensor, Tensor]:
        mu = self.means
        w: Tensor = self.moments.algebra.solve(self._covariance(), mu.T).T
        return w, offsets(w, mu)

    def system(self) -> tuple[Tensor, Tensor] | None:
        return (
            None
            if self._solved is not None or not len(self.classes)
            else (self._covariance(), self.means)
        )

    def solved(self, w: Tensor) -> None:
        self._solved, self._familiar = (w, offsets(w, self.means)), None

    def precision(self) -> Tensor:
        one = torch.eye(self.moments.dim, dtype=torch.float64, device=self.device)
        return self.moments.algebra.solve(self._covariance(), one).T  # type: ignore[no-any-return]

    def _covariance(self) -> Tensor:
        """(1 - eps) S / t + eps m I, the inverse of Lambda."""
        scatter, t = self.moments.scatter(), int(self.moments.t)
        eps, target = self.options.shrinkage, 1.0
        if eps is None:
            eps, m = oas(scatter / t, t)
            moment = m + float((self.means**2).mean()) + 1e-30  # features that are all 0
            target = m + FLOOR * moment / eps  # frames all alike: S is nothing but rounding
        return shrunk(scatter, t, eps, target)  # type: ignore[no-any-return]
