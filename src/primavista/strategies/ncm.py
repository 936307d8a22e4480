"""NCM: classification by the nearest class mean."""

from __future__ import annotations

from primavista.heads.ncm import NCMOptions
from primavista.strategies.frozen import AnalyticStrategy


class NCM(AnalyticStrategy):
    """Classification by the nearest class mean; see `NCMHead`. Nothing is random."""

    OPTIONS = NCMOptions
