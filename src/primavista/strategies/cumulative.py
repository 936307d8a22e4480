"""Cumulative: joint training from scratch on all data seen so far, the upper bound."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any

import torch
from torch import Tensor

from primavista.engine.frames import read_frames
from primavista.errors import InputError
from primavista.heads.options import Freeze, Norm, Range
from primavista.media.frames import Frames, Selection
from primavista.networks.base import Backbone
from primavista.nn.class_rows import AnySize
from primavista.nn.memory import columns_of
from primavista.nn.sgd import SGD
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.from_scratch import FromScratch
from primavista.strategies.options import Batches, Options, Rate
from primavista.strategies.rehearsal.frame_rehearsal import check_side

Steps = Annotated[int, Range(1, 2**31)]


@dataclass(frozen=True)
class CumulativeOptions(Options):
    """Our own recipe, since the paper gives none: training to convergence, counted in steps.

    It uses batch norm instead of the paper's batch renormalisation (section 4), fixes no weights,
    and takes about the same number of steps for any number of frames, unless `passes` is given; see
    `LevelUntilFlat`. The options for epochs have no effect.

    Args:
        every: The number of batches after which it is retrained; None to retrain only when
            `retrain()` is called.
        rise: The number of steps in which the learning rate rises.
        window: The number of steps over which the training loss is averaged to see if it is flat.
        fall: The number of steps in which the learning rate falls to 0.
        most: The number of steps after which the learning rate falls even if the loss is not flat.
        passes: The most passes over the data per window. If they are fewer steps than `window`, all
            four lengths are shortened in the same ratio. None keeps them for any number of frames.
    """

    lr_1: Rate = 0.02
    lr: Rate = 0.02
    norm: Norm = "bn"
    freeze: Freeze = "none"
    every: Batches | None = 1
    rise: Steps = 100
    window: Steps = 500
    fall: Steps = 1000
    most: Steps = 10_000
    passes: Steps | None = None


class StoredData(AnySize):
    """All data seen so far: indices into the stream, or loose frames if there is no stream."""

    frames: Tensor
    indices: Tensor
    labels: Tensor

    def __init__(self, side: int) -> None:
        super().__init__()
        self.register_buffer("frames", torch.zeros(0, side, side, 3, dtype=torch.uint8))
        self.register_buffer("indices", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self._any_size += ["frames", "indices", "labels"]
        self.source: Frames | None = None
        self.frame_bytes = 0  # the size of one frame of the stream

    def check(self, images: Frames) -> None:
        """Reject frames that cannot be stored together with those already stored."""
        stream = images.source if isinstance(images, Selection) else None
        has_stream = stream is not None and self.source is not None
        another = has_stream and stream is not self.source
        if another or len(self.indices if stream is None else self.frames):
            raise InputError(
                "Cumulative stores loose frames, or indices into one stream: these frames come "
                "from elsewhere than those it has. Continue with the same, or start anew"
            )
        if stream is None:
            check_side(images, self.frames.shape[1])

    def add(self, images: Frames, labels: Tensor) -> None:
        """Store the frames of a batch and their labels."""
        if isinstance(images, Selection):
            if self.source is None:
                first = read_frames(images, torch.tensor([0]), torch.device("cpu"))
                self.frame_bytes = first.numel()
            self.source = images.source
            indices = torch.from_numpy(images.indices).to(self.indices.device)
            self.indices = torch.cat([self.indices, indices])
        else:
            loose = read_frames(images, torch.arange(len(images)), self.frames.device)
            self.frames = torch.cat([self.frames, loose])
        self.labels = torch.cat([self.labels, labels.to(self.labels.device)])

    def keep(self, wanted: Tensor) -> None:
        """Remove all patterns except those in the mask `wanted`."""
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
        """The size of the stored frames; an index counts like the frame that it refers to."""
        return self.frames.numel() or len(self.indices) * self.frame_bytes

    def __deepcopy__(self, memo: dict[int, object]) -> StoredData:
        """Copy everything except the stream, which may be as large as a disk."""
        if self.source is not None:
            memo[id(self.source)] = self.source
        new = StoredData.__new__(StoredData)
        memo[id(self)] = new
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new


class Cumulative(FromScratch):
    """Joint training on everything seen so far, as an upper bound.

    The strategy is not rehearsal-free, and its time and memory grow with the stream.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    keeps_everything = True
    OPTIONS = CumulativeOptions
    options: CumulativeOptions

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.memory = StoredData(self.backbone.spec.size)

    def learn_batch(self, B: Batch) -> LearnReport:
        """Store one batch, and retrain if it is due; see `Strategy.learn_batch`."""
        self.memory.add(B.images, self.classes.cpu()[B.columns])
        losses = self.retrain_if_due(B, self.options.every)
        return LearnReport(B.i, B.count, B.new, losses, stored_bytes=self.memory.stored_bytes)

    def stored(self) -> tuple[Frames, Tensor]:
        """Return all frames seen so far; see `FromScratch.stored`."""
        stored = self.memory
        frames = stored.images() if len(stored.labels) else stored.frames
        return frames, columns_of(stored.labels, self.classes)

    def fit(self, union: Batch) -> tuple[float, ...]:
        """Train until the loss is flat; return the mean loss of each window of steps."""
        o, share = self.options, 1.0
        if o.passes is not None:
            share = min(1.0, o.passes * self._per_epoch(union) / o.window)
        lengths = (o.rise, o.window, o.fall, o.most)
        rise, window, fall, most = (math.ceil(share * steps) for steps in lengths)
        sgd = self.sgd(union, self.set_trainable(union.i))
        schedule = LevelUntilFlat(rise, fall, most)

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))
            sgd.step(g)

        patterns = 0
        for x, y in self.endless_minibatches(union, sgd):
            sgd.set_rate(schedule.rate)
            sgd.run(step, x, y)
            schedule.t += 1
            patterns += len(x)
            if schedule.t % window == 0 or schedule.done:
                sgd.meter.end_epoch(patterns)
                schedule.observe(float(sgd.meter.means[-1]))
                patterns = 0
            if union.progress is not None:
                union.progress(schedule.t, schedule.last)
            if schedule.done:
                break
        self.backbone.eval()
        self.representation.trained(self.embedding_version)
        return tuple(torch.stack(sgd.meter.means).tolist())

    def endless_minibatches(self, B: Batch, sgd: SGD) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield minibatches (x, y), epoch after epoch, with the norms in training mode."""
        inputs, y = self.on_device(B).inputs, B.columns.to(self.device)
        self._train_mode(B)
        t, limits = 0, None
        for epoch in count():
            for index in self.shuffled(B, epoch):
                limits = self._set_limits(B, t, limits)
                with self._measuring(sgd, B.i, epoch, t, len(index)):
                    yield self._select(inputs, index), y[index]
                t += 1

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


class LevelUntilFlat:
    """A learning rate that rises, stays level until the training loss is flat, and falls to 0.

    The loss is flat if its mean over a window of steps has fallen by less than a tenth since the
    previous window, or after `most` steps in any case. It falls along half a cosine. All lengths
    are in steps, so few frames are trained as thoroughly as many.

    >>> schedule, rates = LevelUntilFlat(rise=2, fall=2, most=9), []
    >>> for loss in (8.0, 4.0, 3.9, 3.8, 3.7):
    ...     rates.append(round(schedule.rate, 2))
    ...     schedule.t += 1
    ...     schedule.observe(loss)
    >>> rates, schedule.done
    ([0.5, 1.0, 1.0, 1.0, 0.5], True)
    """

    def __init__(self, rise: int, fall: int, most: int) -> None:
        self.rise, self.fall, self.most = rise, fall, most
        self.t = 0  # the number of steps taken
        self._falls_from: int | None = None
        self._loss = math.inf

    @property
    def rate(self) -> float:
        """The learning rate of the next step, relative to the peak."""
        begin = self._falls_from
        if begin is not None:
            return (1 + math.cos(math.pi * min((self.t - begin) / self.fall, 1.0))) / 2
        return min((self.t + 1) / self.rise, 1.0)

    @property
    def last(self) -> int:
        """The last step; as long as the rate has not begun to fall, the latest that it can be."""
        return (self.most if self._falls_from is None else self._falls_from) + self.fall

    @property
    def done(self) -> bool:
        """True if the learning rate has fallen to 0."""
        begin = self._falls_from
        return begin is not None and self.t >= begin + self.fall

    def observe(self, loss: float) -> None:
        """Decide, by the mean loss of the window that ends, if the rate falls from now on."""
        flat = self.t > self.rise and loss > 0.9 * self._loss
        if self._falls_from is None and (flat or self.t >= self.most):
            self._falls_from = self.t
        self._loss = loss
