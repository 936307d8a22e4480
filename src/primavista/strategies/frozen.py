"""Joins a head of `heads/` to a backbone in torch: the base of DSLDA, LDA, NCM, Ridge and Prima."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.heads.base import Familiarity, Head
from primavista.heads.open_set import KNOWN_THRESHOLD
from primavista.heads.options import make_options
from primavista.heads.statistics import AnalyticHead, SufficientStatistics
from primavista.networks.base import Backbone
from primavista.nn.class_rows import ArrayBuffers
from primavista.strategies.base import Batch, EmbeddingStrategy, LearnReport


class FrozenStrategy(EmbeddingStrategy):
    """A head on the features of a backbone that does not train.

    A subclass names its options, which make its head. Every group of arrays of the head becomes a
    module of the same name, so that `state_dict()` is complete; the head works on the buffers of
    these modules (`nn/class_rows.py`).

    Args:
        backbone: The network; a copy of it is kept.
        seed: Seeds what is random in the head, if anything is.
        options: The options; the defaults if None.
        overrides: Options by name, which replace those in `options`.
    """

    OPTIONS: ClassVar[type[Any]]
    known_from: float = KNOWN_THRESHOLD
    head: Head

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, options: object = None, **overrides: Any
    ) -> None:
        made = make_options(self.OPTIONS, options, overrides)
        super().__init__(backbone, seed=seed, first_batch=getattr(made, "first_batch", True))
        self.options = made
        sizes = getattr(backbone, "sizes", (self.backbone.dim,))
        self.head = made.make_head(sizes, getattr(backbone, "priors", (1.0,)), seed)
        self.head.derived = self.derived
        for name, group in self.head.groups.items():
            self.add_module(name, ArrayBuffers(group))

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.head.seed = int(self.seed)  # random features belong to the seed of the file

    @property
    def open_set(self) -> bool:
        """True if the strategy recognises strangers; a subclass may make this an option."""
        return True

    @torch.no_grad()
    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch: the head learns its features.

        Args:
            B: The batch, checked.

        Returns:
            The report; it has losses if the representation was tuned first.
        """
        losses = self._tune(B)
        columns = B.columns
        if not self.head.COLUMNS_ON_CPU:
            columns = columns.to(self.device, non_blocking=True)
        self.head.learn(self.features(B), columns, B.i)
        return LearnReport(B.i, B.count, B.new, losses)

    def _tune(self, B: Batch) -> tuple[float, ...]:
        """Train the representation first, if the strategy does so; return the losses by epoch."""
        return ()

    @torch.no_grad()
    def score_features(self, z: Tensor) -> Tensor:
        """Score features with the head.

        Args:
            z: The features of the backbone, N x D.

        Returns:
            N x len(classes).
        """
        scores: Tensor = self.head.scores(z, len(self.classes))
        return scores

    @torch.no_grad()
    def familiar(self) -> Familiarity | None:
        """Return the familiarity function.

        Returns:
            A function of `phi(z)` and the column of the highest score; None if the strategy does
            not recognise strangers.
        """
        return self.head.familiarity(len(self.classes))

    def phi(self, z: Tensor) -> Tensor:
        """Transform the features of the backbone into those that the head learns from.

        Args:
            z: The features of the backbone, N x D.

        Returns:
            The features of the head.
        """
        features: Tensor = self.head.features(z)
        return features


class AnalyticStrategy(FrozenStrategy):
    """A strategy solved from sums: the order and grouping of the lessons do not matter.

    A lesson is the frames of one class in one session, or in one batch if no sessions are given.
    """

    head: AnalyticHead
    moments: ArrayBuffers[SufficientStatistics]  # the statistics, under their name in files
