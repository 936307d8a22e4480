"""GDumb: a greedy sampler and a dumb learner (Prabhu, Torr, Dokania 2020).

*GDumb: A Simple Approach that Questions Our Progress in Continual Learning*, ECCV 2020. It is not
rehearsal-free; it is here for comparison. It stores a balanced sample of the stream (Algorithm 1 of
that paper, here `GreedySampler`) and learns nothing until it is tested. Then the network is trained
from scratch on the stored frames only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.heads.options import Range
from primavista.media.frames import Frames
from primavista.nn.minibatches import generator
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.from_scratch import FromScratch
from primavista.strategies.options import Batches, Count, Patterns, Rate, Share
from primavista.strategies.rehearsal.frame_rehearsal import FrameRehearsal, RehearsalOptions


@dataclass(frozen=True)
class GDumbOptions(RehearsalOptions):
    """The values of that paper (section 4.2) and of its code, which are the same for all data sets.

    There are 256 passes over the memory in minibatches of 16, a learning rate between 0.05 and
    0.0005 by `warm_restarts`, momentum 0.9, weight decay 1e-6, CutMix in half of the minibatches,
    and gradients clipped at a norm of 10. A memory of 500 is one of the sizes in its CIFAR-10
    experiments. Its networks start from random weights; ours starts from the pretrained network,
    like Cumulative. All training counts as batch 1, so `epochs` and `lr` have no effect.

    Args:
        every: The number of batches after which it is retrained; None to retrain only when
            `retrain()` is called.
        lr_min: The lowest learning rate of `warm_restarts`; `lr_1` is the highest.
        cutmix: The probability of CutMix in a minibatch.
        clip: The largest norm of the gradient.
    """

    epochs_1: Count = 256
    lr_1: Rate = 0.05
    minibatch: Patterns = 16
    weight_decay: Rate = 1e-6
    every: Batches | None = 1
    lr_min: Rate = 0.0005
    cutmix: Share = 0.5
    clip: Annotated[float, Range(1e-6, 1e30)] = 10.0


class GreedySampler:
    """Algorithm 1: keeps k patterns, with classes as balanced as the stream allows.

    `kept` are the patterns that are kept already, each with its class. The sampler holds the
    indices of patterns, so that frames are moved only once per batch.
    """

    def __init__(self, k: int, kept: Iterable[tuple[int, int]], random: torch.Generator) -> None:
        self.k, self.random = k, random
        self.D: dict[int, list[int]] = {}
        for pattern, y in kept:
            self.D.setdefault(y, []).append(pattern)

    def offer(self, pattern: int, y: int) -> None:
        """Keep a pattern of class y if y has less than its share; if full, drop another one."""
        C = Counter({label: len(kept) for label, kept in self.D.items()})
        if y in C and C[y] >= self.k / len(C):  # k_c = k / |Y|
            return
        if C.total() >= self.k:
            largest = [label for label, count in C.items() if count == max(C.values())]
            y_r = largest[self._draw(len(largest))]
            self.D[y_r].pop(self._draw(C[y_r]))
        self.D.setdefault(y, []).append(pattern)

    @property
    def kept(self) -> list[int]:
        """The patterns that are kept, class by class."""
        return [pattern for patterns in self.D.values() for pattern in patterns]

    def _draw(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self.random))


def warm_restarts(epoch: int, low: float) -> float:
    """Return the learning rate of an epoch relative to the highest one (SGDR, Loshchilov 2017).

    It is a tenth in epoch 0. Then, in cycles of 1, 2, 4, 8, ... epochs, it falls along half a
    cosine towards `low`.

    >>> [round(warm_restarts(epoch, 0.01), 3) for epoch in range(8)]
    [0.1, 1.0, 1.0, 0.505, 1.0, 0.855, 0.505, 0.155]
    """
    if epoch == 0:
        return 0.1
    length = 2 ** int(math.log2(epoch))  # the length of the cycle, and its first epoch
    return low + (1 - low) * (1 + math.cos(math.pi * (epoch - length) / length)) / 2


class GDumb(FrameRehearsal, FromScratch):
    """D <- greedy sample of the stream;  theta <- argmin of L_cross on D, from scratch

    This is Algorithm 1 and section 3 of Prabhu et al. (2020). The frames of a batch are offered in
    random order. If a class is forgotten, its places go to the others, and the network is retrained
    without it.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = GDumbOptions
    options: GDumbOptions

    def learn_batch(self, B: Batch) -> LearnReport:
        """Store a part of one batch, and retrain if it is due; see `Strategy.learn_batch`."""
        both = self.with_memory(B)
        y = both.columns.tolist()
        random = generator(int(self.seed), B.i, -1)
        D = GreedySampler(
            self.options.memory, [(k, y[k]) for k in range(B.count, both.count)], random
        )
        for pattern in torch.randperm(B.count, generator=random).tolist():
            D.offer(pattern, y[pattern])
        self.remember(both, D.kept)
        self.count_seen(B)
        losses = self.retrain_if_due(B, self.options.every)
        return LearnReport(B.i, B.count, B.new, losses)

    def stored(self) -> tuple[Frames, Tensor]:
        """Return D; see `FromScratch.stored`."""
        return self.frames, self.memory.columns(self.classes)

    def fit(self, union: Batch) -> tuple[float, ...]:
        """Train on D by gradient descent with warm restarts, CutMix and clipped gradients."""
        o = self.options
        random = generator(int(self.seed), 1, -2)
        sgd = self.sgd(union, self.set_trainable(1))

        def step(x: Tensor, y: Tensor, partner: Tensor, box: Tensor) -> None:
            mixed, share = cut_and_mix(x, partner, box)
            h = self.logits(mixed)
            loss = share * F.cross_entropy(h, y) + (1 - share) * F.cross_entropy(h, y[partner])
            sgd.step(clipped(sgd.gradient(loss), o.clip))

        per_epoch = self._per_epoch(union)
        for t, (x, y) in enumerate(self.minibatches(union, sgd)):
            sgd.set_rate(warm_restarts(t // per_epoch, o.lr_min / max(o.lr_1, o.lr_min)))
            partner = torch.randperm(len(x), generator=random).to(self.device)
            box = random_box(x.shape[1], o.cutmix, random).to(self.device)
            sgd.run(step, x, y, partner, box)
        return tuple(torch.stack(sgd.meter.means).tolist())

    def _forgot(self, label: int) -> None:
        super()._forgot(label)
        self.retrain()


def random_box(side: int, probability: float, random: torch.Generator) -> Tensor:
    """Return the box of CutMix (Yun et al. 2019): top, bottom, left and right, in pixels.

    Its area is a fraction of the frame, uniform in [0, 1] (alpha = 1). Its centre is uniform in the
    frame, and the box is clipped to the frame. With the rest of the probability, it is empty.
    """
    use, area, y, x = torch.rand(4, generator=random).tolist()
    if use >= probability:
        return torch.zeros(4, dtype=torch.int64)
    half = int(side * math.sqrt(area)) // 2
    centres = (int(y * side), int(x * side))
    edges = [edge for centre in centres for edge in (centre - half, centre + half)]
    return torch.tensor(edges).clamp(0, side)


def cut_and_mix(x: Tensor, partner: Tensor, box: Tensor) -> tuple[Tensor, Tensor]:
    """Paste a box of other frames into frames; return the result and the fraction left unchanged.

    `partner` has, for each frame, the index of the frame that the box is taken from.
    """
    top, bottom, left, right = box
    rows = torch.arange(x.shape[1], device=x.device)
    columns = torch.arange(x.shape[2], device=x.device)
    inside = ((rows >= top) & (rows < bottom))[:, None] & ((columns >= left) & (columns < right))
    return torch.where(inside[:, :, None], x[partner], x), 1 - inside.float().mean()


def clipped(g: Mapping[str, Tensor], most: float) -> dict[str, Tensor]:
    """Scale a gradient down so that its norm over all weights is at most `most`."""
    tensors = list(g.values())
    norm = torch.stack(torch._foreach_norm(tensors)).norm()
    scaled = torch._foreach_mul(tensors, (most / norm.clamp(min=1e-12)).clamp(max=1.0))
    return dict(zip(g, scaled, strict=True))
