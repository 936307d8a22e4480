"""What a backbone is fed, and what is needed to build it again."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from primavista.errors import InputError

HALF = (0.5, 0.5, 0.5)
MAX_SIZE = 2048
CUSTOM = "custom"  # the name of a module that the user provides

NetworkOption = float | str
NETWORK_NAMES = ("mobilenet_v1", "efficientnet_lite0", "resnet50", "vit")
# the registered functions by name: backbones and protocols
OWN_FUNCTIONS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Spec:
    """Everything that is needed to build a backbone again, except its weights.

    It is stored in every saved file.

    Args:
        name: The name of a network, that of a registered function, or "custom" for a module.
        size: Side of the images in pixels.
        mean: Mean of each colour channel, as a fraction of 255; it is subtracted.
        std: Divisor of each colour channel, as a fraction of 255.
        options: Arguments of the network, e.g. the `width` of MobileNet v1.
    """

    name: str
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    options: dict[str, NetworkOption] = field(default_factory=dict)


def check_size(size: int) -> None:
    """Reject a side that is not a whole number of pixels from 1 to `MAX_SIZE`."""
    if not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
        raise InputError(
            f"size must be the side of the images in whole pixels, 1 to {MAX_SIZE}; got {size!r}"
        )


def check_seed(seed: int) -> None:
    """Check that a seed fits into 64 bits.

    Args:
        seed: The seed of random weights or of a strategy.

    Raises:
        InputError: If it is not an integer from -2^63 to 2^63 - 1.
    """
    try:
        fits = -(2**63) <= operator.index(seed) < 2**63
    except TypeError:
        fits = False
    if not fits:
        raise InputError(f"seed must be a whole number from -2^63 to 2^63 - 1; got {seed!r}")
