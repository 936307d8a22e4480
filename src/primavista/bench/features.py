"""A cache of features shared by runs over the same frames."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from primavista.bench.clock import now
from primavista.errors import InputError
from primavista.media.frames import Selection
from primavista.strategies.base import EmbeddingStrategy
from primavista.streams.dataset import Patterns

LIMIT = {"cpu": 2**30, "cuda": 2**33}  # bytes kept


class FeatureCache:
    """Features of a representation that was never trained, shared by all runs that use the cache.

    One cache serves one data set, one backbone and one precision. Features of a representation that
    was trained belong to one run alone, and are not kept here.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[type, int, bytes], tuple[Tensor, float]] = {}
        self._bytes = 0

    def of_batch(self, strategy: EmbeddingStrategy, batch: Patterns) -> tuple[Tensor, float]:
        """Return the features of a batch, computed session by session.

        The features of a session then do not depend on the other sessions of the batch.

        Args:
            strategy: The strategy whose representation computes them.
            batch: The frames.

        Returns:
            The features, and the seconds that they took when they were computed.
        """
        label, session = batch.labels.numpy(), batch.sessions.numpy()
        ends = np.flatnonzero((label[1:] != label[:-1]) | (session[1:] != session[:-1])) + 1
        source, indices = batch.images.source, batch.images.indices
        parts = np.split(indices, ends)
        found = [self.of(strategy, Selection(source, part)) for part in parts]
        zs, seconds = zip(*found, strict=True)
        return zs[0] if len(zs) == 1 else torch.cat(zs), sum(seconds)

    def of(self, strategy: EmbeddingStrategy, images: Selection) -> tuple[Tensor, float]:
        """Return the features of frames, computed together.

        Args:
            strategy: The strategy whose representation computes them.
            images: The frames.

        Returns:
            The features, and the seconds that they took when they were computed.

        Raises:
            InputError: If a feature is not finite.
        """
        if int(strategy.embedding_version):
            return _timed(strategy, images)
        key = (type(strategy.backbone), strategy.backbone.dim, images.indices.tobytes())
        if key not in self._kept:
            found = _timed(strategy, images)
            size = found[0].numel() * found[0].element_size()
            if self._bytes + size > LIMIT[strategy.device.type]:
                return found
            self._kept[key] = found
            self._bytes += size
        return self._kept[key]


def _timed(strategy: EmbeddingStrategy, images: Selection) -> tuple[Tensor, float]:
    began = now(strategy)
    z = strategy.embed(images)
    if not bool(z.isfinite().all()):
        raise InputError(
            "the backbone gives features that are NaN or infinite: check its weights and precision"
        )
    return z, now(strategy) - began
