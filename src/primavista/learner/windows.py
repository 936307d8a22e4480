"""The windows of a picture, and what the network makes of them.

A *window* is a square of the picture that is read as if it were a frame of its own: its features
are the means of maps over the same parts of it that are read of a whole frame. The maps are
computed once per level, which is the picture at one size, so a window costs a few additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from primavista.backbones.places import CELL, Floats, WindowReader
from primavista.media.boxes import Box

# The pixels of the levels, in frames of the size that the network was taught with: 4:3 pictures
# have 3/2 of its side and its side as their height.
LEVEL_AREAS = (3.0, 4 / 3)
SIDE = 0.85  # of windows, in sides of taught frames
STEPS = 6.0  # windows per side of one
AT_ONCE = 256  # windows that are judged together, so that their features stay in the caches


class Level(NamedTuple):
    """The frame at one size.

    Args:
        maps: What the network makes of it, C x h x w each.
        size: Its width and height, in pixels.
        scale: How many pixels of the frame one pixel is, horizontally and vertically.
    """

    maps: Sequence[Floats]
    size: tuple[int, int]
    scale: tuple[float, float]

    def box(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Return the box in the frame of a box in this level, clipped to the picture.

        Args:
            left: Its left end, in pixels of the level.
            top: Its upper end.
            right: Its right end.
            bottom: Its lower end.
        """
        (width, height), (wide, high) = self.size, self.scale
        xs = [min(max(float(x), 0.0), width) * wide for x in (left, right)]
        ys = [min(max(float(y), 0.0), height) * high for y in (top, bottom)]
        return Box(xs[0], ys[0], xs[1], ys[1])


def levels_of(picture: Image.Image, representation: Any, reader: WindowReader) -> list[Level]:
    """Return a picture at several sizes, as the network sees it.

    Args:
        picture: The whole picture, RGB.
        representation: Computes the maps; see `TaughtStrategy.representation_with_maps`.
        reader: Reads the windows.
    """
    levels = []
    for size in level_sizes(*picture.size, reader.size):
        resized = np.array(picture.resize(size, Image.Resampling.BILINEAR))
        scale = picture.width / size[0], picture.height / size[1]
        levels.append(Level(representation.maps(resized), size, scale))
    return levels


def level_sizes(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Return the width and the height of each level of a frame.

    Args:
        width: That of the frame, in pixels.
        height: That of the frame.
        size: The side of the frames that the network was taught with.

    >>> level_sizes(640, 480, 192)
    [(384, 288), (256, 192)]
    """
    found = []
    for area in LEVEL_AREAS:
        scale = size * math.sqrt(area / (width * height))
        found.append((_multiple(width * scale), _multiple(height * scale)))
    return list(dict.fromkeys(found))


def _multiple(length: float) -> int:
    return max(CELL, round(length / CELL) * CELL)


def window_features(
    level: Level, reader: WindowReader, every: int = 1
) -> tuple[Floats, Floats, Floats]:
    """Compute the features of the windows of a level.

    Args:
        level: The picture at one size.
        reader: Reads the windows.
        every: Read only every so many windows, in both directions.

    Returns:
        The columns and the rows of their centres, in pixels of the level, and one row of features
        per window: all of the first row of windows, then the next.
    """
    step = reader.size / STEPS
    xs, ys = (np.arange(step / 2, length, step)[::every] for length in level.size)
    return xs, ys, reader.features(level.maps, level.size, xs, ys, SIDE * reader.size)
