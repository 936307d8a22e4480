"""A lesson that is taken in while it is given: when the last frame comes, only the learning is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from primavista.errors import InputError
from primavista.frames import crop_and_resize
from primavista.strategies.base import Strategy
from primavista.strategies.embedding import is_frozen

CHUNK = 16  # frames whose features are computed together; fixed, so that they do not depend on how fast the frames came


class Lesson:
    """Frames of one lesson as they come, at model size, and their features where the representation stays as it is.

    It is `Frames`, so `learner.learn(lesson, "mug")` learns it like any others; features that were computed meanwhile spare
    the strategy its pass through the network as long as they hold. `watch(count)` is told of frames that are read.
    """

    def __init__(self, strategy: Strategy, size: int, origin: object) -> None:
        self.size = size
        self.watch: Callable[[int], None] | None = None
        self._strategy, self._origin = strategy, origin
        self._version = int(strategy.embedding_version)
        self._frames: list[Tensor] = []
        self._features: list[Tensor] = []

    def add(self, image: Any) -> None:
        """Take one image of any size: its centre square, resized."""
        self._frames.append(torch.from_numpy(crop_and_resize(image, self.size)))

    def prepare(self) -> None:
        """Compute the features of the whole chunks that have come so far."""
        while self._strategy.embeds and (len(self._features) + 1) * CHUNK <= len(self._frames):
            self._embed_next()

    def finish(self) -> Iterator[int]:
        """Compute what is left, a chunk at a time; gives how many frames are done."""
        while self._strategy.embeds and len(self._features) * CHUNK < len(self._frames):
            yield min(self._embed_next() * CHUNK, len(self._frames))

    def features_for(self, strategy: Strategy, origin: object) -> Tensor | None:
        """N x D, or None where `strategy` needs the frames: it trains its representation, or has another one."""
        if (
            origin is not self._origin
            or not strategy.embeds
            or int(strategy.embedding_version) != self._version
        ):
            return None
        for _ in self.finish():
            pass
        return torch.cat(self._features) if self._features else None

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        if not self._frames:
            raise InputError("there are no frames: give at least one")
        if self.watch:
            self.watch(len(indices))
        return torch.stack([self._frames[int(i)] for i in indices.tolist()])

    def _embed_next(self) -> int:
        assert is_frozen(self._strategy)
        start = len(self._features) * CHUNK
        self._features.append(
            self._strategy.embed(torch.stack(self._frames[start : start + CHUNK]))
        )
        return len(self._features)
