"""The options of gradient strategies: the hyperparameters of the paper and their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from primavista.errors import InputError
from primavista.heads.cwr import HeadKind, WPast
from primavista.heads.dslda import DSLDAHead, StreamingStatistics
from primavista.heads.frozen_cwr import ConsolidatedWeights, FrozenCWRHead
from primavista.heads.options import (
    Features,
    Freeze,
    Moments,
    Norm,
    Range,
    Unseen,
    check_options,
)
from primavista.heads.statistics import SufficientStatistics

Count = Annotated[int, Range(1, 10_000)]
Patterns = Annotated[int, Range(1, 2**20)]
Batches = Annotated[int, Range(1, 2**31)]
Rate = Annotated[float, Range(0, 1e3)]
Share = Annotated[float, Range(0, 1)]
Lambda = Annotated[float, Range(0, 1e30)]
MaxF = Annotated[float, Range(1e-30, 1e30)]
BatchWeight = Annotated[float, Range(0, 1e6)]


@dataclass(frozen=True)
class Options:
    """The options of every gradient strategy. `_1` marks those of batch B_1.

    Args:
        epochs_1: The number of epochs of batch 1.
        lr_1: The learning rate of batch 1.
        epochs: The number of epochs from batch 2 on.
        lr: The learning rate from batch 2 on.
        lr_head: The learning rate of the head from batch 2 on, if it differs from `lr`.
        minibatch: The largest number of patterns in a minibatch.
        momentum: The momentum of stochastic gradient descent.
        weight_decay: The decay of weights that are not norm scales or biases.
        norm: `brn` (batch renormalisation) or `bn` (batch norm).
        r_max: r_max of batch renormalisation, from batch 2 on; the default is that of NICv2-391.
        d_max: d_max of batch renormalisation, from batch 2 on; the default is that of NICv2-391.
        moments_decay: The weight of the past in the moments mu and sigma, from batch 2 on.
        startup: The number of iterations of pure batch norm in batch 1; None for two epochs.
        moments: `batch_1` computes mu and sigma from batch 1; `pretrained` continues those of the
            pretrained network. Batch norm always does the latter.
        freeze: The convolutions that are fixed (section 2.3).
        freeze_from: The batch from which on they are fixed.
        head: `linear`, `cwr+` or `cwr*`.
        wpast: `sqrt` as in the paper, or `ratio`, which omits the square root.
        capacity: The initial number of outputs; it doubles when all are used.
        unseen: The treatment of classes never seen in a linear head. `negatives` draws all weights
            by MSRA and trains them from the start (a maximal head); `reset` starts them at 0 and
            sets them back to 0 after each batch.
        first_batch: False if there is no B_1: the first batch is learned as B_2 would be.
        compat: `caffe` for all differences of the authors' release; see `strategies/caffe.py`.
    """

    epochs_1: Count = 2
    lr_1: Rate = 1e-3
    epochs: Count = 2
    lr: Rate = 3.5e-5
    lr_head: Rate | None = None
    minibatch: Patterns = 128
    momentum: Share = 0.9
    weight_decay: Rate = 5e-4
    norm: Norm = "brn"
    r_max: Annotated[float, Range(1, 1e6)] = 1.5
    d_max: Annotated[float, Range(0, 1e6)] = 2.5
    moments_decay: Share = 0.9999
    startup: Annotated[int, Range(0, 2**31)] | None = None
    moments: Moments = "batch_1"
    freeze: Freeze = "depthwise"
    freeze_from: Batches = 2
    head: HeadKind = "linear"
    wpast: WPast = "sqrt"
    capacity: Annotated[int, Range(1, 2**16)] = 50
    unseen: Unseen = "negatives"
    first_batch: bool = True
    compat: str | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_compat(self.compat)


@dataclass(frozen=True)
class CWROptions(Options):
    """Table 4 (`tab:hyper_core50`), CWR*.

    Args:
        features: The features from batch 2 on, when Theta is fixed. With `train` the norms are in
            training mode: they see the minibatch, and their moments go on. With `fixed` they are in
            evaluation mode, so the features of a batch are computed once and may be cached.
        open_set: Keep the mean of each class, to recognise strangers and to calibrate the scores.
    """

    epochs_1: Count = 4
    epochs: Count = 4
    lr: Rate = 1e-3
    head: HeadKind = "cwr*"
    features: Features = "train"
    open_set: bool = False

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> FrozenCWRHead:
        """Make the head on features of a fixed network; see `HeadOptions`."""
        dim = sum(sizes)
        cw = np.zeros((self.capacity, dim), np.float32)
        weights = ConsolidatedWeights({"cw": cw, "past": np.zeros(self.capacity, np.float32)})
        seen = SufficientStatistics.empty(dim, gram=False) if self.open_set else None
        return FrozenCWRHead(weights, self, seed, seen)


@dataclass(frozen=True)
class DSLDAOptions(Options):
    """The options of DSLDA (Table 4: shrinkage 1e-4, plastic covariance).

    The options of `Options`, apart from `norm` and `first_batch`, have an effect only with `tune`.

    Args:
        shrinkage: The shrinkage of the covariance towards I.
        tune: True to train the representation on batch 1 first, with a linear head that is then
            discarded.
        base_init: True to begin with the OAS covariance of batch 1, as its authors do.
        open_set: True to recognise strangers and calibrate the probabilities.
    """

    shrinkage: Annotated[float, Range(1e-12, 1)] = 1e-4
    tune: bool = False
    base_init: bool = False
    open_set: bool = False

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> DSLDAHead:
        """Make the head; see `HeadOptions`."""
        return DSLDAHead(StreamingStatistics.empty(sum(sizes)), self)


SWITCHES = (
    "all_outputs",
    "bias_rate",
    "keep_momentum",
    "shuffle_once",
    "pad_batch",
    "train_mode_passes",
    "moments_from_zero",
    "bn_decay",
    "displacement",
)  # the differences of the authors' release; `strategies/caffe.py` explains and implements them


def check_compat(compat: str | None) -> tuple[str, ...]:
    """Return the switches that `compat` names: `caffe` for all, or some of them joined by +.

    >>> check_compat("keep_momentum+pad_batch")
    ('keep_momentum', 'pad_batch')
    """
    if compat is None:
        return ()
    if not isinstance(compat, str):
        raise InputError(f"compat must be None, 'caffe' or a text of switches; got {compat!r}")
    if compat == "caffe":
        return SWITCHES
    named = compat.split("+")
    strange = sorted(set(named) - set(SWITCHES))
    if strange:
        known = ", ".join(sorted(SWITCHES))
        raise InputError(
            f"compat has no {', '.join(strange)}: choose 'caffe', or some of {known} joined by +"
        )
    return tuple(switch for switch in SWITCHES if switch in named)
