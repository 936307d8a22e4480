"""Recognising strangers, that is, objects that were never taught.

`OpenSet` is the protocol of strategies with a familiarity; `judge` computes scores and familiarity
in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from primavista.engine.frames import check_frames, split_indices
from primavista.heads.base import Familiarity, Judgement
from primavista.media.frames import Frames
from primavista.strategies.base import Strategy


@runtime_checkable
class OpenSet(Protocol):
    """The protocol of a strategy that recognises frames of objects that were never taught."""

    known_from: float  # the default threshold: `known` is familiarity >= threshold

    @property
    def open_set(self) -> bool:
        """True if this instance has a familiarity."""

    def familiar(self) -> Familiarity | None:
        """Return the familiarity, a function of features; None if there is none."""

    def phi(self, z: Tensor) -> Tensor:
        """Transform the features of the backbone into those that the familiarity takes."""


def tells_strangers(strategy: Strategy) -> bool:
    """Return True if a strategy has a familiarity.

    Args:
        strategy: Any strategy.
    """
    return isinstance(strategy, OpenSet) and strategy.open_set


def judge(strategy: Strategy, images: Frames) -> Judgement:
    """Compute the scores and the familiarity of frames in one pass.

    Args:
        strategy: Any strategy; without `OpenSet` there is no familiarity.
        images: Frames, uint8, N x H x W x 3.
    """
    frames, representation = check_frames(images), strategy.representation
    return _judged(
        strategy,
        (
            representation.some_features(frames, indices, frozen=strategy.embeds)
            for indices in split_indices(len(frames), representation.chunk)
        ),
    )


def judge_features(strategy: Strategy, z: Tensor) -> Judgement:
    """Compute scores and familiarity like `judge`, from features computed earlier.

    Args:
        strategy: Any strategy.
        z: Features that its representation has computed, N x D.
    """
    return _judged(strategy, [z])


@torch.no_grad()
def _judged(strategy: Strategy, features: Iterable[Tensor]) -> Judgement:
    open_set = strategy if isinstance(strategy, OpenSet) and len(strategy.classes) else None
    familiar = None if open_set is None else open_set.familiar()
    scores, found = [], []
    for z in features:
        scores.append(strategy.score_features(z)[:, : len(strategy.classes)])
        if open_set is not None and familiar is not None:
            found.append(familiar(open_set.phi(z).double(), scores[-1].argmax(1)))
    return Judgement(
        torch.cat(scores),
        temperature=1.0 if familiar is None else familiar.temperature,
        familiarity=torch.cat(found) if found else None,
    )
