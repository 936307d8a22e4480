"""Backbones give features: MobileNet v1, EfficientNet-Lite0, or any module from N x 3 x H x W to features."""

from __future__ import annotations

import copy
import inspect
import operator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from primavista.backbones.efficientnet_lite import EfficientNetLite0
from primavista.backbones.layers import pooled
from primavista.backbones.mobilenet_v1 import MobileNetV1
from primavista.backbones.weights import SOURCES, load_file, load_state, put
from primavista.errors import InputError

NETWORKS: dict[str, type[nn.Module]] = {
    "mobilenet_v1": MobileNetV1,
    "efficientnet_lite0": EfficientNetLite0,
}
CUSTOM = "custom"
Precision = Literal["float32", "tf32", "bf16"]
MAX_SIZE = 2048
MAX_WIDTH = 8


@dataclass(frozen=True)
class Spec:
    """What must be known to build a backbone again, its weights apart: it goes into every saved file."""

    name: str
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    options: dict[str, Any] = field(default_factory=dict)


class Backbone(nn.Module):
    """z = body((x / 255 - mean) / std): frames in, features out.

    `dim` is the number of features, `spec.size` the side of the images. A body that gives maps (N x D x h x w) is
    averaged over the map. `precision="bf16"` computes the convolutions in that type; features are float32 all the same.
    """

    scale: Tensor
    shift: Tensor
    precision: Precision = "float32"

    def __init__(self, body: nn.Module, spec: Spec) -> None:
        super().__init__()
        self.body, self.spec = body.float(), spec
        # torch's channels-last GroupNorm can crash in the backward pass behind a frozen layer
        self.channels_last = not any(isinstance(m, nn.GroupNorm) for m in body.modules())
        mean, std = torch.tensor(spec.mean), torch.tensor(spec.std)
        self.register_buffer("scale", (1 / (255 * std)).reshape(3, 1, 1), persistent=False)
        self.register_buffer("shift", (-mean / std).reshape(3, 1, 1), persistent=False)
        if self.channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.dim = self._probe()

    def forward(self, frames: Tensor) -> Tensor:
        """uint8, N x H x W x 3 to float, N x dim."""
        x = (
            frames.permute(0, 3, 1, 2) * self.scale + self.shift
        )  # an NHWC array seen as NCHW is channels-last already
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            z: Tensor = self.body(x if self.channels_last else x.contiguous())
        z = pooled(z) if z.ndim == 4 else z
        return z.to(torch.promote_types(z.dtype, torch.float32))

    def _probe(self) -> int:
        side = self.spec.size
        modes = [(module, module.training) for module in self.modules()]
        needs = f"a backbone must map N x 3 x {side} x {side} to N x D (or N x D x h x w); {type(self.body).__name__}"
        try:
            with torch.no_grad():
                z = self.eval()(torch.zeros(1, side, side, 3, dtype=torch.uint8))
        except Exception as error:
            raise InputError(f"{needs} failed: {type(error).__name__}: {error}") from error
        for module, training in modes:
            module.training = training
        if z.ndim != 2 or len(z) != 1:
            raise InputError(f"{needs} gave {tuple(z.shape)}")
        return int(z.shape[1])


def build(
    name: str | nn.Module = "mobilenet_v1",
    weights: str | Path | None = "imagenet",
    *,
    size: int = 128,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    seed: int = 0,
    **options: Any,
) -> Backbone:
    """A backbone by name with its weights, or any module of yours as one.

    `weights`: "imagenet", "timm" (MobileNet v1 from the hub), the path of a file, or "random" (deterministic from `seed`).
    `options` go to the network: `width` of MobileNet v1.

    >>> build("mobilenet_v1", "random", width=0.25, size=32).dim
    256
    """
    if not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
        raise InputError(
            f"size is the side of the images in whole pixels, 1 to {MAX_SIZE}; got {size!r}"
        )
    width = options.get("width", 1.0)
    if not isinstance(width, int | float) or not 0 < width <= MAX_WIDTH:
        raise InputError(f"width must lie above 0, to {MAX_WIDTH}; got {width!r}")
    check_seed(seed)
    half = (0.5, 0.5, 0.5)
    if isinstance(name, nn.Module):
        return Backbone(copy.deepcopy(name), Spec(CUSTOM, size, mean or half, std or half))
    if name not in NETWORKS:
        raise InputError(
            f"there is no backbone {name!r}: choose from {', '.join(NETWORKS)}, or give an nn.Module"
        )
    known = set(inspect.signature(NETWORKS[name]).parameters)
    if strange := sorted(set(options) - known):
        raise InputError(
            f"{name} has no option {', '.join(strange)}: it has {', '.join(sorted(known)) or 'none'}"
        )
    source = SOURCES.get(f"{name}/{weights}")
    if source is not None:
        body = NETWORKS[name](**{**source.options, **options})
        put(body, load_state(source, f"{name}/{weights}"), f"{name}/{weights}")
        return Backbone(
            body,
            Spec(name, size, mean or source.mean, std or source.std, {**source.options, **options}),
        )
    if weights in (None, "random"):
        body = _random(name, seed, options)
    elif Path(str(weights)).suffix or "/" in str(weights):
        body = NETWORKS[name](**options)
        put(body, load_file(Path(str(weights)).expanduser()), str(weights))
    else:
        names = [key.partition("/")[2] for key in SOURCES if key.startswith(name + "/")]
        raise InputError(
            f"{name} has no weights {weights!r}: choose from {', '.join(names)}, random, or the path of a file"
        )
    return Backbone(body, Spec(name, size, mean or half, std or half, dict(options)))


def check_seed(seed: int) -> None:
    """An error where it is no whole number of 64 bits."""
    try:
        fits = -(2**63) <= operator.index(seed) < 2**63
    except TypeError:
        fits = False
    if not fits:
        raise InputError(f"seed is a whole number from -2^63 to 2^63 - 1; got {seed!r}")


def rebuild(spec: Spec) -> Backbone:
    """A backbone of that shape, its weights to be loaded from elsewhere."""
    if spec.name == CUSTOM:
        raise InputError(
            "this file was made with a backbone of your own: Learner.load(path, backbone=your_module)"
        )
    return build(spec.name, "random", size=spec.size, mean=spec.mean, std=spec.std, **spec.options)


def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The shapes of the convolutions of a backbone by name, found without taking memory for them."""
    with torch.device("meta"):
        body = NETWORKS[spec.name](**spec.options) if spec.name in NETWORKS else nn.Identity()
    return {
        key: tuple(t.shape) for key, t in body.state_dict().items() if key.endswith("conv.weight")
    }


def _random(name: str, seed: int, options: dict[str, Any]) -> nn.Module:
    """MSRA initialisation from our own generator: the global random state is neither read nor changed."""
    with torch.random.fork_rng(devices=[]):
        body = NETWORKS[name](**options)
    generator = torch.Generator().manual_seed(seed)
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = (
                module.out_channels * module.kernel_size[0] * module.kernel_size[1] // module.groups
            )
            with torch.no_grad():
                module.weight.normal_(0, (2 / fan_out) ** 0.5, generator=generator)
    return body
