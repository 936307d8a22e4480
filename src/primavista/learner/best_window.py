"""The familiarity of the best of all windows of a picture in which nothing was taught.

The familiarity of a window is its rank among single frames of strangers. A picture has more than a
hundred windows, so the best of them is often as familiar as one stranger in ten, although nothing
in the picture was taught. What counts is therefore the rank of a window among the *best* windows of
pictures without a taught object. How familiar these are depends on what was taught, and is measured
on generic frames, which show arbitrary objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image

from primavista.backbones.base import FixedRepresentation
from primavista.backbones.places import Floats
from primavista.backbones.reference import generic_frames
from primavista.learner.head_strategy import HeadStrategy
from primavista.learner.strategy import TaughtStrategy
from primavista.learner.windows import AT_ONCE, levels_of, window_features

EVERY_FRAME = 3  # of the generic frames one in three is searched, 16 altogether
EVERY_WINDOW = 2  # and every second window in both directions: neighbours look alike
# Generic frames show few objects that look like a taught one, and all are rendered. The prior
# stands for other pictures: a normal distribution that counts as this many frames.
PRIOR_FRAMES = 2
PRIOR_MEAN = 3.0
PRIOR_SPREAD = 1.0
SMALLEST = 1e-7  # float32 cannot tell smaller shares of strangers from none

NORMAL = NormalDist()


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
