"""Backbones in torch that are read at several places in one pass; see `backbones/places.py`.

`MapBackbone` gives the maps for pictures of any size, from which windows are read.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from primavista.backbones.onnx import no_maps
from primavista.backbones.places import (
    CELL,
    PLACES,
    PRIORS,
    ROOT_SOFTENING,
    Place,
    WindowReader,
    middle_masks,
)
from primavista.backbones.reference import shipped_reference
from primavista.networks.base import Backbone, named_weights

LEAST_BLOCKS = 5  # so many maps or more make a level of blocks
TOLERANCE = 1e-3
MAX_PREFIX_TOKENS = 5  # the class token of a transformer and four registers

Shape = tuple[int, ...]


# a context variable, since threads may share a backbone
_reader: ContextVar[Callable[[nn.Module, Tensor], None] | None] = ContextVar("reader", default=None)


def make_readable(module: nn.Module) -> None:
    """Give a module a forward hook, which does nothing outside `reading`."""
    if _show_output not in module._forward_hooks.values():
        module.register_forward_hook(_show_output)


def _show_output(module: nn.Module, inputs: object, output: Tensor) -> None:
    reader = _reader.get()
    if reader is not None:
        reader(module, output)


@contextmanager
def reading(reader: Callable[[nn.Module, Tensor], None]) -> Iterator[None]:
    """Call `reader` with each readable module that runs inside the block, and its output.

    The reader reads at once, because the next layer may overwrite the output.
    """
    before = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(before)


@contextmanager
def hooked(
    modules: Iterable[nn.Module], hook: Callable[[nn.Module, object, object], None]
) -> Iterator[None]:
    """Call `hook` with each of some modules that runs inside the block, its inputs and output."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class MiddleBackbone(Backbone):
    """z = [root(features), root(v_1 map_1), ..., root(v_6 map_6)],  root(x) = x / sqrt(|x| + 0.001)

    The maps are those of the blocks at one half, two thirds, five sixths and the end of the depth.
    The fixed weights v take the mean over the central half or third of the picture, or compare its
    quarters (`Place`); pixels on the border of that region count in part. `sizes` are the lengths
    of these parts, beginning with the backbone's own features. `priors` are the prior weights of
    the places: 1 at the end of the network, halved for every sixth of the depth before it. If the
    body has no maps, only its own features are read.

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
        blocks = blocks_with_maps(self)
        places = PLACES if blocks else ()
        sizes = [self.dim]
        # the block of each place after the first, and what is read of its map
        self.read: list[tuple[nn.Module, Place]] = []
        for k, (depth, share, quarters) in enumerate(places):
            block, (channels, height, width) = blocks[math.ceil(len(blocks) * depth / 6) - 1]
            place = Place(k, share, quarters)
            masks = torch.tensor(middle_masks(place, height, width), device=self.scale.device)
            if quarters:
                masks = masks[torch.arange(channels) % len(masks)]
            self.register_buffer(f"middle_{k}", masks, persistent=False)
            make_readable(block)
            sizes.append(channels)
            self.read.append((block, place))
        self.sizes = tuple(sizes)
        self.priors = PRIORS if places else (1.0,)
        self.dim = sum(sizes)

    def forward(self, frames: Tensor) -> Tensor:
        """Compute the features of some frames.

        Args:
            frames: uint8, N x H x W x 3, RGB, on the device of the backbone.

        Returns:
            float32, N x `dim`: the places one after the other, with `sizes` numbers each.
        """
        if not self.sizes:
            return super().forward(frames)  # the constructor is still looking for blocks
        means: dict[int, Tensor] = {}

        def read_middle(module: nn.Module, output: Tensor) -> None:
            for place, (block, _) in enumerate(self.read):
                if block is module:
                    weights = self.get_buffer(f"middle_{place}")
                    means[place] = (_float(as_map(output)) * weights).sum((2, 3))

        with reading(read_middle):
            own = _float(super().forward(frames))
        x = torch.cat([own, *(means[place] for place in range(len(self.read)))], 1)
        return x / (x.abs() + ROOT_SOFTENING).sqrt()


def _float(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


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
    with hooked(members, note_shape):
        backbone._probe()
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


class MapBackbone(nn.Module):
    """The maps whose means are the features of a backbone, for pictures of any size.

    The features of a window of a picture are means of these maps over parts of the window, which
    `reader` defines. The hooks stay on the body, and do nothing unless this module runs.

    Args:
        backbone: The network, which is not copied. Its features must be means of maps, as in a
            convolutional network; those of a transformer are not.

    Raises:
        InputError: If its features are not means of maps, or if it accepts only one size.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        # not a submodule: its state belongs to the strategy
        self._backbone = (backbone,)
        backbone.eval()
        modules = [_feature_map(backbone)]
        places = [Place(0, 1.0)]
        if isinstance(backbone, MiddleBackbone):
            for block, place in backbone.read:
                if block not in modules:
                    modules.append(block)
                places.append(place._replace(map=modules.index(block)))
        for module in modules:
            make_readable(module)
        self._modules_read = tuple(modules)
        self.count = len(modules)
        root = isinstance(backbone, MiddleBackbone)
        self.reader = WindowReader(tuple(places), root, backbone.spec.size)
        self._check()

    @property
    def device(self) -> torch.device:
        """The device of the backbone."""
        return self._backbone[0].scale.device

    def forward(self, frames: Tensor) -> tuple[Tensor, ...]:
        """Compute the maps of some pictures.

        Args:
            frames: uint8, N x H x W x 3, RGB, with sides that are multiples of 32.

        Returns:
            One tensor per map, N x C x h x w.
        """
        maps: dict[nn.Module, Tensor] = {}

        def read_map(module: nn.Module, output: Tensor) -> None:
            if module in self._modules_read:
                maps[module] = output.to(torch.promote_types(output.dtype, torch.float32))

        with reading(read_map):
            Backbone.forward(self._backbone[0], frames)
        return tuple(maps[module] for module in self._modules_read)

    @torch.no_grad()
    def _check(self) -> None:
        """Reject a network whose features are not means of maps, or that accepts only one size."""
        backbone = self._backbone[0]
        side = backbone.spec.size
        frames = _noise(side, side, backbone.scale.device)
        middle = torch.tensor([side / 2]).double().numpy()
        try:
            maps = [x[0].cpu().numpy() for x in self(frames)]
            own = self.reader.features(maps, (side, side), middle, middle, side)
            right = torch.allclose(
                torch.from_numpy(own), backbone(frames)[:1].cpu(), rtol=TOLERANCE, atol=TOLERANCE
            )
            self(_noise(8 * CELL, 10 * CELL, backbone.scale.device))
        except (RuntimeError, KeyError, ValueError, IndexError, AssertionError):
            right = False
        if not right:
            raise no_maps(backbone.spec.name)


@torch.no_grad()
def _feature_map(backbone: Backbone) -> nn.Module:
    """Find the module whose map has the features of the backbone as its means."""
    found: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim == 4:
            found[module] = output.mean((2, 3))

    side = backbone.spec.size
    with hooked(backbone.body.modules(), note):
        own = Backbone.forward(backbone, _noise(side, side, backbone.scale.device))
    for module, mean in reversed(found.items()):
        if mean.shape == own.shape and torch.allclose(mean, own, TOLERANCE, TOLERANCE):
            return module
    raise no_maps(backbone.spec.name)


def _noise(height: int, width: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (2, height, width, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)
