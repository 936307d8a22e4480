"""Makes a strategy by name, with the paper's hyperparameters; resolves its options."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from primavista.errors import InputError
from primavista.heads.options import make_options
from primavista.networks.base import Backbone, device_of
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy
from primavista.strategies.builtin import RENORM
from primavista.strategies.registry import (
    check_option_names,
    protocol_options,
    strategy_class,
    strategy_info,
)


def create(
    name: str,
    backbone: Backbone,
    /,
    *,
    protocol: str | None = None,
    seed: int = 0,
    **overrides: OptionValue,
) -> Strategy:
    """Create a strategy with the paper's hyperparameters.

    Args:
        name: One of `names()`.
        backbone: The network; the strategy works on a copy of it, on the same device.
        protocol: Take the limits of batch renormalisation from this column of Table 5, and the
            preset for this protocol.
        seed: The seed of every random choice.
        overrides: Options of the strategy that replace its hyperparameters.

    >>> from primavista.networks.base import build
    >>> tiny = build("mobilenet_v1", "random", width=0.25, size=32)
    >>> create("ar1*", tiny, protocol="nicv2-79", norm="bn").options.r_max
    1.25
    """
    if protocol is not None and protocol not in RENORM:
        choice = ", ".join(RENORM)
        raise InputError(
            f"there are no renormalisation limits for {protocol!r}: choose from {choice}"
        )
    make, info = strategy_class(name), strategy_info(name)
    limits = protocol_options(info, protocol) if protocol else {}
    options = {**info.options, **limits, **overrides}
    check_option_names(name, options)
    device = device_of(backbone)
    if device.type == "cpu":
        return make(backbone, seed=seed, **options)
    # strategies are made on the CPU, so that their numbers do not depend on the device, then moved
    return make(copy.deepcopy(backbone).cpu(), seed=seed, **options).to(device)


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
