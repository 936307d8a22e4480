"""Merging: a strategy takes over everything that another strategy has learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Self, final

import torch
from torch import Tensor

from primavista.errors import InputError
from primavista.strategies.base import EmbeddingStrategy, Strategy
from primavista.strategies.builtin import STRATEGIES


class MergeableStrategy(EmbeddingStrategy):
    """A strategy for which neither the order nor the grouping of the lessons matters.

    A lesson is the frames of one class in one session, or in one batch if no sessions are given.
    """

    @final
    def merge(self, other: Strategy, labels: Mapping[int, int] | None = None) -> None:
        """Become the strategy that would have learned the batches of both strategies.

        Args:
            other: A strategy of the same class, with equal options, seed and backbone.
            labels: The label in this strategy for each label of `other`, if they differ.

        Raises:
            InputError: If the two cannot be merged. Nothing has changed then.
        """
        theirs = other.classes.tolist()
        ours = [label if labels is None else labels[label] for label in theirs]
        if len(set(ours)) < len(ours):
            pairs = dict(zip(theirs, ours, strict=True))
            raise InputError(f"two classes of the other would become one: {pairs}")
        check_mergeable(self, other)
        assert isinstance(other, type(self))
        columns = torch.tensor(self.columns_of(ours), device=self.device, dtype=torch.int64)
        self._merge(other, columns)
        self.batches += other.batches
        self.derived.clear()

    @abstractmethod
    def _merge(self, other: Self, columns: Tensor) -> None:
        """Add everything that the checked `other` has learned; its class k is `columns[k]` here."""


def merge(one: Strategy, other: Strategy, labels: Mapping[int, int] | None = None) -> None:
    """Merge two strategies, or raise an error with the reason; see `MergeableStrategy.merge`.

    Args:
        one: The strategy that takes over what the other learned.
        other: The other strategy.
        labels: The label in `one` for each label of `other`, if they differ.
    """
    if not isinstance(one, MergeableStrategy):
        check_mergeable(one, other)
    else:
        one.merge(other, labels)


def check_mergeable(one: Strategy, other: Strategy) -> None:
    """Reject strategies that cannot be merged.

    Args:
        one: The strategy that would take over what the other learned.
        other: The other strategy.

    Raises:
        InputError: If they cannot be merged; the message names the difference.
    """
    for strategy in (one, other):
        if not isinstance(strategy, MergeableStrategy):
            able = ", ".join(name for name, info in STRATEGIES.items() if info.analytic)
            raise InputError(
                f"{type(strategy).__name__} depends on the order of its batches, so it cannot be "
                f"merged; those that can are {able}"
            )
    if type(one) is not type(other):
        ours, theirs = type(one).__name__, type(other).__name__
        raise InputError(f"a {ours} cannot be merged with a {theirs}")
    differ = _difference(_facts(one), _facts(other))
    if differ:
        raise InputError(f"their options differ: {differ}. Merge learners with equal options")
    differ = _difference(_fields(one.backbone.spec), _fields(other.backbone.spec))
    if differ:
        raise InputError(
            f"their backbones are fed differently: {differ}. Merge learners with equal settings"
        )
    _check_same_features(one, other)


def _check_same_features(one: Strategy, other: Strategy) -> None:
    ours, theirs = one.representation, other.representation
    differ = _difference(
        {"precision": ours.backbone.precision, "engine": ours.engine},
        {"precision": theirs.backbone.precision, "engine": theirs.engine},
    )
    if differ:
        advice = ""
        if ours.engine != theirs.engine:
            advice = f'\n  right: merge(Learner.load(file, engine="{ours.engine}"))'
        raise InputError(f"their features are not the same numbers: {differ}.{advice}")
    state = other.backbone.state_dict()
    for name, tensor in one.backbone.state_dict().items():
        if name not in state or not tensor.cpu().equal(state[name].cpu()):
            raise InputError(
                f"their backbones have different weights ({name}), so their statistics "
                "cannot be added"
            )


def _facts(strategy: Strategy) -> dict[str, Any]:
    return {**_fields(getattr(strategy, "options", None)), "seed": int(strategy.seed)}


def _fields(made: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, including those of its field `options`."""
    facts = asdict(made) if is_dataclass(made) and not isinstance(made, type) else {}
    inner = facts.pop("options", {})
    return {**facts, **inner}


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return ", ".join(f"{name} {ours.get(name)} here and {theirs.get(name)} there" for name in names)
