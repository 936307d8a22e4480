"""Cumulative: retrained from scratch on all data seen so far; the upper bound."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.errors import InputError
from primavista.frames import Frames, Selection, read_frames, split_indices
from primavista.nn.class_rows import AnySize
from primavista.nn.freezing import Freeze
from primavista.nn.renorm import Norm
from primavista.nn.shuffling import minibatch_count
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Count, Options, Range, Rate


@dataclass(frozen=True)
class CumulativeOptions(Options):
    """A recipe of ours, since the paper gives none.

    It has batch norm and one cycle of the learning rate, and fixes no weights.

    Args:
        every: the number of batches after which it is retrained; None leaves it to `retrain()`.
    """

    epochs_1: Count = 4
    epochs: Count = 4
    lr_1: Rate = 0.01
    lr: Rate = 0.01
    norm: Norm = "bn"
    freeze: Freeze = "none"
    every: Annotated[int, Range(1, 2**31)] | None = 1


class StoredData(AnySize):
    """All data seen so far: indices into the stream, or loose frames if there is no stream."""

    frames: Tensor
    indices: Tensor
    labels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frames", torch.zeros(0, 0, 0, 3, dtype=torch.uint8))
        self.register_buffer("indices", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self._any_size += ["indices", "labels"]
        self.source: Frames | None = None

    def check(self, images: Frames) -> None:
        """Refuse frames that cannot be stored beside the others.

        Args:
            images: the frames of a batch.
        """
        if isinstance(images, Selection):
            if len(self.frames):
                raise InputError(
                    "Cumulative has stored loose frames: continue with loose frames, or start "
                    "anew with a stream"
                )
            if self.source is not None and images.source is not self.source:
                raise InputError(
                    "Cumulative stores indices into one stream: these frames come from another"
                )
        elif len(self.indices):
            raise InputError(
                "Cumulative stores indices into a stream: continue with that stream, or start anew"
            )

    def add(self, images: Frames, labels: Tensor) -> None:
        """Store a batch.

        Args:
            images: its frames.
            labels: their labels.
        """
        if isinstance(images, Selection):
            self.source = images.source
            self.indices = torch.cat([self.indices, images.indices.to(self.indices.device)])
        else:
            if not len(self.frames):
                warnings.warn(
                    "Cumulative stores every frame that it is given (that is what it is for)",
                    stacklevel=6,
                )
            device = self.frames.device
            loose = torch.cat(
                [read_frames(images, i, device) for i in split_indices(len(images), 128)]
            )
            self.frames = torch.cat([self.frames, loose]) if len(self.frames) else loose
        self.labels = torch.cat([self.labels, labels.to(self.labels.device)])

    def keep(self, wanted: Tensor) -> None:
        """Remove all but the `wanted` patterns (a mask)."""
        self.labels = self.labels[wanted]
        if len(self.frames):
            self.frames = self.frames[wanted]
        else:
            self.indices = self.indices[wanted]

    def images(self) -> Frames:
        """Return all stored frames, in the order in which they came."""
        if len(self.frames):
            return self.frames
        if self.source is None:
            raise InputError(
                "this Cumulative was loaded without its stream: learn the next batch of that "
                "stream first"
            )
        return Selection(self.source, self.indices.cpu())

    @property
    def stored_bytes(self) -> int:
        """The size of the stored frames, or of the indices into the stream."""
        return self.frames.numel() or len(self.indices) * 8

    def __deepcopy__(self, memo: dict[int, object]) -> StoredData:
        """Copy everything but the stream, which may be as large as a disk."""
        if self.source is not None:
            memo[id(self.source)] = self.source
        new = StoredData.__new__(StoredData)
        memo[id(self)] = new
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        saved = state_dict.get(prefix + "frames")
        if isinstance(saved, Tensor) and saved.ndim == 4:
            self.frames = self.frames.new_zeros(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Cumulative(GradientStrategy):
    """Joint training on everything seen so far: an upper bound.

    It is not rehearsal-free, and its time and memory grow with the stream.

    Args:
        backbone: the network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    rehearsal_free = False
    IN_RELEASE = False
    OPTIONS = CumulativeOptions
    options: CumulativeOptions

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.scratch = copy.deepcopy(self.backbone).requires_grad_(False)
        self.memory = StoredData()

    def learn_batch(self, B: Batch) -> LearnReport:
        """Store one batch, and retrain if it is time; see `Strategy.learn_batch`."""
        self.memory.add(B.images, self.classes.cpu()[B.columns])
        every = self.options.every
        losses: tuple[float, ...] = ()
        if every is not None and (int(self.batches) + 1) % every == 0:
            losses = self.retrain()
        return LearnReport(B.i, B.count, B.new, losses, stored_bytes=self.memory.stored_bytes)

    def retrain(self) -> tuple[float, ...]:
        """Train from scratch on everything seen so far; return the mean loss of each epoch."""
        self.backbone.load_state_dict(self.scratch.state_dict())
        with torch.no_grad():
            for tensor in self.head.state_dict().values():
                tensor.zero_()
        if not len(self.memory.labels):
            return ()
        column = {label: j for j, label in enumerate(self.classes.tolist())}
        columns = torch.tensor([column[label] for label in self.memory.labels.tolist()])
        present, cur = columns.unique(return_counts=True)
        union = Batch(
            1, self.memory.images(), columns, present.to(self.device), cur.to(self.device)
        )
        self.head.load(union.present, True)
        sgd = self.sgd(union, self.free_weights(union.i))

        @sgd.captured
        def step(x: Tensor, y: Tensor, rate: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y), len(x))
            sgd.step(g, rate)

        o = self.options
        steps = o.epochs_1 * minibatch_count(union.count, o.minibatch)
        for t, (x, y) in enumerate(self.minibatches(union, sgd)):
            step(x, y, torch.tensor(one_cycle(t, steps)).to(self.device))
        self.head.consolidate(union.present, union.cur, len(self.classes))
        return tuple(torch.stack(sgd.losses).tolist())

    def _check_batch(self, frames: Frames) -> None:
        self.memory.check(frames)
        super()._check_batch(frames)

    def _check_forget(self, label: int) -> None:
        if len(self.memory.labels):
            self.memory.images()

    def _forgot(self, label: int) -> None:
        super()._forgot(label)
        self.memory.keep(self.memory.labels != label)
        self.retrain()


def one_cycle(t: int, total: int, warm: float = 0.25) -> float:
    """Return the share of the peak learning rate at step `t`: up along a cosine, then down.

    Args:
        t: the number of the step, from 0.
        total: the number of steps.
        warm: the share of the steps in which the rate rises.

    >>> [round(one_cycle(t, 9), 2) for t in range(9)]
    [0.04, 0.52, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07, 0.0]
    """
    if total == 1:
        return 1.0
    peak = max(1, round(warm * (total - 1)))
    if t <= peak:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * t / peak)) / 2
    return (1 + math.cos(math.pi * (t - peak) / max(1, total - 1 - peak))) / 2
