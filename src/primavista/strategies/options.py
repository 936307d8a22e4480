"""The options of strategies: typed fields with ranges, and one function that checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from primavista.errors import InputError
from primavista.heads.cwr import WPast
from primavista.heads.linear import HeadKind, Unseen
from primavista.nn.freezing import Freeze
from primavista.nn.renorm import Moments, Norm, RenormSchedule


@dataclass(frozen=True)
class Range:
    """The values that a numeric option may have.

    Args:
        low: the least value.
        high: the greatest value.
    """

    low: float
    high: float


Count = Annotated[int, Range(1, 10_000)]
Rate = Annotated[float, Range(0, 1e3)]
Share = Annotated[float, Range(0, 1)]
Lambda = Annotated[float, Range(0, 1e30)]
MaxF = Annotated[float, Range(1e-30, 1e30)]
BatchWeight = Annotated[float, Range(0, 1e6)]


def check_options(options: object) -> None:
    """Check every field of an options dataclass by its type: `Literal`, `bool`, or a `Range`.

    Args:
        options: the instance of a dataclass.

    Raises:
        InputError: which names the option, its value and the values it may have.
    """
    kind: type = type(options)
    for name, hint in _hints(kind).items():
        _check_option(name, getattr(options, name), hint)


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _check_option(name: str, value: Any, hint: Any) -> None:
    alternatives = [hint] if get_origin(hint) in (Annotated, Literal) else get_args(hint) or [hint]
    if value is None and NoneType in alternatives:
        return
    for kind in alternatives:
        if get_origin(kind) is Literal and value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise InputError(f"{name}={value!r} is not one of {choices}")
        if kind is bool and not isinstance(value, bool):
            raise InputError(f"{name} is True or False; got {value!r}")
        if get_origin(kind) is Annotated:
            number, limits = get_args(kind)
            _check_number(name, value, number, limits)


def _check_number(name: str, value: Any, kind: type, limits: Range) -> None:
    numbers = int if kind is int else int | float
    right = isinstance(value, numbers) and not isinstance(value, bool)
    if not right or not limits.low <= value <= limits.high:
        what = "a whole number" if kind is int else "a number"
        raise InputError(
            f"{name} must be {what} from {limits.low:g} to {limits.high:g}; got {value!r}"
        )


class UnknownOptionError(InputError):
    """Raised if a strategy has no option of that name; the message lists those that it has.

    Args:
        strange: The names that were given, also an attribute of the exception.
        known: The options that there are.
        strategy: The name of the strategy, for messages.
    """

    def __init__(
        self, strange: Sequence[str], known: Sequence[str], strategy: str = "this strategy"
    ) -> None:
        choice = f"choose from {', '.join(known)}" if known else f"{strategy} has none"
        near = [match for name in strange for match in get_close_matches(name, known, 1)]
        meant = f" (did you mean {', '.join(near)}?)" if near else ""
        super().__init__(f"there is no option {', '.join(strange)}: {choice}{meant}")
        self.strange = tuple(strange)


@dataclass(frozen=True)
class Options:
    """The options of every gradient strategy. `_1` marks those of batch B_1.

    Args:
        epochs_1: the number of epochs of batch 1.
        lr_1: the learning rate of batch 1.
        epochs: the number of epochs from batch 2 on.
        lr: the learning rate from batch 2 on.
        lr_head: the learning rate of the head from batch 2 on, if it differs from `lr`.
        minibatch: the largest number of patterns in a minibatch.
        momentum: of stochastic gradient descent.
        weight_decay: of weights that are not norm scales or biases.
        norm: `brn` (batch renormalisation) or `bn` (batch norm).
        r_max: of batch renormalisation, from batch 2 on.
        d_max: of batch renormalisation, from batch 2 on.
        moments_decay: the weight of the past in the moments mu and sigma, from batch 2 on.
        startup: iterations of pure batch norm in batch 1; None is those of two epochs.
        moments: `batch_1`: mu and sigma are computed on batch 1; `pretrained`: batch 1 continues
            those of the pretrained network. Batch norm always does the latter.
        freeze: which convolutions are fixed (section 2.3).
        freeze_from: the batch from which on they are fixed.
        head: `linear`, `cwr+` or `cwr*`.
        wpast: `sqrt` as in the paper, or `ratio`, which leaves the root out.
        capacity: the number of outputs at the start; it doubles when it is full.
        unseen: the outputs of classes never seen, in a linear head: `negatives` draws all weights
            by MSRA and trains them from the start (a maximal head); `reset` starts them at 0 and
            sets them back to 0 after each batch.
        first_batch: False if there is no B_1: the first batch is learned as B_2 would be.
        compat: `caffe` for all that the authors' release does otherwise; see `strategies/caffe.py`.
    """

    epochs_1: Count = 2
    lr_1: Rate = 1e-3
    epochs: Count = 2
    lr: Rate = 3.5e-5
    lr_head: Rate | None = None
    minibatch: Annotated[int, Range(1, 2**20)] = 128
    momentum: Share = 0.9
    weight_decay: Rate = 5e-4
    norm: Norm = "brn"
    r_max: Annotated[float, Range(1, 1e6)] = 1.5
    d_max: Annotated[float, Range(0, 1e6)] = 2.5
    moments_decay: Share = 0.9999
    startup: Annotated[int, Range(0, 2**31)] | None = None
    moments: Moments = "batch_1"
    freeze: Freeze = "depthwise"
    freeze_from: Annotated[int, Range(1, 2**31)] = 2
    head: HeadKind = "linear"
    wpast: WPast = "sqrt"
    capacity: Annotated[int, Range(1, 2**16)] = 50
    unseen: Unseen = "negatives"
    first_batch: bool = True
    compat: str | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_compat(self.compat)

    def epochs_of(self, i: int) -> int:
        """Return the number of epochs of batch `i`."""
        return self.epochs_1 if i == 1 else self.epochs

    def lr_of(self, i: int) -> float:
        """Return the learning rate of the representation in batch `i`."""
        return self.lr_1 if i == 1 else self.lr

    def lr_head_of(self, i: int) -> float:
        """Return the learning rate of the head in batch `i`."""
        if i == 1:
            return self.lr_1
        return self.lr if self.lr_head is None else self.lr_head

    @property
    def renorm(self) -> RenormSchedule:
        """The schedule of batch renormalisation."""
        return RenormSchedule(
            self.r_max,
            self.d_max,
            self.moments_decay,
            startup=self.startup,
            moments="pretrained" if self.norm == "bn" else self.moments,
        )


SWITCHES = (
    "all_outputs",
    "bias_rate",
    "keep_momentum",
    "shuffle_once",
    "pad_batch",
    "train_mode_features",
    "moments_from_zero",
    "bn_decay",
    "displacement",
)  # the differences of the authors' release; `strategies/caffe.py` explains and implements them


def check_compat(compat: str | None) -> tuple[str, ...]:
    """Return the switches that `compat` names.

    Args:
        compat: None, `caffe` for all switches, or some of `SWITCHES` joined by +.

    >>> check_compat("keep_momentum+pad_batch")
    ('keep_momentum', 'pad_batch')
    """
    if compat is None:
        return ()
    if not isinstance(compat, str):
        raise InputError(f"compat is None, 'caffe' or a text of switches; got {compat!r}")
    if compat == "caffe":
        return SWITCHES
    named = compat.split("+")
    strange = sorted(set(named) - set(SWITCHES))
    if strange:
        known = ", ".join(sorted(SWITCHES))
        raise InputError(
            f"compat has no {', '.join(strange)}: it is 'caffe', or some of {known} joined by +"
        )
    return tuple(switch for switch in SWITCHES if switch in named)


def make_options(
    kind: type[Options], options: Options | None, overrides: dict[str, Any]
) -> Options:
    """Make the options of a strategy.

    Args:
        kind: the options class of the strategy.
        options: the starting point; by default the defaults of `kind`.
        overrides: options by name that replace them.

    Raises:
        InputError: if there is no such option, or if a value is not valid.
    """
    known = set(kind.__dataclass_fields__)
    strange = sorted(set(overrides) - known)
    if strange:
        raise UnknownOptionError(strange, sorted(known))
    given: dict[str, Any] = {}
    if options is not None:
        given = {name: getattr(options, name) for name in known if hasattr(options, name)}
    return kind(**{**given, **overrides})
