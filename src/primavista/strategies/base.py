"""The contract of a strategy: learn a batch, score frames, forget a class.

If the representation is frozen, features can be computed once and cached (`EmbeddingStrategy`).
`freezes` is true if the representation is frozen sooner or later; `embeds` and `is_frozen` are true
if it is frozen now.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeGuard, final

import torch
from torch import Tensor

from primavista.backbones.base import check_finite_features
from primavista.backbones.spec import check_seed
from primavista.engine.cuda_graph import ReusedOnGPU
from primavista.engine.frames import are_features, check_frames, check_labels, split_indices
from primavista.engine.representation import Representation
from primavista.errors import InputError
from primavista.heads.caches import Derived, NotCopied
from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.nn.class_rows import AnySize, drop_all, grow_all
from primavista.nn.memory import memories
from primavista.progress import OnStep, Progress

# These buffers stay on the CPU, because reading a buffer on a GPU waits for the GPU.
COUNTERS = ("batches", "seed", "embedding_version")


@dataclass(frozen=True)
class Batch:
    """One training batch B_i: any number of patterns, of any classes.

    Args:
        i: The number of the batch, from 1; from 2 if `first_batch=False`.
        inputs: The frames; or, if the representation is frozen, their features (float, N x D).
        columns: The column in the scores (the row in the head) of the class of each pattern, on
            the CPU.
        present: The columns of the classes in the batch, on the CPU.
        cur: The number of patterns of each class in `present`, on the CPU.
        new: The labels that were never seen before.
        sessions: The session of each pattern; None if unknown.
        progress: Called with the number of patterns learned so far; None for no reports.
    """

    i: int
    inputs: Frames | Tensor
    columns: Tensor
    present: Tensor
    cur: Tensor
    new: tuple[int, ...] = ()
    sessions: Tensor | None = None
    progress: Progress | None = None

    @property
    def count(self) -> int:
        """The number of patterns."""
        return len(self.columns)

    @property
    def has_features(self) -> bool:
        """True if the inputs are features, False if they are frames."""
        return are_features(self.inputs)

    @property
    def images(self) -> Frames:
        """The frames; a batch of features raises an InputError."""
        if self.has_features:
            raise InputError("this batch has features and no frames")
        return self.inputs


@dataclass(frozen=True)
class LearnReport:
    """The outcome of learning one batch.

    Args:
        batch: The number of the batch, from 1; from 2 if `first_batch=False`.
        patterns: The number of patterns learned.
        new_classes: The labels that were never seen before.
        losses: The mean loss of each epoch; empty for strategies without gradient descent.
        saturated: The fraction of guarded weights with F = max_F, for strategies with a guard.
        stored_bytes: The size of all stored frames or activations; 0 if rehearsal-free. `learn`
            adds up the contents of every `Memory`.
    """

    batch: int
    patterns: int
    new_classes: tuple[int, ...]
    losses: tuple[float, ...] = ()
    saturated: float | None = None
    stored_bytes: int = 0


class Strategy(AnySize, ABC):
    """Learns a stream, one batch at a time, and scores frames at any time.

    A subclass implements `learn_batch` and `score_features`. Its state consists of parameters and
    buffers only, so `state_dict()` is complete. Patterns of earlier batches are kept in a `Memory`,
    which bounds, counts and forgets them. Random numbers come from generators seeded by
    (seed, batch, epoch), so there is no random state. A strategy with a frozen representation
    extends `EmbeddingStrategy`; one that recognises strangers satisfies `OpenSet`.

    Args:
        backbone: The network. The strategy works on a copy of it.
        seed: The seed of all random choices.
        first_batch: False if there is no B_1: the first batch is learned as B_2 would be.
    """

    rehearsal_free: ClassVar[bool] = True  # False if it stores frames or activations
    keeps_everything: ClassVar[bool] = False  # True if its stored data grow without bound
    freezes: ClassVar[bool] = False  # True if `embeds` is true now or later
    on_step = NotCopied[OnStep]()  # called after every step of gradient descent, unless None
    classes: Tensor
    batches: Tensor
    seed: Tensor
    embedding_version: Tensor

    def __init__(self, backbone: Backbone, *, seed: int = 0, first_batch: bool = True) -> None:
        super().__init__()
        check_seed(seed)
        self.backbone = copy.deepcopy(backbone)
        self.representation = Representation(self.backbone, freezes=self.freezes)
        self.first_batch = first_batch
        self.derived = Derived()  # values computed from the state; cleared when the state changes
        self.gpu_cache = ReusedOnGPU()  # captured functions; cleared when the strategy is moved
        self.register_buffer("classes", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("embedding_version", torch.zeros((), dtype=torch.int64))
        self._any_size.append("classes")

    @property
    def device(self) -> torch.device:
        """The device on which the strategy computes."""
        return self.classes.device

    @property
    def embeds(self) -> bool:
        """True if features that are computed now stay valid; see `EmbeddingStrategy`."""
        return False

    @property
    def i(self) -> int:
        """The number of the next batch B_i, from 1; from 2 if `first_batch=False`."""
        return int(self.batches) + (1 if self.first_batch else 2)

    @final
    def learn(
        self,
        images: Frames,
        labels: Tensor,
        sessions: Tensor | None = None,
        progress: Progress | None = None,
    ) -> LearnReport:
        """Learn one batch.

        Args:
            images: Frames, uint8, N x H x W x 3.
            labels: One label >= 0 per frame.
            sessions: The session that each frame belongs to; None if unknown.
            progress: Called with the number of patterns learned so far and their total, over all
                epochs.

        Raises:
            InputError: If the frames or labels are not valid. Nothing has changed then.
        """
        frames = check_frames(images)
        labels = check_labels(labels, len(frames))
        if sessions is not None:
            sessions = check_labels(sessions, len(frames), "sessions")
        self._check_batch(frames)
        if self.embeds:
            inputs: Frames | Tensor = self.representation.finite_features(frames, progress)
            progress = None  # every frame has been reported already
        else:
            inputs = frames
        batch = self.begin_batch(inputs, labels, sessions, progress)
        return self._finished(self.learn_batch(batch))

    @final
    @torch.no_grad()
    def scores(self, images: Frames) -> Tensor:
        """Score frames.

        Args:
            images: Frames, uint8, N x H x W x 3.

        Returns:
            N x len(classes), one column per known class in the order of `classes`. The class with
            the highest score is the prediction.
        """
        frames = check_frames(images)
        parts = []
        for indices in split_indices(len(frames), self.representation.chunk):
            z = self.representation.some_features(frames, indices, frozen=self.embeds)
            parts.append(self.score_features(z)[:, : len(self.classes)])
        return torch.cat(parts)

    @final
    def forget(self, label: int) -> None:
        """Forget a class. It can be learned again later as a new class.

        Args:
            label: The label of a known class.

        Raises:
            InputError: If the class is not known. Nothing has changed then.
        """
        column = (self.classes == label).nonzero()
        if not len(column):
            known = self.classes.tolist()
            raise InputError(f"class {label} is not known; the known classes are {known}")
        self._check_forget(label)
        j = int(column[0, 0])
        drop_all(self, j)
        for memory in memories(self):
            memory.forget(label)
        self.classes = torch.cat([self.classes[:j], self.classes[j + 1 :]])
        self.derived.clear()
        self.gpu_cache.clear()  # the rows of the head have new memory
        self._forgot(label)

    @abstractmethod
    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch, which has been checked and whose new classes have their columns.

        Args:
            B: The batch B_i.
        """

    @abstractmethod
    def score_features(self, z: Tensor) -> Tensor:
        """Turn features into scores.

        Args:
            z: Features, N x D.

        Returns:
            N x K, with at least one column per known class, in the order of `classes`.
        """

    def features(self, B: Batch) -> Tensor:
        """Return the features of a whole batch in evaluation mode, N x D; compute them if needed.

        Args:
            B: A batch of frames or of features.
        """
        if B.has_features:
            assert isinstance(B.inputs, Tensor)
            return B.inputs
        return self.representation.features(B.images, frozen=self.embeds)

    def begin_batch(
        self,
        inputs: Frames | Tensor,
        labels: Tensor,
        sessions: Tensor | None = None,
        progress: Progress | None = None,
    ) -> Batch:
        """Make the next batch from checked inputs, and give every new class a column.

        This is Algorithm 1, line 6: expand the output layer with neurons for the classes never
        seen before. A maximal head has `capacity` rows from the start, so it grows only when they
        are used up.

        Args:
            inputs: Frames or features.
            labels: One label per pattern.
            sessions: The session of each pattern; None if unknown.
            progress: Called with the number of patterns learned so far and their total.
        """
        labels = self._labels_to_learn(labels)
        unique, inverse, cur = labels.unique(return_inverse=True, return_counts=True)
        known = len(self.classes)
        found = unique.tolist()
        columns = self.columns_of(found)
        new = tuple(label for label, k in zip(found, columns, strict=True) if k >= known)
        present = torch.tensor(columns)
        return Batch(
            self.i, inputs, present[inverse], present, cur.float(), new, sessions, progress
        )

    def _labels_to_learn(self, labels: Tensor) -> Tensor:
        """Return one label per pattern to learn, which are the given ones unless overridden."""
        return labels

    def columns_of(self, labels: list[int]) -> list[int]:
        """Return the columns of labels; a label never seen before gets a new column.

        Args:
            labels: Labels of classes, known or new.
        """
        columns = {label: column for column, label in enumerate(self.classes.tolist())}
        new = [label for label in labels if label not in columns]
        if new:
            columns |= {label: len(columns) + k for k, label in enumerate(new)}
            self.classes = torch.tensor(list(columns), device=self.device)
            grow_all(self, self._rows_for(len(columns)))
        return [columns[label] for label in labels]

    def end_batch(self) -> None:
        """Count a batch that was learned, and clear the values derived from the old state."""
        self.batches += 1
        self.derived.clear()

    @final
    def draft(self) -> Self:
        """Return a copy that can learn on its own; a frozen representation is shared."""
        shared = (self.backbone, self.representation) if self.embeds else ()
        made = copy.deepcopy(self, {id(part): part for part in shared})
        made.on_step = self.on_step
        return made

    def _finished(self, report: LearnReport) -> LearnReport:
        self.end_batch()
        in_memories = sum(memory.bytes for memory in memories(self))
        return replace(report, stored_bytes=in_memories or report.stored_bytes)

    def _rows_for(self, classes: int) -> int:
        """Return the number of rows that tensors with one row per class should have."""
        return classes

    def _check_batch(self, frames: Frames) -> None:
        """Reject frames that cannot be learned, before anything changes."""
        self.representation.check_frames(frames)

    def _check_forget(self, label: int) -> None:
        """Raise an error if a class cannot be forgotten, before anything changes."""

    def _forgot(self, label: int) -> None:
        """Clean up after a class was removed from all tensors with one row per class."""

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.derived.clear()
        self.representation.weights_changed()

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.derived.clear()
        self.gpu_cache.clear()
        self.representation.moved()
        counters = {name: self._buffers[name] for name in COUNTERS}
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers.update(counters)
        return self


class EmbeddingStrategy(Strategy):
    """A strategy that learns and scores features as well as frames.

    While `embeds` is true the representation does not change, so a caller may cache the features
    that `embed` returns. They are valid until `embedding_version` changes.
    """

    freezes: ClassVar[bool] = True

    @property
    def embeds(self) -> bool:
        """True if the representation is frozen from the next batch on."""
        return True

    @final
    def embed(self, images: Frames) -> Tensor:
        """Compute the features of frames in evaluation mode, N x D.

        Args:
            images: Frames, uint8, N x H x W x 3.
        """
        return self.representation.features(check_frames(images), frozen=self.embeds)

    @final
    def learn_embedded(
        self, z: Tensor, labels: Tensor, sessions: Tensor | None = None
    ) -> LearnReport:
        """Learn one batch from the features that `embed` returns; see `learn`.

        Args:
            z: Features, N x D.
            labels: One label >= 0 per pattern.
            sessions: The session that each pattern belongs to; None if unknown.

        Raises:
            InputError: If this batch trains the representation, or if the arguments are not valid.
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
        """Score the features that `embed` returns; see `scores`.

        Args:
            z: Features, N x D.
        """
        return self.score_features(self._checked_features(z))[:, : len(self.classes)]

    def _checked_features(self, z: Tensor) -> Tensor:
        dim = self.backbone.dim
        valid = isinstance(z, Tensor) and z.ndim == 2 and z.is_floating_point()
        if not valid or z.shape[1] != dim or len(z) < 1:
            shape = tuple(getattr(z, "shape", ()))
            raise InputError(
                f"features must be float, N x {dim}, N at least 1, as from embed(); got {shape}"
            )
        check_finite_features(z)
        return z.to(self.device, torch.float32)


def is_frozen(strategy: Strategy) -> TypeGuard[EmbeddingStrategy]:
    """Return True if the representation of a strategy is frozen now, so that it has `embed`.

    Args:
        strategy: Any strategy.
    """
    return isinstance(strategy, EmbeddingStrategy) and strategy.embeds
