"""NCM: the nearest class mean."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.strategies.analytic import AnalyticStrategy


class NCM(AnalyticStrategy):
    """scores = mu z - |mu|^2 / 2 = (|z|^2 - |z - mu|^2) / 2,  mu_c = s_c / n_c: the nearest mean has the highest.

    Nothing of a class remains after `forget`.
    """

    GRAM: ClassVar[bool] = False

    def __init__(self, backbone: Backbone, *, seed: int = 0) -> None:
        super().__init__(backbone, seed=seed)

    def solve(self) -> tuple[Tensor, Tensor]:
        mu = self.means
        return mu, (mu * mu).sum(1) * -0.5
