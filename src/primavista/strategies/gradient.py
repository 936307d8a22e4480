"""The common part of strategies that train by gradient descent: Theta, a head, minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.frames import Frames, read_frames
from primavista.heads.linear import CWRHead, HeadKind, LinearHead
from primavista.nn.freezing import set_freezing
from primavista.nn.guards import Guard, Importance
from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.nn.renorm import (
    RenormLimits,
    RenormSchedule,
    norm_layers,
    replace_batch_norm,
    set_limits,
)
from primavista.nn.sgd import SGD, Weight
from primavista.option_types import make_options
from primavista.progress import TrainingStep
from primavista.shuffling import minibatch_count
from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.options import Options, check_compat

Made = TypeVar("Made")


class GradientStrategy(Strategy):
    """A representation Theta, a head, and stochastic gradient descent on batches.

    A strategy writes its loop in `learn_batch` with these parts: `free_weights` (which weights
    learn), `sgd` (how they step), `minibatches` (on what), `cross_entropy` (the loss).

    Args:
        backbone: the network. The strategy works on a copy of it.
        seed: the seed of the order of the patterns.
        options: the options; by default those of the class.
        overrides: options by name.
    """

    OPTIONS: ClassVar[type[Options]] = Options
    IN_RELEASE: ClassVar[bool] = True  # the authors' release has it, so `compat` has an effect
    as_released: ClassVar[Callable[..., type[Any]]]  # set by `strategies/caffe.py`
    importance: Importance | None

    def __new__(cls, *args: Any, options: Options | None = None, **overrides: Any) -> Self:
        """Make an instance; with `compat`, of the class that does what the release does."""
        compat = overrides.get("compat", None if options is None else options.compat)
        if compat is not None and cls.IN_RELEASE:
            cls = GradientStrategy.as_released(cls, check_compat(compat))
        return super().__new__(cls)

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: Any,
    ) -> None:
        options = make_options(self.OPTIONS, options, overrides)
        super().__init__(backbone, seed=seed, first_batch=options.first_batch)
        self.options = options
        self.importance = None
        fixed = {n for n, p in self.backbone.named_parameters() if not p.requires_grad}
        if options.norm == "brn":
            self.backbone.body = self._renormalised(self.backbone.body)
        # looked up again: a batch norm without scale and shift was replaced by a layer that has
        # them, fixed at 1 and 0
        self._fixed_by_user = fixed | {
            n for n, p in self.backbone.named_parameters() if not p.requires_grad
        }
        self.head = self._make_head(options.head, self.backbone.dim, options.capacity)

    def free_weights(self, i: int, *, theta: bool = True) -> list[Weight]:
        """Free the weights that learn in batch `i`, fix all others, and return the free ones.

        From batch `freeze_from` on, `freeze` says which convolutions stay fixed (section 2.3).

        Args:
            i: the number of the batch.
            theta: False fixes the whole representation; only the head learns.
        """
        o = self.options
        self.backbone.requires_grad_(theta)
        free: list[tuple[str, Tensor, float]] = []
        if theta:
            set_freezing(self.backbone, o.freeze if i >= o.freeze_from else "none")
            for name, parameter in self.backbone.named_parameters():
                if name in self._fixed_by_user:
                    parameter.requires_grad_(False)
                elif parameter.requires_grad:
                    free.append((f"backbone.{name}", parameter, o.lr_of(i)))
        for name, tensor in self.head.weights().items():
            free.append((f"head.{name}", tensor, o.lr_head_of(i)))
        guarded = set() if self.importance is None else set(self.importance.names)
        # norm scales and biases are vectors: they do not decay
        return [
            Weight(name, tensor, lr, decays=tensor.ndim > 1, guarded=name in guarded)
            for name, tensor, lr in free
        ]

    def sgd(self, B: Batch, weights: list[Weight], guard: Guard | None = None) -> SGD:
        """Return stochastic gradient descent on `weights`, its momentum at 0.

        Args:
            B: the batch.
            weights: the weights that learn.
            guard: what protects them.
        """
        o, velocity = self.options, self._velocity(weights, B.i)

        def make() -> SGD:
            return SGD(
                weights,
                momentum=o.momentum,
                weight_decay=o.weight_decay,
                guard=guard,
                velocity=velocity,
            )

        rates = tuple((weight.name, weight.lr) for weight in weights)
        key = (B.has_features, B.i == 1, id(guard), rates)
        sgd = self._reused("sgd", key, make, most=2)  # one for batch 1 and one for those after it
        if sgd.losses:
            sgd.restart(keep_velocity=velocity is not None)
        return sgd

    def minibatches(
        self,
        B: Batch,
        sgd: SGD,
        targets: Tensor | None = None,
        order: Callable[[int], Iterable[Tensor]] | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the minibatches (x, y) of all epochs of a batch, with the norms in training mode.

        Before each one, the limits of batch renormalisation are those of the schedule (section
        2.2). After the last one, the representation is back in evaluation mode.

        Args:
            B: a batch of frames; or of features, if only the head learns.
            sgd: is told when an epoch ends.
            targets: soft targets, N x rows, or anything else with one entry per pattern; by default
                y are the columns of the classes.
            order: gives the indices of the minibatches of each epoch; by default `shuffled` does.

        Yields:
            x, frames or features; and y.
        """
        o, trains = self.options, self._trains_representation(B)
        t, done, limits, epochs = 0, 0, None, o.epochs_of(B.i)
        inputs = self.on_device(B).inputs
        y = (B.columns if targets is None else targets).to(self.device)
        if trains:
            self._train_mode(B)
        for epoch in range(epochs):
            minibatches = list(self.shuffled(B, epoch) if order is None else order(epoch))
            shown = sum(map(len, minibatches))
            for index in minibatches:
                if trains:
                    limits = self._set_limits(B, t, limits)
                with self.telling(B, sgd, epoch, t, len(index)):
                    yield self._select(inputs, index), y[index]
                t += 1
                if B.progress is not None:
                    done += len(index)
                    B.progress(done, epochs * shown)
            sgd.end_epoch(shown)
        if trains:
            self.backbone.eval()
            self._representation_changed()

    def cross_entropy(self, x: Tensor, y: Tensor) -> Tensor:
        """Return L_cross, the mean cross-entropy of the head's outputs with the targets.

        Args:
            x: a minibatch of frames; or of features, if only the head learns.
            y: the column of each pattern, or soft targets.
        """
        with torch.enable_grad():  # the caller may be in no_grad
            return F.cross_entropy(self.logits(x), y)

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs of the head in training.

        Args:
            x: a minibatch of frames, through the backbone as it stands; or of features.
        """
        if x.is_floating_point():
            return self.head(x)  # type: ignore[no-any-return]
        if len(x) == 1 and self.options.norm == "bn":
            # batch norm has no variance of one value; twice the same frame has the same mean
            return self.head(self.backbone(x.repeat(2, 1, 1, 1))[:1])  # type: ignore[no-any-return]
        return self.head(self.backbone(x))  # type: ignore[no-any-return]

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule of batch renormalisation."""
        return self.options.renorm

    def score_features(self, z: Tensor) -> Tensor:
        """Score features with the head; see `Strategy.score_features`."""
        return self.head.scores(z)

    def report(self, B: Batch, sgd: SGD) -> LearnReport:
        """Return the report of a batch.

        Args:
            B: the batch.
            sgd: has the losses.
        """
        losses = torch.stack(sgd.losses)
        if self.importance is None or not self.importance.names:
            return LearnReport(B.i, B.count, B.new, tuple(losses.tolist()))
        saturated = self.importance.saturated().reshape(1).to(losses.device)
        *means, full = torch.cat([losses.double(), saturated]).tolist()  # one wait for the GPU
        return LearnReport(B.i, B.count, B.new, tuple(means), saturated=full)

    def shuffled(self, B: Batch, epoch: int) -> Iterator[Tensor]:
        """Return the indices of the minibatches of one epoch.

        Args:
            B: the batch.
            epoch: the number of the epoch, from 0.
        """
        order = generator(int(self.seed), B.i, epoch)
        return shuffled_minibatches(B.count, self.options.minibatch, order, self.device)

    def on_device(self, B: Batch) -> Batch:
        """Copy the frames of a batch to the GPU once, if there is one and they are not too many.

        Args:
            B: a batch of frames or of features.
        """
        return B if B.has_features else replace(B, inputs=self.representation.resident(B.images))

    @contextmanager
    def telling(self, B: Batch, sgd: SGD, epoch: int, t: int, patterns: int) -> Iterator[None]:
        """Tell `on_step`, if there is one, of the step that is taken inside the block.

        Args:
            B: the batch.
            sgd: takes the step.
            epoch: the number of the epoch, from 0.
            t: the number of the step in the batch, from 0.
            patterns: the number of patterns in the minibatch.
        """
        if self.on_step is None:
            yield
            return
        with sgd.observed() as found:
            yield
        total, lr = found
        self.on_step(TrainingStep(B.i, epoch, t, total / patterns, lr, patterns))

    def _renormalised(self, body: torch.nn.Module) -> torch.nn.Module:
        return replace_batch_norm(body)

    def _make_head(self, kind: HeadKind, dim: int, capacity: int) -> LinearHead | CWRHead:
        if kind == "linear":
            unseen = self.options.unseen
            drawn = generator(int(self.seed)) if unseen == "negatives" else None
            return LinearHead(dim, capacity, unseen, drawn)
        return CWRHead(dim, capacity, kind, self.options.wpast)

    def _head_names(self) -> list[str]:
        return [f"head.{name}" for name in self.head.weights()]

    def _velocity(self, weights: list[Weight], i: int) -> list[Tensor] | None:
        """Return the momentum of the batch before if it goes on; None if it starts at 0."""
        return None

    def _per_epoch(self, B: Batch) -> int:
        return minibatch_count(B.count, self.options.minibatch)

    def _trains_representation(self, B: Batch) -> bool:
        return not B.has_features

    def _train_mode(self, B: Batch) -> None:
        """Put the norms into training mode; all else stays in evaluation: no dropout is drawn."""
        self.backbone.eval()
        for layer in norm_layers(self.backbone):
            layer.train()

    def _set_limits(self, B: Batch, t: int, before: RenormLimits | None) -> RenormLimits:
        """Set and return the limits of batch renormalisation at iteration `t` of a batch."""
        limits = self.renorm.at(B.i, t, self._per_epoch(B))
        if limits != before:
            set_limits(self.backbone, limits)
        return limits

    def _select(self, inputs: Frames | Tensor, index: Tensor) -> Tensor:
        if isinstance(inputs, Tensor) and inputs.is_floating_point():
            return inputs[index]
        return read_frames(inputs, index, self.device)

    def _reused(self, kind: str, key: tuple[Any, ...], make: Callable[[], Made], most: int) -> Made:
        """Return what an earlier batch made on a GPU, or make it; see `ReusedOnGPU.get_or_make`."""
        head = (*self.head.parameters(), *self.head.buffers())  # the head may grow
        key = (*key, self.backbone.precision)
        return self.gpu_cache.get_or_make(kind, key, head, make, most)

    def _rows_for(self, classes: int) -> int:
        """Return the capacity, doubled until all classes have a row."""
        rows = self.head.rows
        while rows < classes:
            rows *= 2
        return rows
