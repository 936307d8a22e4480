"""Finds taught objects in a frame: windows over the maps of the network, scored by its head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image

from primavista.arrays import softmax
from primavista.backbones.base import FixedRepresentation
from primavista.backbones.places import (
    CELL,
    Floats,
    WindowReader,
    interval_weights,
    product,
    rooted,
)
from primavista.backbones.reference import generic_frames
from primavista.learner.coach import NOTHING
from primavista.learner.head_strategy import HeadStrategy
from primavista.learner.prediction import is_known
from primavista.learner.strategy import TaughtStrategy
from primavista.media.boxes import Box, non_maximum_suppression

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

CORE = 0.65  # of a window, where the object is
MOST_OBJECTS = 20  # in a frame
MIDDLE = 0.5  # of a window, which shows the object and little else
REACH = 0.9  # how far from the centre of a window its object may reach, in sides of the window
LINES = 36  # where boxes may begin and end, on each axis of this reach
BOX_PRIOR = 0.05  # the weight of the usual size and place of a box, in evidence of a core
SIZE_SPREAD = 0.7  # how much the logarithms of the sides of boxes usually differ
ROUNDS = 8  # of the search for a box, at most
PLACE_SPREAD = 0.25  # how far from the centre of the window boxes usually are, in its sides
MOST_OVERLAP = 0.3  # of two objects, as intersection over union
AGAIN = 3.0  # how many times the odds of a second object of a name may be worse than the best's

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


# From the features of N windows to the probability of each class, N x K, and the familiarity of
# each window; None if the head cannot tell.
Judge = Callable[[Floats], tuple[Floats, Floats | None]]


class Window(NamedTuple):
    """A window that shows something that was taught.

    Args:
        level: Where it is.
        x: The column of its centre, in pixels of the level.
        y: The row of its centre.
        side: Its side.
        column: That of the class that it shows.
        rank: How much: probability times familiarity.
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
        """The centre of the window, in pixels of the frame."""
        return self.x * self.level.scale[0], self.y * self.level.scale[1]

    @property
    def odds(self) -> float:
        """The odds that it shows what was taught: familiarity, or else confidence, over the rest.

        >>> level = Level([], (1, 1), (1, 1))
        >>> Window(level, 0, 0, 1, 0, rank=0, confidence=1, familiarity=0.75).odds
        3.0
        """
        share = self.confidence if self.familiarity is None else self.familiarity
        return share / max(1 - share, 1e-6)

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

    Every window gets the class that its features are most like. Of those that count as known and
    overlap, the best stays; the box of what it shows is found in the cells of the map (`extents`),
    and boxes are merged by non-maximum suppression. A second box of a name stays only if it is
    nearly as sure as the best one (`AGAIN`): there may be two mugs, but a chair that looks like a
    mug beside the mug is not a mug.

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
    boxes = extents(best)
    kept = non_maximum_suppression(boxes, [window.rank for window in best], MOST_OVERLAP)
    found: list[tuple[Window, Box]] = []
    for i in kept:
        if not any(_is_surer(other, best[i]) for other, _ in found):
            found.append((best[i], boxes[i]))
    return found


def _is_surer(better: Window, worse: Window) -> bool:
    """Return True if one window shows what another one shows, and much more surely."""
    return better.column == worse.column and better.odds > AGAIN * worse.odds


def _covers(better: Window, worse: Window) -> bool:
    """Return True if the centre of one window lies in the core of the other, either way round."""
    for one, other in ((better, worse), (worse, better)):
        core, (x, y) = one.core, other.centre
        if core.left <= x <= core.right and core.top <= y <= core.bottom:
            return True
    return False


def _windows(levels: Sequence[Level], reader: WindowReader, judge: Judge) -> list[Window]:
    """All windows of a frame."""
    side = SIDE * reader.size
    found: list[Window] = []
    for level in levels:
        xs, ys, z = window_features(level, reader)
        places = [(float(x), float(y)) for y in ys for x in xs]
        for start in range(0, len(z), AT_ONCE):
            shares, familiarity = judge(z[start : start + AT_ONCE])
            columns = shares.argmax(1)
            best = shares[np.arange(len(columns)), columns]
            ranks = best if familiarity is None else best * familiarity.clip(0, 1)
            told = [None] * len(best) if familiarity is None else familiarity.tolist()
            facts = zip(columns.tolist(), ranks.tolist(), best.tolist(), told, strict=True)
            some = zip(places[start:], facts, strict=False)
            found += [Window(level, x, y, side, *fact) for (x, y), fact in some]
    return found


def extents(windows: Sequence[Window]) -> list[Box]:
    """Find the box of what each window shows.

    A cell of the finest map belongs to the object if it is more like the middle of the window than
    like the rest of the frame (`evidence`). The box is the one with the most evidence for it
    inside, and little more than the usual size and place (`best_box`).

    Args:
        windows: The windows.

    Returns:
        One box per window.
    """
    cells: dict[int, Floats] = {}
    found = []
    for window in windows:
        level = window.level
        if id(level) not in cells:
            cells[id(level)] = rooted(max(level.maps, key=lambda x: x.shape[1] * x.shape[2]))
        xs, ys = (at + np.array(OFFSETS) * window.side for at in (window.x, window.y))
        found.append(best_box(window, evidence(cells[id(level)], window, xs, ys)))
    return found


def evidence(x: Floats, window: Window, xs: Floats, ys: Floats) -> Floats:
    """(x_i - m) (f - m) / |f - m|^2 - 1/2

    for the cell x_i at each of some places, the mean f of the middle of the window and the mean m
    of the cells outside the window: positive where a cell is nearer to f than to m along the line
    between them, 1/2 at f and -1/2 at m. Between the centres of cells it is interpolated.

    Args:
        x: The cells, C x h x w.
        window: The window.
        xs: Columns, in pixels of the level.
        ys: Rows.

    Returns:
        ys x xs; -1/2 outside the picture.
    """
    (width, height), (_, rows, columns) = window.level.size, x.shape

    def share(side: float) -> Floats:
        across = interval_weights(np.array([window.x]), side / 2, columns, width)[0]
        down = interval_weights(np.array([window.y]), side / 2, rows, height)[0]
        weights: Floats = np.outer(down, across)
        return weights

    middle, outside = share(MIDDLE * window.side), share(window.side)
    outside = 1 - outside / outside.max()
    outside = (
        outside / outside.sum() if outside.sum() >= 1 else np.full_like(outside, 1 / x[0].size)
    )
    weights = np.stack([middle.ravel(), outside.ravel()], axis=1).astype(x.dtype)
    f, m = product(x.reshape(len(x), -1), weights).T
    line = f - m
    along = np.einsum("c,chw->hw", line, x) - line @ m
    along = along / max(float(line @ line), 1e-12)
    inside = ((ys > 0) & (ys < height))[:, None] & ((xs > 0) & (xs < width))
    down = interval_weights(ys.clip(0, height), height / rows / 2, rows, height)
    across = interval_weights(xs.clip(0, width), width / columns / 2, columns, width)
    told: Floats = np.where(inside, down @ along @ across.T, 0) - 0.5
    return told


# The middles of the strips around a window, and the first and last line of each possible interval.
OFFSETS = tuple(((np.arange(LINES) + 0.5) / LINES * 2 - 1) * REACH)
FIRSTS, LASTS = np.triu_indices(LINES + 1, 3)


def best_box(window: Window, evidence: Floats) -> Box:
    """sum of the evidence inside - prior,  both in units of the cells of the core

    is maximised by the best rows for some columns, the best columns for these rows, and so on. The
    prior is BOX_PRIOR / 2 ((ln(side / core) / SIZE_SPREAD)^2 + (centre / PLACE_SPREAD)^2) for each
    axis.

    Args:
        window: The window.
        evidence: What speaks for the object at `OFFSETS` around the window, rows x columns.

    Returns:
        The box, in pixels of the frame.
    """
    lines = (np.arange(LINES + 1) / LINES * 2 - 1) * REACH
    lows, highs = lines[FIRSTS], lines[LASTS]
    usual = (np.log((highs - lows) / CORE) / SIZE_SPREAD) ** 2
    usual += ((lows + highs) / 2 / PLACE_SPREAD) ** 2
    core = (CORE / (lines[1] - lines[0])) ** 2
    rows = columns = slice(*np.searchsorted(lines, (-CORE / 2, CORE / 2)).tolist())
    for _ in range(ROUNDS):
        before = rows, columns
        rows = _best_interval(evidence[:, columns].sum(1) / core, usual)
        columns = _best_interval(evidence[rows].sum(0) / core, usual)
        if (rows, columns) == before:
            break
    xs = [window.x + float(lines[k]) * window.side for k in (columns.start, columns.stop)]
    ys = [window.y + float(lines[k]) * window.side for k in (rows.start, rows.stop)]
    return window.level.box(xs[0], ys[0], xs[1], ys[1])


def _best_interval(evidence: Floats, usual: Floats) -> slice:
    """The interval of strips with the most evidence in it, less the prior."""
    sums = np.concatenate([[0], np.cumsum(evidence)])
    best = int((sums[LASTS] - sums[FIRSTS] - BOX_PRIOR / 2 * usual).argmax())
    return slice(int(FIRSTS[best]), int(LASTS[best]))


def locate(
    strategy: TaughtStrategy,
    columns: Sequence[str | None],
    picture: Image.Image,
    threshold: float,
) -> list[Located]:
    """Find what was taught in a picture.

    Args:
        strategy: The strategy that looks, which knows at least one object.
        columns: The name of each column of its scores; None for one that was not taught yet.
        picture: The whole picture, RGB.
        threshold: 1 - the share of pictures without a taught object in which something may be found
            (`BestWindow`); if the familiarity of the strategy is not a rank among strangers, the
            least familiarity, or without one confidence, with which a window counts.

    Returns:
        What was found, the best first.

    Raises:
        InputError: If the strategy trains its representation, or its network has no maps.
    """
    representation = strategy.representation_with_maps()
    reader = representation.window_reader()
    levels = levels_of(picture, representation, reader)
    taught = [j for j, name in enumerate(columns) if name is not None]
    names = [name for name in columns if name is not None]

    def judge(z: Floats) -> tuple[Floats, Floats | None]:
        judged = strategy.judge_windows(z)
        shares = softmax((judged.scores[:, taught] / judged.temperature).astype(np.float32))
        return shares, judged.familiarity

    best = best_window(strategy)

    def known(confidence: float, familiarity: float | None) -> bool:
        if best is not None and familiarity is not None:
            familiarity = best.share_below(familiarity)
        return is_known(confidence, len(names), familiarity, threshold)

    return [
        Located(names[window.column], box, window.confidence, window.familiarity)
        for window, box in find(levels, reader, judge, known)
        if names[window.column] != NOTHING
    ]
