"""LwF: learning without forgetting (Li & Hoiem 2016), in the single-incremental-task form of Maltoni & Lomonaco 2019."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.nn.renorm import set_limits
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options


@dataclass(frozen=True)
class LwFOptions(Options):
    """`tab:hyper_core50`, LWF."""

    lr: float = 5e-5
    lam: float = 0.1


class LwF(GradientStrategy):
    """target = (1 - lambda) onehot + lambda softmax(previous model), computed once a batch before training."""

    OPTIONS = LwFOptions
    options: LwFOptions

    def learn_batch(self, batch: Batch) -> LearnReport:
        batch = replace(batch, inputs=self._at_hand(batch))
        weights = self._weights(batch.i)
        has_past = batch.i > 1 and len(batch.new) < len(self.classes)
        targets = self._targets(batch) if has_past else None
        self.head.load(batch.present, batch.i == 1)
        losses = self._sgd(batch, weights, targets=targets)
        self.head.consolidate(batch.present, batch.cur, len(self.classes))
        return self._report(batch, losses)

    @torch.no_grad()
    def _targets(self, batch: Batch) -> Tensor:
        lam = self.options.lam
        onehot = F.one_hot(batch.columns, self.head.rows).to(self.device, torch.float32)
        z = (
            self._train_mode_features(batch)
            if self.release.train_mode_features
            else self.features(batch)
        )
        previous = self.head.scores(z).softmax(1)
        return (1 - lam) * onehot + lam * previous

    def _train_mode_features(self, batch: Batch) -> Tensor:
        """The release's: minibatch statistics, and the moments move."""
        self._train_mode()
        set_limits(self.backbone, self.options.renorm.at(batch.i, 0, 1))
        images = self._at_hand(batch)
        index = torch.arange(batch.count).split(self.options.minibatch)
        return torch.cat([self.backbone(self._frames_at(images, part)) for part in index])
