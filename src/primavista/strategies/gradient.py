"""What every strategy that learns by gradient descent shares: the parts, the weights that learn, the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.engine.representation import CHUNK_CUDA
from primavista.errors import InputError
from primavista.frames import Frames, read_frames, split_indices
from primavista.heads.linear import CWRHead, LinearHead
from primavista.nn.class_rows import PerWeight
from primavista.nn.freezing import set_freezing
from primavista.nn.guards import Importance, SynapticIntelligence
from primavista.nn.renorm import norm_layers, replace_batch_norm, set_limits
from primavista.nn.sgd import SGD, Weight, generator, minibatches
from primavista.nn.shuffling import pieces
from primavista.nn.training import Trainer
from primavista.progress import Progress
from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.options import PAPER, Options

RESIDENT = 2**30  # bytes of frames that a batch may take on a GPU


class GradientStrategy(Strategy):
    """A backbone (Theta), a head, and stochastic gradient descent on the batches; `options` compose the parts."""

    OPTIONS: ClassVar[type[Options]] = Options
    GUARDED: ClassVar[str] = (
        "nothing"  # "convolutions" or "everything" that is free from batch 2 on
    )
    THETA_LEARNS: ClassVar[bool] = True  # from batch 2 on
    IN_RELEASE: ClassVar[bool] = (
        True  # whether the authors' release has this strategy, so that `compat` concerns it
    )

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, options: Options | None = None, **overrides: Any
    ) -> None:
        options = make_options(self.OPTIONS, options, overrides)
        super().__init__(backbone, seed=seed, first_batch=options.first_batch)
        self.options = options
        self.release = options.release if self.IN_RELEASE else PAPER
        self._guarded: frozenset[str] = frozenset()
        fixed = {n for n, p in self.backbone.named_parameters() if not p.requires_grad}
        if options.norm == "brn":
            self.backbone.body = replace_batch_norm(
                self.backbone.body, debiased=self.release.moments_from_zero
            )
        # those of the replaced norms too: one without scale and shift has them fixed at 1 and 0
        self._fixed_by_user = fixed | {
            n for n, p in self.backbone.named_parameters() if not p.requires_grad
        }
        self.head = self._make_head()
        if self.release.all_outputs:
            self.classes = torch.arange(options.capacity)
        if self.release.keep_momentum:
            learning = self._weights(2, self.THETA_LEARNS)
            self.velocity = PerWeight({w.name: w.tensor for w in learning}, self._head_names())

    def _make_head(self) -> LinearHead | CWRHead:
        dim, capacity, release = self.backbone.dim, self.options.capacity, self.release
        if self.options.head == "linear":
            return LinearHead(
                dim, capacity, generator(int(self.seed)) if release.all_outputs else None
            )
        return CWRHead(
            dim, capacity, self.options.head, self.options.wpast, release_bias=release.all_outputs
        )

    def score_features(self, z: Tensor) -> Tensor:
        return self.head.scores(z)

    def _rows_for(self, classes: int) -> int:
        """The capacity, doubled when full."""
        if self.release.all_outputs and classes > self.options.capacity:
            raise InputError(
                f"compat='caffe' has all outputs from the start: labels 0 to {self.options.capacity - 1}"
            )
        rows = self.head.rows
        while rows < classes:
            rows *= 2
        return rows

    def begin_batch(
        self,
        inputs: Frames | Tensor,
        labels: Tensor,
        sessions: Tensor | None = None,
        progress: Progress | None = None,
    ) -> Batch:
        if self.release.all_outputs and int(labels.max()) >= self.options.capacity:
            raise InputError(
                f"compat='caffe' has all outputs from the start: labels 0 to {self.options.capacity - 1}"
            )
        if self.release.pad_batch:
            size = self.options.minibatch
            index = torch.arange(pieces(len(labels), size) * size) % len(labels)
            return super().begin_batch(inputs, labels[index], None, progress)
        return super().begin_batch(inputs, labels, sessions, progress)

    def _head_names(self) -> list[str]:
        return [f"head.{name}" for name in self.head.weights()]

    def _weights(self, i: int, theta: bool = True) -> list[Weight]:
        """What learns in batch `i`: Theta but for the frozen convolutions, if `theta`, and the head."""
        options = self.options
        self.backbone.requires_grad_(theta)
        free = []
        if theta:
            set_freezing(self.backbone, options.freeze if i >= options.freeze_from else "none")
            for name, parameter in self.backbone.named_parameters():
                parameter.requires_grad_(
                    parameter.requires_grad and name not in self._fixed_by_user
                )
                free += [(name, parameter)] if parameter.requires_grad else []
        lr = options.lr_1 if i == 1 else options.lr
        lr_head = (
            options.lr_1 if i == 1 else options.lr if options.lr_head is None else options.lr_head
        )

        def weight(name: str, tensor: Tensor, rate: float) -> Weight:
            # norm scales and biases are vectors: they do not decay
            return Weight(name, tensor, rate, decays=tensor.ndim > 1, guarded=name in self._guarded)

        return [
            *(weight(f"backbone.{name}", p, lr) for name, p in free),
            *(
                weight(f"head.{name}", tensor, lr_head)
                for name, tensor in self.head.weights().items()
            ),
        ]

    def _to_guard(self) -> dict[str, Tensor]:
        """The weights that `GUARDED` names among those free from batch 2 on, by name."""
        free = self._weights(max(self.options.freeze_from, 2))
        if self.GUARDED == "convolutions":
            free = [w for w in free if w.name.startswith("backbone.") and w.tensor.ndim > 1]
        elif isinstance(self.head, CWRHead):
            free = [
                w for w in free if w.name != "head.tw"
            ]  # tw is begun anew in each batch: nothing to guard
        self._guarded = frozenset(w.name for w in free)
        return {w.name: w.tensor for w in free}

    def _sgd(
        self,
        batch: Batch,
        weights: list[Weight],
        *,
        features: Tensor | None = None,
        targets: Tensor | None = None,
        modulation: list[Tensor] | None = None,
        pull: tuple[list[Tensor], list[Tensor]] | None = None,
        si: SynapticIntelligence | None = None,
        rate: Callable[[int, int], float] | None = None,
    ) -> Tensor:
        """Train `weights` on the batch by cross-entropy with its columns, or with soft `targets`.

        With `features` the backbone is not run at all. Returns the mean loss of each epoch.
        """
        options = self.options
        epochs = options.epochs_1 if batch.i == 1 else options.epochs
        total = epochs * pieces(batch.count, options.minibatch)
        trainer = self._trainer(
            batch, weights, self._logits if features is None else self.head, modulation, pull, si
        )
        goal = (batch.columns if targets is None else targets).to(self.device)
        images = features if features is not None else self._at_hand(batch)
        limits, losses, t = None, [], 0
        if features is None:
            self._train_mode()
        for epoch in range(epochs):
            for index in self._order(batch, epoch):
                if features is None and limits != (now := options.renorm.at(batch.i, t, total)):
                    set_limits(self.backbone, limits := now)
                x = features[index] if features is not None else self._frames_at(images, index)
                trainer.step(
                    x,
                    goal[index],
                    *(() if rate is None else (torch.tensor(rate(t, total)).to(self.device),)),
                )
                t += 1
            losses.append(trainer.epoch_loss(batch.count))
        if features is None:
            self.backbone.eval()
            self._representation_changed()
        return torch.stack(losses)

    def _trainer(
        self,
        batch: Batch,
        weights: list[Weight],
        logits: Callable[[Tensor], Tensor],
        modulation: list[Tensor] | None,
        pull: tuple[list[Tensor], list[Tensor]] | None,
        si: SynapticIntelligence | None,
    ) -> Trainer:
        """A new one on the CPU; on a GPU the one of earlier batches, whose step is recorded, as long as it fits."""
        options, velocity = self.options, None
        if self.release.keep_momentum and batch.i > 1:
            kept = dict(zip(self.velocity.names, self.velocity.tensors, strict=True))
            velocity = [kept[weight.name] for weight in weights]
        touched = (
            *self.head.parameters(),
            *self.head.buffers(),
        )  # the head grows; the backbone moves only by `_apply`
        key = (
            "trainer",
            logits,
            batch.i == 1,
            self.backbone.precision,
            modulation is None,
            pull is None,
            tuple((weight.name, weight.lr) for weight in weights),
            tuple(tensor.data_ptr() for tensor in touched),
        )
        found: Trainer | None = self.captured.get(key)
        if found is not None:
            found.sgd.restart(velocity, modulation, pull)
            return found
        sgd = SGD(
            weights,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            velocity=velocity,
            modulation=modulation,
            pull=pull,
        )
        trainer = Trainer(logits, sgd, si)
        if self.device.type == "cuda":
            while len(self.captured) > 1:  # one for batch 1 and one for those after it
                del self.captured[next(iter(self.captured))]
            self.captured[key] = trainer
        return trainer

    def _report(
        self, batch: Batch, losses: Tensor, importance: Importance | None = None
    ) -> LearnReport:
        """Numbers go to the host at the very end: what is asked of a GPU meanwhile does not wait for it."""
        if importance is None:
            return LearnReport(batch.i, batch.count, batch.new, tuple(losses.tolist()))
        *found, full = torch.cat(
            [losses.double(), importance.saturated().reshape(1).to(losses.device)]
        ).tolist()  # at once
        return LearnReport(batch.i, batch.count, batch.new, tuple(found), saturated=full)

    def _order(self, batch: Batch, epoch: int) -> Iterator[Tensor]:
        order = (
            generator(0) if self.release.shuffle_once else generator(int(self.seed), batch.i, epoch)
        )
        return minibatches(batch.count, self.options.minibatch, order, self.device)

    def _logits(self, x: Tensor) -> Tensor:
        """The head's outputs for a minibatch of frames, through the backbone as it stands."""
        if len(x) == 1 and self.options.norm == "bn":
            # batch norm has no variance of one value; twice the same frame has the same mean
            return self.head(self.backbone(x.repeat(2, 1, 1, 1))[:1])  # type: ignore[no-any-return]
        return self.head(self.backbone(x))  # type: ignore[no-any-return]

    def _frames_at(self, images: Frames, index: Tensor) -> Tensor:
        return read_frames(
            images, index % len(images) if self.release.pad_batch else index, self.device
        )

    def _at_hand(self, batch: Batch) -> Frames:
        """The frames of a batch; on a GPU brought there once, where they are not too many."""
        if self.device.type != "cuda" or (
            isinstance(batch.images, Tensor) and batch.images.is_cuda
        ):
            return batch.images
        if (
            len(batch.images) * read_frames(batch.images, torch.tensor([0]), self.device).numel()
            > RESIDENT
        ):
            return batch.images
        return torch.cat(
            [
                read_frames(batch.images, part, self.device)
                for part in split_indices(len(batch.images), CHUNK_CUDA)
            ]
        )

    def _train_mode(self) -> None:
        """Norms on minibatch statistics; everything else as in evaluation, so that no dropout draws random numbers."""
        self.backbone.eval()
        for layer in norm_layers(self.backbone):
            layer.train()


def make_options(
    kind: type[Options], options: Options | None, overrides: dict[str, Any]
) -> Options:
    """`options`, or the defaults of `kind`, with some replaced by name."""
    known = set(kind.__dataclass_fields__)
    if strange := sorted(set(overrides) - known):
        raise InputError(
            f"there is no option {', '.join(strange)}: choose from {', '.join(sorted(known))}"
        )
    given = (
        {}
        if options is None
        else {name: getattr(options, name) for name in known if hasattr(options, name)}
    )
    return kind(**{**given, **overrides})
