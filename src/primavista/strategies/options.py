"""Every hyperparameter of a gradient strategy, and the switches for what the authors' release does otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from primavista.errors import InputError
from primavista.heads.cwr import WPast
from primavista.heads.linear import HeadKind
from primavista.nn.freezing import Freeze
from primavista.nn.renorm import Norm, RenormSchedule


@dataclass(frozen=True)
class Release:
    """Where the authors' Caffe code differs from the text; each switch is read by the part that it concerns."""

    all_outputs: bool = (
        False  # all outputs are known from the start; MSRA initialisation; CWR's fixed bias
    )
    keep_momentum: bool = False  # the momentum is kept from batch 2 on, not reset at each batch
    shuffle_once: bool = False  # one order for all the epochs of a batch, always seed 0
    pad_batch: bool = False  # a batch is padded to a multiple of the minibatch by its first frames, and counted so
    train_mode_features: bool = False  # CWR* from batch 2, the Fisher matrix, LwF's targets: minibatch statistics, moments drift
    moments_from_zero: bool = False  # renormalisation moments start from nothing, debiased
    displacement: bool = False  # Synaptic Intelligence sums dtheta^2


PAPER = Release()
CAFFE = Release(**{switch.name: True for switch in fields(Release)})


def release(compat: str | None) -> Release:
    """No switch for None, all of them for "caffe", or those named, joined by +.

    >>> release("keep_momentum+pad_batch").pad_batch
    True
    """
    if compat is None:
        return PAPER
    if not isinstance(compat, str):
        raise InputError(f"compat is None, 'caffe' or a text of switches; got {compat!r}")
    if compat == "caffe":
        return CAFFE
    known = {switch.name for switch in fields(Release)}
    if strange := sorted(set(compat.split("+")) - known):
        raise InputError(
            f"compat has no {', '.join(strange)}: it is 'caffe', or some of {', '.join(sorted(known))} joined by +"
        )
    return Release(**dict.fromkeys(compat.split("+"), True))


Number = int | float
RANGES: dict[str, tuple[Any, float, float]] = {
    "epochs_1": (int, 1, 10_000),
    "epochs": (int, 1, 10_000),
    "minibatch": (int, 1, 2**20),
    "capacity": (int, 1, 2**16),
    "freeze_from": (int, 1, 2**31),
    "startup": (int, 0, 2**31),
    "every": (int, 1, 2**31),
    "lr_1": (Number, 0, 1e3),
    "lr": (Number, 0, 1e3),
    "lr_head": (Number, 0, 1e3),
    "momentum": (Number, 0, 1),
    "weight_decay": (Number, 0, 1e3),
    "r_max": (Number, 1, 1e6),
    "d_max": (Number, 0, 1e6),
    "moments_decay": (Number, 0, 1),
    "max_f": (Number, 1e-30, 1e30),
    "lam": (Number, 0, 1e30),
    "w_1": (Number, 0, 1e6),
    "w_i": (Number, 0, 1e6),
    "shrinkage": (Number, 1e-12, 1),
}
MISSING = ("max_f", "lam", "w_1", "w_i", "shrinkage")  # options that only some strategies have


@dataclass(frozen=True)
class Options:
    """Naive's options, shared by every gradient strategy; `_1` marks those of batch B_1."""

    epochs_1: int = 2
    lr_1: float = 1e-3
    epochs: int = 2
    lr: float = 3.5e-5
    lr_head: float | None = None  # from batch 2, where it differs from lr
    minibatch: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4
    norm: Norm = "brn"
    r_max: float = 1.5
    d_max: float = 2.5
    moments_decay: float = 0.9999
    startup: int | None = None  # iterations of pure batch norm in B_1; None: the half
    freeze: Freeze = "depthwise"
    freeze_from: int = 2
    head: HeadKind = "linear"
    wpast: WPast = "sqrt"
    capacity: int = 50
    first_batch: bool = True  # False: there is no B_1, the first batch is learned as B_2 would be
    compat: str | None = None  # "caffe": everything that the authors' release does otherwise

    def __post_init__(self) -> None:
        allowed = {
            "norm": ("bn", "brn"),
            "freeze": ("none", "depthwise", "pointwise", "all"),
            "head": ("linear", "cwr+", "cwr*"),
            "wpast": ("sqrt", "ratio"),
            "guard": ("modulate", "penalty"),
            "path": ("gradient", "displacement"),
        }
        for name, values in allowed.items():
            if hasattr(self, name) and getattr(self, name) not in values:
                choices = ", ".join(map(str, values))
                raise InputError(f"{name}={getattr(self, name)!r} is not one of {choices}")
        release(self.compat)
        for name, (kind, low, high) in RANGES.items():
            value = getattr(self, name, None)
            if value is None and name in ("lr_head", "startup", "every", *MISSING):
                continue
            if not isinstance(value, kind) or isinstance(value, bool) or not low <= value <= high:
                what = "a whole number" if kind is int else "a number"
                raise InputError(f"{name} must be {what} from {low:g} to {high:g}; got {value!r}")
        for name in ("first_batch", "tune", "base_init", "open_set"):
            if not isinstance(getattr(self, name, False), bool):
                raise InputError(f"{name} is True or False; got {getattr(self, name)!r}")

    @property
    def release(self) -> Release:
        """The switches that `compat` sets, all together."""
        return release(self.compat)

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule of batch renormalisation."""
        return RenormSchedule(self.r_max, self.d_max, self.moments_decay, startup=self.startup)
