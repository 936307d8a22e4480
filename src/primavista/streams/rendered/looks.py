"""The looks of the objects of the rendered data set: measures, materials and labels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from primavista.streams.rendered.labels import PATTERNS, paint_label
from primavista.streams.rendered.shapes import FAMILIES
from primavista.streams.rendered.traits import (
    ACCENTS,
    BLACK,
    BLUE,
    BODIES,
    BROWN,
    CREAM,
    DARK,
    GREY,
    ORANGE,
    PALE,
    STEEL,
    WHITE,
    Colour,
    Traits,
)


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
    measures: dict[str, float]
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
    main = SurfaceMaterial(
        body,
        gloss,
        labelled=name in PATTERNS or name in ("mobile phones", "remote controls", "plug adapters"),
    )
    plain = SurfaceMaterial(body, gloss)
    brass = SurfaceMaterial(traits.pick("brass", (STEEL, (0.8, 0.65, 0.35))), 0.9, 0.8)
    tint = traits.colour("tint", (BLACK, BROWN, BLUE, GREY, ORANGE))
    fitting = SurfaceMaterial(traits.colour("fitting", (WHITE, STEEL, PALE, GREY, WHITE)), 0.4)
    parts: dict[str, tuple[SurfaceMaterial, ...]] = {
        "plug adapters": (main, plain, brass),
        "mobile phones": (main, SurfaceMaterial(DARK, 0.6)),
        "scissors": (metal, plain, SurfaceMaterial(GREY, 0.8, 0.6)),
        "light bulbs": (
            SurfaceMaterial(body, 0.9, alpha=traits.number("glass", 0.75, 1.0)),
            fitting,
            brass,
        ),
        "cans": (SurfaceMaterial(body, 0.7, 0.15, labelled=True), metal),
        "glasses": (
            plain,
            SurfaceMaterial(tint, 1.0, alpha=traits.pick("lens", (0.25, 0.9, 0.7, 0.3, 0.95))),
            plain,
        ),
        "balls": (main,),
        "markers": (
            main,
            SurfaceMaterial(accent, gloss),
            SurfaceMaterial(traits.pick("end", (accent, body, BLACK)), gloss),
        ),
        "cups": (
            main,
            plain if traits.number("handle", 0, 1) < 0.6 else SurfaceMaterial(accent, gloss),
            SurfaceMaterial(traits.pick("lining", (WHITE, body, CREAM)), gloss),
        ),
        "remote controls": (
            main,
            SurfaceMaterial(traits.colour("knob", (GREY, STEEL, DARK, PALE, BLACK)), 0.5),
            SurfaceMaterial((0.2, 0.02, 0.05), 0.8),
        ),
    }
    return parts[name]


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
    measures = {key: traits.number(key, low, high) for key, (low, high) in RANGES[name].items()}
    if name == "light bulbs":
        measures["style"] = traits.pick("style", (0.0, 1.0, 2.0, 3.0, 0.0))
        measures["stretch"] *= 1.25 if measures["style"] == 1.0 else 1.0
    body = traits.colour("body", BODIES[name])
    return ObjectLook(
        family, measures, _materials(name, body, traits), paint_label(name, body, traits, measures)
    )
