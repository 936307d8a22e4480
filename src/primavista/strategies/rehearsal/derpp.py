"""DER++: dark experience replay with labels (Buzzega et al. 2020).

*Dark Experience for General Continual Learning: a Strong, Simple Baseline*, NeurIPS 2020. It is not
rehearsal-free; it is here for comparison. It is experience replay with a reservoir (`er.py`) that
also stores the outputs z = h(x) of the network when x was learned, and penalises deviations from
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.engine.frames import split_indices
from primavista.nn.memory import Memory
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.options import Count, Lambda, Patterns
from primavista.strategies.rehearsal.er import EROptions, ExperienceReplay


@dataclass(frozen=True)
class DERppOptions(EROptions):
    """The values of that paper for a memory of 500, on CIFAR-10 and Tiny ImageNet alike.

    The learning rate is 0.03 without momentum or weight decay; minibatches have 32 patterns of the
    stream and twice 32 of the memory. That paper trains 50 or 100 epochs per task, with 5 or 10
    tasks; here there are hundreds of batches, so the number of epochs is 4, as for AR1*.

    Args:
        alpha: The weight of the stored outputs.
        beta: The weight of the stored labels.
    """

    epochs_1: Count = 4
    epochs: Count = 4
    minibatch: Patterns = 32
    replayed: Patterns = 32
    alpha: Lambda = 0.2
    beta: Lambda = 0.5


class DERpp(ExperienceReplay):
    """L = l(y, f(x)) + alpha E[||z' - h(x')||^2] + beta E[l(y'', f(x''))]   (Buzzega, equation 6)

    (x, y) come from the stream, (x', z') and (x'', y'') are two independent draws from the memory,
    and l is the cross-entropy. The squared norm is averaged over the outputs, as in the authors'
    code, for which alpha was chosen. All three terms come from one forward pass, so the norms see
    new and stored frames together. If a batch is learned in several epochs, each pattern is offered
    to the memory once, and z is its output in the last epoch.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = DERppOptions
    options: DERppOptions

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch (Algorithm 2 of that paper); see `Strategy.learn_batch`."""
        both, M = self.with_memory(B), self.reservoir(B)
        Z = torch.cat([torch.zeros(B.count, self.head.rows, device=self.device), self.outputs()])
        columns = both.columns.to(self.device)

        def order(epoch: int) -> Iterable[Tensor]:
            return self.replaying(B, epoch, M, draws=2)  # x; x' and x'' of the memory

        self.head.load(both.present)
        sgd = self.sgd(B, self.set_trainable(B.i))

        def step(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
            h = self.logits(x)
            g = sgd.gradient(self.loss(h, y, z))
            sgd.step(g)
            return h.detach()

        everything = torch.arange(both.count)
        sizes = [len(part) for part in split_indices(B.count, self.options.minibatch)]
        minibatches = self.minibatches(both, sgd, targets=everything, order=order)
        for (x, index), new in zip(minibatches, cycle(sizes), strict=False):
            stored = (len(index) - new) // 2
            h = sgd.run(step, x, columns[index], Z[index[new : new + stored]])
            assert h is not None
            Z[index[:new]] = h[:new].to(Z.dtype)  # z <- h(x)
        self.head.consolidate(both.present, both.cur)
        self.remember(both, M.kept, logits=Z[torch.tensor(M.kept, device=self.device)])
        self.count_seen(B)
        return self.report(B, sgd)

    def loss(self, h: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Return the loss of equation 6, from the outputs h for x, x' and x'', in this order.

        y are the columns of their classes, of which those of x' have no influence; z are the stored
        outputs z' of x'. There are as many x'' as x'.
        """
        o, stored = self.options, len(z)
        new, dark, labelled = h.split([len(h) - 2 * stored, stored, stored])
        loss = F.cross_entropy(new, y[: len(new)])
        if stored:
            loss = loss + o.alpha * F.mse_loss(dark, z)
            loss = loss + o.beta * F.cross_entropy(labelled, y[-stored:])
        return loss

    def outputs(self) -> Tensor:
        """Return the stored outputs, with one column per output of the head.

        New rows of the head start at 0, so an output that the head did not have yet when they were
        stored is 0.
        """
        stored = self.memory.fields["logits"]
        return F.pad(stored, (0, self.head.rows - stored.shape[1]))

    def _empty_memory(self, frames: Tensor) -> Memory:
        logits = torch.zeros(0, self.head.rows)
        return Memory(self.options.memory, per_class=["logits"], frames=frames, logits=logits)
