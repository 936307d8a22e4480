"""Features of sessions, computed once: ten runs over the same data see the same frames in other orders."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.errors import InputError
from primavista.frames import Selection
from primavista.strategies import Strategy
from primavista.strategies.embedding import EmbeddingStrategy
from primavista.streams.dataset import Patterns

LIMIT = {"cpu": 2**30, "cuda": 2**33}  # bytes kept


class Features:
    """Those of a representation that was never trained are kept, and shared by all who use this object.

    It must be of one data set, backbone and precision. The seconds are those that computing them took, whoever did it.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Tensor, float]] = {}
        self._bytes = 0

    def of_batch(self, strategy: Strategy, patterns: Patterns) -> tuple[Tensor, float]:
        """A session at a time, so that the numbers do not depend on what else is in the batch; and the seconds."""
        label, session = patterns.labels.numpy(), patterns.sessions.numpy()
        ends = np.flatnonzero((label[1:] != label[:-1]) | (session[1:] != session[:-1])) + 1
        source, indices = patterns.images.source, patterns.images.indices
        parts = indices.tensor_split(ends.tolist()) if len(ends) else (indices,)
        found = [self.of(strategy, Selection(source, part)) for part in parts]
        zs, seconds = zip(*found, strict=True)
        return zs[0] if len(zs) == 1 else torch.cat(zs), sum(seconds)

    def of(self, strategy: Strategy, images: Selection) -> tuple[Tensor, float]:
        """All at once; and the seconds."""
        if int(strategy.embedding_version):
            return _timed(strategy, images)
        key = (type(strategy.backbone), strategy.backbone.dim, images.indices.numpy().tobytes())
        if key not in self._kept:
            found = _timed(strategy, images)
            size = found[0].numel() * found[0].element_size()
            if self._bytes + size > LIMIT[strategy.device.type]:
                return found
            self._kept[key] = found
            self._bytes += size
        return self._kept[key]


def now(strategy: Strategy) -> float:
    """Seconds, when all that was asked of the device is done."""
    if strategy.device.type == "cuda":
        torch.cuda.synchronize(strategy.device)
    return time.perf_counter()


def _timed(strategy: Strategy, images: Selection) -> tuple[Tensor, float]:
    assert isinstance(strategy, EmbeddingStrategy)
    began = now(strategy)
    z = strategy.embed(images)
    if not bool(z.isfinite().all()):
        raise InputError(
            "the features of the backbone hold NaN or infinity: its weights, or its precision, are no good"
        )
    return z, now(strategy) - began
