"""AR1* with latent replay (Pellegrini et al. 2020): a bounded memory of activations. It is NOT rehearsal-free; a comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.errors import InputError
from primavista.frames import Frames, read_frames, split_indices
from primavista.nn.latents import Cut, LatentMemory
from primavista.nn.renorm import norm_layers, set_limits
from primavista.nn.sgd import Weight, generator
from primavista.nn.shuffling import pieces
from primavista.strategies.ar1 import AR1, AR1Options
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.options import Options


@dataclass(frozen=True)
class LatentReplayOptions(AR1Options):
    """AR1*'s, and the memory: 1,500 patterns on CORe50 in that paper."""

    memory: int = 1500
    cut: int | None = (
        None  # how many blocks lie below the activations that are kept; None: two thirds of them
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.memory) is not int or not 1 <= self.memory <= 2**20:
            raise InputError(f"memory is a number of patterns, 1 to {2**20}; got {self.memory!r}")
        if self.cut is not None and type(self.cut) is not int:
            raise InputError(f"cut is a number of blocks, or None; got {self.cut!r}")


class LatentReplay(AR1):
    """For each batch B_i: train on the shuffled union of B_i and RM;  h = |RM|_max / i patterns of B_i go into RM

    RM holds activations at one layer. From batch 2 on everything below it stays as it is, norms included, so what is kept
    stays true, and each frame goes through that part once; above it AR1* learns, with the patterns of both as one batch.
    """

    rehearsal_free: ClassVar[bool] = False
    IN_RELEASE = False
    OPTIONS = LatentReplayOptions
    options: LatentReplayOptions

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: object,
    ) -> None:
        super().__init__(backbone, seed=seed, options=options, **overrides)
        self.memory = LatentMemory(self._latents(self._any_frame(), 1).shape[1:])

    def learn_batch(self, batch: Batch) -> LearnReport:
        if batch.i == 1:
            report = super().learn_batch(batch)
            latents = self._latents(batch.images, batch.count)
        else:
            latents = self._latents(batch.images, batch.count)
            report = super().learn_batch(self._with_memory(batch, latents))
        labels = self.classes[batch.columns.to(self.device)]
        seen = int(self.batches) + 1
        self.memory.add(
            latents, labels, self.options.memory, seen, generator(int(self.seed), seen, -1)
        )
        return replace(report, patterns=batch.count, stored_bytes=self.memory.bytes)

    def _with_memory(self, batch: Batch, latents: Tensor) -> Batch:
        """B_i and RM as one batch of activations."""
        known = {label: column for column, label in enumerate(self.classes.tolist())}
        kept = torch.tensor(
            [known[label] for label in self.memory.labels.tolist()], dtype=torch.int64
        )
        columns = torch.cat([batch.columns, kept])
        present, cur = columns.unique(return_counts=True)
        return replace(
            batch,
            inputs=torch.cat([latents.half(), self.memory.latents]),
            columns=columns,
            present=present,
            cur=cur.float(),
        )

    def _sgd(self, batch: Batch, weights: list[Weight], **how: Any) -> Tensor:
        if not batch.has_features:
            return super()._sgd(batch, weights, **how)
        options, losses, limits, t = self.options, [], None, 0
        trainer = self._trainer(
            batch, weights, self._logits_above, how["modulation"], how["pull"], how["si"]
        )
        inputs = batch.inputs
        assert isinstance(inputs, Tensor)
        goal, total = (
            batch.columns.to(self.device),
            options.epochs * pieces(batch.count, options.minibatch),
        )
        self._train_mode()
        for layer in self._norms_below():
            layer.eval()
        for epoch in range(options.epochs):
            for index in self._order(batch, epoch):
                if limits != (now := options.renorm.at(batch.i, t, total)):
                    set_limits(self.backbone, limits := now)
                trainer.step(inputs[index].float(), goal[index])
                t += 1
            losses.append(trainer.epoch_loss(batch.count))
        self.backbone.eval()
        self._representation_changed()
        return torch.stack(losses)

    def _weights(self, i: int, theta: bool = True) -> list[Weight]:
        weights = super()._weights(i, theta)
        if i == 1:
            return weights
        below = self._cut().parameters_below()
        for parameter in self.backbone.parameters():
            if id(parameter) in below:
                parameter.requires_grad_(False)
        return [weight for weight in weights if id(weight.tensor) not in below]

    def _logits_above(self, latents: Tensor) -> Tensor:
        alone = (
            len(latents) == 1 and self.options.norm == "bn"
        )  # batch norm has no variance of one value
        z = self._cut().above(
            self.backbone, latents.repeat(2, 1, 1, 1) if alone else latents, self._any_frame()
        )
        return self.head(z[:1] if alone else z)  # type: ignore[no-any-return]

    def _any_frame(self) -> Tensor:
        side = self.backbone.spec.size
        return torch.zeros(1, side, side, 3, dtype=torch.uint8, device=self.device)

    @torch.no_grad()
    def _latents(self, frames: Frames, count: int) -> Tensor:
        self.backbone.eval()
        cut = self._cut()
        parts = [
            cut.latents(self.backbone, read_frames(frames, i % len(frames), self.device))
            for i in split_indices(count, self.representation.chunk)
        ]
        return torch.cat(parts)

    def _norms_below(self) -> list[Any]:
        below = {id(module) for module in self._cut().below}
        return [layer for layer in norm_layers(self.backbone) if id(layer) in below]

    def _cut(self) -> Cut:
        return Cut(self.backbone.body, self.options.cut)

    def _check_batch(self, frames: Frames) -> None:
        super()._check_batch(frames)
        shape = self._latents(frames, 1).shape[1:]
        if shape != self.memory.latents.shape[1:]:
            side = self.backbone.spec.size
            raise InputError(
                f"latent replay keeps activations of images of one size: resize the frames to {side} x {side}"
            )

    def _forgot(self, label: int) -> None:
        super()._forgot(label)
        self.memory.forget(label)
