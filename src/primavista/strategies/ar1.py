"""AR1 and AR1*: the head of CWR+ or CWR* on a representation that trains under a guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from primavista.engine.cuda_graph import copied_in_place
from primavista.heads.cwr import HeadKind
from primavista.networks.base import Backbone
from primavista.nn.sgd import GuardRule, Importance
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import BatchWeight, Count, Lambda, MaxF, Options, Rate

PathRule = Literal["gradient", "displacement"]


@dataclass(frozen=True)
class AR1Options(Options):
    """Table 4 (`tab:hyper_core50`), AR1. From batch 2 on, the CWR layer has its own learning rate.

    Args:
        w_1: the weight of batch 1 in the importance Omega.
        w_i: the weight of each later batch in Omega.
        max_f: max_F, the upper limit of F.
        guard: `modulate` (AR1*), `penalty` (AR1) or `none` (AR1*free: nothing is guarded).
        lam: lambda of the penalty. The paper gives no value for AR1; this is the value of EWC.
        path: the path integral of Synaptic Intelligence, `gradient` or `displacement`.
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
    """AR1*: CWR* on top, and below it theta' = theta - eta (1 - F / max_F) dL_cross / dtheta

    This is the update rule of section 2.4. With `guard="penalty"` it is that of AR1,
    theta' = theta - eta dL_cross / dtheta - eta lambda F (theta - theta*). F comes from Synaptic
    Intelligence and guards the matrices of Theta that train after `freeze_from`: pointwise
    convolutions by default; norm scales and the head are not guarded. With
    `guard="none"` there is no Synaptic Intelligence (AR1*free of Pellegrini et al. 2020).

    Args:
        backbone: the network. The strategy works on a copy of it.
        settings: `seed`, `options`, and options by name; see `TrainableStrategy`.
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
        self.importance = SynapticIntelligence(guarded, o.max_f, o.path)

    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch; see `Strategy.learn_batch`.

        Algorithm 1 starts here at line 7, because `Strategy.begin_batch` has already given new
        classes their rows (line 6). Unlike in line 10, Theta trains in every batch.
        """
        o, si = self.options, self.importance
        weights = self.set_trainable(B.i)  # sections 2.3, 4: depthwise ones are fixed from B_2 on
        guarded = [weight.tensor for weight in weights if weight.guarded]
        guard = si.make_guard(o.guard, o.lam, guarded)  # section 2.4: the factor 1 - F / max_F
        self.head.load(B.present)  # Algorithm 1, line 7
        sgd = self.sgd(B, weights, guard)
        si.start(guarded)

        # On a GPU, later batches reuse the CUDA graph of this step, so it must not refer to B.
        @sgd.captured
        def step(x: Tensor, y: Tensor) -> None:
            g = sgd.gradient(self.cross_entropy(x, y), len(x))  # dL_cross / dtheta
            dtheta = sgd.step(g)  # -eta (1 - F / max_F) g, with momentum and weight decay
            si.observe(sgd.select_guarded(g), sgd.select_guarded(dtheta))  # sum(-g dtheta)

        for x, y in self.minibatches(B, sgd):  # line 8; renormalised by the schedule of section 4
            step(x, y)
        si.consolidate(guarded, o.w_1 if B.i == 1 else o.w_i)
        self.head.consolidate(B.present, B.cur, len(self.classes))  # lines 11 to 14
        return self.report(B, sgd)


class SynapticIntelligence(Importance):
    """Omega_k += w_i sum_steps(-g_k dtheta_k) / ((theta_end - theta_start)^2 + 1e-7)

    Omega is updated at the end of batch i (Zenke et al. 2017). F is Omega, clipped; g is the
    gradient of the cross-entropy alone. With `path="displacement"`, dtheta_k^2 is summed instead.
    """

    EPSILON = 1e-7

    def __init__(
        self, weights: Mapping[str, Tensor], max_f: float, path: PathRule = "gradient"
    ) -> None:
        super().__init__(weights, max_f)
        self.path = path
        self._path_sum: list[Tensor] = []
        self._theta_start: list[Tensor] = []

    @torch.no_grad()
    def start(self, theta: Sequence[Tensor]) -> None:
        """Store a copy of theta as theta_start: with a view, Omega would have the divisor 1e-7."""
        if copied_in_place(theta, self._theta_start):
            torch._foreach_zero_(self._path_sum)
            return
        self._theta_start = [t.detach().clone() for t in theta]
        self._path_sum = [torch.zeros_like(t) for t in self._theta_start]

    @torch.no_grad()
    def observe(self, g: Sequence[Tensor], dtheta: Sequence[Tensor]) -> None:
        """Add one step dtheta to the path; g is the gradient of the cross-entropy."""
        if not self._path_sum:  # nothing is guarded
            return
        if self.path == "gradient":
            torch._foreach_addcmul_(self._path_sum, list(g), list(dtheta), -1.0)
        else:
            torch._foreach_addcmul_(self._path_sum, list(dtheta), list(dtheta), 1.0)

    @torch.no_grad()
    def consolidate(self, theta: Sequence[Tensor], w: float) -> None:
        """Add the batch to Omega with its weight w_i; theta are the weights after the batch."""
        if not self._path_sum:
            return
        denominator = torch._foreach_sub(list(theta), self._theta_start)
        torch._foreach_mul_(denominator, denominator)
        torch._foreach_add_(denominator, self.EPSILON)
        omega = self.tensors
        torch._foreach_addcdiv_(omega, self._path_sum, denominator, w)
        if not self._path_sum[0].is_cuda:  # on a GPU, the captured step refers to them
            self._path_sum, self._theta_start = [], []
