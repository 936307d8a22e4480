"""RanPAC: ridge regression on random features, lambda chosen on each batch."""

from __future__ import annotations

from primavista.heads.ranpac import RanPACOptions
from primavista.strategies.frozen import FrozenStrategy


class RanPAC(FrozenStrategy):
    """Ridge regression on random features (McDonnell et al. 2023); see `RanPACHead`.

    Its options are those of `RanPACOptions`. The seed is that of the features and of the splits.
    """

    OPTIONS = RanPACOptions
