"""iCaRL: incremental classifier and representation learning (Rebuffi et al. 2017).

*iCaRL: Incremental Classifier and Representation Learning*, CVPR 2017. It is not rehearsal-free; it
is here for comparison. The algorithms of that paper:

| algorithm | here |
|---|---|
| 1: iCaRL Classify, the nearest mean of exemplars | `score_features` |
| 2: iCaRL IncrementalTrain | `learn_batch` |
| 3: iCaRL UpdateRepresentation | `update_representation`, `targets` |
| 4: iCaRL ConstructExemplarSet, herding | `herding` |
| 5: iCaRL ReduceExemplarSet | `choose_exemplars` |

In that paper each class occurs in one batch only. The extension to classes that occur again is our
own: the exemplars of such a class and its new frames compete for its places. Herding then
approaches the mean of all frames of the class, in which the exemplars represent the frames that
they were chosen from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.networks.base import Backbone
from primavista.nn.class_rows import Rows
from primavista.nn.minibatches import generator
from primavista.nn.sgd import SGD
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.options import Count, Rate
from primavista.strategies.rehearsal.frame_rehearsal import FrameRehearsal, RehearsalOptions


@dataclass(frozen=True)
class ICaRLOptions(RehearsalOptions):
    """The values of that paper and its code (section 4.1, CIFAR-100), except the number of epochs.

    Minibatches have 128 patterns, the weight decay is 1e-5, the momentum 0.9, and the learning rate
    is divided by 5 after 7/10 and after 9/10 of the steps of a batch. That paper averages the loss
    over 100 outputs, with a rate of 2.0; the loss here is the sum over the outputs, as in its
    Algorithm 3, so the rate is 0.02. Its 70 epochs are for 10 batches of 5,000 images; here there
    are 4, as for AR1*. Its K is 2,000 for 100 classes; here it is 500, the same for all strategies
    that keep frames.
    """

    epochs_1: Count = 4
    lr_1: Rate = 0.02
    epochs: Count = 4
    lr: Rate = 0.02
    weight_decay: Rate = 1e-5


def herding(phi: Tensor, mean: Tensor, m: int) -> Tensor:
    """p_k = argmin_x ||mu - (phi(x) + phi(p_1) + ... + phi(p_k-1)) / k||,  k = 1 .. m

    Algorithm 4: for every k, the mean of the first k exemplars is as close to mu as possible.
    Return their indices, the most important first; all N if m is greater.
    """
    w = mean  # k mu - phi(p_1) - ... - phi(p_k-1); the factor k does not change the minimum
    taken, chosen = torch.zeros(len(phi), device=phi.device), []
    for _ in range(min(m, len(phi))):
        p_k = ((w - phi).norm(dim=1) + taken).argmin()
        taken.index_fill_(0, p_k, torch.inf)
        w = w + mean - phi[p_k]
        chosen.append(p_k)
    return torch.stack(chosen) if chosen else taken[:0].long()


class ICaRL(FrameRehearsal):
    """y* = argmin_y ||phi(x) - mu_y||,  mu_y the mean of the exemplars P_y   (Algorithm 1)

    The network is trained with the cross-entropy of one sigmoid per class. For the classes that are
    not in the batch, the targets are the outputs of the previous network (Algorithm 3).

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = ICaRLOptions
    options: ICaRLOptions

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.exemplar_means = Rows()  # mu, the normalised mean of the features of the exemplars
        self.exemplar_means.add_rows("mu", torch.zeros(0, self.backbone.dim))

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch (Algorithm 2); see `Strategy.learn_batch`."""
        D = self.with_memory(B)
        sgd = self.update_representation(B, D)
        phi = F.normalize(self.features(D))
        chosen = self.choose_exemplars(B, D.columns, phi)
        self.remember(D, chosen.tolist())
        self.count_seen(B)
        self.average(phi, D.columns, chosen if len(chosen) else torch.arange(B.count))
        return self.report(B, sgd)

    def score_features(self, z: Tensor) -> Tensor:
        """Score features by their negative distance from the mean of exemplars (Algorithm 1)."""
        mu = self.exemplar_means.get_buffer("mu")
        phi: Tensor = z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)
        squared: Tensor = (phi * phi).sum(1, keepdim=True) + (mu * mu).sum(1) - 2 * (phi @ mu.T)
        return -squared.clamp(min=0).sqrt()

    def update_representation(self, B: Batch, D: Batch) -> SGD:
        """Train the network on D = B_i u P, the batch with all exemplars (Algorithm 3)."""
        q = self.targets(B, D)
        known = torch.arange(self.head.rows, device=self.device) < len(self.classes)
        self.head.load(D.present)
        sgd = self.sgd(B, self.set_trainable(B.i))

        def step(x: Tensor, q: Tensor, known: Tensor) -> None:
            g = sgd.gradient(self.loss(self.logits(x), q, known))
            sgd.step(g)

        order = partial(self.whole_minibatches, D)
        steps = self.epochs_of(B.i) * len(order(0))
        for t, (x, y) in enumerate(self.minibatches(D, sgd, targets=q, order=order)):
            sgd.set_rate(5.0 ** -((t >= 0.7 * steps) + (t >= 0.9 * steps)))
            sgd.run(step, x, y, known)
        self.head.consolidate(D.present, D.cur)
        return sgd

    def whole_minibatches(self, D: Batch, epoch: int) -> list[Tensor]:
        """Return the indices of the minibatches of an epoch; an incomplete one is left out.

        The code of that paper does the same. Besides, a last minibatch whose size depends on the
        memory would cost seconds on a GPU whenever that size changes.
        """
        size = min(self.options.minibatch, D.count)
        shuffled = torch.randperm(D.count, generator=generator(int(self.seed), D.i, epoch))
        return list(shuffled[: D.count - D.count % size].to(self.device).split(size))

    @torch.no_grad()
    def targets(self, B: Batch, D: Batch) -> Tensor:
        """Return the targets of all outputs, N x rows: q of Algorithm 3.

        The targets of the classes in B_i are 1 or 0. Those of the other known classes are the
        outputs of the network before it is updated.
        """
        previous = self.head.scores(self.features(D)).sigmoid()
        onehot = F.one_hot(D.columns, self.head.rows).to(previous)
        absent = torch.ones(self.head.rows, dtype=torch.bool)
        absent[B.present] = False
        return torch.where(absent.to(self.device), previous, onehot)

    def loss(self, outputs: Tensor, q: Tensor, known: Tensor) -> Tensor:
        """-sum_y [q_y log g_y(x) + (1 - q_y) log(1 - g_y(x))],  g = sigmoid(outputs)

        The loss is the sum over the known classes, of which `known` is a mask, averaged over the
        patterns.
        """
        each = F.binary_cross_entropy_with_logits(outputs, q, reduction="none")
        return (each * known).sum(1).mean()

    @torch.no_grad()
    def choose_exemplars(self, B: Batch, columns: Tensor, phi: Tensor) -> Tensor:
        """Return the indices of the exemplars in D, class by class, the most important first.

        Each class has m = K / t places. For the classes in B_i new exemplars are chosen by herding
        (Algorithm 4); the other classes keep their first m exemplars (Algorithm 5). phi are the
        normalised features of D, in which the patterns of B_i come first.
        """
        m = self.options.memory // len(self.classes)
        here, seen = set(B.present.tolist()), self.seen.get_buffer("n").tolist()
        chosen = []
        for y in range(len(self.classes)):
            own = (columns == y).nonzero()[:, 0]
            if y in here:
                some = phi[own.to(phi.device)]
                mean = self.class_mean(some, own < B.count, seen[y])
                own = own[herding(some, mean, m).cpu()]
            chosen.append(own[:m])
        return torch.cat(chosen)

    def class_mean(self, phi: Tensor, is_new: Tensor, seen: int) -> Tensor:
        """Return the mean of all frames of a class; its exemplars represent `seen` earlier frames.

        phi are the features of its new frames and of its exemplars; `is_new` tells them apart.
        """
        exemplars = int((~is_new).sum())
        weight = torch.ones(len(phi), device=phi.device)
        if exemplars:
            weight[(~is_new).to(phi.device)] = max(seen, exemplars) / exemplars
        return weight @ phi / weight.sum()

    @torch.no_grad()
    def average(self, phi: Tensor, columns: Tensor, chosen: Tensor) -> None:
        """mu_y = mean of phi(p) over P_y, normalised again; unchanged without exemplars.

        P are the patterns `chosen` of D: the exemplars, or the patterns of B_i if there are more
        classes than places in the memory.
        """
        mu, y = self.exemplar_means.get_buffer("mu"), columns[chosen]
        total = torch.zeros_like(mu)
        total.index_add_(0, y.to(mu.device), phi[chosen.to(mu.device)].to(mu))
        has = torch.zeros(len(mu), 1, dtype=torch.bool)
        has[y] = True
        mu.copy_(torch.where(has.to(mu.device), F.normalize(total), mu))
