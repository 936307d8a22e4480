"""Backbones in torch that are read at several places in one pass; see `backbones/places.py`."""

from __future__ import annotations

import copy
import math
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from primavista.backbones.places import PLACES, PRIORS, ROOT_SOFTENING
from primavista.backbones.reference import shipped_reference
from primavista.networks.base import Backbone, named_weights

LEAST_BLOCKS = 5  # so many maps or more make a level of blocks
MAX_PREFIX_TOKENS = 5  # the class token of a transformer and four registers

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Pass:
    """The state of one forward pass: the weights of each place, and the numbers read so far."""

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

    The maps are those of the blocks at one half, two thirds, five sixths and the end of the depth.
    The fixed weights v take the mean over the central half or third of the picture; pixels on the
    border of that region count in part. `sizes` are the lengths of these parts, beginning with the
    backbone's own features. `priors` are the prior weights of the places: 1 at the end of the
    network, halved for every sixth of the depth before it. If the body has no maps, only its own
    features are read.

    Args:
        backbone: The backbone to read. Its body is copied; names and `spec` stay the same.

    >>> from primavista.networks.base import build
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
        self.priors = PRIORS if places else (1.0,)
        self.dim = sum(sizes)
        self._read = read

    @property
    def read(self) -> list[tuple[nn.Module, float]]:
        """The block of each place after the first, and the fraction of the side that is read."""
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
    """Return the weights of the mean over the centre of a side; border pixels count in part.

    Args:
        side: The number of pixels.
        share: The fraction of the side that counts.

    Returns:
        `side` numbers that sum to 1.

    >>> middle_weights(4, 1 / 2).tolist()
    [0.0, 0.5, 0.5, 0.0]
    >>> [round(w, 3) for w in middle_weights(5, 1 / 2).tolist()]
    [0.0, 0.3, 0.4, 0.3, 0.0]
    """
    low, high = side * (1 - share) / 2, side * (1 + share) / 2
    at = torch.arange(side, dtype=torch.float64)
    inside = ((at + 1).clamp(max=high) - at.clamp(min=low)).clamp(min=0)
    return (inside / inside.sum()).float()


def as_map(x: Tensor) -> Tensor:
    """Convert the patch tokens of a transformer, N x T x D, into a map; return a map unchanged.

    The tokens before the patches (the class token, registers) are left out; the patches form a
    square, row by row.

    Args:
        x: N x C x H x W, or N x T x D whose last tokens are a square number of patches.

    Returns:
        N x C x H x W.

    >>> as_map(torch.zeros(2, 1 + 9, 5)).shape
    torch.Size([2, 5, 3, 3])
    """
    if x.ndim != 3:
        return x
    side = math.isqrt(x.shape[1])
    patches = x[:, x.shape[1] - side * side :].transpose(1, 2)
    return patches.reshape(x.shape[0], x.shape[2], side, side)


def _is_map(x: object) -> bool:
    """Return True for maps, and for tokens that are a square of patches after a short prefix."""
    if not isinstance(x, Tensor) or x.ndim not in (3, 4):
        return False
    if x.ndim == 4:
        return min(x.shape[2:]) > 1
    side = math.isqrt(x.shape[1])
    return side > 1 and x.shape[1] - side * side <= MAX_PREFIX_TOKENS


def blocks_with_maps(backbone: Backbone) -> list[tuple[nn.Module, Shape]]:
    """Return the blocks of any body in the order in which they run, with the shape of their maps.

    Blocks are the members of sequences, which may be nested. The outermost level with more maps
    than there are depths to read is taken; if there is none, the level with the most maps.
    """
    levels = _sequence_levels(backbone.body)
    found: dict[int, dict[nn.Module, Shape]] = {}

    def note_shape(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and _is_map(output):
            found.setdefault(levels[module], {})[module] = tuple(as_map(output).shape[1:])

    members = [child for module in backbone.body.modules() for child in _members(module)]
    hooks = [member.register_forward_hook(note_shape) for member in members]
    try:
        backbone._probe()
    finally:
        for hook in hooks:
            hook.remove()
    enough = [level for level in sorted(found) if len(found[level]) >= LEAST_BLOCKS]
    best = enough[0] if enough else max(found, key=lambda level: len(found[level]), default=0)
    return list(found.get(best, {}).items())


def _members(module: nn.Module) -> list[nn.Module]:
    """Return the children of a sequence; for any other module, none."""
    is_sequence = isinstance(module, nn.Sequential | nn.ModuleList)
    return list(module.children()) if is_sequence else []


def _sequence_levels(body: nn.Module) -> dict[nn.Module, int]:
    """Return the number of sequences that each module is nested in."""
    levels = {body: 0}
    for name, module in body.named_modules():
        if name:
            parent = body.get_submodule(name.rpartition(".")[0])
            levels[module] = levels[parent] + isinstance(parent, nn.Sequential | nn.ModuleList)
    return levels


def shipped_reference_of(backbone: Backbone) -> tuple[Tensor, Tensor] | None:
    """Return the shipped reference of familiarity, see `shipped_reference`.

    Args:
        backbone: The network, read at all places.
    """
    sizes = getattr(backbone, "sizes", ())
    found = shipped_reference(backbone.spec, sizes, named_weights(backbone))
    if found is None:
        return None
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])
