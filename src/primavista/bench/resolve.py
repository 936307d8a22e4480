"""Options resolved: the paper's preset, the protocol's renormalisation, and the user's choice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from primavista.errors import InputError
from primavista.heads.options import make_options
from primavista.storage.settings import OptionValue
from primavista.strategies.registry import (
    check_option_names,
    protocol_options,
    strategy_class,
    strategy_info,
)


def all_options(strategy: str, protocol: str, options: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Return every option of a strategy by name, as it will be used.

    The names and defaults are those of the class's dataclass `OPTIONS`, which checks the values, or
    else those of its constructor, if that has arguments of its own. They are replaced by the
    preset, by the limits of batch renormalisation in `table:renormpar`, by what belongs to the
    protocol, and by `options`.

    >>> [all_options("ewc", "nicv2-79", {"lam": 1.0})[name] for name in ("r_max", "d_max", "lam")]
    [1.25, 0.5, 1.0]

    Raises:
        InputError: If there is no such strategy or option, or if a value is wrong.
    """
    made, info = strategy_class(strategy), strategy_info(strategy)
    given = {**info.options, **protocol_options(info, protocol), **options}
    check_option_names(strategy, given)
    parameters = inspect.signature(made).parameters.values()
    declared = getattr(made, "OPTIONS", None)
    if declared is not None and any(one.kind is one.VAR_KEYWORD for one in parameters):
        return asdict(make_options(declared, None, given))
    try:
        inspect.signature(made).bind(None, **given)
    except TypeError as error:
        raise InputError(f"the options {given} do not suit {strategy!r}: {error}") from error
    return {**_defaults(made), **given}


def _defaults(made: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a constructor's arguments that JSON can hold."""
    parameters = inspect.signature(made).parameters.values()
    return {
        one.name: one.default
        for one in parameters
        if one.name != "seed" and isinstance(one.default, str | int | float | None)
    }
