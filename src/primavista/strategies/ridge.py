"""Ridge: ridge regression of the class indicators, exact over the whole stream."""

from __future__ import annotations

from typing import Any

from primavista.heads.ridge import RidgeHead, RidgeOptions
from primavista.heads.statistics import SufficientStatistics
from primavista.networks.base import Backbone
from primavista.strategies.frozen import AnalyticStrategy


class Ridge(AnalyticStrategy):
    """Ridge regression, exact over the whole stream, with nothing to tune; see `RidgeHead`.

    Args:
        backbone: The network; a copy of it is kept.
        seed: Seeds the random features.
        expand: See `RidgeOptions`.
        balance: See `RidgeOptions`.
        rho: See `RidgeOptions`.
    """

    OPTIONS = RidgeOptions
    head: RidgeHead

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
        super().__init__(backbone, seed=seed)
        self.options = options
        statistics = SufficientStatistics.empty(expand or self.backbone.dim)
        head = RidgeHead(statistics, expand=expand, balance=balance, rho=rho, seed=seed)
        self._use_head(head)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.head.seed = int(self.seed)  # the random features belong to the seed of the file
