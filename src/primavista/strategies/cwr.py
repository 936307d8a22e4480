"""CWR+ and CWR*: a head with two sets of weights on a network whose weights train in batch 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from primavista.heads.base import Familiarity
from primavista.heads.frozen_cwr import cwr_familiarity
from primavista.heads.open_set import KNOWN_THRESHOLD
from primavista.heads.statistics import SufficientStatistics
from primavista.networks.base import Backbone
from primavista.nn.class_rows import ArrayBuffers
from primavista.nn.cwr_head import CWRHead
from primavista.strategies.base import Batch, EmbeddingStrategy, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import CWROptions


class CWR(EmbeddingStrategy, GradientStrategy):
    """Algorithm 1 of the paper (CWR*); with `head="cwr+"`, Algorithm 2.

    From batch 2 on Theta is fixed and the norms stay in training mode: they normalise by the
    minibatch, and their moments go on. With `features="fixed"` the moments are fixed too, so the
    features of a batch are computed once, in evaluation mode. The steps of the head are in
    `nn/cwr_head.py`.

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = CWROptions
    options: CWROptions
    known_from: float = KNOWN_THRESHOLD

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.seen: ArrayBuffers[SufficientStatistics] | None = None
        if self.open_set:
            self.seen = ArrayBuffers(SufficientStatistics.empty(self.backbone.dim, gram=False))

    @property
    def open_set(self) -> bool:
        """True if the strategy recognises strangers: the option `open_set`."""
        return self.options.open_set

    @property
    def embeds(self) -> bool:
        """True if Theta and the moments are fixed: from batch 2 on with `features="fixed"`."""
        return self.i > 1 and self.options.features == "fixed"

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`.

        Algorithm 1 starts here at line 7, because `Strategy.begin_batch` has already done line 6,
        the expansion of the output layer.
        """
        self.head.load(B.present)  # line 7
        # lines 9 and 10: Theta trains in B_1 only
        weights = self.set_trainable(B.i, representation=B.i == 1)
        sgd = self.sgd(B, weights)

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))
            sgd.step(g)

        self.train(B, sgd, step)  # line 8; section 4 sets r_max and d_max before each step
        self.head.consolidate(B.present, B.cur)  # lines 11 to 14
        if self.seen is not None:
            self.seen.group.add(self.features(B), B.columns.to(self.device))
        return self.report(B, sgd)

    @torch.no_grad()
    def familiar(self) -> Familiarity | None:
        """Return the familiarity, computed from the means of the classes; see `OpenSet`."""
        seen, head = self.seen, self.head
        if seen is None:
            return None
        assert isinstance(head, CWRHead)
        cw, group, known = head.cw, seen.group, len(self.classes)
        return self.derived.get_or_compute("familiarity", lambda: cwr_familiarity(cw, group, known))

    def phi(self, z: Tensor) -> Tensor:
        """Return the features of the backbone, from which the statistics are computed."""
        return z
