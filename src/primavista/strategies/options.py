"""Every hyperparameter of a gradient strategy, and the switches for what the authors' release does otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields

from primavista.errors import InputError
from primavista.parts.freezing import Freeze
from primavista.parts.head import HeadKind, WPast
from primavista.parts.renorm import Norm, RenormSchedule


@dataclass(frozen=True)
class Release:
    """Where the authors' Caffe code differs from the text; each switch is read by the part that it concerns."""

    all_outputs: bool = False  # all outputs are known from the start; MSRA initialisation; CWR's fixed bias
    keep_momentum: bool = False  # the momentum is kept from batch 2 on, not reset at each batch
    shuffle_once: bool = False  # one order for all the epochs of a batch, always seed 0
    pad_batch: bool = False  # a batch is padded to a multiple of the minibatch by its first frames, and counted so
    train_mode_features: bool = (
        False  # CWR* from batch 2, the Fisher matrix, LwF's targets: minibatch statistics, moments drift
    )
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
    if compat == "caffe":
        return CAFFE
    known = {switch.name for switch in fields(Release)}
    if strange := sorted(set(compat.split("+")) - known):
        raise InputError(
            f"compat has no {', '.join(strange)}: it is 'caffe', or some of {', '.join(sorted(known))} joined by +"
        )
    return Release(**dict.fromkeys(compat.split("+"), True))


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
    past: float = 0.9999
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
            "norm": ("bn", "brn"), "freeze": ("none", "depthwise", "pointwise", "all"),
            "head": ("linear", "cwr+", "cwr*"), "wpast": ("sqrt", "ratio"), "guard": ("modulate", "penalty"),
            "path": ("gradient", "displacement"),
        }  # fmt: skip
        for name, values in allowed.items():
            if hasattr(self, name) and getattr(self, name) not in values:
                choices = ", ".join(map(str, values))
                raise InputError(f"{name}={getattr(self, name)!r} is not one of {choices}")
        release(self.compat)
        for name in ("epochs_1", "epochs", "minibatch", "capacity", "freeze_from"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InputError(f"{name} must be a whole number, at least 1; got {getattr(self, name)!r}")
        for name in ("lr_1", "lr", "lr_head", "momentum", "weight_decay", "r_max", "d_max", "past"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise InputError(f"{name} must be a number, at least 0; got {value!r}")

    @property
    def release(self) -> Release:
        """The switches that `compat` sets, all together."""
        return release(self.compat)

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule of batch renormalisation."""
        return RenormSchedule(self.r_max, self.d_max, self.past, startup=self.startup)
