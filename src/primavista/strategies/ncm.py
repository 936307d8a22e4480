"""NCM: classification by the nearest class mean."""

from __future__ import annotations

from primavista.heads.ncm import NCMHead
from primavista.heads.statistics import SufficientStatistics
from primavista.networks.base import Backbone
from primavista.strategies.frozen import AnalyticStrategy


class NCM(AnalyticStrategy):
    """Classification by the nearest class mean; see `NCMHead`.

    Args:
        backbone: The network; a copy of it is kept.
        seed: Kept in files; nothing is random.
    """

    def __init__(self, backbone: Backbone, *, seed: int = 0) -> None:
        super().__init__(backbone, seed=seed)
        self._use_head(NCMHead(SufficientStatistics.empty(self.backbone.dim, gram=False)))
