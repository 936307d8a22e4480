"""The common part of strategies that keep a bounded memory M of frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.engine.frames import read_frames, split_indices
from primavista.errors import InputError
from primavista.heads.options import Freeze, Norm
from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.nn.class_rows import Rows
from primavista.nn.memory import Memory
from primavista.nn.minibatches import generator
from primavista.strategies.base import Batch
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options, Patterns, Share


@dataclass(frozen=True)
class RehearsalOptions(Options):
    """The network settings of all four rehearsal papers: batch norm, and no fixed weights.

    Args:
        memory: The number of frames in the memory.
        augment: What varies the frames of a minibatch, new and stored: `crop` shifts each by up to
            an eighth of its side, with black outside, as the crops of the publications do;
            `crop+flip` also mirrors half of them. Frames are stored as they were shown.
    """

    norm: Norm = "bn"
    freeze: Freeze = "none"
    moments_decay: Share = 0.9
    memory: Patterns = 500
    augment: Literal["none", "crop", "crop+flip"] = "none"


class FrameRehearsal(GradientStrategy):
    """Keeps a bounded memory M of frames, as bytes, and the number n of frames seen per class.

    The strategy is not rehearsal-free. This class stores the memory, on the device of the network,
    and joins a batch and the memory into one batch; a subclass chooses the frames to keep.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    rehearsal_free: ClassVar[bool] = False
    IN_RELEASE = False
    OPTIONS: ClassVar[type[Options]] = RehearsalOptions
    options: RehearsalOptions

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        side = self.backbone.spec.size
        self.memory = self._empty_memory(torch.zeros(0, side, side, 3, dtype=torch.uint8))
        self.seen = Rows()  # n, the number of frames of each class that were seen, kept or not
        self.seen.add_rows("n", torch.zeros(0, dtype=torch.int64))

    @property
    def frames(self) -> Tensor:
        """The frames in the memory."""
        return self.memory.fields["frames"]

    def with_memory(self, B: Batch) -> Batch:
        """Return B_i u M as one batch of frames on the device; those of B_i come first."""
        chunks = split_indices(B.count, self.representation.chunk)
        new = [read_frames(B.images, indices, self.device) for indices in chunks]
        return joined(B, torch.cat([*new, self.frames]), self.memory.columns(self.classes))

    def remember(self, both: Batch, chosen: Sequence[int], **fields: Tensor) -> None:
        """Replace the memory by the patterns `chosen` of B_i u M, the batch of `with_memory`.

        `fields` are further tensors of the memory, with one entry per chosen pattern.
        """
        assert isinstance(both.inputs, Tensor)
        index = torch.tensor(chosen, dtype=torch.int64)
        labels = self.classes[both.columns[index].to(self.device)]
        self.memory.store(labels, frames=both.inputs[index.to(self.device)], **fields)

    def minibatches(self, B: Batch, *given: Any, **named: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the minibatches of a batch, augmented if the options say so."""
        augment, random = self.options.augment, generator(int(self.seed), B.i, -3)
        for x, y in super().minibatches(B, *given, **named):
            yield x if augment == "none" else augmented(x, augment == "crop+flip", random), y

    def count_seen(self, B: Batch) -> None:
        """Add the patterns of a batch to n."""
        n = self.seen.get_buffer("n")
        n.index_add_(0, B.present.to(self.device), B.cur.to(self.device, n.dtype))

    def _empty_memory(self, frames: Tensor) -> Memory:
        return Memory(self.options.memory, frames=frames)

    def _check_batch(self, frames: Frames) -> None:
        super()._check_batch(frames)
        check_side(frames, self.backbone.spec.size)


def augmented(x: Tensor, flip: bool, random: torch.Generator) -> Tensor:
    """Return shifted frames, some of them mirrored.

    Args:
        x: The frames, N x H x W x 3.
        flip: True to mirror half of them.
        random: The source of random numbers.
    """
    count, side = x.shape[:2]
    reach = side // 8
    y_shift, x_shift = torch.randint(2 * reach + 1, (2, count, 1), generator=random)
    mirrored = torch.rand(count, 1, generator=random) < (0.5 if flip else 0)
    across = torch.where(mirrored, torch.arange(side).flip(0), torch.arange(side))
    rows = (y_shift + torch.arange(side))[:, :, None].to(x.device)
    columns = (x_shift + across)[:, None].to(x.device)
    padded = F.pad(x, (0, 0, reach, reach, reach, reach))
    return padded[torch.arange(count, device=x.device)[:, None, None], rows, columns]


def joined(B: Batch, inputs: Tensor, columns: Tensor) -> Batch:
    """Return B_i and a memory as one batch; `columns` are those of the patterns of the memory."""
    columns = torch.cat([B.columns, columns])
    present, cur = columns.unique(return_counts=True)
    return replace(B, inputs=inputs, columns=columns, present=present, cur=cur.float())


def check_side(frames: Frames, side: int) -> None:
    """Reject frames of another size than those whose patterns a memory keeps."""
    first = read_frames(frames, torch.tensor([0]), torch.device("cpu"))
    if first.shape[1:3] != (side, side):
        raise InputError(
            f"the memory keeps patterns of one size: resize the frames to {side} x {side}"
        )
