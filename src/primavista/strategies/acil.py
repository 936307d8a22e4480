"""ACIL: analytic class-incremental learning."""

from __future__ import annotations

from primavista.heads.acil import ACILOptions
from primavista.strategies.frozen import AnalyticStrategy


class ACIL(AnalyticStrategy):
    """Analytic class-incremental learning (Zhuang et al. 2022); see `ACILHead`.

    Its options are those of `ACILOptions`. The seed is that of the random features.
    """

    OPTIONS = ACILOptions
