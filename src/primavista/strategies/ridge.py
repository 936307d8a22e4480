"""Ridge: ridge regression of the class indicators, exact over the whole stream."""

from __future__ import annotations

from primavista.heads.ridge import RidgeOptions
from primavista.strategies.frozen import AnalyticStrategy


class Ridge(AnalyticStrategy):
    """Ridge regression, exact over the whole stream, with nothing to tune; see `RidgeHead`.

    Its options are those of `RidgeOptions`. The seed is that of the random features.
    """

    OPTIONS = RidgeOptions
