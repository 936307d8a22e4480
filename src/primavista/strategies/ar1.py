"""AR1 and AR1*: the head of CWR+ or CWR* on a representation that trains under a guard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from primavista.heads.cwr import HeadKind
from primavista.networks.base import Backbone
from primavista.nn.guards import GuardRule, PathRule, SynapticIntelligence
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import BatchWeight, Count, Lambda, MaxF, Options, Rate


@dataclass(frozen=True)
class AR1Options(Options):
    """Table 4 (`tab:hyper_core50`), AR1. From batch 2 on, the CWR layer has its own learning rate.

    Args:
        w_1: The weight of batch 1 in the importance Omega.
        w_i: The weight of each later batch in Omega.
        max_f: max_F, the upper limit of F.
        guard: `modulate` (AR1*), `penalty` (AR1) or `none` (AR1*free: nothing is guarded).
        lam: lambda of the penalty. The paper gives no value for AR1; this is the value of EWC.
        path: The path integral of Synaptic Intelligence, `gradient` or `displacement`.
    """

    epochs_1: Count = 4
    epochs: Count = 4
    lr: Rate = 1e-4
    lr_head: Rate | None = 1e-3
    head: HeadKind = "cwr*"
    w_1: BatchWeight = 0.5
    w_i: BatchWeight = 0.5
    max_f: MaxF = 0.001
    guard: GuardRule = "modulate"
    lam: Lambda = 2e6
    path: PathRule = "gradient"


class AR1(GradientStrategy):
    """AR1*: CWR* on top; below it theta' = theta - eta (1 - F / max_F) dL_cross / dtheta

    This is the update rule of section 2.4, equation 6. With `guard="penalty"` it is that of AR1,
    equation 5: theta' = theta - eta dL_cross / dtheta - eta lambda F (theta - theta*). F comes from
    Synaptic Intelligence and guards the matrices of Theta that train after `freeze_from`: pointwise
    convolutions by default; norm scales and the head are not guarded. With `guard="none"` there is
    no Synaptic Intelligence (AR1*free of Pellegrini et al. 2020).

    Args:
        backbone: The network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `GradientStrategy`.
    """

    OPTIONS = AR1Options
    options: AR1Options
    importance: SynapticIntelligence

    def __init__(self, backbone: Backbone, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        o = self.options
        # Only the weights that still train after `freeze_from`: fixed weights need no guard.
        guarded = {
            weight.name: weight.tensor
            for weight in self.set_trainable(max(o.freeze_from, 2))
            if o.guard != "none" and weight.name.startswith("backbone.") and weight.tensor.ndim > 1
        }
        rule, lam = o.guard, o.lam
        self.importance = SynapticIntelligence(guarded, o.max_f, o.path, rule=rule, lam=lam)

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`.

        Algorithm 1 starts here at line 7, because `Strategy.begin_batch` has already given new
        classes their rows (line 6). Unlike in line 10, Theta trains in every batch.
        """
        self.head.load(B.present)  # line 7
        weights = self.set_trainable(B.i)  # sections 2.3, 4: depthwise ones are fixed from B_2 on
        sgd = self.sgd(B, weights, self.si.guard(weights))  # equation 6; the path of SI starts here

        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y))  # dL_cross / dtheta
            dtheta = sgd.step(g)  # -eta (1 - F / max_F) g, with momentum and weight decay
            self.si.observe(g, dtheta)  # sum(-g dtheta)

        self.train(B, sgd, step)  # line 8; section 4 sets r_max and d_max before each step
        self.si.consolidate(self.w(B.i))
        self.head.consolidate(B.present, B.cur)  # lines 11 to 14
        return self.report(B, sgd)

    @property
    def si(self) -> SynapticIntelligence:
        """Synaptic Intelligence, which measures the importance F of the guarded weights."""
        return self.importance

    def w(self, i: int) -> float:
        """Return w_i, the weight of batch `i` in Omega."""
        return self.options.w_1 if i == 1 else self.options.w_i
