"""Labels of the rendered data set: the print, keys and screens painted on objects."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor

from primavista.streams.rendered.traits import (
    ACCENTS,
    BLACK,
    BLUE,
    BODIES,
    DARK,
    GREEN,
    GREY,
    NAVY,
    ORANGE,
    PALE,
    RED,
    STEEL,
    TEAL,
    WHITE,
    YELLOW,
    Colour,
    Dice,
    Traits,
)

LABEL_HEIGHT, LABEL_WIDTH = 96, 192


class Label:
    """A canvas that is wrapped around an object.

    u in [0, 1) goes around the object (or over front and back), and v in [0, 1] from low to high.

    Args:
        base: The colour of the object.
        dice: The source of random numbers.
    """

    def __init__(self, base: Colour, dice: Dice) -> None:
        self.dice = dice
        self.canvas = torch.tensor(base).view(3, 1, 1).repeat(1, LABEL_HEIGHT, LABEL_WIDTH)
        self.v = (
            ((torch.arange(LABEL_HEIGHT) + 0.5) / LABEL_HEIGHT).view(-1, 1).expand(-1, LABEL_WIDTH)
        )
        self.u = (
            ((torch.arange(LABEL_WIDTH) + 0.5) / LABEL_WIDTH).view(1, -1).expand(LABEL_HEIGHT, -1)
        )

    def paint(self, mask: Tensor, colour: Colour, strength: float = 1.0) -> None:
        """Paint a colour through a mask.

        Args:
            mask: The opacity of each point, as truth values or numbers in [0, 1].
            colour: Red, green and blue in [0, 1].
            strength: A factor for the mask.
        """
        weight = mask.to(torch.float32) * strength
        self.canvas = torch.lerp(self.canvas, torch.tensor(colour).view(3, 1, 1), weight)

    def within(self, u: float, v: float, wide: float, tall: float) -> Tensor:
        """Return the mask of a rectangle.

        Args:
            u: Its centre.
            v: Its centre.
            wide: Half its width.
            tall: Half its height.
        """
        return ((self.u - u).abs() < wide) & ((self.v - v).abs() < tall)

    def disc(self, u: float, v: float, wide: float, tall: float) -> Tensor:
        """Return the mask of an ellipse.

        Args:
            u: Its centre.
            v: Its centre.
            wide: Half its width.
            tall: Half its height.
        """
        return ((self.u - u) / wide) ** 2 + ((self.v - v) / tall) ** 2 < 1

    def keys(self, u: float, v: float, wide: float, tall: float, columns: int, rows: int) -> Tensor:
        """Return the mask of a grid of rounded keys inside a rectangle.

        Args:
            u: The centre of the rectangle.
            v: The centre of the rectangle.
            wide: Half its width.
            tall: Half its height.
            columns: The number of columns.
            rows: The number of rows.
        """
        across = ((self.u - u + wide) / (2 * wide) * columns) % 1 - 0.5
        up = ((self.v - v + tall) / (2 * tall) * rows) % 1 - 0.5
        return self.within(u, v, wide, tall) & (across.abs() ** 3 + up.abs() ** 3 < 0.05)

    def writing(self, u: float, v: float, wide: float, tall: float, letters: int) -> Tensor:
        """Return the mask of letter-like marks: each letter is a random 3 x 5 pattern of dots.

        Args:
            u: The centre of the text.
            v: The centre of the text.
            wide: Half its width.
            tall: Half its height.
            letters: The number of letters.
        """
        dots = self.dice.table(5, letters, 4) < 0.62
        dots[:, :, 3] = False
        column = ((self.u - u + wide) / (2 * wide) * letters * 4).long().clamp(0, letters * 4 - 1)
        row = ((self.v - v + tall) / (2 * tall) * 5).long().clamp(0, 4)
        return self.within(u, v, wide, tall) & dots.reshape(5, -1)[row, column]


def _stripes(label: Label, n: float) -> Tensor:
    return (label.v * n) % 1 < 0.45


def _tartan(label: Label, n: float) -> Tensor:
    return ((label.v * n) % 1 < 0.4).float() * 0.5 + ((label.u * n * 2).floor() % 2) * 0.5


def _dots(label: Label, n: float) -> Tensor:
    shifted = label.u * 2 * n + (label.v * n).floor() * 0.5
    return ((shifted % 1 - 0.5) ** 2 + ((label.v * n) % 1 - 0.5) ** 2) < 0.09


def _wave(label: Label, n: float) -> Tensor:
    return (label.v - 0.5 - 0.2 * torch.sin(label.u * 2 * pi * round(n / 2))).abs() < 0.1


def _seam(label: Label, n: float) -> Tensor:
    return (label.v - 0.5 - 0.3 * torch.sin(label.u * 4 * pi)).abs() < 0.012 * n


def _panels(label: Label, n: float) -> Tensor:
    across = (label.u * round(n)) % 1
    return (torch.minimum(across, 1 - across) < 0.06) | ((label.v - 0.5).abs() < 0.025)


def _fade(label: Label, n: float) -> Tensor:
    return ((label.v - 0.3) * n / 4).clamp(0, 1)


def _plain(label: Label, n: float) -> Tensor:
    return torch.zeros_like(label.v)


Pattern = Callable[[Label, float], Tensor]
PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "cans": (_wave, _fade, _stripes, _plain, _wave),
    "cups": (_plain, _tartan, _stripes, _dots, _plain),
    "balls": (_seam, _panels, _stripes, _panels, _seam),
    "markers": (_plain, _stripes, _plain, _fade, _plain),
}


def _wrapped(label: Label, traits: Traits, name: str) -> None:
    """Paint the pattern, logo and writing of round things."""
    first, second = traits.colour("accent", ACCENTS), traits.colour("second", ACCENTS)
    label.paint(traits.pick("pattern", PATTERNS[name])(label, traits.number("count", 4, 9)), first)
    tall, at = traits.number("logo", 0.08, 0.2), traits.number("height", 0.45, 0.7)
    wide = tall * (0.5 if name != "markers" else 1.2)
    for u in (0.27, 0.77):
        if name != "markers":
            label.paint(label.disc(u, at, wide, tall), second)
        label.paint(
            label.writing(u, at - 0.02, wide * 1.5, tall * 0.35, 5),
            WHITE if name != "cups" else first,
        )
        label.paint(label.writing(u, 0.2, 0.1, 0.05, 8), second)


def _phone_front(label: Label, traits: Traits, k: dict[str, float]) -> None:
    top = 0.94 - 0.06 * k["screen"]
    half = 0.42 * k["screen"]
    label.paint(label.within(0.25, top - half, 0.225, half), BLACK)
    glow = traits.colour("glow", (NAVY, DARK, TEAL, BLACK, GREY))
    label.paint(label.within(0.25, top - half, 0.205, half * 0.93), glow, 0.85)
    label.paint(
        label.keys(0.25, top - half * 0.8, 0.18, half * 0.55, 4, 3),
        traits.colour("icon", ACCENTS),
        0.35,
    )
    below = top - 2 * half
    if below > 0.2:
        label.paint(
            label.keys(0.25, below / 2, 0.2, below * 0.4, 3, int(k["keys"])),
            traits.colour("key", (STEEL, PALE, DARK, WHITE)),
        )
    else:
        label.paint(label.disc(0.25, below / 2, 0.05, below * 0.3), GREY)
    label.paint(label.writing(0.75, traits.number("badge", 0.4, 0.75), 0.1, 0.03, 6), PALE)


def _remote_front(label: Label, traits: Traits, k: dict[str, float]) -> None:
    keys = traits.colour("keys", (GREY, PALE, DARK, WHITE, BLUE))
    label.paint(label.keys(0.25, 0.5, 0.19, 0.45, int(k["columns"]), int(k["rows"])), keys)
    at = 0.5 + k["pad"] / 2
    label.paint(
        label.within(0.25, at, 0.25, 0.16), traits.colour("panel", BODIES["remote controls"])
    )
    for i, colour in enumerate((RED, GREEN, YELLOW, BLUE)):
        label.paint(label.disc(0.1 + i * 0.1, traits.number("row", 0.1, 0.35), 0.03, 0.015), colour)
    label.paint(label.disc(0.1, 0.93, 0.04, 0.02), RED)
    if k["screen"] > 0:
        label.paint(label.within(0.25, 0.82, 0.17, k["screen"] * 0.6), (0.62, 0.68, 0.55))
    label.paint(label.writing(0.25, 0.04, 0.1, 0.015, 6), PALE)


def _plug_front(label: Label, traits: Traits, k: dict[str, float]) -> None:
    ring = traits.colour("ring", (GREY, PALE, BLUE, ORANGE, DARK))
    if k["earth"] < 0.5:
        label.paint(label.disc(0.25, 0.45, 0.17, 0.34), ring, 0.6)
    for offset in (-0.07, 0.0, 0.07):
        label.paint(label.disc(0.25 + offset, 0.45, 0.02, 0.045), BLACK)
    label.paint(label.writing(0.75, traits.number("note", 0.3, 0.7), 0.15, 0.05, 7), GREY)
    label.paint(label.within(0.5, traits.number("band", 0.08, 0.95), 0.5, 0.03), ring)


def paint_label(name: str, base: Colour, traits: Traits, k: dict[str, float]) -> Tensor:
    """Paint the label of an object: print, keys or a screen.

    Args:
        name: The family of the object, such as "cans".
        base: The colour of its body.
        traits: Its traits.
        k: Its measures.

    Returns:
        3 x 96 x 192, with values in [0, 1].
    """
    label = Label(base, Dice("label", *traits.key, traits.member))
    if name in PATTERNS:
        _wrapped(label, traits, name)
    elif name == "mobile phones":
        _phone_front(label, traits, k)
    elif name == "remote controls":
        _remote_front(label, traits, k)
    elif name == "plug adapters":
        _plug_front(label, traits, k)
    return label.canvas
