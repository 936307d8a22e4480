"""Backbones made by a function of the user's own, which `primavista.register` gives a name."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from primavista.backbones.base import Backbone, NetworkOption, Spec, check_arguments
from primavista.backbones.weights import load_file, load_weights
from primavista.errors import InputError, PrimavistaError

OWN_NETWORKS: dict[str, Callable[..., nn.Module]] = {}  # what was registered, by name
FROM_FUNCTION = "own"  # the name of the weights that a function gives its module
HALF = (0.5, 0.5, 0.5)

Triple = tuple[float, float, float]


def own_backbone(
    name: str,
    weights: str | Path | None,
    size: int,
    mean: Triple | None,
    std: Triple | None,
    seed: int,
    options: Mapping[str, NetworkOption],
) -> Backbone:
    """Call a function of the user's own, and make a backbone of what it returns.

    The function returns a module from N x 3 x H x W to N x D or N x D x h x w; or a `Backbone`,
    which says how frames are normalised.

    Args:
        name: The name that the function was registered by.
        weights: The path of a file; anything else leaves the weights to the function.
        size: Side of the images in pixels; the function gets it if it has an argument `size`.
        mean: Mean of each colour channel, as a share of 255; by default that of the function.
        std: Divisor of each colour channel, as a share of 255; by default that of the function.
        seed: Seed of torch's random numbers during the call; the function gets it if it has an
            argument `seed`.
        options: Other arguments of the function.

    Raises:
        InputError: The function fails, or its result is not a backbone for this size.
        WeightsError: The weights of the file do not fit the module.
    """
    made = _called(name, size, seed, options)
    body = made
    if isinstance(made, Backbone):
        if made.spec.size != size:
            raise InputError(
                f"{name} made a backbone for {made.spec.size} px, and the frames have {size} px: "
                "give it an argument `size` and use it"
            )
        body, mean, std = made.body, mean or made.spec.mean, std or made.spec.std
    if weights is not None and Path(str(weights)).suffix:
        load_weights(body, load_file(Path(str(weights)).expanduser()), str(weights))
    elif weights not in (None, FROM_FUNCTION, "imagenet"):  # the last is the default of `build`
        raise InputError(
            f"{name} gives its module weights itself: leave out weights={weights!r}, or name a file"
        )
    return Backbone(copy.deepcopy(body), Spec(name, size, mean or HALF, std or HALF, dict(options)))


def _called(name: str, size: int, seed: int, options: Mapping[str, NetworkOption]) -> nn.Module:
    function = OWN_NETWORKS[name]
    check_arguments(name, function, options)
    parameters = inspect.signature(function).parameters
    also = {key: value for key, value in {"size": size, "seed": seed}.items() if key in parameters}
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made: object = function(**options, **also)
    except PrimavistaError:
        raise
    except Exception as error:  # whatever the code of the user raises
        raise InputError(f"the backbone {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise InputError(
            f"{name} returned {type(made).__name__}: a function for a backbone returns a "
            "torch.nn.Module"
        )
    return made
