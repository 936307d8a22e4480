"""The authors' release: the differences of their Caffe code from the paper or from our defaults.

Each difference is one switch of `compat`, and one class here that overrides the paper's strategy.
`compat="caffe"` turns all switches on; single switches are joined by +, as in
`compat="keep_momentum+pad_batch"`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.heads.cwr import HeadKind
from primavista.heads.shuffling import minibatch_count
from primavista.media.frames import Frames
from primavista.nn.cwr_head import CWRHead
from primavista.nn.guards import PerWeight, SynapticIntelligence
from primavista.nn.linear import LinearHead
from primavista.nn.minibatches import generator
from primavista.nn.renorm import BatchRenorm, RenormSchedule, replace_batch_norm, set_limits
from primavista.nn.sgd import Weight
from primavista.strategies.base import Batch
from primavista.strategies.gradient import GradientStrategy


class AllOutputs(GradientStrategy):
    """All outputs are known from the start; linear heads begin by MSRA, CWR has a fixed bias."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.classes = torch.arange(self.options.capacity)

    @property
    def open_set(self) -> bool:
        """False: classes that were never seen count as known, so strangers are not recognised."""
        return False

    def _labels_to_learn(self, labels: Tensor) -> Tensor:
        """Reject labels that are not the index of an output, before anything changes."""
        if int(labels.max()) >= self.options.capacity:
            last = self.options.capacity - 1
            raise InputError(f"compat='caffe' has all outputs from the start: labels 0 to {last}")
        if isinstance(self.head, ReleasedCWRHead):
            self.head.in_batch_1 = self.i == 1
        return super()._labels_to_learn(labels)

    def _make_head(self, kind: HeadKind, dim: int, capacity: int) -> LinearHead | CWRHead:
        if kind == "linear":
            return LinearHead(dim, capacity, generator=generator(int(self.seed)))
        return ReleasedCWRHead(dim, capacity, kind, self.options.wpast)


class ReleasedCWRHead(CWRHead):
    """The head of CWR with the bias of the release, which is fixed during training.

    The bias is 1 for outputs absent from the batch and for the classes of batch 1, and 0 for
    classes that come later.
    """

    bias: Tensor
    training_bias: Tensor

    def __init__(self, dim: int, capacity: int, *settings: Any) -> None:
        super().__init__(dim, capacity, *settings)
        self.in_batch_1 = False  # set by `AllOutputs` when a batch begins
        self.add_rows("bias", torch.zeros(capacity))
        self.add_rows("training_bias", torch.zeros(capacity), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Return the outputs during training, tw z + bias; see `CWRHead.forward`."""
        return F.linear(z, self.tw, self.training_bias)

    def scores(self, z: Tensor) -> Tensor:
        """Return the scores, cw z + bias; see `CWRHead.scores`."""
        return F.linear(z, self.cw, self.bias)

    @torch.no_grad()
    def load(self, present: Tensor) -> None:
        """Load tw, and set the bias for the batch; see `CWRHead.load`."""
        super().load(present)
        present = present.to(self.cw.device, non_blocking=True)
        if self.in_batch_1:
            self.bias[present] = 1
        self.training_bias.fill_(1)
        self.training_bias[present] = self.bias[present]


class BiasRate(GradientStrategy):
    """The bias of a linear head has twice the learning rate of its weights."""

    def set_trainable(self, i: int, *, representation: bool = True) -> list[Weight]:
        """Select the weights that batch `i` trains; see `GradientStrategy.set_trainable`."""
        weights = super().set_trainable(i, representation=representation)
        return [replace(w, lr=2 * w.lr) if w.name == "head.bias" else w for w in weights]


class KeepMomentum(GradientStrategy):
    """Momentum continues from batch to batch, from batch 2 on; by default it restarts at 0."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        weights = self.set_trainable(2, representation=not self.freezes)
        self.velocity = PerWeight({w.name: w.tensor for w in weights}, self._head_names())

    def _velocity(self, weights: list[Weight], i: int) -> list[Tensor] | None:
        if i == 1:
            return None
        kept = dict(zip(self.velocity.names, self.velocity.tensors, strict=True))
        return [kept[weight.name] for weight in weights]


class ShuffleOnce(GradientStrategy):
    """One order of the patterns for all epochs of a batch: numpy's, always with seed 0."""

    def shuffled(self, B: Batch, epoch: int) -> Any:
        """Return the minibatches of an epoch; see `GradientStrategy.shuffled`."""
        order = torch.from_numpy(np.random.RandomState(0).permutation(B.count)).to(self.device)
        return iter(order.tensor_split(minibatch_count(B.count, self.options.minibatch)))


class PadBatch(GradientStrategy):
    """A batch is padded to a multiple of the minibatch, and the padding counts as patterns.

    The padding repeats the first frames in front of the batch.
    """

    def _labels_to_learn(self, labels: Tensor) -> Tensor:
        size = self.options.minibatch
        padded = torch.arange(minibatch_count(len(labels), size) * size)
        return super()._labels_to_learn(labels[self._frame(padded, len(labels))])

    def features(self, B: Batch) -> Tensor:
        """Return the features of a padded batch; see `Strategy.features`."""
        z = super().features(B)
        return z if len(z) == B.count else z[self._frame(torch.arange(B.count), len(z))]

    def _select(self, inputs: Frames | Tensor, index: Tensor) -> Tensor:
        return super()._select(inputs, self._frame(index, len(inputs)))

    def _frame(self, index: Tensor, count: int) -> Tensor:
        """Return the index of the frame, out of `count`, at each index of the padded batch."""
        size = self.options.minibatch
        missing = minibatch_count(count, size) * size - count
        return torch.where(index < missing, index % count, index - missing)


class TrainModePasses(GradientStrategy):
    """A forward pass that takes no step is in training mode too, so it moves the moments.

    By default the pass for the Fisher matrix of EWC leaves the moments alone, and the pass for the
    targets of LwF is in evaluation mode.
    """

    def _target_features(self, B: Batch) -> Tensor:
        self._train_mode(B)
        set_limits(self.backbone, self.renorm.at(B.i, 0, self._per_epoch(B)))
        minibatches = torch.arange(B.count).split(self.options.minibatch)
        inputs = self.on_device(B).inputs
        return torch.cat([self.backbone(self._select(inputs, index)) for index in minibatches])

    def _fisher_mode(self, B: Batch, k: int) -> None:
        """Continue the schedule of renormalisation after the last step of the batch."""
        self._train_mode(B)
        per_epoch = self._per_epoch(B)
        t = self.epochs_of(B.i) * per_epoch + k
        set_limits(self.backbone, self.renorm.at(B.i, t, per_epoch))


class MomentsFromZero(GradientStrategy):
    """The moments average the variance, and batch 1 computes them from zero.

    The option `moments` has no effect. The release keeps sums and a counter, both from zero, and
    divides the sums by the counter. Its `set_brn_past_weight` sets the counter to 10,000 before
    batch 2, so that from then on a minibatch has the weight 1e-4, as in the schedule of the paper.
    """

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule of batch renormalisation, for any value of the option `moments`."""
        if self.options.norm == "bn":
            return super().renorm
        return replace(super().renorm, moments="batch_1")

    def _renormalised(self, body: nn.Module) -> nn.Module:
        return replace_batch_norm(body, ReleasedBatchRenorm)


class ReleasedBatchRenorm(BatchRenorm):
    """Batch renormalisation that averages the variance instead of its square root.

    The variance has the correction m / (m - 1), where m is the number of values per channel. It is
    stored in the buffer `sigma`.
    """

    FUSES = False

    def start_from(self, mean: Tensor, variance: Tensor) -> None:
        """Start from the moments of a batch norm; see `BatchRenorm.start_from`."""
        self.mu.copy_(mean)
        self.sigma.copy_(variance)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the moments mu and sigma."""
        return self.mu, (self.sigma + self.eps).sqrt()

    @torch.no_grad()
    def _update(self, mu_mb: Tensor, sigma_mb: Tensor, m: int) -> None:
        variance = (sigma_mb.square() - self.eps) * (m / max(m - 1, 1))
        super()._update(mu_mb, variance, m)


class BatchNormDecay(GradientStrategy):
    """The past has the weight 0.999 in moving averages with `norm="bn"`, the default of Caffe."""

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule; batch norm uses only its weight of the past."""
        if self.options.norm == "bn":
            return replace(super().renorm, decay_1=0.999, decay=0.999)
        return super().renorm


class Displacement(GradientStrategy):
    """Synaptic Intelligence sums dtheta^2, because the update overwrites its stored gradient."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if isinstance(self.importance, SynapticIntelligence):
            self.importance.path = "displacement"


SWITCH_CLASSES: dict[str, type[Any]] = {
    "all_outputs": AllOutputs,
    "bias_rate": BiasRate,
    "keep_momentum": KeepMomentum,
    "shuffle_once": ShuffleOnce,
    "pad_batch": PadBatch,
    "train_mode_passes": TrainModePasses,
    "moments_from_zero": MomentsFromZero,
    "bn_decay": BatchNormDecay,
    "displacement": Displacement,
}


@cache
def as_released(kind: type[Any], switches: tuple[str, ...]) -> type[Any]:
    """Return the class of a strategy with some of the differences of the release.

    Args:
        kind: The class of a strategy of the paper.
        switches: Names of `SWITCH_CLASSES`.
    """
    if any(issubclass(kind, SWITCH_CLASSES[switch]) for switch in switches):
        return kind
    # The first base class finishes `__init__` last; keep_momentum needs the head of all_outputs.
    order = sorted(switches, key=lambda switch: switch != "keep_momentum")
    return type(kind.__name__, (*(SWITCH_CLASSES[switch] for switch in order), kind), {})
