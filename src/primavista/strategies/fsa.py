"""FSA: first-session adaptation, and the base of strategies that train on batch 1 only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from torch import nn

from primavista.heads.lda import LDAHead
from primavista.heads.options import Range
from primavista.heads.statistics import SufficientStatistics
from primavista.networks.base import Backbone
from primavista.nn.renorm import norm_layers, replace_batch_norm
from primavista.strategies.base import Batch
from primavista.strategies.frozen import FrozenStrategy
from primavista.strategies.naive import Naive
from primavista.strategies.options import Count, Options, Rate

Adapt = Literal["film", "all"]


class FirstSession(FrozenStrategy):
    """A head on a representation that may train on batch 1, with a linear head that is discarded.

    The seed is that of the order of the patterns while the representation trains.
    """

    options: Options

    def __init__(self, backbone: Backbone, **given: Any) -> None:
        super().__init__(backbone, **given)
        if self.options.norm == "brn":
            self.backbone.body = replace_batch_norm(self.backbone.body)  # as in saved files

    @property
    @abstractmethod
    def adapts(self) -> Adapt | None:
        """What trains on batch 1: the scales and offsets of the norms, everything, or nothing."""

    @property
    def embeds(self) -> bool:
        """True if the representation is frozen, that is, unless the next batch trains it."""
        return self.adapts is None or self.i != 1

    def _tune(self, B: Batch) -> tuple[float, ...]:
        """Train the representation on batch 1 like Naive."""
        if self.embeds:
            return ()
        capacity = max(self.options.capacity, len(self.classes))
        options = replace(self.options, head="linear", compat=None, capacity=capacity)
        fixed = _all_but_norms(self.backbone) if self.adapts == "film" else []
        for parameter in fixed:
            parameter.requires_grad_(False)
        naive = Naive(self.backbone, seed=int(self.seed), options=options).to(self.device)
        for parameter in fixed:
            parameter.requires_grad_(True)
        naive.on_step = self.on_step
        with torch.enable_grad():
            report = naive.learn(B.images, B.columns, progress=B.progress)
        self.backbone.load_state_dict(naive.backbone.state_dict())
        self.representation.trained(self.embedding_version)
        return report.losses


def _all_but_norms(backbone: Backbone) -> list[nn.Parameter]:
    """Return the parameters that learn, without the scales and offsets of the norms."""
    layers = [layer for layer in backbone.modules() if isinstance(layer, nn.LayerNorm)]
    norms = {id(p) for layer in [*norm_layers(backbone), *layers] for p in layer.parameters()}
    return [p for p in backbone.parameters() if p.requires_grad and id(p) not in norms]


@dataclass(frozen=True)
class FSAOptions(Options):
    """The options of FSA: those of batch 1 of `Options`, and

    Args:
        adapt: `film` trains the scales and offsets of the norms, `all` the whole network.
        shrinkage: See `LDAOptions`.
    """

    epochs_1: Count = 20
    lr_1: Rate = 0.01
    adapt: Adapt = "film"
    shrinkage: Annotated[float, Range(1e-12, 1)] | None = None

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> LDAHead:
        """Make the head; see `HeadOptions`."""
        return LDAHead(SufficientStatistics.empty(sum(sizes)), self.shrinkage)


class FSA(FirstSession):
    """First-session adaptation (Panos et al. 2023), with `LDAHead`.

    Batch 1 trains the representation with a linear head, which is discarded. From then on the
    representation is fixed, and the exact sums of LDA over all batches give the scores. Its options
    are those of `FSAOptions`.
    """

    OPTIONS = FSAOptions
    options: FSAOptions

    @property
    def adapts(self) -> Adapt:
        """What trains on batch 1: the option `adapt`."""
        return self.options.adapt
