"""Telling strangers: strategies with a familiarity, and scores and familiarity from one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from primavista.frames import Frames, check_frames, split_indices
from primavista.heads.base import Familiarity
from primavista.heads.statistics import AnalyticHead
from primavista.strategies.base import Strategy


@runtime_checkable
class OpenSet(Protocol):
    """The members of a strategy that can tell frames of objects that were never taught."""

    known_from: float  # the default threshold: `known` is familiarity >= threshold

    @property
    def open_set(self) -> bool:
        """True if this instance has a familiarity."""

    def familiar(self) -> Familiarity | None:
        """Return the function that gives the familiarity of features; None if there is none."""

    def phi(self, z: Tensor) -> Tensor:
        """Return the features that the statistics are of, from those of the backbone."""


@dataclass(frozen=True)
class Judgement:
    """Scores and familiarity of frames.

    Args:
        scores: N x K; softmax(scores / temperature) are probabilities.
        temperature: the calibration of the scores.
        familiarity: one value per frame; None if the strategy does not tell strangers.
    """

    scores: Tensor
    temperature: float
    familiarity: Tensor | None


def tells_strangers(strategy: Strategy) -> bool:
    """Return whether a strategy has a familiarity.

    Args:
        strategy: any strategy.
    """
    return isinstance(strategy, OpenSet) and strategy.open_set


def judge(strategy: Strategy, images: Frames) -> Judgement:
    """Compute the scores of frames, and how familiar they are, from one pass.

    Args:
        strategy: any strategy; one that is not `OpenSet` gives no familiarity.
        images: frames, uint8, N x H x W x 3.
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
    """Compute scores and familiarity as `judge` does, from features that are there already.

    Args:
        strategy: any strategy.
        z: features that its representation has computed, N x D.
    """
    return _judged(strategy, [z])


@torch.no_grad()
def judge_windows(strategy: Strategy, z: Tensor) -> Judgement:
    """Compute scores and familiarity as `judge_features` does, in float32 if the head is linear.

    A frame has hundreds of windows, and which of them is the best is not decided by the digits that
    float64 adds.

    Args:
        strategy: any strategy.
        z: features of windows, N x D, in float32.
    """
    head = getattr(strategy, "head", None)
    if not isinstance(head, AnalyticHead) or not isinstance(strategy, OpenSet):
        return judge_features(strategy, z)
    x, familiar = strategy.phi(z).float(), strategy.familiar()
    if familiar is None:
        return judge_features(strategy, z)
    w, b = head.solution(len(strategy.classes))
    scores = (w.float() @ x.T).T + b.float()  # ten times as fast as x w^T for few classes
    familiarity = familiar.single()(x, scores.argmax(1))
    return Judgement(scores, familiar.temperature, familiarity)


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
        _joined(scores),
        temperature=1.0 if familiar is None else familiar.temperature,
        familiarity=_joined(found) if found else None,
    )


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
