"""The options of a strategy as they will be used: the paper's preset, the protocol's renormalisation, what was asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any

from primavista.backbones.base import Backbone
from primavista.backbones.registry import build
from primavista.errors import InputError
from primavista.strategies.registry import RENORM, STRATEGIES, create


def preset_options(
    strategy: str, protocol: str, core50: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """What to give `create`: `table:renormpar` for the protocol, under `options`.

    The 48 iterations of start-up are CORe50's; on other data they are the first half of batch 1's.

    >>> preset_options("ewc", "nicv2-79", False, {"lam": 1.0})
    {'r_max': 1.25, 'd_max': 0.5, 'moments_decay': 0.9999, 'lam': 1.0}
    >>> preset_options("ridge", "nicv2-79", False, {})
    {}
    """
    renorm = (
        dict(RENORM.get(protocol, {}))
        if strategy in STRATEGIES and STRATEGIES[strategy].training_options
        else {}
    )
    if not core50:
        renorm.pop("startup", None)
    return {**renorm, **options}


def all_options(
    strategy: str, protocol: str, core50: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """Every option of the strategy by name, or an error that says which one is wrong."""
    given = preset_options(strategy, protocol, core50, options)
    return dict(_all_options(strategy, json.dumps(given, sort_keys=True)))


def freezes(strategy: str, options: dict[str, Any]) -> bool:
    """Whether its representation is, or becomes, frozen, so that an engine other than torch may compute it."""
    return create(strategy, _tiny(), **options).freezes


@cache
def _tiny() -> Backbone:
    return build("mobilenet_v1", "random", width=0.0625, size=32)


@cache
def _all_options(strategy: str, given: str) -> dict[str, Any]:
    options: dict[str, Any] = json.loads(given)
    try:
        made = create(strategy, _tiny(), **options)
    except TypeError as error:
        raise InputError(f"the options {options} do not suit {strategy!r}: {error}") from error
    found = getattr(made, "options", None)
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else options
