"""Reads the maps of a network at places: parts of its depth and of the picture.

The features of a frame are means of maps over its middle. Those of a window of a larger picture are
the same means over the middle of the window, so one pass serves many windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

CELL = 32  # the sides of pictures whose windows are read are multiples of it
MOST_PRODUCTS = 2**18  # up to here numpy's library multiplies by one thread
ROOT_SOFTENING = 1e-3  # below this value, the root becomes a straight line through 0

# What prima reads besides the features of the network: its depth in sixths of all blocks, the share
# of each side of the picture, and whether its quarters are compared.
PLACES = (
    (6, 1 / 2, False),
    (6, 1 / 3, False),
    (5, 1 / 3, False),
    (4, 1 / 3, False),
    (4, 1 / 2, True),
    (3, 1 / 3, False),
)
# The prior weight of each place: 1 at the end of the network, halved for every sixth before it.
PRIORS = (1.0, *(2.0 ** (depth - 6) for depth, _, _ in PLACES))

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]


class Place(NamedTuple):
    """One part of the features: means of a map over the middle of a window.

    Without `quarters`, each channel has its mean over the middle. With `quarters`, only every
    fourth channel has it. The others have, in turn, the right half of the middle minus the left
    one, the lower half minus the upper one, and one diagonal pair of quarters minus the other. Such
    a place also says where things lie, in as many numbers.

    Args:
        map: Which of the maps.
        share: How much of the side of the window is read.
        quarters: Whether the quarters of the middle are compared.
    """

    map: int
    share: float
    quarters: bool = False

    def weights(self, rows: Line, columns: Line) -> list[tuple[Floats, Floats]]:
        """Return the weights of rows and of columns, for the channels 0, P, 2 P, ..., then 1, ...

        Args:
            rows: The rows of the map, and the middles of windows in it.
            columns: The same of its columns.

        Returns:
            P pairs of weights, windows x cells each; P is 1 or 4.
        """
        if not self.quarters:
            return [(rows.mean(self.share), columns.mean(self.share))]
        down, across = (
            (line.mean(self.share), line.difference(self.share)) for line in (rows, columns)
        )
        return [(own, other) for own in down for other in across]


class Line(NamedTuple):
    """One side of a map, and windows along it.

    Args:
        centres: The middle of each window, from 0 to `length`.
        side: The side of the windows.
        cells: The number of cells of the map.
        length: The length of the line.
    """

    centres: Floats
    side: float
    cells: int
    length: float

    @classmethod
    def whole(cls, cells: int) -> Line:
        """Return a side of a map with one window, which is the whole side."""
        return cls(np.array([cells / 2]), cells, cells, cells)

    def mean(self, share: float) -> Floats:
        """Return the weights of the mean over the middle of each window, windows x cells."""
        return interval_weights(self.centres, share * self.side / 2, self.cells, self.length)

    def difference(self, share: float) -> Floats:
        """Return half of the weights of the second half of each middle minus those of the first."""
        reach = share * self.side / 4
        first, second = (
            interval_weights(self.centres + sign * reach, reach, self.cells, self.length)
            for sign in (-1, 1)
        )
        return (second - first) / 2


@dataclass(frozen=True)
class WindowReader:
    """Computes the features of windows from the maps of the network.

    Args:
        places: The parts of the features, one after the other.
        root: Whether the signed root of each number is taken, x / sqrt(|x| + 0.001).
        size: The side of taught frames, in pixels.
    """

    places: tuple[Place, ...]
    root: bool
    size: int

    def whole(self, maps: Sequence[Floats]) -> Floats:
        """Compute the features of whole frames.

        Args:
            maps: Those of the frames, N x C x h x w each.

        Returns:
            float32, N x D: the places one after the other.
        """
        parts = []
        for place in self.places:
            x = maps[place.map]
            masks = middle_masks(place, *x.shape[2:])
            part = np.empty(x.shape[:2], np.float32)
            for k, mask in enumerate(masks):
                some = x[:, k :: len(masks)]
                part[:, k :: len(masks)] = some.reshape(*some.shape[:2], -1) @ mask.ravel()
            parts.append(part)
        z: Floats = np.concatenate(parts, axis=1)
        if self.root:
            take_root(z)
        return z

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
        channels = [len(maps[place.map]) for place in self.places]
        # one row per feature: so are the products, and no copy has to be transposed
        z = np.empty((sum(channels), len(ys), len(xs)), np.float32)
        end = 0
        for place, count in zip(self.places, channels, strict=True):
            x = maps[place.map]
            pairs = place.weights(
                Line(ys, side, x.shape[1], level[1]), Line(xs, side, x.shape[2], level[0])
            )
            start, end = end, end + count
            for k, (rows, columns) in enumerate(pairs):
                some = x[k :: len(pairs)]
                across = product(some.reshape(-1, x.shape[2]), columns.T)
                across = across.reshape(len(some), -1, len(xs))
                np.matmul(rows, across, out=z[start + k : end : len(pairs)])
        if self.root:
            take_root(z)
        found: Floats = z.reshape(end, -1).T
        return found


def product(a: Floats, b: Floats) -> Floats:
    """Compute a b by one thread.

    For a large product numpy's library wakes a thread per core, which afterwards waits in a loop
    for the next one and takes the core away from the network's passes.

    Args:
        a: N x K.
        b: K x M, M at least 2.

    Returns:
        N x M.
    """
    found: Floats = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    rows = max(MOST_PRODUCTS // b.size, 1)
    for start in range(0, len(a), rows):
        np.matmul(a[start : start + rows], b, out=found[start : start + rows])
    return found


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
    total = inside.sum(1, keepdims=True).clip(1e-9)  # 0 if an interval lies outside the line
    weights: Floats = (inside / total).astype(np.float32)
    return weights


@cache
def middle_masks(place: Place, height: int, width: int) -> Floats:
    """Return the weights of the cells of a map, if a window is the whole picture.

    Args:
        place: What is read.
        height: The rows of the map.
        width: Its columns.

    Returns:
        float32, P x `height` x `width`: those of the channels 0, P, 2 P, ..., then 1, ... Do not
        modify the array, which is cached for the next caller.

    >>> middle_masks(Place(0, 1 / 2), 1, 4).tolist()
    [[[0.0, 0.5, 0.5, 0.0]]]
    >>> middle_masks(Place(0, 1 / 2, quarters=True), 4, 4)[3, 1:3, 1:3].tolist()
    [[0.25, -0.25], [-0.25, 0.25]]
    """
    pairs = place.weights(Line.whole(height), Line.whole(width))
    return np.stack([np.outer(rows, columns) for rows, columns in pairs])


def rooted(x: Floats) -> Floats:
    """Return the signed root of each number, x / sqrt(|x| + 0.001), as a copy."""
    roots = x.copy()
    take_root(roots)
    return roots


def take_root(x: Floats) -> None:
    """Replace each number by its signed root, see `rooted`."""
    size = np.abs(x)
    size += np.float32(ROOT_SOFTENING)
    x /= np.sqrt(size, out=size)
