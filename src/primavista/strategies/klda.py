"""KLDA: linear discriminant analysis on random Fourier features."""

from __future__ import annotations

from primavista.heads.klda import KLDAOptions
from primavista.strategies.frozen import AnalyticStrategy


class KLDA(AnalyticStrategy):
    """LDA on random Fourier features (Momeni et al. 2025); see `KLDAHead`.

    Its options are those of `KLDAOptions`. The seed is that of the random features.
    """

    OPTIONS = KLDAOptions
