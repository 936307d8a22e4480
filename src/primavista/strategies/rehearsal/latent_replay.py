"""Latent replay (Pellegrini, Graffieti, Lomonaco, Maltoni 2020): AR1* with a bounded memory.

It is not rehearsal-free; it is here for comparison. The algorithm of that paper, line by line:

| line | here |
|---|---|
| RM is empty | `LatentMemory`, where it is made |
| for each batch B_i: train the model on shuffled B_i u RM | `learn_batch`, `shuffled` |
| h = RM_size / i | `LatentMemory.add` |
| R_add = h random patterns of B_i | `LatentMemory.add` |
| R_replace = none if i = 1, else h random patterns of RM | `LatentMemory.add` |
| RM = (RM - R_replace) u R_add | `LatentMemory.add` |

| preset | guard | cut | minibatch |
|---|---|---|---|
| `latent-replay` | AR1*'s | after two thirds of the blocks | of B_i u RM, shuffled |
| `latent-replay-2020`, as published | none: AR1*free | `conv5_4/dw` | 21 of B_i, 107 of RM |
| `rehearsal`, its baseline: native rehearsal | none | `input`: RM holds frames | the same |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from primavista.engine.frames import read_frames, split_indices
from primavista.errors import InputError
from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.networks.mobilenet_v1 import LAYERS, MobileNetV1
from primavista.nn.memory import Memory
from primavista.nn.minibatches import composed_minibatches, generator
from primavista.nn.renorm import norm_layers
from primavista.nn.sgd import Weight
from primavista.strategies.ar1 import AR1, AR1Options
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.options import Patterns
from primavista.strategies.rehearsal.frame_rehearsal import check_side, joined

INPUT = "input"


@dataclass(frozen=True)
class LatentReplayOptions(AR1Options):
    """The options of AR1*, and those of the memory.

    Args:
        memory: RM_size, the number of patterns in the memory RM; that paper has 1,500 on CORe50.
        cut: The layer whose activations RM stores. It is given as the number of blocks below the
            cut, as the name of the last layer below it (`conv5_4/dw` in MobileNet v1), or as
            `input`, which stores frames; None for two thirds of the blocks. See `Cut`.
        new_patterns: The number of patterns of B_i in a minibatch of `minibatch` patterns; the
            others come from RM, and an epoch is a pass over B_i. None to shuffle B_i u RM.
    """

    memory: Patterns = 1500
    cut: int | str | None = None
    new_patterns: Patterns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cut is not None and type(self.cut) not in (int, str):
            raise InputError(
                f"cut is a number of blocks, the name of a layer, or None; got {self.cut!r}"
            )
        if self.new_patterns is not None and self.new_patterns >= self.minibatch:
            raise InputError(
                f"new_patterns={self.new_patterns} leaves no room for replayed patterns: choose "
                f"less than minibatch={self.minibatch}"
            )


class LatentReplay(AR1):
    """Train on B_i u RM, then update RM = (RM - R_replace) u R_add, for each batch B_i.

    RM holds activations at the cut. From batch 2 on everything below the cut is fixed, including
    its norms, so the activations stay valid and each frame passes through that part only once.
    Above the cut, AR1* learns B_i u RM as one batch. If the cut is the input, there is nothing
    below it: RM holds frames, and the whole network is trained (native rehearsal).

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    rehearsal_free: ClassVar[bool] = False
    IN_RELEASE = False
    OPTIONS = LatentReplayOptions
    options: LatentReplayOptions

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        black, frames = self._any_frame(), self.options.cut == INPUT
        with torch.no_grad():
            self._cut().check(self.backbone.eval(), black, 255 - black)
        dtype = torch.uint8 if frames else torch.float16
        shape = self._latents(black).shape[1:]
        self.memory = LatentMemory(self.options.memory, shape, dtype)  # RM is empty

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        if B.i == 1:  # the whole network learns
            report = super().learn_batch(B)
            latents = self._latents(B.images)
        else:  # what is below the cut is fixed: each frame passes it once
            latents = self._latents(B.images)
            report = super().learn_batch(self._with_memory(B, latents))  # on B_i u RM
        labels = self.classes[B.columns.to(self.device)]
        i = int(self.batches) + 1
        random = generator(int(self.seed), i, -1)
        self.memory.add(latents, labels, i, random)
        return replace(report, patterns=B.count)

    def shuffled(self, B: Batch, epoch: int) -> Iterator[Tensor]:
        """Return the minibatches of an epoch; see `GradientStrategy.shuffled`.

        With `new_patterns`, each minibatch has that many patterns of B_i, and the rest are of RM.
        """
        o, replayed = self.options, len(self.memory)
        if o.new_patterns is None or not replayed:
            return super().shuffled(B, epoch)
        order = generator(int(self.seed), B.i, epoch)
        counts = (B.count - replayed, replayed)
        sizes = (o.new_patterns, o.minibatch - o.new_patterns)
        return composed_minibatches(counts, sizes, order, self.device)

    def set_trainable(self, i: int, *, representation: bool = True) -> list[Weight]:
        """Select the weights above the cut; see `GradientStrategy.set_trainable`."""
        weights = super().set_trainable(i, representation=representation)
        if i == 1:
            return weights
        below = self._cut().parameters_below()
        for parameter in self.backbone.parameters():
            if id(parameter) in below:
                parameter.requires_grad_(False)
        return [weight for weight in weights if id(weight.tensor) not in below]

    def logits(self, x: Tensor) -> Tensor:
        """Return the outputs of the head, for frames or for activations at the cut."""
        if not x.is_floating_point():
            return super().logits(x)
        # batch norm needs two values for a variance; repeating the pattern keeps the mean
        alone = len(x) == 1 and self.options.norm == "bn"
        latents = x.repeat(2, 1, 1, 1) if alone else x
        z = self._cut().above(self.backbone, latents, self._any_frame())
        return self.head(z[:1] if alone else z)  # type: ignore[no-any-return]

    def _with_memory(self, B: Batch, latents: Tensor) -> Batch:
        """Return B_i u RM, as one batch of patterns at the cut: those of B_i come first."""
        stored = self.memory.latents
        inputs = torch.cat([latents.to(stored.dtype), stored])
        return joined(B, inputs, self.memory.columns(self.classes))

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
        check_side(frames, self.backbone.spec.size)


class Cut:
    """A network cut in two parts.

    The upper part may depend on the lower part only through the output of the last layer below the
    cut. If the network is cut at its input, the lower part is empty and the activations at the cut
    are the frames.

    Args:
        body: The network; its units are its `blocks`, or its children if it has no `blocks`.
        at: The number of units below the cut; the name in MobileNet v1 of the last layer below it,
            such as `conv5_4/dw`; or `input`. None stands for two thirds of the units, and so does
            the name of a layer if the network is not MobileNet v1.
    """

    def __init__(self, body: nn.Module, at: int | str | None = None) -> None:
        self.last: nn.Module | None = None
        self.below: list[nn.Module] = []
        if at != INPUT:
            self.last = _last_below(body, at)
            order = list(body.modules())
            self.below = order[: order.index(list(self.last.modules())[-1]) + 1]

    def check(self, network: Callable[[Tensor], Tensor], x: Tensor, other: Tensor) -> None:
        """Reject a cut that is bypassed, for example by a shortcut around the last layer.

        `network` runs the body in evaluation mode; x and other are two of its inputs.
        """
        whole = network(x)
        parts = self.above(network, self.latents(network, x), other)
        if not torch.allclose(parts, whole, rtol=1e-3, atol=1e-5):
            raise InputError(
                "this backbone cannot be cut there, since its upper part depends on more than the "
                "activations at the cut: choose another cut, such as 'input'"
            )

    def parameters_below(self) -> set[int]:
        """Return the ids of the parameters that the activations depend on."""
        return {id(p) for module in self.below for p in module.parameters(recurse=False)}

    def latents(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Compute the activations at the cut; `network` runs the body, up to the cut."""
        if self.last is None:
            return x
        found: list[Tensor] = []

        def catch(module: nn.Module, inputs: Any, output: Tensor) -> None:
            found.append(output)
            raise _ReachedError

        handle = self.last.register_forward_hook(catch)
        try:
            network(x)
        except _ReachedError:
            return found[0]
        finally:
            handle.remove()
        raise InputError(
            "this backbone does not run its units one after the other, so it cannot be cut"
        )

    def above(self, network: Callable[[Tensor], Tensor], latents: Tensor, any_x: Tensor) -> Tensor:
        """Compute the output from activations at the cut.

        `network` runs the body on `any_x`, which has no influence on the output.
        """
        if self.last is None:
            return network(latents)
        handle = self.last.register_forward_hook(lambda module, inputs, output: latents)
        try:
            return network(any_x)
        finally:
            handle.remove()


class _ReachedError(Exception):
    pass


def _last_below(body: nn.Module, at: int | str | None) -> nn.Module:
    """Return the last layer below the cut."""
    if isinstance(at, str):
        if at not in LAYERS:
            raise InputError(
                f"cut={at!r}: there is no such layer in MobileNet v1: choose one of "
                f"{', '.join(LAYERS)}, {INPUT!r}, or a number of blocks"
            )
        if isinstance(body, MobileNetV1):
            return body.get_submodule(LAYERS[at])
    units: list[nn.Module] = list(getattr(body, "blocks", body.children()))
    count = at if isinstance(at, int) else max(1, round(len(units) * 2 / 3))
    if not 1 <= count < max(len(units), 1):
        raise InputError(
            f"cut={at!r}: this backbone has {len(units)} units, so it can be cut after 1 "
            f"to {len(units) - 1} of them"
        )
    return units[count - 1]


class LatentMemory(Memory):
    """RM, the memory of patterns: activations at the cut, or frames, and their labels.

    RM_size is `limit`. Activations are stored in half precision, frames as bytes.
    """

    latents: Tensor

    def __init__(self, limit: int, shape: torch.Size, dtype: torch.dtype = torch.float16) -> None:
        super().__init__(limit, latents=torch.zeros(0, *shape, dtype=dtype))

    @torch.no_grad()
    def add(self, latents: Tensor, labels: Tensor, i: int, random: torch.Generator) -> None:
        """h = RM_size / i,  RM = (RM - R_replace) u R_add

        R_add are h random patterns of batch B_i, or all of them if there are fewer. R_replace are
        random patterns of RM, as many as needed to make room; none before RM is full.
        """
        h = min(self.limit // i, len(latents))
        r_add = torch.randperm(len(latents), generator=random)[:h].to(latents.device)
        shuffled = torch.randperm(len(self), generator=random)
        kept = shuffled[: self.limit - h].sort().values.to(latents.device)  # RM - R_replace
        added = latents[r_add].to(self.latents.dtype)
        labels = torch.cat([self.labels[kept], labels[r_add].to(self.labels.device)])
        self.store(labels, latents=torch.cat([self.latents[kept], added]))
