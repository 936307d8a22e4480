"""Ridge: ridge regression of the class indicators, exact over the whole stream."""

from __future__ import annotations

from typing import Any

from primavista.heads.ridge import RidgeHead, RidgeOptions
from primavista.strategies.frozen import AnalyticStrategy


class Ridge(AnalyticStrategy):
    """Ridge regression, exact over the whole stream, with nothing to tune; see `RidgeHead`.

    Its options are those of `RidgeOptions`. The seed is that of the random features.
    """

    OPTIONS = RidgeOptions
    head: RidgeHead

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.head.seed = int(self.seed)  # the random features belong to the seed of the file
