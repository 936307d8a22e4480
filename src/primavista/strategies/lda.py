"""LDA: linear discriminant analysis with the exact pooled covariance."""

from __future__ import annotations

from primavista.heads.lda import LDAOptions
from primavista.strategies.frozen import AnalyticStrategy


class LDA(AnalyticStrategy):
    """Linear discriminant analysis with the exact pooled covariance; see `LDAHead`.

    Its options are those of `LDAOptions`; nothing is random.
    """

    OPTIONS = LDAOptions
