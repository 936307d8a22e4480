"""The looks of the objects of the rendered data set: measures, materials and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from primavista.streams.rendered.canvas import Canvas
from primavista.streams.rendered.shapes import FAMILIES, Measures
from primavista.streams.rendered.traits import (
    ACCENTS,
    BLACK,
    BLUE,
    BODIES,
    BROWN,
    CREAM,
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


@dataclass(frozen=True)
class SurfaceMaterial:
    """The material of one part of an object.

    Args:
        colour: Red, green and blue in [0, 1].
        gloss: The strength of highlights.
        metal: The strength of metallic reflection, from 0 to 1.
        alpha: Its opacity.
        labelled: True if the label is printed on it.
    """

    colour: Colour
    gloss: float = 0.4
    metal: float = 0.0
    alpha: float = 1.0
    labelled: bool = False


@dataclass(frozen=True)
class ObjectLook:
    """The look of an object, which is the same in all sessions.

    Args:
        family: The index of its shape in `FAMILIES`.
        measures: The measures of the shape.
        materials: The material of each part.
        label: The label, 3 x height x width.
    """

    family: int
    measures: Measures
    materials: tuple[SurfaceMaterial, ...]
    label: Tensor


RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "plug adapters": {
        "half": (0.24, 0.31),
        "tall": (0.22, 0.36),
        "depth": (0.75, 1.0),
        "roundness": (0.0, 1.0),
        "neck": (0.0, 0.12),
        "spread": (0.32, 0.5),
        "pin": (0.028, 0.045),
        "reach": (0.16, 0.24),
        "earth": (0.0, 1.0),
    },
    "mobile phones": {
        "wide": (0.27, 0.37),
        "tall": (0.54, 0.7),
        "thick": (0.045, 0.1),
        "edge": (0.02, 0.045),
        "camera": (0.2, 0.6),
        "aerial": (-0.3, 0.7),
        "screen": (0.4, 0.9),
        "keys": (3.0, 5.0),
    },
    "scissors": {
        "open": (0.1, 0.27),
        "blade": (0.62, 0.86),
        "broad": (0.06, 0.095),
        "ring": (0.15, 0.21),
        "oval": (1.0, 1.6),
        "shank": (0.36, 0.5),
        "grip": (0.035, 0.06),
    },
    "light bulbs": {
        "size": (0.27, 0.34),
        "stretch": (0.95, 1.4),
        "pitch": (0.15, 0.2),
        "collar": (0.13, 0.2),
        "skirt": (0.05, 0.2),
    },
    "cans": {"radius": (0.26, 0.35), "half": (0.5, 0.74)},
    "glasses": {
        "wide": (0.25, 0.31),
        "tall": (0.16, 0.24),
        "wire": (0.016, 0.045),
        "bridge": (0.06, 0.1),
        "slant": (-0.15, 0.1),
        "curve": (0.35, 1.0),
        "temple": (0.018, 0.04),
        "fold": (0.0, 0.25),
    },
    "balls": {"size": (0.36, 0.62), "stretch": (0.94, 1.25)},
    "markers": {
        "radius": (0.085, 0.125),
        "half": (0.55, 0.68),
        "split": (0.1, 0.5),
        "flat": (1.0, 1.25),
        "taper": (0.0, 0.1),
        "clip": (0.01, 0.035),
        "plug": (0.75, 1.0),
    },
    "cups": {
        "radius": (0.34, 0.43),
        "half": (0.38, 0.52),
        "flare": (-0.03, 0.09),
        "belly": (0.0, 0.07),
        "reach": (0.2, 0.3),
        "loop": (0.45, 0.75),
        "lift": (-0.15, 0.2),
        "strap": (0.5, 1.0),
        "grip": (0.035, 0.06),
    },
    "remote controls": {
        "wide": (0.2, 0.28),
        "tall": (0.68, 0.92),
        "thick": (0.07, 0.12),
        "edge": (0.04, 0.06),
        "waist": (-0.08, 0.12),
        "bow": (-0.05, 0.06),
        "pad": (-0.5, 0.45),
        "knob": (0.015, 0.05),
        "rows": (5.0, 10.0),
        "columns": (3.0, 4.9),
        "screen": (-0.2, 0.25),
    },
}


def _materials(name: str, body: Colour, traits: Traits) -> tuple[SurfaceMaterial, ...]:
    """Return one material for each part of the shape of a family, in the same order."""
    accent = traits.colour("part", ACCENTS)
    metal = SurfaceMaterial(STEEL, 0.9, 0.9)
    gloss = traits.number("gloss", 0.15, 0.7)
    flat = name in ("mobile phones", "remote controls", "plug adapters")
    main = SurfaceMaterial(body, gloss, labelled=flat or name in PATTERNS)
    plain = SurfaceMaterial(body, gloss)
    brass = SurfaceMaterial(traits.pick("brass", (STEEL, (0.8, 0.65, 0.35))), 0.9, 0.8)
    tint = traits.colour("tint", (BLACK, BROWN, BLUE, GREY, ORANGE))
    fitting = SurfaceMaterial(traits.colour("fitting", (WHITE, STEEL, PALE, GREY, WHITE)), 0.4)
    glass = SurfaceMaterial(body, 0.9, alpha=traits.number("glass", 0.75, 1.0))
    lens = traits.pick("lens", (0.25, 0.9, 0.7, 0.3, 0.95))
    trim = SurfaceMaterial(accent, gloss)
    end = SurfaceMaterial(traits.pick("end", (accent, body, BLACK)), gloss)
    handle = plain if traits.number("handle", 0, 1) < 0.6 else trim
    lining = SurfaceMaterial(traits.pick("lining", (WHITE, body, CREAM)), gloss)
    knob = traits.colour("knob", (GREY, STEEL, DARK, PALE, BLACK))
    parts: dict[str, tuple[SurfaceMaterial, ...]] = {
        "plug adapters": (main, plain, brass),
        "mobile phones": (main, SurfaceMaterial(DARK, 0.6)),
        "scissors": (metal, plain, SurfaceMaterial(GREY, 0.8, 0.6)),
        "light bulbs": (glass, fitting, brass),
        "cans": (SurfaceMaterial(body, 0.7, 0.15, labelled=True), metal),
        "glasses": (plain, SurfaceMaterial(tint, 1.0, alpha=lens), plain),
        "balls": (main,),
        "markers": (main, trim, end),
        "cups": (main, handle, lining),
        "remote controls": (
            main,
            SurfaceMaterial(knob, 0.5),
            SurfaceMaterial((0.2, 0.02, 0.05), 0.8),
        ),
    }
    return parts[name]


class Label(Canvas):
    """A canvas that is wrapped around an object.

    u in [0, 1) goes around the object (or over front and back), and v in [0, 1] from low to high.

    Args:
        base: The colour of the object.
        dice: The source of random numbers.
    """

    def __init__(self, base: Colour, dice: Dice) -> None:
        super().__init__(LABEL_HEIGHT, LABEL_WIDTH, dice, torch.device("cpu"))
        self.fill(base)
        self.u, self.v = self.x, self.y

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
        writing = label.writing(u, at - 0.02, wide * 1.5, tall * 0.35, 5)
        label.paint(writing, WHITE if name != "cups" else first)
        label.paint(label.writing(u, 0.2, 0.1, 0.05, 8), second)


def _phone_front(label: Label, traits: Traits, k: Measures) -> None:
    top = 0.94 - 0.06 * k.screen
    half = 0.42 * k.screen
    label.paint(label.within(0.25, top - half, 0.225, half), BLACK)
    glow = traits.colour("glow", (NAVY, DARK, TEAL, BLACK, GREY))
    label.paint(label.within(0.25, top - half, 0.205, half * 0.93), glow, 0.85)
    icons = label.keys(0.25, top - half * 0.8, 0.18, half * 0.55, 4, 3)
    label.paint(icons, traits.colour("icon", ACCENTS), 0.35)
    below = top - 2 * half
    if below > 0.2:
        keys = label.keys(0.25, below / 2, 0.2, below * 0.4, 3, int(k.keys))
        label.paint(keys, traits.colour("key", (STEEL, PALE, DARK, WHITE)))
    else:
        label.paint(label.disc(0.25, below / 2, 0.05, below * 0.3), GREY)
    label.paint(label.writing(0.75, traits.number("badge", 0.4, 0.75), 0.1, 0.03, 6), PALE)


def _remote_front(label: Label, traits: Traits, k: Measures) -> None:
    keys = traits.colour("keys", (GREY, PALE, DARK, WHITE, BLUE))
    label.paint(label.keys(0.25, 0.5, 0.19, 0.45, int(k.columns), int(k.rows)), keys)
    at = 0.5 + k.pad / 2
    panel = traits.colour("panel", BODIES["remote controls"])
    label.paint(label.within(0.25, at, 0.25, 0.16), panel)
    for i, colour in enumerate((RED, GREEN, YELLOW, BLUE)):
        label.paint(label.disc(0.1 + i * 0.1, traits.number("row", 0.1, 0.35), 0.03, 0.015), colour)
    label.paint(label.disc(0.1, 0.93, 0.04, 0.02), RED)
    if k.screen > 0:
        label.paint(label.within(0.25, 0.82, 0.17, k.screen * 0.6), (0.62, 0.68, 0.55))
    label.paint(label.writing(0.25, 0.04, 0.1, 0.015, 6), PALE)


def _plug_front(label: Label, traits: Traits, k: Measures) -> None:
    ring = traits.colour("ring", (GREY, PALE, BLUE, ORANGE, DARK))
    if k.earth < 0.5:
        label.paint(label.disc(0.25, 0.45, 0.17, 0.34), ring, 0.6)
    for offset in (-0.07, 0.0, 0.07):
        label.paint(label.disc(0.25 + offset, 0.45, 0.02, 0.045), BLACK)
    label.paint(label.writing(0.75, traits.number("note", 0.3, 0.7), 0.15, 0.05, 7), GREY)
    label.paint(label.within(0.5, traits.number("band", 0.08, 0.95), 0.5, 0.03), ring)


def paint_label(name: str, base: Colour, traits: Traits, k: Measures) -> Tensor:
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


def look_of(seed: int, category: int, member: int, spread: float) -> ObjectLook:
    """Draw the look of an object.

    Args:
        seed: The seed of the scene.
        category: The number of the category, from 0. Beyond ten, families repeat with other traits
            and hues.
        member: The number of the object in its category, from 0.
        spread: The difference between members of a category, from 0 to 1.

    Returns:
        The look, the same in all sessions.
    """
    family = category % len(FAMILIES)
    name = FAMILIES[family][0]
    traits = Traits(seed, category, member, spread)
    drawn = {key: traits.number(key, low, high) for key, (low, high) in RANGES[name].items()}
    measures = Measures(**drawn)
    if name == "light bulbs":
        measures.style = traits.pick("style", (0.0, 1.0, 2.0, 3.0, 0.0))
        measures.stretch *= 1.25 if measures.style == 1.0 else 1.0
    body = traits.colour("body", BODIES[name])
    return ObjectLook(
        family, measures, _materials(name, body, traits), paint_label(name, body, traits, measures)
    )
