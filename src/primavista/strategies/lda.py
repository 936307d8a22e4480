"""LDA: DSLDA with the exact pooled covariance, so that the order of the frames does not matter."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from primavista.backbones import Backbone
from primavista.errors import InputError
from primavista.parts.statistics import lda_weights
from primavista.strategies.analytic import AnalyticStrategy


@dataclass(frozen=True)
class LDAOptions:
    """`shrinkage` of the covariance towards I: DSLDA's (`tab:hyper_core50`)."""

    shrinkage: float = 1e-4

    def __post_init__(self) -> None:
        if not isinstance(self.shrinkage, int | float) or not 1e-12 <= self.shrinkage <= 1:
            raise InputError(f"shrinkage must be a number from 1e-12 to 1; got {self.shrinkage!r}")


class LDA(AnalyticStrategy):
    """scores = w z + b,  w_c = Lambda mu_c,  b_c = -mu_c^T Lambda mu_c / 2,  Lambda = inv((1 - eps) S / t + eps I)

    with S = sum (z - mu)(z - mu)^T, mu the mean of the frame's class over the whole stream, where DSLDA's recursion takes the
    mean as it was when the frame came.
    """

    def __init__(self, backbone: Backbone, *, seed: int = 0, shrinkage: float = 1e-4) -> None:
        super().__init__(backbone, seed=seed)
        self.options = LDAOptions(shrinkage)

    def solve(self) -> tuple[Tensor, Tensor]:
        m = self.moments
        w, b = lda_weights(self.means, m.scatter(), int(m.t), self.options.shrinkage, m.algebra.solve)
        return w, b
