"""The parts of a strategy that trains by gradient descent: Theta, a head, and options."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from torch import Tensor, nn

from primavista.errors import InputError
from primavista.heads.cwr import HeadKind
from primavista.networks.base import Backbone
from primavista.nn.cwr_head import CWRHead
from primavista.nn.freezing import is_pointwise
from primavista.nn.guards import Importance
from primavista.nn.linear import LinearHead
from primavista.nn.minibatches import generator
from primavista.nn.renorm import replace_batch_norm
from primavista.options import Freeze, make_options
from primavista.strategies.base import Strategy
from primavista.strategies.options import Options, check_compat


class TrainableStrategy(Strategy):
    """A representation Theta, with batch norm replaced by batch renormalisation, and a head.

    Args:
        backbone: The network. The strategy works on a copy of it.
        seed: The seed of the order of the patterns and of the first weights of a linear head.
        options: The options; by default those of the class.
        overrides: Options by name.
    """

    OPTIONS: ClassVar[type[Options]] = Options
    IN_RELEASE: ClassVar[bool] = True  # the authors' release has it, so `compat` has an effect
    importance: Importance | None

    def __new__(cls, *args: Any, options: Options | None = None, **overrides: Any) -> Self:
        """Make an instance; with `compat`, of the class that reproduces the release."""
        compat = overrides.get("compat", None if options is None else options.compat)
        if compat is not None and cls.IN_RELEASE:
            from primavista.strategies.caffe import as_released  # it imports this module

            cls = as_released(cls, check_compat(compat))
        return super().__new__(cls)

    def __init__(
        self, backbone: Backbone, *, seed: int = 0, options: Options | None = None, **overrides: Any
    ) -> None:
        o = make_options(self.OPTIONS, options, overrides)
        _check_freezing(backbone, o.freeze)
        super().__init__(backbone, seed=seed, first_batch=o.first_batch)
        self.options = o
        self.importance = None
        fixed = {n for n, p in self.backbone.named_parameters() if not p.requires_grad}
        if o.norm == "brn":
            self.backbone.body = self._renormalised(self.backbone.body)
        # The parameters are listed again, because a batch norm without scale and shift was replaced
        # by a layer that has them, fixed at 1 and 0.
        self._fixed_by_user = fixed | {
            n for n, p in self.backbone.named_parameters() if not p.requires_grad
        }
        self.head = self._make_head(o.head, self.backbone.dim, o.capacity)

    def score_features(self, z: Tensor) -> Tensor:
        """Score features with the head; see `Strategy.score_features`."""
        return self.head.scores(z)

    def end_batch(self) -> None:
        """Count a batch that was learned; see `Strategy.end_batch`."""
        self._reset_unseen()
        super().end_batch()

    def _reset_unseen(self) -> None:
        if isinstance(self.head, LinearHead):
            self.head.reset_unseen(len(self.classes))

    def _renormalised(self, body: nn.Module) -> nn.Module:
        return replace_batch_norm(body)

    def _make_head(self, kind: HeadKind, dim: int, capacity: int) -> LinearHead | CWRHead:
        if kind == "linear":
            unseen = self.options.unseen
            drawn = generator(int(self.seed)) if unseen == "negatives" else None
            return LinearHead(dim, capacity, unseen, drawn)
        return CWRHead(dim, capacity, kind, self.options.wpast)

    def _head_names(self) -> list[str]:
        return [f"head.{name}" for name in self.head.weights()]

    def _rows_for(self, classes: int) -> int:
        """Return the capacity, doubled until all classes have a row."""
        rows = self.head.rows
        while rows < classes:
            rows *= 2
        return rows


def _check_freezing(network: nn.Module, freeze: Freeze) -> None:
    """Raise an error if the pointwise convolutions of a transformer, which has none, are fixed."""
    modules = list(network.modules())
    has_norm = any(isinstance(module, nn.LayerNorm) for module in modules)
    is_transformer = has_norm and not any(is_pointwise(module) for module in modules)
    if is_transformer and freeze in ("pointwise", "all"):
        raise InputError(
            f"freeze='{freeze}' fixes pointwise convolutions, and this network is a transformer: "
            "it has none. Choose 'depthwise', which fixes the embedding of its patches, or 'none'; "
            "cwr* and the analytic strategies fix the whole network after batch 1 or from the start"
        )
