"""Reads the maps of a network at places: parts of its depth and of the picture.

The features of a frame are means of maps over its middle. Those of a window of a larger picture are
the same means over the middle of the window, so one pass serves many windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

CELL = 32  # the sides of pictures whose windows are read are multiples of it
MOST_PRODUCTS = 2**18  # up to here numpy's library multiplies by one thread
ROOT_SOFTENING = 1e-3  # below this value, the root becomes a straight line through 0

# What prima reads besides the features of the network: its depth in sixths of all blocks, and the
# share of each side of the picture.
PLACES = ((6, 1 / 2), (6, 1 / 3), (5, 1 / 2), (5, 1 / 3), (4, 1 / 3), (3, 1 / 3))
# The prior weight of each place: 1 at the end of the network, halved for every sixth before it.
PRIORS = (1.0, *(2.0 ** (depth - 6) for depth, _ in PLACES))

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]


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
            rows, columns = (middle_weights(side, place.share) for side in x.shape[2:])
            middle = np.outer(rows, columns).ravel()
            parts.append(x.reshape(*x.shape[:2], -1) @ middle)
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
            x, reach = maps[place.map], place.share * side / 2
            columns = interval_weights(xs, reach, x.shape[2], level[0])
            rows = interval_weights(ys, reach, x.shape[1], level[1])
            across = product(x.reshape(-1, x.shape[2]), columns.T).reshape(count, -1, len(xs))
            start, end = end, end + count
            np.matmul(rows, across, out=z[start:end])
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
    weights: Floats = (inside / inside.sum(1, keepdims=True)).astype(np.float32)
    return weights


def middle_weights(side: int, share: float) -> Floats:
    """Return the weights of the mean over the centre of a side; border pixels count in part.

    Args:
        side: The number of pixels.
        share: The fraction of the side that counts.

    Returns:
        `side` numbers of sum 1 in float32.

    >>> middle_weights(4, 1 / 2).tolist()
    [0.0, 0.5, 0.5, 0.0]
    >>> [round(w, 3) for w in middle_weights(5, 1 / 2).tolist()]
    [0.0, 0.3, 0.4, 0.3, 0.0]
    """
    weights: Floats = interval_weights(np.array([side / 2]), share * side / 2, side, side)[0]
    return weights


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
