"""Options resolved: the paper's preset, the protocol's renormalisation, and the user's choice."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any

from primavista.errors import InputError
from primavista.networks.base import build
from primavista.storage.settings import OptionValue
from primavista.strategies.creation import create
from primavista.strategies.registry import current_names, renorm_limits, strategy_info


def preset_options(
    strategy: str, protocol: str, options: Mapping[str, OptionValue]
) -> dict[str, Any]:
    """Return the options to create a strategy with for a protocol.

    These are the limits of batch renormalisation in `table:renormpar`, replaced by `options`.

    Args:
        strategy: the name of the strategy.
        protocol: the name of the protocol.
        options: what the user chose.

    >>> preset_options("ewc", "nicv2-79", {"lam": 1.0})
    {'r_max': 1.25, 'd_max': 0.5, 'moments_decay': 0.9999, 'lam': 1.0}
    >>> preset_options("ridge", "nicv2-79", {})
    {}
    """
    return {**renorm_limits(strategy_info(strategy), protocol), **current_names(options)}


def all_options(strategy: str, protocol: str, options: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Return every option of a strategy by name, as it will be used.

    Args:
        strategy: the name of the strategy.
        protocol: the name of the protocol.
        options: what the user chose.

    Raises:
        InputError: if there is no such strategy or option, or if a value is wrong.
    """
    found, _ = _resolved(strategy, preset_options(strategy, protocol, options))
    return dict(found)


def freezes(strategy: str, options: Mapping[str, OptionValue]) -> bool:
    """Return whether the representation of a strategy is eventually frozen.

    Another engine than torch may then compute its features.

    Args:
        strategy: the name of the strategy.
        options: its options.
    """
    return _resolved(strategy, options)[1]


def _resolved(strategy: str, options: Mapping[str, OptionValue]) -> tuple[dict[str, Any], bool]:
    return _options_of_instance(strategy, json.dumps(dict(options), sort_keys=True))


@cache
def _options_of_instance(strategy: str, options: str) -> tuple[dict[str, Any], bool]:
    """Return all options of a strategy, and whether its representation is eventually frozen.

    The strategy is created on a tiny network, so that options and checks are exactly those of the
    run, for strategies of other packages too.
    """
    given: dict[str, Any] = json.loads(options)
    backbone = build("mobilenet_v1", "random", width=0.0625, size=32)
    try:
        made = create(strategy, backbone, **given)
    except TypeError as error:
        raise InputError(f"the options {given} do not suit {strategy!r}: {error}") from error
    found = getattr(made, "options", None)
    if is_dataclass(found) and not isinstance(found, type):
        return asdict(found), made.freezes
    return {**_defaults(type(made)), **given}, made.freezes


def _defaults(made: type) -> dict[str, Any]:
    """Return the defaults of a constructor's arguments that JSON can hold."""
    parameters = inspect.signature(made).parameters.values()
    return {
        one.name: one.default
        for one in parameters
        if one.name != "seed" and isinstance(one.default, str | int | float | None)
    }
