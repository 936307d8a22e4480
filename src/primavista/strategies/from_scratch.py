"""The common part of strategies that train from scratch on all stored data."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.progress import Progress
from primavista.strategies.base import Batch
from primavista.strategies.gradient import GradientStrategy


class FromScratch(GradientStrategy):
    """Keeps a copy of the initial network, and trains from it on the stored data when due.

    Retraining is due after every `every` batches. With `every=None` it is never due; a benchmark
    then calls `retrain` before it tests.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    rehearsal_free: ClassVar[bool] = False
    IN_RELEASE = False

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.scratch = copy.deepcopy(self.backbone).requires_grad_(False)

    @abstractmethod
    def stored(self) -> tuple[Frames, Tensor]:
        """Return the stored frames and the column of the class of each frame, on the CPU."""

    @abstractmethod
    def fit(self, union: Batch) -> tuple[float, ...]:
        """Train the initial network, with a head of zeros, on all stored frames as one batch, B_1.

        Return the mean loss of each epoch, or of each window of steps.
        """

    def retrain(self, progress: Progress | None = None) -> tuple[float, ...]:
        """Train from scratch on everything that is stored; return the mean loss of each epoch."""
        self.backbone.load_state_dict(self.scratch.state_dict())
        with torch.no_grad():
            for tensor in self.head.state_dict().values():
                tensor.zero_()
        images, columns = self.stored()
        if not len(columns):
            return ()
        present, cur = columns.unique(return_counts=True)
        device = self.device
        union = Batch(1, images, columns, present.to(device), cur.to(device), progress=progress)
        self.head.load(union.present)
        losses = self.fit(union)
        self.head.consolidate(union.present, union.cur)
        self._reset_unseen()
        return losses

    def retrain_if_due(self, B: Batch, every: int | None) -> tuple[float, ...]:
        """Train from scratch if retraining is due after B; return the mean loss of each epoch."""
        if every is None or (int(self.batches) + 1) % every:
            return ()
        return self.retrain(B.progress)
