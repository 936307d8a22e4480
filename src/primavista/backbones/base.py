"""The contract of a backbone: frames in, features out."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from primavista.backbones.mobilenet_v1 import global_average_pool
from primavista.errors import InputError

CUSTOM = "custom"  # the name of a module that the user brings
Precision = Literal["float32", "tf32", "bf16"]
NetworkOption = float | str


@dataclass(frozen=True)
class Spec:
    """Everything that is needed to build a backbone again except its weights.

    It is stored in every saved file.

    Args:
        name: A name of `NETWORKS`, or "custom" for a module of the user.
        size: Side of the images in pixels.
        mean: Mean of each colour channel, as a share of 255, that is subtracted.
        std: Divisor of each colour channel, as a share of 255.
        options: Arguments of the network, e.g. the `width` of MobileNet v1.
    """

    name: str
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    options: dict[str, NetworkOption] = field(default_factory=dict)


class Backbone(nn.Module):
    """z = body((x / 255 - mean) / std): frames in, features out.

    `dim` is the number of features. A body that gives maps (N x D x h x w) is averaged over the
    map. With `precision = "bf16"` the convolutions are computed in that type; the features are
    float32 in any case. The body may be on any device: the backbone is made there.

    Args:
        body: A network from N x 3 x H x W to N x D or N x D x h x w. It becomes part of the
            backbone; it is not copied.
        spec: The size of the images and how they are normalised.
        body_dim: The number of features of the body, if it is known; otherwise it is found by
            computing those of one image.

    Raises:
        InputError: The body fails on an image of `spec.size`, or its result has another shape.
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
        # an NHWC array seen as NCHW is channels-last already
        x = frames.permute(0, 3, 1, 2) * self.scale + self.shift
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            z: Tensor = self.body(x if self.channels_last else x.contiguous())
        z = global_average_pool(z) if z.ndim == 4 else z
        return z.to(torch.promote_types(z.dtype, torch.float32))

    def _probe(self) -> int:
        """Return the number of features that the body gives for one image."""
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


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first parameter or buffer; the CPU if it has none."""
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        return tensor.device
    return torch.device("cpu")


def check_seed(seed: int) -> None:
    """Check that a seed fits into 64 bits.

    Args:
        seed: The seed of random weights or of a strategy.

    Raises:
        InputError: It is not an integer from -2^63 to 2^63 - 1.
    """
    try:
        fits = -(2**63) <= operator.index(seed) < 2**63
    except TypeError:
        fits = False
    if not fits:
        raise InputError(f"seed must be a whole number from -2^63 to 2^63 - 1; got {seed!r}")


def check_arguments(
    name: str, make: Callable[..., nn.Module], options: Mapping[str, NetworkOption]
) -> None:
    """Refuse options that a network does not have.

    Args:
        name: The name of the network.
        make: Its class or function; one that takes any keyword checks them itself.
        options: The options that were given.

    Raises:
        InputError: If there is no such option; the message lists those that there are.
    """
    parameters = inspect.signature(make).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    accepted = sorted({parameter.name for parameter in parameters} - {"size", "seed"})
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        choice = ", ".join(accepted) or "none"
        raise InputError(f"{name} has no option {', '.join(unknown)}: it has {choice}")
