"""The maps of a backbone for pictures of any size, from which windows are read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from primavista.backbones.onnx import no_maps
from primavista.backbones.places import CELL, Place, WindowReader
from primavista.networks.base import Backbone
from primavista.networks.middle import MiddleBackbone, hooked, make_readable, reading

TOLERANCE = 1e-3


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
            for block, share in backbone.read:
                if block not in modules:
                    modules.append(block)
                places.append(Place(modules.index(block), share))
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
