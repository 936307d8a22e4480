"""Strategies whose representation is frozen: features may be computed once and kept."""

from __future__ import annotations

import math
from typing import ClassVar, TypeGuard, final

import torch
from torch import Tensor

from primavista.errors import InputError
from primavista.frames import Frames, check_frames, check_labels
from primavista.strategies.base import LearnReport, Strategy


class EmbeddingStrategy(Strategy):
    """A strategy that learns and scores features as well as frames.

    While `embeds` is true the representation stays as it is, so a caller may keep the features that
    `embed` gives. They hold until `embedding_version` changes.
    """

    freezes: ClassVar[bool] = True

    @property
    def embeds(self) -> bool:
        """True if the representation stays as it is from the next batch on."""
        return True

    @final
    def embed(self, images: Frames) -> Tensor:
        """Compute the features of frames in evaluation mode, N x D.

        Args:
            images: frames, uint8, N x H x W x 3.
        """
        return self.representation.features(check_frames(images), frozen=self.embeds)

    @final
    def learn_embedded(
        self, z: Tensor, labels: Tensor, sessions: Tensor | None = None
    ) -> LearnReport:
        """Learn one batch from the features that `embed` gives; see `learn`.

        Args:
            z: features, N x D.
            labels: one label >= 0 per pattern.
            sessions: the session that each pattern belongs to, if it is known.

        Raises:
            InputError: if this batch trains the representation, or if the arguments are not valid.
        """
        if not self.embeds:
            raise InputError(
                "this batch trains the representation, so it needs the frames: "
                "call learn(images, labels)"
            )
        features = self._checked_features(z)
        labels = check_labels(labels, len(features))
        if sessions is not None:
            sessions = check_labels(sessions, len(features), "sessions")
        return self._finished(self.learn_batch(self.begin_batch(features, labels, sessions)))

    @final
    @torch.no_grad()
    def scores_embedded(self, z: Tensor) -> Tensor:
        """Score the features that `embed` gives; see `scores`.

        Args:
            z: features, N x D.
        """
        return self.score_features(self._checked_features(z))[:, : len(self.classes)]

    def _checked_features(self, z: Tensor) -> Tensor:
        dim = self.backbone.dim
        valid = isinstance(z, Tensor) and z.ndim == 2 and z.is_floating_point()
        if not valid or z.shape[1] != dim or len(z) < 1:
            shape = tuple(getattr(z, "shape", ()))
            raise InputError(
                f"features are float, N x {dim}, N at least 1, as embed() gives; got {shape}"
            )
        # the sum is quick; a sum of finite numbers may overflow
        if not math.isfinite(float(z.sum())) and not bool(z.isfinite().all()):
            raise InputError("the features contain NaN or infinity")
        return z.to(self.device, torch.float32)


def is_frozen(strategy: Strategy) -> TypeGuard[EmbeddingStrategy]:
    """Return whether a strategy's representation is frozen now, so that it has `embed`.

    Args:
        strategy: any strategy.
    """
    return isinstance(strategy, EmbeddingStrategy) and strategy.embeds
