"""Backbones that are built by name, with their weights, or made of a module of the user.

A name is one of ours, or that of a function of the user's own that returns a module; see
`primavista.register`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from primavista.backbones.base import (
    CUSTOM,
    Backbone,
    NetworkOption,
    Spec,
    check_arguments,
    check_seed,
)
from primavista.backbones.efficientnet_lite import EfficientNetLite0
from primavista.backbones.mobilenet_v1 import MobileNetV1
from primavista.backbones.own import HALF, OWN_NETWORKS, own_backbone
from primavista.backbones.vision_transformer import VisionTransformer
from primavista.backbones.weights import SOURCES, load_file, load_state, load_weights
from primavista.errors import InputError
from primavista.references import is_reference, must_be_registered

NETWORKS: dict[str, type[nn.Module]] = {
    "mobilenet_v1": MobileNetV1,
    "efficientnet_lite0": EfficientNetLite0,
    "vit": VisionTransformer,
}
MAX_SIZE = 2048
MAX_WIDTH = 8


def build(
    name: str | nn.Module = "mobilenet_v1",
    weights: str | Path | None = "imagenet",
    *,
    size: int = 128,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    seed: int = 0,
    **options: NetworkOption,
) -> Backbone:
    """Build a backbone by name, with its weights, or make one of any module.

    Args:
        name: "mobilenet_v1", "efficientnet_lite0", "vit", the name of a function registered by
            `register`, or a module from N x 3 x H x W to N x D (or N x D x h x w). A module is
            copied and stays on its device; `weights`, `seed` and `options` do not apply to it.
        weights: "imagenet", "timm" (MobileNet v1 from the hub), the path of a .safetensors or
            .pth file, or "random". A function of your own gives its module weights itself, unless
            this is the path of a file.
        size: Side of the images in pixels.
        mean: Mean of each colour channel, as a share of 255; by default that of the weights.
        std: Divisor of each colour channel, as a share of 255; by default that of the weights.
        seed: Seed of random weights; the global random state is neither read nor changed.
        **options: Arguments of the network, e.g. the `width` of MobileNet v1, or of a registered
            function, which gets `size` and `seed` too if it has arguments of these names.

    Returns:
        The backbone.

    Raises:
        InputError: An argument is wrong; the message lists what there is.
        WeightsError: The weights cannot be read, are damaged, or belong to another network.

    >>> build("mobilenet_v1", "random", width=0.25, size=32).dim
    256
    """
    _check_size(size)
    check_seed(seed)
    if isinstance(name, nn.Module):
        return Backbone(copy.deepcopy(name), Spec(CUSTOM, size, mean or HALF, std or HALF))
    if name in OWN_NETWORKS:
        return own_backbone(name, weights, size, mean, std, seed, options)
    _check_options(name, options)
    source = SOURCES.get(f"{name}/{weights}")
    if source is not None:
        options = {**source.options, **options}
        mean, std = mean or source.mean, std or source.std
    body = _network(name, weights, seed, options)
    return Backbone(body, Spec(name, size, mean or HALF, std or HALF, dict(options)))


def rebuild(spec: Spec, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Backbone:
    """Build a backbone of the given shape whose weights, now 0, will be loaded from elsewhere.

    Args:
        spec: The spec of a backbone that was built by name.
        shapes: The shapes of the arrays that will be loaded, by name in the body's `state_dict`.
            Those of convolutions and linear maps are checked before anything is allocated.

    Raises:
        InputError: The backbone was a module of the user, which no file can hold, or `shapes` are
            not those of a backbone of this spec.
    """
    if spec.name == CUSTOM:
        raise InputError(
            "this file was made with a backbone of your own: "
            "Learner.load(path, backbone=your_module)"
        )
    if spec.name in OWN_NETWORKS:
        return own_backbone(spec.name, None, spec.size, spec.mean, spec.std, 0, spec.options)
    _check_size(spec.size)
    _check_options(spec.name, spec.options)
    with torch.device("meta"):
        body = NETWORKS[spec.name](**spec.options)
    state = body.state_dict()
    for name, tensor in state.items():
        shape = tuple(tensor.shape)
        fits = shapes is None or shapes.get(name) == shape
        if len(shape) > 1 and not fits:
            raise InputError(
                f"its backbone needs {name} of shape {shape}, which is not in the file"
            )
    if any(module._non_persistent_buffers_set for module in body.modules()):
        body = _random_network(spec.name, 0, spec.options)  # no file has these buffers
    else:
        zeros = {name: torch.zeros(x.shape, dtype=x.dtype) for name, x in state.items()}
        body.load_state_dict(zeros, assign=True)
    return Backbone(body, spec)


def _check_size(size: int) -> None:
    if not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
        raise InputError(
            f"size is the side of the images in whole pixels, 1 to {MAX_SIZE}; got {size!r}"
        )


def _check_options(name: str, options: Mapping[str, NetworkOption]) -> None:
    if name not in NETWORKS:
        if is_reference(name):
            raise InputError(must_be_registered(name))
        names = ", ".join([*NETWORKS, *OWN_NETWORKS])
        raise InputError(
            f"there is no backbone {name!r}: choose from {names}, or name a function that returns "
            "a torch.nn.Module by package.module:function"
        )
    check_arguments(name, NETWORKS[name], options)
    width = options.get("width", 1.0)
    if not isinstance(width, int | float) or not 0 < width <= MAX_WIDTH:
        raise InputError(f"width must be above 0 and at most {MAX_WIDTH}; got {width!r}")


def _network(
    name: str, weights: str | Path | None, seed: int, options: Mapping[str, NetworkOption]
) -> nn.Module:
    """Build a network with published weights, with random ones, or with those of a file."""
    key = f"{name}/{weights}"
    if weights in (None, "random"):
        return _random_network(name, seed, options)
    if key in SOURCES:
        body = NETWORKS[name](**options)
        load_weights(body, load_state(SOURCES[key], key), key)
    elif Path(str(weights)).suffix or "/" in str(weights):
        body = NETWORKS[name](**options)
        load_weights(body, load_file(Path(str(weights)).expanduser()), str(weights))
    else:
        published = [source.partition("/")[2] for source in SOURCES if source.startswith(name)]
        raise InputError(
            f"{name} has no weights {weights!r}: choose from {', '.join([*published, 'random'])}, "
            "or the path of a file"
        )
    return body


def _random_network(name: str, seed: int, options: Mapping[str, NetworkOption]) -> nn.Module:
    """Build a network with MSRA initialisation from a generator of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # for layers other than convolutions
        body = NETWORKS[name](**options)
    generator = torch.Generator().manual_seed(seed)
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            fan_out = module.out_channels * height * width // module.groups
            with torch.no_grad():
                module.weight.normal_(0, (2 / fan_out) ** 0.5, generator=generator)
    return body
