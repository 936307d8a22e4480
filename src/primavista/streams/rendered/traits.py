"""Randomness in the rendered data set: seeded dice, distinct traits of objects, and colours."""

from __future__ import annotations

import colorsys
import hashlib
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from primavista.streams.rendered.shapes import FAMILIES

Colour = tuple[float, float, float]
Option = TypeVar("Option")

WHITE, PALE, GREY, DARK, BLACK = (
    (0.93, 0.92, 0.9),
    (0.78, 0.77, 0.74),
    (0.5, 0.51, 0.53),
    (0.2, 0.2, 0.22),
    (0.07, 0.07, 0.08),
)
RED, GREEN, BLUE, YELLOW, ORANGE = (
    (0.75, 0.1, 0.1),
    (0.1, 0.5, 0.2),
    (0.1, 0.25, 0.65),
    (0.92, 0.8, 0.15),
    (0.93, 0.5, 0.08),
)
PINK, BROWN, NAVY, TEAL, LIME = (
    (0.93, 0.3, 0.55),
    (0.42, 0.22, 0.14),
    (0.08, 0.12, 0.32),
    (0.1, 0.5, 0.55),
    (0.65, 0.85, 0.25),
)
VIOLET, CREAM, STEEL, MAROON = (
    (0.45, 0.28, 0.6),
    (0.93, 0.86, 0.7),
    (0.72, 0.73, 0.75),
    (0.4, 0.12, 0.16),
)

BODIES: dict[str, tuple[Colour, ...]] = {
    "plug adapters": (WHITE, PALE, WHITE, GREY, BLUE),
    "mobile phones": (BLACK, STEEL, DARK, NAVY, GREY),
    "scissors": (ORANGE, BLACK, RED, PALE, BLUE),
    "light bulbs": (WHITE, CREAM, WHITE, PALE, WHITE),
    "cans": (RED, GREEN, NAVY, BLUE, DARK),
    "glasses": (BLACK, BROWN, WHITE, RED, STEEL),
    "balls": (LIME, GREEN, BROWN, BLUE, YELLOW),
    "markers": (BLACK, YELLOW, NAVY, WHITE, BLACK),
    "cups": (WHITE, MAROON, BLUE, RED, WHITE),
    "remote controls": (BLACK, DARK, STEEL, WHITE, GREY),
}
ACCENTS: tuple[Colour, ...] = (WHITE, YELLOW, RED, BLUE, ORANGE, LIME, PINK, TEAL, VIOLET, BLACK)
STRATA = 5  # members whose traits are kept apart from one another


class Dice:
    """Random numbers from a CPU generator that is seeded by the blake2b hash of a key.

    They are the same on every machine and device.

    Args:
        *key: Numbers and texts that name the purpose of the random numbers.
    """

    def __init__(self, *key: int | str) -> None:
        # int(), since NumPy's integers print otherwise.
        plain = tuple(part if isinstance(part, str) else int(part) for part in key)
        digest = hashlib.blake2b(repr(plain).encode(), digest_size=8).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)

    def between(self, low: float, high: float) -> float:
        """Draw a number uniformly from [low, high).

        Args:
            low: The smallest value.
            high: The upper bound, which is excluded.
        """
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def pick(self, options: Sequence[Option]) -> Option:
        """Draw one of several options, all equally likely.

        Args:
            options: What to choose from, at least one.
        """
        return options[int(torch.randint(len(options), (), generator=self.generator))]

    def table(self, *shape: int) -> Tensor:
        """Draw a tensor of numbers uniformly from [0, 1).

        Args:
            *shape: The shape of the tensor.
        """
        return torch.rand(shape, generator=self.generator)


class Traits:
    """The traits of one object: value = middle + spread * (drawn - middle).

    Members 0-4, 5-9, ... of a category fall into different fifths of every range.

    Args:
        seed: The seed of the scene.
        category: The number of the category, from 0.
        member: The number of the object in its category, from 0.
        spread: 0 to make all members equal, 1 to use the whole range.
    """

    def __init__(self, seed: int, category: int, member: int, spread: float) -> None:
        self.key, self.member, self.spread = (seed, category), member, spread

    def number(self, name: str, low: float, high: float) -> float:
        """Return the object's value of a trait.

        Args:
            name: The name of the trait; equal names give equal values.
            low: The low end of its range.
            high: The high end of its range.
        """
        block, slot = divmod(self.member, STRATA)
        order = torch.randperm(STRATA, generator=Dice("strata", *self.key, name, block).generator)
        fine = Dice("trait", *self.key, self.member, name).between(0.15, 0.85)
        share = (float(order[slot]) + fine) / STRATA
        return low + (high - low) * (0.5 + self.spread * (share - 0.5))

    def pick(self, name: str, options: Sequence[Option]) -> Option:
        """Return the object's choice among several options.

        The members of a category take turns.

        Args:
            name: The name of the trait.
            options: What to choose from, at least one.
        """
        order = torch.randperm(len(options), generator=Dice("order", *self.key, name).generator)
        return options[int(order[self.member % len(options)])]

    def colour(self, name: str, options: Sequence[Colour]) -> Colour:
        """Return one of several colours, moved towards their mean by 1 - spread.

        Categories beyond the tenth, which repeat a family, have other hues.

        Args:
            name: The name of the trait.
            options: The colours to choose from.
        """
        chosen = self.pick(name, options)
        turn = (self.key[1] // len(FAMILIES)) * 0.381966
        mean = [sum(o[i] for o in options) / len(options) for i in range(3)]
        r, g, b = (m + min(self.spread, 1.0) * (c - m) for c, m in zip(chosen, mean, strict=True))
        hue, saturation, value = colorsys.rgb_to_hsv(r, g, b)
        nudged = value * self.number(name + " value", 0.88, 1.12)
        return colorsys.hsv_to_rgb((hue + turn) % 1, saturation, min(nudged, 0.97))
