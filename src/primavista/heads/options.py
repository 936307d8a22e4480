"""Options as dataclasses: the type of each field declares its valid values, which are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from primavista.errors import InputError

if TYPE_CHECKING:
    from primavista.heads.base import Head

Made = TypeVar("Made")

# The values of the options of gradient strategies.
Norm = Literal["bn", "brn"]
Moments = Literal["batch_1", "pretrained"]
Freeze = Literal["none", "depthwise", "pointwise", "all"]
Features = Literal["train", "fixed"]
Unseen = Literal["negatives", "reset"]


@dataclass(frozen=True)
class Range:
    """The range of a numeric option, as an annotation of its type; both ends are valid."""

    low: float
    high: float


@dataclass(frozen=True)
class HeadOptions:
    """The options of a strategy that only has a head on fixed features; they make that head."""

    def __post_init__(self) -> None:
        check_options(self)

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> Head:
        """Make the head, in numpy; it has learned nothing.

        Args:
            sizes: The number of features of each place of the network.
            priors: The prior weight of each place.
            seed: The seed of random choices.
        """
        raise NotImplementedError


def check_options(options: object) -> None:
    """Check every field of an options dataclass by its type: `Literal`, `bool`, or a `Range`.

    Each of them may be optional, such as `Annotated[float, Range(0, 1)] | None`. Fields of other
    types are not checked. An InputError names the first invalid option and its valid values.
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
    optional = NoneType in alternatives
    if value is None and optional:
        return
    none = ", or None" if optional else ""
    for kind in alternatives:
        if get_origin(kind) is Literal and value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise InputError(f"{name}={value!r} is not one of {choices}{none}")
        if kind is bool and not isinstance(value, bool):
            raise InputError(f"{name} must be True or False{none}; got {value!r}")
        if get_origin(kind) is Annotated:
            number, limits = get_args(kind)
            if not _is_within(value, number, limits):
                what = "a whole number" if number is int else "a number"
                valid = f"{what} from {limits.low:g} to {limits.high:g}{none}"
                raise InputError(f"{name} must be {valid}; got {value!r}")


def _is_within(value: Any, kind: type, limits: Range) -> bool:
    numbers = int if kind is int else int | float
    is_number = isinstance(value, numbers) and not isinstance(value, bool)
    return is_number and limits.low <= value <= limits.high


def make_options(kind: type[Made], options: object, overrides: dict[str, Any]) -> Made:
    """Make the options of a strategy.

    Args:
        kind: The options class of the strategy, a dataclass; `check_options` in its `__post_init__`
            checks the values.
        options: The starting point, of this or of another class; None for the defaults of `kind`.
        overrides: Options by name, which replace those of the starting point.

    Raises:
        InputError: if there is no such option, or if a value is not valid.
    """
    own: type = kind
    known = set(_hints(own))
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise UnknownOptionError(unknown, sorted(known))
    given: dict[str, Any] = {}
    if options is not None:
        given = {name: getattr(options, name) for name in known if hasattr(options, name)}
    return kind(**{**given, **overrides})


class UnknownOptionError(InputError):
    """Raised if a strategy has no option of that name; the message lists the existing options.

    Args:
        strange: The unknown names, also an attribute of the exception.
        known: The names of the existing options.
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
