"""Makes a strategy by name, with the paper's hyperparameters."""

from __future__ import annotations

import copy

from primavista.errors import InputError
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
