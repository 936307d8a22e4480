"""LDA: linear discriminant analysis with the exact pooled covariance."""

from __future__ import annotations

from primavista.heads.lda import LDAHead, LDAOptions
from primavista.heads.statistics import SufficientStatistics
from primavista.networks.base import Backbone
from primavista.strategies.frozen import AnalyticStrategy


class LDA(AnalyticStrategy):
    """Linear discriminant analysis with the exact pooled covariance; see `LDAHead`.

    Args:
        backbone: The network; a copy of it is kept.
        seed: Kept in files; nothing is random.
        shrinkage: See `LDAOptions`.
    """

    OPTIONS = LDAOptions
    head: LDAHead

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, shrinkage: float | None = None
    ) -> None:
        options = LDAOptions(shrinkage)
        super().__init__(backbone, seed=seed)
        self.options = options
        self._use_head(LDAHead(SufficientStatistics.empty(self.backbone.dim), shrinkage))
