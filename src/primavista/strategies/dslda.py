"""DSLDA: deep streaming linear discriminant analysis (Hayes and Kanan)."""

from __future__ import annotations

from dataclasses import replace

import torch

from primavista.heads.dslda import DSLDAHead, StreamingStatistics
from primavista.heads.options import make_options
from primavista.networks.base import Backbone
from primavista.nn.class_rows import ArrayBuffers
from primavista.nn.renorm import replace_batch_norm
from primavista.strategies.base import Batch
from primavista.strategies.frozen import FrozenStrategy
from primavista.strategies.naive import Naive
from primavista.strategies.options import DSLDAOptions, Options


class DSLDA(FrozenStrategy):
    """Deep streaming linear discriminant analysis (Hayes & Kanan 2020); see `DSLDAHead`.

    Args:
        backbone: The network; a copy of it is kept.
        seed: Seeds the order of the patterns if the representation is tuned.
        options: The options; the defaults if None.
        overrides: Options by name, which replace those in `options`.
    """

    OPTIONS = DSLDAOptions
    options: DSLDAOptions
    head: DSLDAHead
    statistics: ArrayBuffers[StreamingStatistics]

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: object,
    ) -> None:
        made = make_options(DSLDAOptions, options, overrides)
        super().__init__(backbone, seed=seed, first_batch=made.first_batch)
        self.options = made
        if made.norm == "brn":
            self.backbone.body = replace_batch_norm(self.backbone.body)  # as in saved files
        statistics = StreamingStatistics.empty(self.backbone.dim)
        self._use_head(DSLDAHead(statistics, made.shrinkage, made.base_init, made.open_set))

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
