"""DSLDA: deep streaming linear discriminant analysis (Hayes and Kanan)."""

from __future__ import annotations

from primavista.heads.dslda import StreamingStatistics
from primavista.nn.class_rows import ArrayBuffers
from primavista.strategies.fsa import Adapt, FirstSession
from primavista.strategies.options import DSLDAOptions


class DSLDA(FirstSession):
    """Deep streaming linear discriminant analysis (Hayes & Kanan 2020); see `DSLDAHead`.

    Its options are those of `DSLDAOptions`. The seed is that of the order of the patterns if the
    representation is tuned.
    """

    OPTIONS = DSLDAOptions
    options: DSLDAOptions
    statistics: ArrayBuffers[StreamingStatistics]

    @property
    def open_set(self) -> bool:
        """True if the strategy recognises strangers: the option `open_set`."""
        return self.options.open_set

    @property
    def adapts(self) -> Adapt | None:
        """What trains on batch 1: everything, if the option `tune` is set."""
        return "all" if self.options.tune else None
