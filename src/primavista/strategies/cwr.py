"""CWR+ and CWR*: copy weights with reinit, the head as a double memory on a representation fixed after batch 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.heads.buffers import ArrayBuffers
from primavista.heads.frozen_cwr import cwr_familiarity
from primavista.heads.linear import CWRHead, HeadKind
from primavista.heads.open_set import KNOWN_THRESHOLD, Familiarity
from primavista.heads.statistics import SufficientStatistics
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.embedding import EmbeddingStrategy
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options


@dataclass(frozen=True)
class CWROptions(Options):
    """`tab:hyper_core50`, CWR*."""

    epochs_1: int = 4
    epochs: int = 4
    lr: float = 1e-3
    head: HeadKind = "cwr*"
    open_set: bool = False  # keep the mean of each class, to tell what was never taught and to calibrate the shares


class CWR(EmbeddingStrategy, GradientStrategy):
    """Algorithm 1 of the paper (CWR*), and with `head="cwr+"` Algorithm 2.

    From batch 2 on Theta and the moments are fixed, so the features of a batch are computed once, in evaluation mode.
    """

    known_from: ClassVar[float] = KNOWN_THRESHOLD
    OPTIONS = CWROptions
    options: CWROptions
    THETA_LEARNS = False

    def __init__(self, backbone: Backbone, **options: Any) -> None:
        super().__init__(backbone, **options)
        self.seen: ArrayBuffers[SufficientStatistics] | None = None
        if self.open_set:
            self.seen = ArrayBuffers(SufficientStatistics.empty(self.backbone.dim, gram=False))

    def phi(self, z: Tensor) -> Tensor:
        return z

    @property
    def open_set(self) -> bool:
        return (
            self.options.open_set and not self.release.all_outputs
        )  # there, classes are known that were never seen

    @property
    def embeds(self) -> bool:
        """From batch 2 on."""
        return self.i > 1 and not self.release.train_mode_features

    def learn_batch(self, batch: Batch) -> LearnReport:
        z = None
        self.head.load(batch.present, batch.i == 1)  # line 7
        if batch.i == 1:
            losses = self._sgd(batch, self._weights(batch.i))  # line 9: learn both Theta and tw
        elif self.release.train_mode_features:
            losses = self._sgd(batch, self._weights(batch.i, theta=False))
        else:  # line 10: learn tw while keeping Theta fixed
            z = self.features(batch)
            losses = self._sgd(batch, self._weights(batch.i, theta=False), features=z)
        self.head.consolidate(batch.present, batch.cur, len(self.classes))  # lines 11 to 14
        if self.seen is not None:
            z = self.features(batch) if z is None else z
            self.seen.group.add(z, batch.columns.to(self.device))
        return self._report(batch, losses)

    @torch.no_grad()
    def familiar(self) -> Familiarity | None:
        if self.seen is None:
            return None
        assert isinstance(self.head, CWRHead)
        cw, seen, known = self.head.cw, self.seen.group, len(self.classes)
        return self.derived.get_or_compute("familiarity", lambda: cwr_familiarity(cw, seen, known))
