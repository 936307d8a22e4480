"""The common part of strategies that train by gradient descent: Theta, a head, minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.engine.cuda_graph import CapturedFunction
from primavista.engine.frames import are_features, read_frames
from primavista.errors import InputError
from primavista.heads.cwr import HeadKind
from primavista.heads.options import Freeze, make_options
from primavista.heads.shuffling import minibatch_count
from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.nn.cwr_head import CWRHead
from primavista.nn.freezing import is_pointwise, set_freezing
from primavista.nn.guards import UNGUARDED, Guard, Importance
from primavista.nn.linear import LinearHead
from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.nn.renorm import (
    RenormLimits,
    RenormSchedule,
    norm_layers,
    replace_batch_norm,
    set_limits,
)
from primavista.nn.sgd import SGD, StepFunction, Weight
from primavista.progress import TrainingStep
from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.options import Options, check_compat


class GradientStrategy(Strategy):
    """A representation Theta, a head, and stochastic gradient descent on batches.

    A strategy writes its algorithm in `learn_batch` from these parts: `set_trainable` selects the
    weights to train, `sgd` takes the steps, `cross_entropy` is the loss, and `train` goes through
    the minibatches. Unless `norm="bn"`, batch norm is replaced by batch renormalisation.

    Args:
        backbone: The network. The strategy works on a copy of it.
        seed: The seed of the order of the patterns and of the first weights of a linear head.
        options: The options; by default those of the class.
        overrides: Options by name.
    """

    OPTIONS: ClassVar[type[Options]] = Options
    IN_RELEASE: ClassVar[bool] = True  # the authors' release has it, so `compat` has an effect
    importance: Importance | None

    def __new__(cls, *args: Any, options: Options | None = None, **overrides: Any) -> Self:
        """Make an instance; with `compat`, of the class that reproduces the release."""
        compat = overrides.get("compat", None if options is None else options.compat)
        if compat is not None and cls.IN_RELEASE:
            from primavista.strategies.caffe import as_released  # it imports this module

            cls = as_released(cls, check_compat(compat))
        return super().__new__(cls)

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, options: Options | None = None, **overrides: Any
    ) -> None:
        o = make_options(self.OPTIONS, options, overrides)
        _check_freezing(backbone, o.freeze)
        super().__init__(backbone, seed=seed, first_batch=o.first_batch)
        self.options = o
        self.importance = None
        if o.norm == "brn":
            self.backbone.body = self._renormalised(self.backbone.body)
        parameters = self.backbone.named_parameters()
        self._fixed_by_user = {name for name, p in parameters if not p.requires_grad}
        self.head = self._make_head(o.head, self.backbone.dim, o.capacity)

    def score_features(self, z: Tensor) -> Tensor:
        """Score features with the head; see `Strategy.score_features`."""
        return self.head.scores(z)

    def end_batch(self) -> None:
        """Count a batch that was learned; see `Strategy.end_batch`."""
        self._reset_unseen()
        super().end_batch()

    def _reset_unseen(self) -> None:
        if isinstance(self.head, LinearHead):
            self.head.reset_unseen(len(self.classes))

    def _renormalised(self, body: nn.Module) -> nn.Module:
        return replace_batch_norm(body)

    def _make_head(self, kind: HeadKind, dim: int, capacity: int) -> LinearHead | CWRHead:
        if kind == "linear":
            unseen = self.options.unseen
            drawn = generator(int(self.seed)) if unseen == "negatives" else None
            return LinearHead(dim, capacity, unseen, drawn)
        return CWRHead(dim, capacity, kind, self.options.wpast)

    def _head_names(self) -> list[str]:
        return [f"head.{name}" for name in self.head.weights()]

    def _rows_for(self, classes: int) -> int:
        """Return the capacity, doubled until all classes have a row."""
        rows = self.head.rows
        while rows < classes:
            rows *= 2
        return rows

    def set_trainable(self, i: int, *, representation: bool = True) -> list[Weight]:
        """Select the weights that batch `i` trains, fix all others, and return the selected ones.

        From batch `freeze_from` on, the convolutions named by `freeze` are fixed (sections 2.3, 4).

        Args:
            i: The number of the batch.
            representation: False to fix the whole representation and train only the head.
        """
        o = self.options
        self.backbone.requires_grad_(representation)
        learning: dict[str, Tensor] = {}
        if representation:
            set_freezing(self.backbone, o.freeze if i >= o.freeze_from else "none")
            for name, parameter in self.backbone.named_parameters():
                if name in self._fixed_by_user:
                    parameter.requires_grad_(False)
                elif parameter.requires_grad:
                    learning[f"backbone.{name}"] = parameter
        learning |= {f"head.{name}": tensor for name, tensor in self.head.weights().items()}
        lr, lr_head = o.lr, o.lr if o.lr_head is None else o.lr_head
        if i == 1:
            lr = lr_head = o.lr_1
        return [
            Weight(
                name,
                tensor,
                lr_head if name.startswith("head.") else lr,
                decays=tensor.ndim > 1,  # norm scales and biases are vectors: they do not decay
            )
            for name, tensor in learning.items()
        ]

    def sgd(self, B: Batch, weights: list[Weight], guard: Guard = UNGUARDED) -> SGD:
        """Make stochastic gradient descent on `weights` under a guard; the momentum starts at 0."""
        o, velocity = self.options, self._velocity(weights, B.i)
        rates = ((weight.name, weight.lr) for weight in weights)
        key = (are_features(B.inputs), B.i == 1, *rates, self.backbone.precision)
        fixed = (*self._fixed_tensors(), *guard.tensors)
        make = partial(SGD, weights, o.momentum, o.weight_decay, guard, velocity)
        # on a GPU one is kept for batch 1 and one for the batches after it
        sgd = self.gpu_cache.get_or_make("sgd", key, fixed, make, most=2)
        if sgd.meter.means:  # of an earlier batch
            sgd.meter.means = []
            if velocity is None:
                torch._foreach_zero_(sgd.velocity)
        return sgd

    def train(  # type: ignore[override]  # a strategy sets the modes of its network itself
        self,
        B: Batch,
        sgd: SGD,
        step: StepFunction,
        targets: Tensor | None = None,
        order: Callable[[int], Iterable[Tensor]] | None = None,
    ) -> None:
        """Call step(x, y) for every minibatch of a batch; the arguments are those of `minibatches`.

        On a GPU, the step of the first batch is captured as a CUDA graph, and later batches launch
        this graph instead of the function that they define. A step therefore uses only its
        arguments, `self`, `sgd` and tensors that keep their place in memory. It must not refer to
        the batch B. The same holds for a step that is called by `SGD.run`.
        """
        for x, y in self.minibatches(B, sgd, targets, order):
            sgd.run(step, x, y)

    def eval(self) -> Self:
        """Put the network into evaluation mode, in which it is between batches."""
        self.backbone.eval()
        return self

    def minibatches(
        self,
        B: Batch,
        sgd: SGD,
        targets: Tensor | None = None,
        order: Callable[[int], Iterable[Tensor]] | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the minibatches (x, y) of all epochs of a batch, with the norms in training mode.

        Before each one, the limits of batch renormalisation are those of the schedule (section 4).
        After the last one, the representation is back in evaluation mode.

        Args:
            B: A batch of frames; or of features, if only the head trains.
            sgd: Takes the steps, and measures their losses.
            targets: Soft targets, N x rows, or anything else with one entry per pattern; by default
                y are the columns of the classes.
            order: Returns the indices of the minibatches of an epoch; by default `shuffled`.
        """
        t, done, limits, epochs = 0, 0, None, self.epochs_of(B.i)
        trains = self._trains_representation(B)
        inputs, device = self.on_device(B).inputs, self.classes.device
        y = (B.columns if targets is None else targets).to(device)
        if trains:
            self._train_mode(B)
        for epoch in range(epochs):
            minibatches = list(self.shuffled(B, epoch) if order is None else order(epoch))
            shown = sum(map(len, minibatches))
            for index in minibatches:
                if trains:
                    limits = self._set_limits(B, t, limits)
                with self._measuring(sgd, B.i, epoch, t, len(index)):
                    yield self._select(inputs, index), y[index]  # here the caller takes its step
                t, done = t + 1, done + len(index)
                if B.progress is not None:
                    B.progress(done, epochs * shown)
            sgd.meter.end_epoch(shown)
        if trains:
            self.backbone.eval()
            self.representation.trained(self.embedding_version)

    def cross_entropy(self, x: Tensor, y: Tensor) -> Tensor:
        """Return L_cross of x with columns or targets y, over all rows of the head."""
        return F.cross_entropy(self.logits(x), y)

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs of the head during training, for frames or features."""
        if x.is_floating_point():
            return self.head(x)  # type: ignore[no-any-return]
        if len(x) == 1 and self.options.norm == "bn":
            # batch norm needs two values for a variance; repeating the frame keeps the mean
            return self.head(self.backbone(x.repeat(2, 1, 1, 1))[:1])  # type: ignore[no-any-return]
        return self.head(self.backbone(x))  # type: ignore[no-any-return]

    def report(self, B: Batch, sgd: SGD) -> LearnReport:
        """Return the report of a batch, with the losses of `sgd`."""
        losses = torch.stack(sgd.meter.means)
        if self.importance is None or not self.importance.names:
            return LearnReport(B.i, len(B.columns), B.new, tuple(losses.tolist()))
        saturated = self.importance.saturated().reshape(1).to(losses.device)
        *means, full = torch.cat([losses.double(), saturated]).tolist()  # one wait for the GPU
        return LearnReport(B.i, len(B.columns), B.new, tuple(means), saturated=full)

    def epochs_of(self, i: int) -> int:
        """Return the number of epochs of batch `i`."""
        return self.options.epochs_1 if i == 1 else self.options.epochs

    def shuffled(self, B: Batch, epoch: int) -> Iterator[Tensor]:
        """Return the indices of the minibatches of one epoch, which counts from 0."""
        o, order = self.options, generator(int(self.seed), B.i, epoch)
        return shuffled_minibatches(len(B.columns), o.minibatch, order, self.classes.device)

    def on_device(self, B: Batch) -> Batch:
        """Copy the frames of a batch to the GPU once, if there is a GPU and they fit."""
        return replace(B, inputs=self.representation.resident(B.inputs))

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule of batch renormalisation; batch norm uses only its decay of the moments."""
        o = self.options
        moments = "pretrained" if o.norm == "bn" else o.moments
        return RenormSchedule(o.r_max, o.d_max, o.moments_decay, startup=o.startup, moments=moments)

    def _set_limits(self, B: Batch, t: int, before: RenormLimits | None) -> RenormLimits:
        """Set and return the limits of batch renormalisation at iteration `t` of a batch."""
        limits = self.renorm.at(B.i, t, self._per_epoch(B))
        if limits != before:
            set_limits(self.backbone, limits)
        return limits

    def _train_mode(self, B: Batch) -> None:
        """Put only the norms into training mode, so that, for example, dropout stays off."""
        norms = set(norm_layers(self.backbone))
        for module in self.backbone.modules():
            module.training = module in norms

    def _trains_representation(self, B: Batch) -> bool:
        return not are_features(B.inputs)

    def _per_epoch(self, B: Batch) -> int:
        return minibatch_count(len(B.columns), self.options.minibatch)

    def _select(self, inputs: Frames | Tensor, index: Tensor) -> Tensor:
        if are_features(inputs):
            return inputs[index]
        return read_frames(inputs, index, self.classes.device)

    def _velocity(self, weights: list[Weight], i: int) -> list[Tensor] | None:
        """Return the momentum to continue from the previous batch; None to start at 0."""
        return None

    def _measuring(
        self, sgd: SGD, i: int, epoch: int, t: int, patterns: int
    ) -> AbstractContextManager[None]:
        """Measure the loss of the step that is taken inside the block, and tell it to `on_step`."""
        on_step = self.on_step
        if on_step is None:
            return sgd.meter.measuring(patterns)
        return sgd.meter.measuring(
            patterns,
            lambda loss: on_step(TrainingStep(i, epoch, t, loss, sgd.present_lr, patterns)),
        )

    def _accelerated(self, function: StepFunction, *constants: int) -> StepFunction:
        """Return a function with the conditions and the speed of a step of `train`.

        The constants are the numbers that it depends on besides its arguments.
        """
        key, make = (*constants, self.backbone.precision), partial(CapturedFunction, function)
        fixed = self._fixed_tensors()
        return self.gpu_cache.get_or_make(function.__qualname__, key, fixed, make, most=1)

    def _fixed_tensors(self) -> tuple[Tensor, ...]:
        """Return what a captured step reads and writes; a head that grows has other tensors."""
        return (*self.head.parameters(), *self.head.buffers())


def _check_freezing(network: nn.Module, freeze: Freeze) -> None:
    """Raise an error if the pointwise convolutions of a transformer, which has none, are fixed."""
    modules = list(network.modules())
    has_norm = any(isinstance(module, nn.LayerNorm) for module in modules)
    is_transformer = has_norm and not any(is_pointwise(module) for module in modules)
    if is_transformer and freeze in ("pointwise", "all"):
        raise InputError(
            f"freeze='{freeze}' fixes pointwise convolutions, and this network is a transformer: "
            "it has none. Choose 'depthwise', which fixes the embedding of its patches, or 'none'; "
            "cwr* and the analytic strategies fix the whole network after batch 1 or from the start"
        )
