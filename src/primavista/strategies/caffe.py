"""The authors' release: where their Caffe code differs from the paper's text.

Each difference is one switch of `compat`, and one class here that overrides the paper's strategy.
`compat="caffe"` is all of them; some can be joined by +, as in `compat="keep_momentum+pad_batch"`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.frames import Frames
from primavista.heads.linear import CWRHead, HeadKind, LinearHead
from primavista.nn.class_rows import PerWeight
from primavista.nn.guards import PathRule
from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.nn.norm_replacement import replace_batch_norm
from primavista.nn.renorm import BatchRenorm, set_limits
from primavista.nn.sgd import Weight
from primavista.nn.shuffling import minibatch_count
from primavista.progress import Progress
from primavista.strategies.base import Batch
from primavista.strategies.gradient import GradientStrategy


class AllOutputs(GradientStrategy):
    """All outputs are known from the start; linear heads begin by MSRA, CWR's have a fixed bias."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.classes = torch.arange(self.options.capacity)

    @property
    def open_set(self) -> bool:
        """False: it knows classes that were never seen, so it cannot tell strangers."""
        return False

    def begin_batch(
        self,
        inputs: Frames | Tensor,
        labels: Tensor,
        sessions: Tensor | None = None,
        progress: Progress | None = None,
    ) -> Batch:
        """Make the next batch; see `Strategy.begin_batch`. Labels are the numbers of outputs."""
        if int(labels.max()) >= self.options.capacity:
            last = self.options.capacity - 1
            raise InputError(f"compat='caffe' has all outputs from the start: labels 0 to {last}")
        return super().begin_batch(inputs, labels, sessions, progress)

    def _make_head(self, kind: HeadKind, dim: int, capacity: int) -> LinearHead | CWRHead:
        if kind == "linear":
            return LinearHead(dim, capacity, generator=generator(int(self.seed)))
        return ReleasedCWRHead(dim, capacity, kind, self.options.wpast)


class ReleasedCWRHead(CWRHead):
    """CWR's head with the bias of the release, which is fixed in training.

    It is 1 for outputs absent from the batch and for the classes of batch 1, and 0 for later ones.
    """

    bias: Tensor
    training_bias: Tensor

    def __init__(self, dim: int, capacity: int, *settings: Any) -> None:
        super().__init__(dim, capacity, *settings)
        self.add_rows("bias", torch.zeros(capacity))
        self.add_rows("training_bias", torch.zeros(capacity), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Return the outputs in training, tw z + bias; see `CWRHead.forward`."""
        return F.linear(z, self.tw, self.training_bias)

    def scores(self, z: Tensor) -> Tensor:
        """Return the scores, cw z + bias; see `CWRHead.scores`."""
        return F.linear(z, self.cw, self.bias)

    @torch.no_grad()
    def load(self, columns: Tensor, first: bool) -> None:
        """Load tw, and set the bias for the batch; see `CWRHead.load`."""
        super().load(columns, first)
        columns = columns.to(self.cw.device, non_blocking=True)
        if first:
            self.bias[columns] = 1
        self.training_bias.fill_(1)
        self.training_bias[columns] = self.bias[columns]


class KeepMomentum(GradientStrategy):
    """The momentum goes on from batch to batch, from batch 2 on; the text resets it."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        weights = self.free_weights(2, theta=not self.freezes)
        self.velocity = PerWeight({w.name: w.tensor for w in weights}, self._head_names())

    def _velocity(self, weights: list[Weight], i: int) -> list[Tensor] | None:
        if i == 1:
            return None
        kept = dict(zip(self.velocity.names, self.velocity.tensors, strict=True))
        return [kept[weight.name] for weight in weights]


class ShuffleOnce(GradientStrategy):
    """One order of the patterns for all epochs of a batch, always with seed 0."""

    def shuffled(self, B: Batch, epoch: int) -> Any:
        """Return the minibatches of an epoch; see `GradientStrategy.shuffled`."""
        return shuffled_minibatches(B.count, self.options.minibatch, generator(0), self.device)


class PadBatch(GradientStrategy):
    """A batch is padded to a multiple of the minibatch by its first frames, and counted so."""

    def begin_batch(
        self,
        inputs: Frames | Tensor,
        labels: Tensor,
        sessions: Tensor | None = None,
        progress: Progress | None = None,
    ) -> Batch:
        """Make the next batch, padded; see `Strategy.begin_batch`."""
        size = self.options.minibatch
        padded = minibatch_count(len(labels), size) * size
        index = torch.arange(padded) % len(labels)
        return super().begin_batch(inputs, labels[index], None, progress)

    def features(self, B: Batch) -> Tensor:
        """Return the features of a padded batch; see `Strategy.features`."""
        z = super().features(B)
        return z if len(z) == B.count else z[torch.arange(B.count) % len(z)]

    def _select(self, inputs: Frames | Tensor, index: Tensor) -> Tensor:
        return super()._select(inputs, index % len(inputs))


class TrainModeFeatures(GradientStrategy):
    """Features that the text computes in evaluation mode are computed in training mode.

    Norms then use the moments of the minibatch. It concerns CWR* from batch 2 on, the Fisher matrix
    of EWC, and the targets of LwF. The moments of batch renormalisation move meanwhile.
    """

    @property
    def embeds(self) -> bool:
        """False: features computed now do not stay valid, since the moments move."""
        return False

    def targets(self, B: Batch) -> Tensor:
        """Return LwF's targets, from features in training mode."""
        lam = self.options.lam  # type: ignore[attr-defined]
        with torch.no_grad():
            onehot = F.one_hot(B.columns, self.head.rows).to(self.device, torch.float32)
            previous = self.head.scores(self._train_mode_features(B)).softmax(1)
            return (1 - lam) * onehot + lam * previous  # type: ignore[no-any-return]

    def _train_mode_features(self, B: Batch) -> Tensor:
        self._train_mode(B)
        per_epoch = minibatch_count(B.count, self.options.minibatch)
        set_limits(self.backbone, self.options.renorm.at(B.i, 0, per_epoch))
        minibatches = torch.arange(B.count).split(self.options.minibatch)
        inputs = self.on_device(B).inputs
        return torch.cat([self.backbone(self._select(inputs, index)) for index in minibatches])

    def _fisher_mode(self, B: Batch) -> None:
        self._train_mode(B)


class MomentsFromZero(GradientStrategy):
    """The moments of batch renormalisation start from nothing, debiased."""

    def _renormalised(self, body: nn.Module) -> nn.Module:
        return replace_batch_norm(body, DebiasedBatchRenorm)


class DebiasedBatchRenorm(BatchRenorm):
    """Batch renormalisation whose averages start from nothing and are divided by 1 - decay^t.

    The variance is averaged, with the correction m / (m - 1); the buffer `sigma` holds it.
    """

    mass: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__(channels, eps)
        self.register_buffer("mass", torch.zeros(()))  # 1 - decay^t
        self.sigma.zero_()

    def start_from(self, mean: Tensor, variance: Tensor) -> None:
        """Ignore the moments of the batch norm that it replaces."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the debiased mu and sigma."""
        mass = torch.where(self.mass > 0, self.mass, 1.0)
        variance = torch.where(self.mass > 0, self.sigma / mass, 1.0)
        return self.mu / mass, (variance + self.eps).sqrt()

    def _fuses(self, x: Tensor) -> bool:
        return False

    @torch.no_grad()
    def _update(self, mu_mb: Tensor, sigma_mb: Tensor, m: int) -> None:
        variance = (sigma_mb.square() - self.eps) * (m / max(m - 1, 1))
        self.mass.lerp_(torch.ones_like(self.mass), 1 - self.limits[2])
        super()._update(mu_mb, variance, m)


class Displacement(GradientStrategy):
    """Synaptic Intelligence sums dtheta^2: its stored gradient was overwritten by the update."""

    def _path(self) -> PathRule:
        return "displacement"


SWITCHED: dict[str, type[Any]] = {
    "all_outputs": AllOutputs,
    "keep_momentum": KeepMomentum,
    "shuffle_once": ShuffleOnce,
    "pad_batch": PadBatch,
    "train_mode_features": TrainModeFeatures,
    "moments_from_zero": MomentsFromZero,
    "displacement": Displacement,
}


@cache
def as_released(kind: type[Any], switches: tuple[str, ...]) -> type[Any]:
    """Return a strategy's class with some of the release's differences.

    Args:
        kind: the class of a strategy of the paper.
        switches: names of `SWITCHED`.
    """
    if any(issubclass(kind, SWITCHED[switch]) for switch in switches):
        return kind
    # keep_momentum is last in the order of construction: it needs the head of all_outputs
    order = sorted(switches, key=lambda switch: switch != "keep_momentum")
    return type(kind.__name__, (*(SWITCHED[switch] for switch in order), kind), {})
