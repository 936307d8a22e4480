"""Caches shared by runs over the same frames: features, and decoded test frames."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from primavista.bench.cost import now
from primavista.errors import InputError
from primavista.media.frames import Frames, Indices, Selection
from primavista.strategies.base import EmbeddingStrategy
from primavista.streams.dataset import Patterns
from primavista.streams.store import PackedFrames

LIMIT = {"cpu": 2**30, "cuda": 2**33}  # bytes kept
# Of the decoded frames of one test set. The reduced test set of CORe50 at 128 px has 110 MB, the
# full one 2.2 GB.
MOST_FRAME_BYTES = 2**29

# Decoded frames by position, for the frames that they were read from and their indices. They are
# freed with their data set.
_kept: WeakKeyDictionary[Frames, dict[bytes, dict[int, Tensor]]] = WeakKeyDictionary()


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


class KeptSelection(Selection):
    """Some frames of a larger source; each is read once and kept, if all of them are few enough.

    Selections of the same frames share what they keep, as long as the source exists.

    Args:
        source: The frames to choose from.
        indices: The index in `source` of each chosen frame, int64.
    """

    def __init__(self, source: Frames, indices: Indices) -> None:
        super().__init__(source, indices)
        self._decoded: dict[int, Tensor] = {}
        with suppress(TypeError):  # frames of another package may not be hashable
            self._decoded = _kept.setdefault(source, {}).setdefault(indices.tobytes(), {})

    def __getitem__(self, indices: Indices) -> Tensor:
        chosen = np.asarray(indices, np.int64)
        missing = np.array([i for i in np.unique(chosen) if i not in self._decoded], np.int64)
        if len(missing):
            found = torch.as_tensor(super().__getitem__(missing))
            if found[0].nbytes * len(self) > MOST_FRAME_BYTES or found.device.type != "cpu":
                return found[np.searchsorted(missing, chosen)]
            self._decoded.update(zip(missing.tolist(), found, strict=True))
        return torch.stack([self._decoded[i] for i in chosen.tolist()])


def keep_decoded(test: Patterns) -> Patterns:
    """Return test patterns whose frames are decoded once by all runs of this process.

    They are kept in memory if they take at most `MOST_FRAME_BYTES` (512 MiB) together. A larger
    test set is decoded anew in each test. Frames that need no decoding are left as they are:
    tensors, and packed stores, which the system keeps in memory by itself.

    Args:
        test: The test frames, not yet read.
    """
    source = test.images.source
    if isinstance(source, Tensor | PackedFrames):
        return test
    return replace(test, images=KeptSelection(source, test.images.indices))
