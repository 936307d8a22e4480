"""A backbone read in the middle of its maps at several depths, in one pass.

A *place* is one depth of the network and one region of the picture. The first place is the
backbone's own features, over the whole picture.
"""

from __future__ import annotations

import copy
import math
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from primavista.backbones.base import Backbone
from primavista.backbones.multidepth import ROOT_SOFTENING, as_map, blocks_with_maps

# The depth in sixths of all blocks, and the share of the side of the picture that is read. A person
# holds an object in the middle of the picture; what surrounds it tells the room, not the object.
PLACES = ((6, 1 / 2), (6, 1 / 3), (5, 1 / 2), (5, 1 / 3), (4, 1 / 3), (3, 1 / 3))


@dataclass(frozen=True)
class _Pass:
    """One forward pass: the weights of each place, and the numbers read so far."""

    weights: list[Tensor]
    read: dict[int, Tensor] = field(default_factory=dict)


# a context variable, since threads may share a backbone
_pass: ContextVar[_Pass | None] = ContextVar("middle", default=None)


@dataclass(frozen=True)
class _MiddleHook:
    """The forward hook of the block that is read at one place."""

    place: int

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        current = _pass.get()
        if current is not None:  # read at once: the next layer may overwrite the map
            x = as_map(output)
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            current.read[self.place] = (x * current.weights[self.place]).sum((2, 3))


class MiddleBackbone(Backbone):
    """z = [root(features), root(v_1 map_1), ..., root(v_6 map_6)],  root(x) = x / sqrt(|x| + 0.001)

    with the maps of blocks at a half, two thirds, five sixths and the end of the depth, and fixed
    weights v that take the mean over the middle half or third of the picture, pixels on the border
    of that region in part. `sizes` are the lengths of these parts, the backbone's own features
    first, and `priors` what each is worth before any lesson: 1 at the end of the network, and
    half as much for every sixth of the depth before it. A body without maps has its own features
    alone.

    Args:
        backbone: the backbone to read. Its body is copied; names and `spec` stay the same.

    >>> from primavista.backbones.registry import build
    >>> MiddleBackbone(build("mobilenet_v1", "random", width=0.25, size=64)).sizes
    (256, 256, 256, 128, 128, 128, 128)
    """

    sizes: tuple[int, ...] = ()
    priors: tuple[float, ...] = (1.0,)

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(copy.deepcopy(backbone.body), backbone.spec, backbone.body_dim)
        self._remove_hooks()
        blocks = blocks_with_maps(self)
        places = PLACES if blocks else ()
        sizes = [self.dim]
        read = []
        for place, (depth, share) in enumerate(places):
            block, (channels, height, width) = blocks[math.ceil(len(blocks) * depth / 6) - 1]
            rows, columns = middle_weights(height, share), middle_weights(width, share)
            weights = (rows[:, None] * columns).to(self.scale.device)
            self.register_buffer(f"middle_{place}", weights, persistent=False)
            block.register_forward_hook(_MiddleHook(place))
            sizes.append(channels)
            read.append((block, share))
        self.sizes = tuple(sizes)
        self.priors = (1.0, *(2.0 ** (depth - 6) for depth, _ in places))
        self.dim = sum(sizes)
        self._read = read

    @property
    def read(self) -> list[tuple[nn.Module, float]]:
        """The block of each place after the first, and the share of the side that is read."""
        return list(self._read)

    def _remove_hooks(self) -> None:
        """Remove the hooks that a copy of a backbone of this class brings with it."""
        for module in self.modules():
            hooks = module._forward_hooks
            for key in [key for key, hook in hooks.items() if isinstance(hook, _MiddleHook)]:
                del hooks[key]

    def forward(self, frames: Tensor) -> Tensor:
        """Compute the features of some frames.

        Args:
            frames: uint8, N x H x W x 3, RGB, on the device of the backbone.

        Returns:
            float32, N x `dim`: the places one after the other, with `sizes` numbers each.
        """
        if not self.sizes:
            return super().forward(frames)  # the constructor is still looking for blocks
        places = range(len(self.sizes) - 1)
        current = _Pass([self.get_buffer(f"middle_{place}") for place in places])
        before = _pass.set(current)
        try:
            own = super().forward(frames)
        finally:
            _pass.reset(before)
        own = own.to(torch.promote_types(own.dtype, torch.float32))
        x = torch.cat([own, *(current.read[place] for place in places)], 1)
        return x / (x.abs() + ROOT_SOFTENING).sqrt()


def middle_weights(side: int, share: float) -> Tensor:
    """Return the weights that take the mean over the middle of a side; border pixels in part.

    Args:
        side: the number of pixels.
        share: how much of the side counts.

    Returns:
        `side` numbers of sum 1.

    >>> middle_weights(4, 1 / 2).tolist()
    [0.0, 0.5, 0.5, 0.0]
    >>> [round(w, 3) for w in middle_weights(5, 1 / 2).tolist()]
    [0.0, 0.3, 0.4, 0.3, 0.0]
    """
    low, high = side * (1 - share) / 2, side * (1 + share) / 2
    at = torch.arange(side, dtype=torch.float64)
    inside = ((at + 1).clamp(max=high) - at.clamp(min=low)).clamp(min=0)
    return (inside / inside.sum()).float()
