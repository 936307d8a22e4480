"""Backbones map frames to features; they are built by name with their weights, or from a module.

A name is one of ours, or the name of the user's own function that returns a module; see
`primavista.register`.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from primavista.backbones.spec import (
    CUSTOM,
    HALF,
    OWN_FUNCTIONS,
    NetworkOption,
    Spec,
    check_seed,
    check_size,
)
from primavista.backbones.weights import SOURCES, load_source
from primavista.errors import InputError, PrimavistaError
from primavista.networks.efficientnet_lite import EfficientNetLite0
from primavista.networks.mobilenet_v1 import MobileNetV1, global_average_pool
from primavista.networks.resnet50 import ResNet50
from primavista.networks.vision_transformer import VisionTransformer
from primavista.networks.weights import (
    WeightsFacts,
    load_file,
    load_weights,
    parse,
    read_facts,
)
from primavista.storage.references import is_reference, must_be_registered

NETWORKS: dict[str, type[nn.Module]] = {
    "mobilenet_v1": MobileNetV1,
    "efficientnet_lite0": EfficientNetLite0,
    "resnet50": ResNet50,
    "vit": VisionTransformer,
}
FROM_FUNCTION = "own"  # the name of weights that a function sets itself
MAX_WIDTH = 8
BATCH_COUNTER = "num_batches_tracked"  # a buffer of batch norm

Precision = Literal["float32", "tf32", "bf16"]


class Backbone(nn.Module):
    """z = body((x / 255 - mean) / std), a map from frames x to features z.

    `dim` is the number of features. If the body returns maps (N x D x h x w), the features are
    their means. With `precision = "bf16"` the convolutions are computed in that type; the features
    are always float32. The body may be on any device; the backbone is made on the same device.

    Args:
        body: A network from N x 3 x H x W to N x D, N x D x h x w, or an output of the package
            transformers with `pooler_output`. It becomes part of the backbone; it is not copied.
        spec: The size of the images and their normalisation.
        body_dim: The number of features of the body, if known; otherwise it is determined by
            computing the features of one image.

    Raises:
        InputError: If the body fails on an image of `spec.size`, or its result has another shape.
    """

    scale: Tensor
    shift: Tensor
    precision: Precision = "float32"

    def __init__(self, body: nn.Module, spec: Spec, body_dim: int | None = None) -> None:
        super().__init__()
        self.body, self.spec = body.float(), spec
        # torch's channels-last GroupNorm can crash in the backward pass behind a frozen layer
        self.channels_last = not any(isinstance(m, nn.GroupNorm) for m in body.modules())
        mean, std = torch.tensor(spec.mean), torch.tensor(spec.std)
        device = device_of(body)
        scale, shift = (1 / (255 * std)).to(device), (-mean / std).to(device)
        self.register_buffer("scale", scale.reshape(3, 1, 1), persistent=False)
        self.register_buffer("shift", shift.reshape(3, 1, 1), persistent=False)
        if self.channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.body_dim = self._probe() if body_dim is None else body_dim
        self.dim = self.body_dim

    def forward(self, frames: Tensor) -> Tensor:
        """Compute the features of some frames.

        Args:
            frames: uint8, N x H x W x 3, RGB, on the device of the backbone.

        Returns:
            float32, N x `dim`.
        """
        # an NHWC array viewed as NCHW is already channels-last
        x = frames.permute(0, 3, 1, 2) * self.scale + self.shift
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            z = pooled(self.body(x if self.channels_last else x.contiguous()))
        z = global_average_pool(z) if z.ndim == 4 else z
        return z.to(torch.promote_types(z.dtype, torch.float32))

    def _probe(self) -> int:
        """Return the number of features that the body returns for one image."""
        side = self.spec.size
        modes = [(module, module.training) for module in self.modules()]
        needs = (
            f"a backbone must map N x 3 x {side} x {side} to N x D (or N x D x h x w); "
            f"{type(self.body).__name__}"
        )
        try:
            with torch.no_grad():
                frame = torch.zeros(1, side, side, 3, dtype=torch.uint8, device=self.scale.device)
                z = self.eval()(frame)
        except Exception as error:
            raise InputError(f"{needs} failed: {type(error).__name__}: {error}") from error
        for module, training in modes:
            module.training = training
        if z.ndim != 2 or len(z) != 1:
            raise InputError(f"{needs} gave {tuple(z.shape)}")
        return int(z.shape[1])


def pooled(output: Any) -> Tensor:
    """Return the pooled features of an output of the package transformers; of others, itself."""
    found: Tensor = getattr(output, "pooler_output", output)
    return found


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
    """Build a backbone by name, with its weights, or make one from any module.

    Args:
        name: "mobilenet_v1", "efficientnet_lite0", "resnet50", "vit", the name of a function
            registered by `register`, or a module from N x 3 x H x W to N x D (or N x D x h x w). A
            module is copied and stays on its device; `weights`, `seed` and `options` do not apply
            to it.
        weights: "imagenet" (that of ResNet-50 from the hub), "objects" (MobileNet v1, trained for
            objects in videos), "timm" (MobileNet v1 from the hub), the path of a .safetensors or
            .pth file, or "random". Your own function sets the weights of its module itself, unless
            this is the path of a file.
        size: Side of the images in pixels.
        mean: Mean of each colour channel, as a fraction of 255; by default that of the weights.
        std: Divisor of each colour channel, as a fraction of 255; by default that of the weights.
        seed: Seed of random weights; the global random state is neither read nor changed.
        **options: Arguments of the network, e.g. the `width` of MobileNet v1, or of a registered
            function, which also gets `size` and `seed` if it has arguments of these names.

    Returns:
        The backbone.

    Raises:
        InputError: If an argument is wrong; the message lists the possible values.
        WeightsError: If the weights cannot be read, are damaged, or belong to another network.

    >>> build("mobilenet_v1", "random", width=0.25, size=32).dim
    256
    """
    check_size(size)
    check_seed(seed)
    if isinstance(name, nn.Module):
        return Backbone(copy.deepcopy(name), Spec(CUSTOM, size, mean or HALF, std or HALF))
    if name in OWN_FUNCTIONS:
        body = copy.deepcopy(_own_network(name, weights, size, seed, options))
        if isinstance(body, Backbone):
            mean, std = mean or body.spec.mean, std or body.spec.std
            body = body.body
    else:
        facts = _facts(name, weights)
        options = {**facts.options, **options}
        _check_options(name, options)
        mean, std = mean or facts.mean, std or facts.std
        body = _network(name, weights, seed, options)
    return Backbone(body, Spec(name, size, mean or HALF, std or HALF, dict(options)))


def _facts(name: str, weights: str | Path | None) -> WeightsFacts:
    """Return what published weights or those of a file need of their network and their frames."""
    source = SOURCES.get(f"{name}/{weights}")
    if source is not None:
        return WeightsFacts(source.options, source.mean, source.std)
    return read_facts(_path(weights)) if _is_path(weights) else WeightsFacts()


def _is_path(weights: str | Path | None) -> bool:
    """Return True if weights are those of a file, and not named."""
    return weights is not None and bool(Path(str(weights)).suffix or "/" in str(weights))


def _path(weights: str | Path | None) -> Path:
    return Path(str(weights)).expanduser()


def rebuild(spec: Spec, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Backbone:
    """Build a backbone with weights of 0, which the caller then loads from elsewhere.

    Args:
        spec: The spec of a backbone that was built by name.
        shapes: The shapes of the arrays that will be loaded, by name in the body's `state_dict`.
            Those of convolutions and linear maps are checked before anything is allocated.

    Raises:
        InputError: If the backbone was a module of the user, which no file can hold, or if `shapes`
            are not those of a backbone of this spec.
    """
    if spec.name == CUSTOM:
        raise InputError(
            "this file was made with a backbone of your own: "
            "Learner.load(path, backbone=your_module)"
        )
    if spec.name in OWN_FUNCTIONS:
        made = copy.deepcopy(_own_network(spec.name, None, spec.size, 0, spec.options))
        return Backbone(made.body if isinstance(made, Backbone) else made, spec)
    check_size(spec.size)
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
    zeros = {name: torch.zeros(x.shape, dtype=x.dtype) for name, x in state.items()}
    body.load_state_dict(zeros, assign=True)
    return Backbone(body, spec)


def _check_options(name: str, options: Mapping[str, NetworkOption]) -> None:
    if name not in NETWORKS:
        if is_reference(name):
            raise InputError(must_be_registered(name))
        names = ", ".join([*NETWORKS, *OWN_FUNCTIONS])
        raise InputError(
            f"there is no backbone {name!r}: choose from {names}, or name a function that returns "
            "a torch.nn.Module by package.module:function"
        )
    _check_arguments(name, NETWORKS[name], options)
    width = options.get("width", 1.0)
    if not isinstance(width, int | float) or not 0 < width <= MAX_WIDTH:
        raise InputError(f"width must be above 0 and at most {MAX_WIDTH}; got {width!r}")


def _check_arguments(
    name: str, make: Callable[..., nn.Module], options: Mapping[str, NetworkOption]
) -> None:
    """Reject options that a network does not have.

    Args:
        name: The name of the network.
        make: Its class or function; if it accepts any keyword, it checks them itself.
        options: The options that were given.

    Raises:
        InputError: If there is no such option; the message lists the existing ones.
    """
    parameters = inspect.signature(make).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    accepted = sorted({parameter.name for parameter in parameters} - {"size", "seed"})
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        choice = ", ".join(accepted) or "none"
        raise InputError(f"{name} has no option {', '.join(unknown)}: it has {choice}")


def _network(
    name: str, weights: str | Path | None, seed: int, options: Mapping[str, NetworkOption]
) -> nn.Module:
    """Build a network with published weights, random weights, or the weights of a file."""
    key = f"{name}/{weights}"
    if weights in (None, "random"):
        return _random_network(name, seed, options)
    if key in SOURCES:
        body = NETWORKS[name](**options)
        load_weights(body, load_source(SOURCES[key], key, parse), key)
    elif _is_path(weights):
        body = NETWORKS[name](**options)
        load_weights(body, load_file(_path(weights)), str(weights))
    else:
        published = [source.partition("/")[2] for source in SOURCES if source.startswith(name)]
        raise InputError(
            f"{name} has no weights {weights!r}: choose from {', '.join([*published, 'random'])}, "
            "or the path of a file"
        )
    return body


def _random_network(name: str, seed: int, options: Mapping[str, NetworkOption]) -> nn.Module:
    """Build a network with MSRA initialisation, from a separate random generator."""
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


def _own_network(
    name: str,
    weights: str | Path | None,
    size: int,
    seed: int,
    options: Mapping[str, NetworkOption],
) -> nn.Module:
    """Call a function of the user, and load the weights of a file if one is named.

    Args:
        name: The name under which the function was registered.
        weights: The path of a file; anything else leaves the weights to the function.
        size: Side of the images in pixels; the function gets it if it has an argument `size`.
        seed: Seed of torch's random numbers during the call; the function gets it if it has an
            argument `seed`.
        options: Other arguments of the function.

    Returns:
        A module from N x 3 x H x W to N x D or N x D x h x w, or a `Backbone`, which defines how
        frames are normalised.

    Raises:
        InputError: If the function fails, or its result is not a backbone for this size.
        WeightsError: If the weights of the file do not fit the module.
    """
    function = OWN_FUNCTIONS[name]
    _check_arguments(name, function, options)
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
    if isinstance(made, Backbone) and made.spec.size != size:
        raise InputError(
            f"{name} made a backbone for {made.spec.size} px, and the frames have {size} px: "
            "give it an argument `size` and use it"
        )
    if _is_path(weights):
        body = made.body if isinstance(made, Backbone) else made
        load_weights(body, load_file(_path(weights)), str(weights))
    elif weights not in (None, FROM_FUNCTION, "imagenet"):  # the last is the default of `build`
        raise InputError(
            f"{name} gives its module weights itself: leave out weights={weights!r}, or name a file"
        )
    return made


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first parameter or buffer; the CPU if it has none."""
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        return tensor.device
    return torch.device("cpu")


def named_weights(backbone: Backbone) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a backbone by their names in files.

    The counters of batch norm are left out, since nothing depends on them.
    """
    return {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in backbone.state_dict().items()
        if not name.endswith(BATCH_COUNTER)
    }
