"""ER: experience replay with a reservoir (Chaudhry et al. 2019).

*On Tiny Episodic Memories in Continual Learning*, arXiv 1902.10486. It is not rehearsal-free; it is
here for comparison. Algorithm 1 of that paper, line by line:

| line | here |
|---|---|
| 2, 3: M <- {}, n <- 0 | `FrameRehearsal` |
| 5: B_n, a minibatch of K patterns of the stream | `order` in `learn_batch` |
| 6: B_M, a minibatch of K patterns of M | `Reservoir.sample` |
| 7: theta <- SGD(B_n u B_M, theta, lr) | `step` in `learn_batch` |
| 8: M <- UpdateMemory(mem_sz, t, n, B_n), Algorithm 2 | `Reservoir.update` |
| 9: n <- n + K | `Reservoir.update` |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.options import Count, Patterns, Rate, Share
from primavista.strategies.rehearsal.frame_rehearsal import FrameRehearsal, RehearsalOptions


@dataclass(frozen=True)
class EROptions(RehearsalOptions):
    """The values of that paper for fine-tuning a pretrained network, on CUB (its section 5).

    Each pattern is seen once, in minibatches of K = 10 new and K replayed patterns, by gradient
    descent without momentum or weight decay, at a learning rate of 0.03. The memory in that paper
    has 1 to 15 patterns per class; the total of 500 is our choice, the same for all strategies that
    keep frames.

    Args:
        replayed: The number of patterns of M in a minibatch, in addition to `minibatch` new ones.
    """

    epochs_1: Count = 1
    lr_1: Rate = 0.03
    epochs: Count = 1
    lr: Rate = 0.03
    minibatch: Patterns = 10
    replayed: Patterns = 10
    momentum: Share = 0.0
    weight_decay: Rate = 0.0


class Reservoir:
    """Algorithm 2: each of the n patterns offered so far is kept with equal probability.

    It keeps `size` patterns, mem_sz in the paper. It holds the indices of patterns, so that frames
    are moved only once per batch.
    """

    def __init__(self, size: int, kept: Iterable[int], n: int, random: torch.Generator) -> None:
        self.size, self.kept, self.random = size, list(kept), random
        self.n = min(max(n, len(self.kept)), 2**62)

    def update(self, patterns: Sequence[int]) -> None:
        """Offer patterns to the memory, one by one."""
        for pattern in patterns:
            if len(self.kept) < self.size:
                self.kept.append(pattern)
            else:
                i = int(torch.randint(self.n + 1, (), generator=self.random))
                if i < self.size:
                    self.kept[i] = pattern
            self.n += 1

    def sample(self, count: int) -> Tensor:
        """Draw patterns without replacement; all of them, if there are fewer than `count`."""
        drawn = torch.randperm(len(self.kept), generator=self.random)[:count]
        return torch.tensor(self.kept, dtype=torch.int64)[drawn]


class ExperienceReplay(FrameRehearsal):
    """theta <- SGD(B_n u B_M, theta, lr)   (Chaudhry et al. 2019, Algorithm 1)

    B_M are random patterns of a memory M that holds a uniform sample of all patterns seen. After
    `forget` it fills up again before it replaces anything.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = EROptions
    options: EROptions

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`."""
        both = self.with_memory(B)
        M = self.reservoir(B)

        def order(epoch: int) -> Iterable[Tensor]:
            return self.replaying(B, epoch, M, draws=1)  # lines 5, 6, 8 and 9

        self.head.load(both.present)
        sgd = self.sgd(B, self.set_trainable(B.i))

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))  # line 7
            sgd.step(g)

        self.train(both, sgd, step, order=order)
        self.head.consolidate(both.present, both.cur)
        self.remember(both, M.kept)
        self.count_seen(B)
        return self.report(B, sgd)

    def reservoir(self, B: Batch) -> Reservoir:
        """Return the memory M as indices into B_i u M: its patterns follow those of B_i."""
        kept = range(B.count, B.count + len(self.memory))
        random = generator(int(self.seed), B.i, -1)
        n = int(self.seen.get_buffer("n").sum())
        return Reservoir(self.options.memory, kept, n, random)

    def replaying(self, B: Batch, epoch: int, M: Reservoir, draws: int) -> Sequence[Tensor]:
        """Return the minibatches of an epoch, as indices into B_i u M.

        Each minibatch has its new patterns first, followed by `draws` samples of `replayed`
        patterns from M. M is updated after each minibatch of the first epoch, so every pattern is
        offered once.
        """
        o, minibatches = self.options, []
        random = generator(int(self.seed), B.i, epoch)
        for new in shuffled_minibatches(B.count, o.minibatch, random):  # line 5
            replayed = [M.sample(o.replayed) for _ in range(draws)]  # line 6
            minibatches.append(torch.cat([new, *replayed]))
            if epoch == 0:
                M.update(new.tolist())  # lines 8 and 9
        sizes = [len(index) for index in minibatches]
        return torch.split(torch.cat(minibatches).to(self.device), sizes)  # one copy to the device
