"""The windows of a picture, and what the network makes of them.

A *window* is a square of the picture that is read as if it were a frame of its own: its features
are the means of maps over the same parts of it that are read of a whole frame. The maps are
computed once per level, which is the picture at one size, so a window costs a few additions.

The familiarity of a window is its rank among single frames of strangers. A picture has more than a
hundred windows, so the best of them is often as familiar as one stranger in ten, although nothing
in the picture was taught. What counts is therefore the rank of a window among the *best* windows of
pictures without a taught object (`BestWindow`). How familiar these are depends on what was taught,
and is measured on generic frames, which show arbitrary objects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image

from primavista.backbones.base import FixedRepresentation
from primavista.backbones.places import CELL, Floats, WindowReader
from primavista.backbones.reference import generic_frames
from primavista.learner.head_strategy import HeadStrategy
from primavista.learner.strategy import TaughtStrategy
from primavista.media.boxes import Box

# The pixels of the levels, in frames of the size that the network was taught with: 4:3 pictures
# have 3/2 of its side and its side as their height.
LEVEL_AREAS = (3.0, 4 / 3)
SIDE = 0.85  # of windows, in sides of taught frames
STEPS = 6.0  # windows per side of one
AT_ONCE = 256  # windows that are judged together, so that their features stay in the caches

EVERY_FRAME = 3  # of the generic frames one in three is searched, 16 altogether
EVERY_WINDOW = 2  # and every second window in both directions: neighbours look alike
# Generic frames show few objects that look like a taught one, and all are rendered. The prior
# stands for other pictures: a normal distribution that counts as this many frames.
PRIOR_FRAMES = 2
PRIOR_MEAN = 3.0
PRIOR_SPREAD = 1.0
SMALLEST = 1e-7  # float32 cannot tell smaller shares of strangers from none

NORMAL = NormalDist()


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


@dataclass(frozen=True)
class BestWindow:
    """N(mean, spread^2), the distribution of x = Phi^-1(familiarity) of the best window.

    Phi is the distribution function of the standard normal distribution, so that x of a single
    frame of a stranger has a mean of 0 and a standard deviation of 1.

    Args:
        mean: The mean of x over pictures without a taught object.
        spread: Its standard deviation.
    """

    mean: float
    spread: float

    def share_below(self, familiarity: float) -> float:
        """Compute the share of pictures without a taught object that are less familiar.

        Args:
            familiarity: That of a window.

        Returns:
            From 0 to 1.

        >>> round(BestWindow(1.5, 0.5).share_below(0.9772), 2)  # x = 2, one deviation above
        0.84
        """
        return NORMAL.cdf((normal_score(familiarity) - self.mean) / self.spread)


def normal_score(familiarity: float) -> float:
    """Phi^-1(familiarity), for which 0 and 1 count as nearly 0 and nearly 1.

    >>> round(normal_score(0.9772), 2), round(normal_score(1.0), 1)
    (2.0, 5.2)
    """
    return NORMAL.inv_cdf(min(max(familiarity, SMALLEST), 1 - SMALLEST))


def estimate(familiarities: list[float]) -> BestWindow:
    """Estimate the distribution from the best windows of generic frames.

    The mean and the standard deviation are those of the frames and of the prior, averaged with the
    numbers of frames as their weights.

    Args:
        familiarities: That of the best window of each frame, at least two.
    """
    scores = [normal_score(familiarity) for familiarity in familiarities]
    own = len(scores) / (len(scores) + PRIOR_FRAMES)
    mean = own * float(np.mean(scores)) + (1 - own) * PRIOR_MEAN
    spread = own * float(np.std(scores, ddof=1)) + (1 - own) * PRIOR_SPREAD
    return BestWindow(mean, spread)


def best_window(strategy: TaughtStrategy) -> BestWindow | None:
    """Return the distribution for what was taught; it is cached until that changes.

    Args:
        strategy: A strategy that knows at least one object.

    Returns:
        The distribution; None if the familiarity of the strategy is not a rank among strangers.
    """
    if not strategy.ranks_strangers or not isinstance(strategy, HeadStrategy):
        return None

    def compute() -> BestWindow:
        z = _generic_windows(strategy.network)
        frames = len(z)
        z = z.reshape(-1, z.shape[2])
        parts = []
        for start in range(0, len(z), AT_ONCE):
            some = strategy.judge_windows(z[start : start + AT_ONCE].astype(np.float32))
            assert some.familiarity is not None
            parts.append(some.familiarity)
        best = np.concatenate(parts).reshape(frames, -1).max(1)
        return estimate(best.tolist())

    return strategy.head.derived.get_or_compute("best window", compute)


# The features of the windows of generic frames, which do not depend on what was taught.
_WINDOWS: WeakKeyDictionary[FixedRepresentation, Floats] = WeakKeyDictionary()


def _generic_windows(network: FixedRepresentation) -> Floats:
    """The features of the windows of each generic frame: frames x windows x D, in float16."""
    found = _WINDOWS.get(network)
    if found is None:
        reader = network.window_reader()
        frames = []
        for frame in generic_frames(network.spec.size)[::EVERY_FRAME]:
            levels = levels_of(Image.fromarray(frame), network, reader)
            parts = [window_features(level, reader, EVERY_WINDOW)[2] for level in levels]
            frames.append(np.concatenate(parts).astype(np.float16))
        found = _WINDOWS[network] = np.stack(frames)
    return found
