"""DSLDA: deep streaming linear discriminant analysis (Hayes and Kanan)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from primavista.heads.dslda import StreamingStatistics
from primavista.networks.base import Backbone
from primavista.nn.class_rows import ArrayBuffers
from primavista.nn.renorm import replace_batch_norm
from primavista.strategies.base import Batch
from primavista.strategies.frozen import FrozenStrategy
from primavista.strategies.naive import Naive
from primavista.strategies.options import DSLDAOptions


class DSLDA(FrozenStrategy):
    """Deep streaming linear discriminant analysis (Hayes & Kanan 2020); see `DSLDAHead`.

    Its options are those of `DSLDAOptions`. The seed is that of the order of the patterns if the
    representation is tuned.
    """

    OPTIONS = DSLDAOptions
    options: DSLDAOptions
    statistics: ArrayBuffers[StreamingStatistics]

    def __init__(self, backbone: Backbone, **given: Any) -> None:
        super().__init__(backbone, **given)
        if self.options.norm == "brn":
            self.backbone.body = replace_batch_norm(self.backbone.body)  # as in saved files

    @property
    def open_set(self) -> bool:
        """True if the strategy recognises strangers: the option `open_set`."""
        return self.options.open_set

    @property
    def embeds(self) -> bool:
        """True if the representation is frozen, that is, unless the next batch tunes it."""
        return not (self.options.tune and self.i == 1)

    def _tune(self, B: Batch) -> tuple[float, ...]:
        """Train the representation on batch 1 like Naive, if the option `tune` is set."""
        if self.embeds:
            return ()
        capacity = max(self.options.capacity, len(self.classes))
        options = replace(self.options, head="linear", compat=None, capacity=capacity)
        naive = Naive(self.backbone, seed=int(self.seed), options=options).to(self.device)
        with torch.enable_grad():
            report = naive.learn(B.images, B.columns, progress=B.progress)
        self.backbone.load_state_dict(naive.backbone.state_dict())
        self.representation.trained(self.embedding_version)
        return report.losses
