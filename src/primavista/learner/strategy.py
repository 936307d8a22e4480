"""What a learner asks of its strategy: one contract, with torch and without.

`HeadStrategy` (`head_strategy.py`) fulfils it without torch, and `TorchStrategy` (`with_torch.py`)
with a `Strategy` of `primavista.strategies`, which the benchmark uses too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from primavista.backbones.places import Floats
from primavista.backbones.spec import NETWORK_NAMES, Spec
from primavista.errors import InputError
from primavista.heads.base import ClassArrays, Judgement
from primavista.media.frames import Frames
from primavista.media.images import LEARNER_SIZE
from primavista.progress import Progress
from primavista.storage.settings import OptionValue

Arrays = dict[str, np.ndarray[Any, Any]]
Losses = tuple[float, ...]
MERGEABLE = ("prima", "ncm", "lda", "ridge", "klda", "acil")
BACKBONE = "backbone."  # prefix of the arrays of the network in files


@dataclass(frozen=True)
class Settings:
    """The settings that a learner keeps for life.

    Args:
        strategy: The name of the strategy.
        options: All of its options.
        spec: What is needed to build the backbone again, except its weights.
        seed: The seed of every random choice.
    """

    strategy: str
    options: dict[str, OptionValue]
    spec: Spec
    seed: int


@dataclass(frozen=True)
class NetworkChoice:
    """The arguments of `Learner` and of `Learner.load` that are about the network.

    Args:
        backbone: Its name or a module; for a file, the module of the user's own, or None.
        device: The device that the user wants.
        engine: The engine that the user wants, or with which the file was saved.
        weights: The source of the weights of a new learner.
        size: The side of the images of a new learner.
        width: The width of the network of a new learner.
        seed: The seed of a new learner.
    """

    backbone: Any
    device: Any = "auto"
    engine: Any = "auto"
    weights: str | Path | None = None
    size: int = LEARNER_SIZE
    width: float | None = None
    seed: int = 0


class TaughtStrategy(ABC):
    """A strategy as a learner uses it: frames and class ids in, scores and familiarity out.

    Args:
        settings: Its name, options, backbone and seed.
    """

    settings: Settings
    rehearsal_free: bool = True  # False if it stores frames or activations
    stored_bytes: int = 0  # of the frames or activations that it stored after its last lesson
    threshold: float  # the default threshold of a learner
    engine: str  # what computes the features: "torch" or "onnx"
    device: str
    module: Any = None  # the network, if it is computed by torch
    ranks_strangers: bool = False  # True if familiarity is a rank among strangers
    frame_correlation: float = 1.0  # of the familiarity of two frames of one clip of a stranger

    @property
    @abstractmethod
    def classes(self) -> list[int]:
        """The class ids, in the order of the columns of the scores."""

    @property
    @abstractmethod
    def features_from(self) -> object:
        """Identifies what computes features: they are valid as long as this is equal.

        It is None if lessons train the representation, so that no features stay valid.
        """

    @property
    def groups(self) -> Mapping[str, ClassArrays]:
        """The groups of arrays of the head by name; empty if the head has none."""
        return {}

    @abstractmethod
    def draft(self) -> Self:
        """Return a copy that can learn on its own; a frozen representation is shared."""

    def untaught(self) -> Self:
        """Return an equal strategy that has learned nothing, to be merged; by default, refuse."""
        raise self._not_mergeable()

    @abstractmethod
    def features(self, frames: Frames, progress: Progress | None = None) -> Any:
        """Compute the features of frames; only if `features_from` is not None."""

    def learn(self, frames: Frames, ids: Sequence[int], progress: Progress | None) -> Losses:
        """Learn one lesson from its frames, with one class id per frame.

        Returns:
            The mean loss of each epoch; empty without gradient descent.
        """
        return self.learn_features(self.features(frames, progress), ids)

    @abstractmethod
    def learn_features(self, z: Any, ids: Sequence[int]) -> Losses:
        """Learn one lesson from the result of `features`, with one class id per frame."""

    @abstractmethod
    def judge(self, frames: Frames) -> Judgement:
        """Compute the scores and the familiarity of frames."""

    @abstractmethod
    def judge_features(self, z: Any) -> Judgement:
        """Compute the scores and the familiarity from the result of `features`."""

    @abstractmethod
    def judge_windows(self, z: Floats) -> Judgement:
        """Compute the same for the features of windows, in float32 where that is faster."""

    @abstractmethod
    def representation_with_maps(self) -> Any:
        """Return what computes maps, a `FixedRepresentation` or one in torch, to locate with it.

        Raises:
            InputError: If the strategy trains its representation.
        """

    @abstractmethod
    def forget(self, i: int) -> None:
        """Forget a class that is known."""

    def merge(self, other: TaughtStrategy, ids: Mapping[int, int]) -> None:
        """Become the strategy that would have learned the lessons of both; by default, refuse.

        Args:
            other: A strategy with equal settings and an equal network.
            ids: The class id here of each class id there.

        Raises:
            InputError: If the two cannot be merged. Nothing has changed then.
        """
        raise self._not_mergeable()

    def _not_mergeable(self) -> InputError:
        return InputError(
            f"{self.settings.strategy} depends on the order of its batches, so it cannot be "
            f"merged; those that can are {', '.join(MERGEABLE)}"
        )

    @abstractmethod
    def arrays(self, *, network: bool = True) -> Arrays:
        """Return the arrays of the state as they go into a file; `network=False` leaves it out."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, Any], frames: Mapping[int, int]) -> None:
        """Take over the arrays of an untrusted file, after checking that they fit.

        The weights of the network have been taken over before.

        Args:
            arrays: The arrays of the state.
            frames: The number of frames of each class id that has a name.

        Raises:
            InputError: If an array does not fit; the message names it.
        """

    @abstractmethod
    def free_cache(self) -> None:
        """Free what was computed from the state; it is computed again when it is needed."""

    def graphs(self) -> Arrays:
        """Return the arrays of a graph that a file must hold beside the weights; often none."""
        return {}

    def own_module(self) -> Any:
        """Return the network if it is a module of the user's own, which no file can hold."""
        return None if self.settings.spec.name in NETWORK_NAMES else self.module


def check_ids(classes: Sequence[int], frames: Mapping[int, int]) -> None:
    """Check that class ids are distinct, not negative, and contain those that have names."""
    distinct = len(set(classes)) == len(classes) and all(i >= 0 for i in classes)
    if not distinct or not set(frames) <= set(classes):
        raise InputError("its names do not belong to its classes")
