"""Makes a strategy by name, with the paper's hyperparameters."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from primavista.errors import InputError
from primavista.networks.base import Backbone, device_of
from primavista.options import UnknownOptionError
from primavista.storage.references import is_reference, must_be_registered
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy
from primavista.strategies.builtin import RENORM, STRATEGIES
from primavista.strategies.registry import (
    load_strategy,
    names,
    own_strategy,
    renorm_limits,
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
        name: one of `names()`.
        backbone: the network; the strategy works on a copy of it, on the same device.
        protocol: take the limits of batch renormalisation from this column of Table 5.
        seed: the seed of every random choice.
        overrides: options of the strategy that replace its hyperparameters.

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
    if name in STRATEGIES:
        info = STRATEGIES[name]
        make: Callable[..., Strategy] = load_strategy(info)
        limits = renorm_limits(info, protocol) if protocol else {}
        options = {**info.options, **limits, **overrides}
    else:
        make = _own_or_refused(name)
        options = {**strategy_info(name).options, **overrides}
    _check_options(name, make, options)
    device = device_of(backbone)
    if device.type == "cpu":
        return make(backbone, seed=seed, **options)
    # strategies are made on the CPU, so that their numbers do not depend on the device, then moved
    return make(copy.deepcopy(backbone).cpu(), seed=seed, **options).to(device)


def _own_or_refused(name: str) -> Callable[..., Strategy]:
    make = own_strategy(name)
    if make is not None:
        return make
    if is_reference(name):
        raise InputError(must_be_registered(name))
    raise InputError(
        f"there is no strategy {name!r}: choose from {', '.join(names())}, or name one of your own "
        "by package.module:Class"
    )


def _check_options(name: str, make: Callable[..., Strategy], given: dict[str, Any]) -> None:
    """Reject unknown options; a constructor that takes any keyword checks them itself."""
    _, *parameters = inspect.signature(make).parameters.values()
    known = sorted(p.name for p in parameters if p.name != "seed")
    strange = sorted(set(given) - set(known))
    if strange and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise UnknownOptionError(strange, known, name)
