"""Backbones read at several depths in one pass, and their features of generic frames.

A *place* is one depth of the network and one region of the picture. `MiddleBackbone`, which prima
uses, reads the backbone's own features and means over the centre of the picture.
`MultiDepthBackbone`, which prima used in version 0.1, reads maps at some depths on a coarse grid,
and then the backbone's own features. The generic frames show arbitrary objects; the statistics of
their features are known before anything is taught.
"""

from __future__ import annotations

import copy
import hashlib
import math
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from primavista.media.frames import crop_and_resize
from primavista.networks.base import Backbone

# The depth in sixths of all blocks, and the fraction of the side of the picture that is read. A
# person holds an object in the centre of the picture; its surroundings show the room.
PLACES = ((6, 1 / 2), (6, 1 / 3), (5, 1 / 2), (5, 1 / 3), (4, 1 / 3), (3, 1 / 3))
DEPTHS = (2, 3, 4, 5)  # the depths of `MultiDepthBackbone`, in sixths of all blocks
CELLS_PER_SIDE = 4
NUMBERS_PER_PLACE = 1536  # 16 cells of 96 mixed channels
MAX_OWN_FEATURES = 2048  # if the backbone has more features, they are mixed down to this number
MAX_PREFIX_TOKENS = 5  # the class token of a transformer and four registers
ROOT_SOFTENING = 1e-3  # below this value, the root becomes a straight line through 0

# The generic frames on one sheet, and prima's reference from them; see tools/generic_frames.py.
DATA = Path(__file__).parents[1] / "backbones" / "data"
SHEET = DATA / "generic.jpg"
REFERENCES = DATA / "generic_references.safetensors"
SHEET_ROWS, SHEET_COLUMNS, TILE_SIDE = 6, 8, 128

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
        backbone: the backbone to read. Its body is copied; names and `spec` stay the same.

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
        self.priors = (1.0, *(2.0 ** (depth - 6) for depth, _ in places))
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
        side: the number of pixels.
        share: the fraction of the side that counts.

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


# the maps of one forward pass: a context variable, since threads may share a backbone
_maps: ContextVar[dict[int, Tensor] | None] = ContextVar("maps", default=None)


@dataclass(frozen=True)
class _PlaceHook:
    """The forward hook of the block that is read at one place."""

    place: int
    grid: tuple[int, int]

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        maps = _maps.get()
        if maps is not None:  # pooled at once: the next layer may overwrite the map
            maps[self.place] = grid_average_pool(as_map(output), self.grid)


class MultiDepthBackbone(Backbone):
    """z = [R_1 root(pool(map_1)), ..., root(features)],  root(x) = x / sqrt(|x| + 0.001).

    The maps are those of the blocks at one third, one half, two thirds and five sixths of the
    depth. Each map is averaged over 4 x 4 cells, the signed root is taken, and the channels are
    mixed down to 96 by R, a matrix of fixed random signs that depends only on the place. The
    backbone's own features come last. `sizes` are the lengths of these parts. The patch tokens of
    the blocks of a transformer count as maps. If the body has no maps, only its own features are
    read.

    Args:
        backbone: The backbone to read. Its body is copied; names and `spec` stay the same.

    >>> from primavista.networks.base import build
    >>> MultiDepthBackbone(build("mobilenet_v1", "random", width=0.25, size=64)).sizes
    (1024, 1536, 1536, 1536, 256)
    """

    sizes: tuple[int, ...] = ()

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(copy.deepcopy(backbone.body), backbone.spec, backbone.body_dim)
        self._remove_hooks()
        blocks = blocks_with_maps(self)
        chosen = sorted({math.ceil(len(blocks) * depth / 6) - 1 for depth in DEPTHS if blocks})
        sizes = []
        for place, (block, (channels, height, width)) in enumerate(blocks[k] for k in chosen):
            grid = min(CELLS_PER_SIDE, height), min(CELLS_PER_SIDE, width)
            cells = math.prod(grid)
            block.register_forward_hook(_PlaceHook(place, grid))
            sizes.append(self._make_mixing(place, channels, NUMBERS_PER_PLACE // cells) * cells)
        self.sizes = (*sizes, self._make_mixing(len(sizes), self.dim, MAX_OWN_FEATURES))
        self.dim = self._probe()

    def forward(self, frames: Tensor) -> Tensor:
        """Compute the features of some frames.

        Args:
            frames: uint8, N x H x W x 3, RGB, on the device of the backbone.

        Returns:
            float32, N x `dim`: the places one after the other, with `sizes` numbers each.
        """
        before = _maps.set({})
        try:
            own = super().forward(frames)
            maps = _maps.get() or {}
        finally:
            _maps.reset(before)
        if not self.sizes:
            return own  # the constructor is still looking for blocks
        parts = [*(maps[place] for place in range(len(self.sizes) - 1)), own[:, :, None, None]]
        return torch.cat([self._part(place, x) for place, x in enumerate(parts)], 1)

    def _part(self, place: int, x: Tensor) -> Tensor:
        """Return the numbers of one place, from its pooled map."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        x = x / (x.abs() + ROOT_SOFTENING).sqrt()
        mixing = getattr(self, f"mix_{place}")
        return (F.conv2d(x, mixing) if mixing.numel() else x).flatten(1)

    def _make_mixing(self, place: int, channels: int, most: int) -> int:
        """Make R of a place, `most` x `channels` numbers of +-1 / sqrt(channels).

        R is empty if there are at most `most` channels. Returns the number of mixed channels.
        """
        mixing = torch.zeros(0)
        if channels > most:
            # numpy guarantees the numbers of its legacy generator, so they need not be saved
            signs = np.random.RandomState(place).randint(0, 2, (most, channels)) * 2.0 - 1
            mixing = torch.from_numpy((signs / channels**0.5).astype(np.float32))[:, :, None, None]
        self.register_buffer(f"mix_{place}", mixing.to(self.scale.device), persistent=False)
        return min(channels, most)

    def _remove_hooks(self) -> None:
        """Remove the hooks that a copy of a backbone of this class brings with it."""
        for module in self.modules():
            hooks = module._forward_hooks
            for key in [key for key, hook in hooks.items() if isinstance(hook, _PlaceHook)]:
                del hooks[key]


def grid_average_pool(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return the mean of each cell of a grid over the maps.

    Args:
        x: N x C x H x W.
        grid: The number of cells, vertically and horizontally. Cells overlap if the side is not a
            multiple of this number.

    Returns:
        N x C x `grid`.
    """
    if x.shape[2] % grid[0] == 0 and x.shape[3] % grid[1] == 0:
        return F.avg_pool2d(x, (x.shape[2] // grid[0], x.shape[3] // grid[1]))
    return F.adaptive_avg_pool2d(x, grid)


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
    enough = [level for level in sorted(found) if len(found[level]) > len(DEPTHS)]
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


@cache
def generic_frames(size: int) -> Tensor:
    """Return 48 frames of different rendered objects in different places.

    The mean of a backbone's features over them is a centre that does not depend on what is taught.

    Args:
        size: the side of the frames, in pixels.

    Returns:
        uint8, 48 x size x size x 3. Do not modify the array, which is cached for the next caller.
    """
    with Image.open(SHEET) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    tiles = pixels.reshape(SHEET_ROWS, TILE_SIDE, SHEET_COLUMNS, TILE_SIDE, 3).swapaxes(1, 2)
    frames = [crop_and_resize(tile, size) for tile in tiles.reshape(-1, TILE_SIDE, TILE_SIDE, 3)]
    return torch.from_numpy(np.stack(frames))


def shipped_reference(backbone: Backbone) -> tuple[Tensor, Tensor] | None:
    """Return the shipped result of `LessonSample.set_reference` for the generic frames.

    The package contains this reference for its own MobileNet v1 at 128, 160, 192 and 224 px, so
    that the first lesson need not wait for 48 frames.

    Args:
        backbone: the network, read at all places.

    Returns:
        The centre and the spread; None if the package does not contain those of this network.
    """
    if not any(name.startswith(f"{backbone.spec.size}/") for name in _references()):
        return None
    key = reference_key(backbone)
    if f"{key}/centre" not in _references():
        return None
    return _references()[f"{key}/centre"], _references()[f"{key}/spread"]


def reference_key(backbone: Backbone) -> str:
    """Identify a network by its size, its preprocessing, its places and all of its weights.

    Args:
        backbone: the network.

    Returns:
        The size in pixels and 32 hexadecimal digits.
    """
    spec = backbone.spec
    facts = (spec.mean, spec.std, sorted(spec.options.items()), getattr(backbone, "sizes", ()))
    sha = hashlib.sha256(repr(facts).encode())
    for name, tensor in sorted(backbone.body.state_dict().items()):
        sha.update(name.encode())
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return f"{spec.size}/{sha.hexdigest()[:32]}"


@cache
def _references() -> dict[str, Tensor]:
    return load_file(REFERENCES)
