"""A backbone read at several depths: coarse pictures of its middle maps beside its own features."""

from __future__ import annotations

import copy
import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.backbones.base import Backbone

SIXTHS = (
    2,
    3,
    4,
    5,
)  # of the depth, where blocks are read; what comes last are the backbone's own features
GRID = 4  # cells a side
PLACE = 1536  # numbers of one place: 16 cells of 96 mixed channels
MOST = 2048  # of the backbone's own features
SOFT = 1e-3  # where the root ends and a straight line through 0 begins

# the maps that the blocks give during one forward pass: a context variable, since threads may share a backbone
_maps: ContextVar[dict[int, Tensor] | None] = ContextVar("maps", default=None)


@dataclass(frozen=True)
class _Tap:
    """The hook of one block."""

    place: int
    grid: tuple[int, int]

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        maps = _maps.get()
        if maps is not None:
            maps[self.place] = pooled(
                output, self.grid
            )  # at once: the next layer may overwrite the map


class TappedBackbone(Backbone):
    """z = [R_1 root(pool(map_1)), ..., root(features)],  root(x) = x / sqrt(|x| + 0.001)

    for blocks at a third, a half, two thirds and five sixths of the depth: the mean of each of 4 x 4 cells, its signed root,
    and its channels mixed down to 96 by R, fixed random signs that depend on nothing but the place; then the features of the
    backbone itself. `sizes` are the lengths of these parts. A body without maps inside has its own features alone.

    It has a copy of the backbone's body under the same names, and the same `spec`.
    """

    sizes: tuple[int, ...] = ()

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(copy.deepcopy(backbone.body), backbone.spec)
        for module in self.modules():  # the copy of a tapped one is tapped already
            for key in [
                key for key, hook in module._forward_hooks.items() if isinstance(hook, _Tap)
            ]:
                del module._forward_hooks[key]
        blocks = _blocks(self)
        chosen = (
            sorted({math.ceil(len(blocks) * sixths / 6) - 1 for sixths in SIXTHS}) if blocks else []
        )
        sizes = []
        for place, (block, (channels, height, width)) in enumerate(blocks[k] for k in chosen):
            grid = min(GRID, height), min(GRID, width)
            block.register_forward_hook(_Tap(place, grid))
            sizes.append(self._mix(place, channels, PLACE // math.prod(grid)) * math.prod(grid))
        self.sizes = (*sizes, self._mix(len(sizes), self.dim, MOST))
        self.dim = self._probe()

    def forward(self, frames: Tensor) -> Tensor:
        """uint8, N x H x W x 3 to float, N x dim."""
        before = _maps.set({})
        try:
            own = super().forward(frames)
            maps = _maps.get() or {}
        finally:
            _maps.reset(before)
        if not self.sizes:
            return own  # it is being made
        parts = [*(maps[place] for place in range(len(self.sizes) - 1)), own[:, :, None, None]]
        return torch.cat([self._part(place, x) for place, x in enumerate(parts)], 1)

    def _part(self, place: int, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        x = x / (x.abs() + SOFT).sqrt()
        mix = getattr(self, f"mix_{place}")
        return (F.conv2d(x, mix) if mix.numel() else x).flatten(1)

    def _mix(self, place: int, channels: int, most: int) -> int:
        """Make R of a place: `most` x channels of +-1 / sqrt(channels), or nothing where there are no more than that."""
        mix = torch.zeros(0)
        if channels > most:
            # numpy's legacy generator: its numbers are the same for ever, so they need not be kept
            signs = np.random.RandomState(place).randint(0, 2, (most, channels)) * 2.0 - 1
            mix = torch.from_numpy((signs / channels**0.5).astype(np.float32))[:, :, None, None]
        self.register_buffer(f"mix_{place}", mix, persistent=False)
        return min(channels, most)


def tapped(backbone: Backbone) -> TappedBackbone:
    """The backbone read at several depths; `sizes` says how many numbers come from each.

    >>> from primavista.backbones.registry import build
    >>> tapped(build("mobilenet_v1", "random", width=0.25, size=64)).sizes
    (1024, 1536, 1536, 1536, 256)
    """
    return TappedBackbone(backbone)


def pooled(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """The mean of each cell of a grid."""
    if x.shape[2] % grid[0] == 0 and x.shape[3] % grid[1] == 0:
        return F.avg_pool2d(x, (x.shape[2] // grid[0], x.shape[3] // grid[1]))
    return F.adaptive_avg_pool2d(x, grid)


def _blocks(backbone: Backbone) -> list[tuple[nn.Module, tuple[int, ...]]]:
    """The blocks of any body in the order in which they run, and the shape of their maps: the members of its sequences.

    Sequences may hold sequences: of their levels, the outermost with more maps than there are depths to read, or else the
    fullest.
    """
    body = backbone.body
    level = {body: 0}
    for name, module in body.named_modules():
        if name:
            parent = body.get_submodule(name.rpartition(".")[0])
            level[module] = level[parent] + isinstance(parent, nn.Sequential | nn.ModuleList)
    found: dict[int, dict[nn.Module, tuple[int, ...]]] = {}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) > 1:
            found.setdefault(level[module], {})[module] = tuple(output.shape[1:])

    containers = [
        module for module in body.modules() if isinstance(module, nn.Sequential | nn.ModuleList)
    ]
    hooks = [
        child.register_forward_hook(note)
        for container in containers
        for child in container.children()
    ]
    try:
        backbone._probe()
    finally:
        for hook in hooks:
            hook.remove()
    enough = [k for k in sorted(found) if len(found[k]) > len(SIXTHS)]
    best = enough[0] if enough else max(found, key=lambda k: len(found[k]), default=0)
    return list(found.get(best, {}).items())
