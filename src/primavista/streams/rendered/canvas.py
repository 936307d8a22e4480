"""The canvas of backgrounds and labels."""

from __future__ import annotations

import torch
from torch import Tensor

from primavista.streams.rendered.traits import Colour, Dice


class Canvas:
    """A picture (3 x height x width) that is painted layer by layer.

    x goes along its rows and y along its columns, both in [0, 1].

    Args:
        height: The height in pixels.
        width: The width in pixels.
        dice: The source of all random numbers of this picture.
        device: The device to paint on.
    """

    def __init__(self, height: int, width: int, dice: Dice, device: torch.device) -> None:
        self.dice, self.device = dice, device
        across = (torch.arange(width, device=device) + 0.5) / width
        along = (torch.arange(height, device=device) + 0.5) / height
        self.x = across.view(1, -1).expand(height, -1)
        self.y = along.view(-1, 1).expand(-1, width)
        self.canvas = torch.zeros(3, height, width, device=device)

    def colour(self, colour: Colour) -> Tensor:
        """Return a colour as a 3 x 1 x 1 tensor that broadcasts over the canvas.

        Args:
            colour: Red, green and blue in [0, 1].
        """
        return torch.tensor(colour, device=self.device).view(3, 1, 1)

    def fill(self, colour: Colour) -> None:
        """Paint the whole canvas in one colour.

        Args:
            colour: Red, green and blue in [0, 1].
        """
        self.canvas = self.colour(colour).repeat(1, *self.x.shape)

    def paint(self, mask: Tensor, colour: Colour, strength: float = 1.0) -> None:
        """Paint a colour over the canvas, through a mask.

        Args:
            mask: The opacity of each pixel, as truth values or numbers in [0, 1].
            colour: Red, green and blue in [0, 1].
            strength: A factor for the mask.
        """
        opacity = mask.to(torch.float32) * strength
        self.canvas = torch.lerp(self.canvas, self.colour(colour), opacity)
