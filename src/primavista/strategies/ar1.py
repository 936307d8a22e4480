"""AR1 and AR1*: the head of CWR+ or CWR*, and a representation that goes on learning under Synaptic Intelligence."""

from __future__ import annotations

from dataclasses import dataclass

from primavista.backbones.base import Backbone
from primavista.heads.linear import HeadKind
from primavista.nn.guards import Guard, Path, SynapticIntelligence
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options


@dataclass(frozen=True)
class AR1Options(Options):
    """`tab:hyper_core50`, AR1: two learning rates from batch 2, one for the CWR layer and one for the others."""

    epochs_1: int = 4
    epochs: int = 4
    lr: float = 1e-4
    lr_head: float | None = 1e-3
    head: HeadKind = "cwr*"
    w_1: float = 0.5
    w_i: float = 0.5
    max_f: float = 0.001
    guard: Guard = "modulate"
    lam: float = 2e6  # of the penalty; the paper names none for AR1, this is EWC's
    path: Path = "gradient"


class AR1(GradientStrategy):
    """AR1*: CWR* on top, and below it theta' = theta - eta (1 - F / max_F) dL_cross / dtheta   (paper, section 2.4)

    `guard="penalty"` is AR1's own rule, theta' = theta - eta dL_cross / dtheta - eta lambda F (theta - theta*). F comes from
    Synaptic Intelligence; norm parameters and the head are not guarded.
    """

    OPTIONS = AR1Options
    GUARDED = "convolutions"
    options: AR1Options
    importance: SynapticIntelligence

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: object,
    ) -> None:
        super().__init__(backbone, seed=seed, options=options, **overrides)
        path: Path = "displacement" if self.release.displacement else self.options.path
        self.importance = SynapticIntelligence(self._to_guard(), self.options.max_f, path)

    def learn_batch(self, batch: Batch) -> LearnReport:
        options, si = self.options, self.importance
        weights = self._weights(batch.i)
        theta = [weight.tensor for weight in weights if weight.guarded]
        modulation = si.modulation() if options.guard == "modulate" else None
        pull = si.pull(options.lam, theta) if options.guard == "penalty" else None
        self.head.load(batch.present, batch.i == 1)
        si.start(theta)
        losses = self._sgd(batch, weights, modulation=modulation, pull=pull, si=si)
        si.finish(theta, options.w_1 if batch.i == 1 else options.w_i)
        self.head.consolidate(batch.present, batch.cur, len(self.classes))
        return self._report(batch, losses, si)
