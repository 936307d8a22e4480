"""Where in a frame taught objects are: windows over the maps of the network, scored by its head.

A *window* is a square of the frame that is read as if it were a frame of its own: its features are
the means of maps over the same parts of it that are read of a whole frame. The maps are computed
once per level, which is the frame at one size, so a window costs a few additions.

This module needs numpy alone; the edge runtime has a copy of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .boxes import Box, non_maximum_suppression

# The pixels of the levels, in frames of the size that the network was taught with: 4:3 pictures
# have twice and once its side as their height.
LEVEL_AREAS = (16 / 3, 4 / 3)
CELL = 32  # the sides of levels are multiples of it
SIDES = (0.85,)  # of windows, in sides of taught frames
STEPS = 6.0  # windows per side of one
CORE = 0.65  # of a window, where the object is
MOST_OBJECTS = 12  # in a frame
EXTENT_SIDE = 0.5  # the side of the windows that look for the extent of an object
EXTENT_REACH = 0.6  # how far they look, and
EXTENT_POINTS = 11  # at how many places per side
PRIOR = 0.4  # the weight of the core of the window in the box
END_HEIGHT = 0.7  # an object ends where its score is this share of its highest
MOST_OVERLAP = 0.3  # of two objects, as intersection over union
ROOT_SOFTENING = 1e-3  # as in the features of whole frames

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(frozen=True)
class Located:
    """An object that was found in a frame.

    Args:
        label: Its name.
        box: Where it is, in pixels of the frame.
        confidence: The probability of `label` among the known names, from 0 to 1.
        familiarity: How much it looks like what was taught, as that of a `Prediction`; None if the
            strategy cannot tell.
    """

    label: str
    box: Box
    confidence: float
    familiarity: float | None = None


class Place(NamedTuple):
    """One part of the features: the mean of a map over the middle of a window.

    Args:
        map: Which of the maps.
        share: How much of the side of the window is read.
    """

    map: int
    share: float


@dataclass(frozen=True)
class WindowReader:
    """What is read of a window.

    Args:
        places: The parts of the features, one after the other.
        root: Whether the signed root of each number is taken, x / sqrt(|x| + 0.001).
        size: The side of taught frames, in pixels.
    """

    places: tuple[Place, ...]
    root: bool
    size: int

    def features(
        self,
        maps: Sequence[Floats],
        level: tuple[int, int],
        xs: Floats,
        ys: Floats,
        side: float,
    ) -> Floats:
        """Compute the features of a grid of windows.

        Args:
            maps: Those of the level, C x h x w each.
            level: The width and the height of the level, in pixels.
            xs: The columns of the centres of windows, in pixels of the level.
            ys: The rows of their centres.
            side: The side of the windows; what is outside the picture does not count.

        Returns:
            float32, one row per window: all of the first row of windows, then the next.
        """
        parts = []
        for place in self.places:
            x, reach = maps[place.map], place.share * side / 2
            columns = interval_weights(xs, reach, x.shape[2], level[0])
            rows = interval_weights(ys, reach, x.shape[1], level[1])
            means = rows @ (x @ columns.T)  # C x ys x xs
            parts.append(means.reshape(len(x), -1).T)
        z = np.concatenate(parts, axis=1, dtype=np.float32)
        return z / np.sqrt(np.abs(z) + np.float32(ROOT_SOFTENING)) if self.root else z


def interval_weights(centres: Floats, reach: float, cells: int, length: float) -> Floats:
    """Return the weights that take means over intervals of a line of cells; ends count in part.

    Args:
        centres: The middle of each interval, from 0 to `length`.
        reach: Half its length.
        cells: The number of cells.
        length: The length of the line.

    Returns:
        One row per interval, of sum 1: float32, intervals x cells.

    >>> interval_weights(np.array([1.0, 2.5]), 1.0, 4, 4.0).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.25, 0.5, 0.25]]
    """
    scale = cells / length
    low = ((centres - reach) * scale).clip(0, cells)[:, None]
    high = ((centres + reach) * scale).clip(0, cells)[:, None]
    at = np.arange(cells)
    inside = (np.minimum(at + 1, high) - np.maximum(at, low)).clip(0)
    weights: Floats = (inside / inside.sum(1, keepdims=True)).astype(np.float32)
    return weights


def level_sizes(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Return the width and the height of each level of a frame.

    Args:
        width: That of the frame, in pixels.
        height: That of the frame.
        size: The side of the frames that the network was taught with.

    >>> level_sizes(640, 480, 192)
    [(512, 384), (256, 192)]
    """
    found = []
    for area in LEVEL_AREAS:
        scale = size * math.sqrt(area / (width * height))
        found.append((_multiple(width * scale), _multiple(height * scale)))
    return list(dict.fromkeys(found))


def _multiple(length: float) -> int:
    return max(CELL, round(length / CELL) * CELL)


@dataclass(frozen=True)
class Judged:
    """What a head says of features.

    Args:
        shares: The probability of each class, N x K.
        familiarity: One number per row; None if the head cannot tell.
    """

    shares: Floats
    familiarity: Floats | None

    def rank(self) -> Floats:
        """Return how much each window shows each class: probability times familiarity, N x K."""
        if self.familiarity is None:
            return self.shares
        ranks: Floats = self.shares * self.familiarity.clip(0, 1)[:, None]
        return ranks


Judge = Callable[[Floats], Judged]
AT_ONCE = 128  # windows that are judged together, so that their features stay in the caches


def judge_in_parts(judge: Judge, z: Floats) -> Judged:
    """Judge many windows, some at a time.

    Args:
        judge: The head.
        z: Their features, N x D.

    Returns:
        What it says of all of them.
    """
    parts = [judge(z[start : start + AT_ONCE]) for start in range(0, len(z), AT_ONCE)]
    told = [part.familiarity for part in parts if part.familiarity is not None]
    shares = np.concatenate([part.shares for part in parts])
    return Judged(shares, np.concatenate(told) if told else None)


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


class Window(NamedTuple):
    """A window that shows something that was taught.

    Args:
        level: Where it is.
        x: The column of its centre, in pixels of the level.
        y: The row of its centre.
        side: Its side.
        column: That of the class that it shows.
        rank: How much, see `Judged.rank`.
        confidence: The probability of the class.
        familiarity: That of the window.
    """

    level: Level
    x: float
    y: float
    side: float
    column: int
    rank: float
    confidence: float
    familiarity: float | None

    @property
    def centre(self) -> tuple[float, float]:
        """Its centre, in pixels of the frame."""
        return self.x * self.level.scale[0], self.y * self.level.scale[1]

    @property
    def core(self) -> Box:
        """The middle of the window, where an object is that was taught in the middle of frames."""
        reach = CORE * self.side / 2
        return self.level.box(self.x - reach, self.y - reach, self.x + reach, self.y + reach)


def find(
    levels: Sequence[Level],
    reader: WindowReader,
    judge: Judge,
    is_known: Callable[[float, float | None], bool],
) -> list[tuple[Window, Box]]:
    """Find what was taught in a frame.

    Every window gets the class that its features are most like. Those that count as known are
    merged by non-maximum suppression, and the extent of what each of the rest shows is looked for
    with smaller windows around it.

    Args:
        levels: The frame at several sizes.
        reader: Reads the windows.
        judge: The head: from features to probabilities and familiarity.
        is_known: Tells from a confidence and a familiarity whether a window counts as known.

    Returns:
        The windows with the boxes of what they show, the best first.
    """
    known = [w for w in _windows(levels, reader, judge) if is_known(w.confidence, w.familiarity)]
    best: list[Window] = []
    for window in sorted(known, key=lambda one: -one.rank):
        if len(best) < MOST_OBJECTS and not any(_covers(other, window) for other in best):
            best.append(window)
    boxes = extents(best, reader, judge)
    kept = non_maximum_suppression(boxes, [window.rank for window in best], MOST_OVERLAP)
    return [(best[i], boxes[i]) for i in kept]


def _covers(better: Window, worse: Window) -> bool:
    """Whether the centre of one window lies in the core of another, or the other way round."""
    for one, other in ((better, worse), (worse, better)):
        core, (x, y) = one.core, other.centre
        if core.left <= x <= core.right and core.top <= y <= core.bottom:
            return True
    return False


def _windows(levels: Sequence[Level], reader: WindowReader, judge: Judge) -> list[Window]:
    """All windows of a frame."""
    step = reader.size / STEPS
    features, places = [], []
    for level in levels:
        xs, ys = (np.arange(step / 2, length, step) for length in level.size)
        for side in (share * reader.size for share in SIDES):
            features.append(reader.features(level.maps, level.size, xs, ys, side))
            places += [(level, float(x), float(y), side) for y in ys for x in xs]
    judged = judge_in_parts(judge, np.concatenate(features))
    columns = judged.shares.argmax(1)
    ranks = judged.rank()
    found = []
    for k, (place, column) in enumerate(zip(places, columns.tolist(), strict=True)):
        familiarity = None if judged.familiarity is None else float(judged.familiarity[k])
        share, rank = float(judged.shares[k, column]), float(ranks[k, column])
        found.append(Window(*place, column, rank, share, familiarity))
    return found


def extents(windows: Sequence[Window], reader: WindowReader, judge: Judge) -> list[Box]:
    """Find the box of what each window shows: where smaller windows show it nearly as much.

    Args:
        windows: The windows.
        reader: Reads the smaller windows.
        judge: The head.

    Returns:
        For each window the box around the places that are connected with the best one near its
        centre, drawn towards the core of the window.
    """
    if not windows:
        return []
    grids = [
        (_around(w.x, w.side, w.level.size[0]), _around(w.y, w.side, w.level.size[1]))
        for w in windows
    ]
    features = [
        reader.features(w.level.maps, w.level.size, xs, ys, EXTENT_SIDE * w.side)
        for w, (xs, ys) in zip(windows, grids, strict=True)
    ]
    ranks = judge_in_parts(judge, np.concatenate(features)).rank()
    found, start = [], 0
    for window, (xs, ys) in zip(windows, grids, strict=True):
        end = start + len(xs) * len(ys)
        heat = ranks[start:end, window.column].reshape(len(ys), len(xs))
        found.append(_extent(window, heat, xs, ys))
        start = end
    return found


def _around(centre: float, side: float, length: float) -> Floats:
    """The places on a line where smaller windows look, as far as they are inside the level."""
    places = centre + np.linspace(-EXTENT_REACH, EXTENT_REACH, EXTENT_POINTS) * side
    inside: Floats = places[(places > 0) & (places < length)]
    return inside


def _extent(window: Window, heat: Floats, xs: Floats, ys: Floats) -> Box:
    """The box of the places nearly as hot as the best one near the centre, drawn to the core."""
    reach = EXTENT_SIDE * window.side / 3
    near = (np.abs(ys - window.y) <= reach)[:, None] & (np.abs(xs - window.x) <= reach)
    row, column = divmod(int(np.where(near, heat, -1).argmax()), len(xs))
    inside = connected(heat >= END_HEIGHT * heat[row, column], (row, column))
    rows, columns = np.nonzero(inside)
    ends = (xs[columns.min()], ys[rows.min()], xs[columns.max()], ys[rows.max()])
    reach = CORE * window.side / 2
    core = (window.x - reach, window.y - reach, window.x + reach, window.y + reach)
    mixed = [(1 - PRIOR) * end + PRIOR * usual for end, usual in zip(ends, core, strict=True)]
    return window.level.box(*mixed)


def connected(mask: np.ndarray[Any, np.dtype[np.bool_]], start: tuple[int, int]) -> Any:
    """Return the part of a mask that is connected with a place, by its four neighbours.

    Args:
        mask: H x W.
        start: The row and the column of the place, which belongs to the part in any case.

    Returns:
        A mask of the same shape.
    """
    part = np.zeros_like(mask)
    waiting = [start]
    while waiting:
        row, column = waiting.pop()
        inside = 0 <= row < mask.shape[0] and 0 <= column < mask.shape[1]
        if not inside or part[row, column] or not (mask[row, column] or (row, column) == start):
            continue
        part[row, column] = True
        waiting += [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    return part
