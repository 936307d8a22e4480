"""Options as dataclasses: the type of each field declares its valid values, which are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from primavista.errors import InputError

Made = TypeVar("Made")

# The values of the options of gradient strategies.
Norm = Literal["bn", "brn"]
Moments = Literal["batch_1", "pretrained"]
Freeze = Literal["none", "depthwise", "pointwise", "all"]
Unseen = Literal["negatives", "reset"]


@dataclass(frozen=True)
class Range:
    """The range of a numeric option, as an annotation of its type.

    Args:
        low: the smallest valid value.
        high: the largest valid value.
    """

    low: float
    high: float


def check_options(options: object) -> None:
    """Check every field of an options dataclass by its type: `Literal`, `bool`, or a `Range`.

    Args:
        options: the instance of a dataclass.

    Raises:
        InputError: if a value is invalid; the message names the option and its valid values.
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
            raise InputError(f"{name} must be True or False; got {value!r}")
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


def make_options(kind: type[Made], options: object, overrides: dict[str, Any]) -> Made:
    """Make the options of a strategy.

    Args:
        kind: the options class of the strategy, a dataclass.
        options: the starting point, of this or of another class; None for the defaults of `kind`.
        overrides: options by name, which replace those of the starting point.

    Raises:
        InputError: if there is no such option, or if a value is not valid.
    """
    own: type = kind
    known = set(_hints(own))
    strange = sorted(set(overrides) - known)
    if strange:
        raise UnknownOptionError(strange, sorted(known))
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
