"""AR1* with latent replay (Pellegrini et al. 2020): a bounded memory of activations.

It is not rehearsal-free; it is here for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.errors import InputError
from primavista.frames import Frames, read_frames, split_indices
from primavista.nn.latents import Cut, LatentMemory
from primavista.nn.minibatches import generator
from primavista.nn.renorm import norm_layers
from primavista.nn.sgd import Weight
from primavista.strategies.ar1 import AR1, AR1Options
from primavista.strategies.base import Batch, LearnReport


@dataclass(frozen=True)
class LatentReplayOptions(AR1Options):
    """The options of AR1*, and the memory.

    Args:
        memory: the number of patterns in the memory RM; that paper has 1,500 on CORe50.
        cut: the number of blocks below the activations that are kept; None is two thirds of them.
    """

    memory: int = 1500
    cut: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.memory) is not int or not 1 <= self.memory <= 2**20:
            raise InputError(f"memory is a number of patterns, 1 to {2**20}; got {self.memory!r}")
        if self.cut is not None and type(self.cut) is not int:
            raise InputError(f"cut is a number of blocks, or None; got {self.cut!r}")


class LatentReplay(AR1):
    """For each batch B_i: train on the union of B_i and RM; add |RM|_max / i patterns to RM.

    RM holds activations at one layer. From batch 2 on everything below that layer stays as it is,
    norms included, so the activations stay valid, and each frame goes through that part once. Above
    it AR1* learns, with the patterns of both as one batch.

    Args:
        backbone: the network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    rehearsal_free: ClassVar[bool] = False
    IN_RELEASE = False
    OPTIONS = LatentReplayOptions
    options: LatentReplayOptions

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.memory = LatentMemory(self._latents(self._any_frame()).shape[1:])

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        if B.i == 1:
            report = super().learn_batch(B)
            latents = self._latents(B.images)
        else:
            latents = self._latents(B.images)
            report = super().learn_batch(self._with_memory(B, latents))
        labels = self.classes[B.columns.to(self.device)]
        seen = int(self.batches) + 1
        random = generator(int(self.seed), seen, -1)
        self.memory.add(latents, labels, self.options.memory, seen, random)
        return replace(report, patterns=B.count, stored_bytes=self.memory.bytes)

    def free_weights(self, i: int, *, theta: bool = True) -> list[Weight]:
        """Free the weights above the cut; see `GradientStrategy.free_weights`."""
        weights = super().free_weights(i, theta=theta)
        if i == 1:
            return weights
        below = self._cut().parameters_below()
        for parameter in self.backbone.parameters():
            if id(parameter) in below:
                parameter.requires_grad_(False)
        return [weight for weight in weights if id(weight.tensor) not in below]

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs of the head, of frames or of activations at the cut."""
        if not x.is_floating_point():
            return super().logits(x)
        # batch norm has no variance of one value; twice the same pattern has the same mean
        alone = len(x) == 1 and self.options.norm == "bn"
        latents = x.repeat(2, 1, 1, 1) if alone else x
        z = self._cut().above(self.backbone, latents, self._any_frame())
        return self.head(z[:1] if alone else z)  # type: ignore[no-any-return]

    def _with_memory(self, B: Batch, latents: Tensor) -> Batch:
        """Join B_i and RM into one batch of activations."""
        column = {label: j for j, label in enumerate(self.classes.tolist())}
        kept = [column[label] for label in self.memory.labels.tolist()]
        columns = torch.cat([B.columns, torch.tensor(kept, dtype=torch.int64)])
        present, cur = columns.unique(return_counts=True)
        inputs = torch.cat([latents.half(), self.memory.latents])
        return replace(B, inputs=inputs, columns=columns, present=present, cur=cur.float())

    def _trains_representation(self, B: Batch) -> bool:
        return True

    def _train_mode(self, B: Batch) -> None:
        super()._train_mode(B)
        if B.has_features:
            below = {id(module) for module in self._cut().below}
            for layer in norm_layers(self.backbone):
                if id(layer) in below:
                    layer.eval()

    def _select(self, inputs: Frames | Tensor, index: Tensor) -> Tensor:
        chosen = super()._select(inputs, index)
        return chosen.float() if chosen.is_floating_point() else chosen

    def _any_frame(self) -> Tensor:
        side = self.backbone.spec.size
        return torch.zeros(1, side, side, 3, dtype=torch.uint8, device=self.device)

    @torch.no_grad()
    def _latents(self, frames: Frames) -> Tensor:
        self.backbone.eval()
        cut = self._cut()
        parts = [
            cut.latents(self.backbone, read_frames(frames, indices, self.device))
            for indices in split_indices(len(frames), self.representation.chunk)
        ]
        return torch.cat(parts)

    def _cut(self) -> Cut:
        return Cut(self.backbone.body, self.options.cut)

    def _check_batch(self, frames: Frames) -> None:
        super()._check_batch(frames)
        first = read_frames(frames, torch.tensor([0]), self.device)
        if self._latents(first).shape[1:] != self.memory.latents.shape[1:]:
            side = self.backbone.spec.size
            raise InputError(
                "latent replay keeps activations of images of one size: "
                f"resize the frames to {side} x {side}"
            )

    def _forgot(self, label: int) -> None:
        super()._forgot(label)
        self.memory.forget(label)
