"""Several frames, one answer: how the predictions of a clip or of the last second are fused."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primavista.learner.prediction import AnswerRule, Prediction

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.media.frames import ImageLike

SECONDS = 1.0  # that a window lasts
MOST_FRAMES = 100  # in a window, whatever the rate of the frames
LEAST_SHARE = 1e-6  # so that no single frame can rule a name out
NORMAL = NormalDist()
CELLS = 8  # per side of a thumbnail
CELL_PIXELS = 8  # per side of a cell, at least, that are averaged
SAME_SCENE = 0.65  # the least correlation of two thumbnails of one scene
NOISE = 4.0  # levels, of 255, by which the cells of a plain grey picture may differ

Thumbnail = np.ndarray[tuple[int], np.dtype[np.float64]]


class WatchedFrame(NamedTuple):
    """A frame in the window: its time in seconds, its prediction, and its thumbnail."""

    at: float
    prediction: Prediction
    thumbnail: Thumbnail


def fuse(predictions: Sequence[Prediction], rule: AnswerRule) -> Prediction:
    """log p(name) = mean_t log p_t(name) + constant,  familiarity = mean_t familiarity_t

    Fuse what the frames of one clip show into one prediction. The constant makes the shares sum
    to 1, so this is the softmax of the mean scores, unless a share is under a millionth, which
    counts as a millionth: no frame can rule a name out. The order of the frames does not matter,
    and a single frame keeps its own prediction. Familiarities that are ranks among strangers are
    fused to a rank (`fused_rank`).

    Args:
        predictions: The predictions of the frames, at least one, by the same learner for the same
            names.
        rule: The rule of the learner for answers.

    >>> one = Prediction("cup", 0.8, "known", {"cup": 0.8, "mug": 0.2}, 0.5)
    >>> two = Prediction("mug", 0.5, "unknown", {"cup": 0.5, "mug": 0.5}, 0.2)
    >>> fuse([one, two], AnswerRule(0.3))  # (0.8 * 0.5)^(1/2) is twice (0.2 * 0.5)^(1/2)
    Prediction(label='cup', confidence=0.667, answer='known', familiarity=0.35)
    """
    first = predictions[0]
    names = list(first.scores)
    if len(predictions) == 1 or not names:
        return first
    shares = np.array([[one.scores[name] for name in names] for one in predictions])
    logs = np.log(shares.clip(LEAST_SHARE)).mean(0)
    fused = np.exp(logs - logs.max())
    fused /= fused.sum()
    told = [one.familiarity for one in predictions if one.familiarity is not None]
    if len(told) < len(predictions):
        familiarity = None
    elif rule.ranked:
        familiarity = fused_rank(told, rule.correlation)
    else:
        familiarity = sum(told) / len(told)
    confidence = float(fused.max())
    return Prediction(
        label=names[int(fused.argmax())],
        confidence=confidence,
        answer=rule.answer(confidence, len(names), familiarity),
        scores=dict(zip(names, fused.tolist(), strict=True)),
        familiarity=familiarity,
    )


def fused_rank(ranks: Sequence[float], correlation: float) -> float:
    """Phi(mean_t z_t / sqrt(rho + (1 - rho) / n)),  z_t = Phi^-1(rank_t)

    Fuse the ranks of the n frames of a clip among strangers into the rank of the clip. The rank of
    a frame is uniform over strangers, so z_t is a standard normal number, and with the correlation
    rho of two frames of a clip the square of the root is the variance of the mean. The result is
    therefore uniform over strangers too: a threshold takes the same share of them, however long
    the clip is, while taught objects become surer.

    Args:
        ranks: The familiarity of each frame.
        correlation: rho, from 0 to 1.

    >>> [round(fused_rank(n * [0.8], 0.25), 2) for n in (1, 4, 100)]
    [0.8, 0.9, 0.95]
    """
    z = [NORMAL.inv_cdf(min(max(rank, LEAST_SHARE), 1 - LEAST_SHARE)) for rank in ranks]
    variance = correlation + (1 - correlation) / len(z)
    return NORMAL.cdf(sum(z) / len(z) / variance**0.5)


class Watch:
    """Recognises what a camera shows from the last second of its frames.

    Each answer fuses the predictions of the frames in the window by `fuse`, so that it does not
    flicker. The window starts anew if the scene changes: if the thumbnails (8 x 8 cells of
    three colours) of two frames in a row correlate by less than 0.65, whatever their brightness and
    contrast. It also starts anew if the time goes back, and if other names are known than before.

    Args:
        learner: The learner, which is asked about every frame.
        seconds: How long a frame counts; 0 answers each frame by itself.
        bgr: Whether the frames have their colours in the order blue, green, red, as OpenCV does.

    Raises:
        ValueError: If `seconds` is negative or not a number.

    >>> class Dark:
    ...     answer_rule = AnswerRule(0.3)
    ...
    ...     def predict(self, frame):
    ...         p = 0.9 if frame.mean() < 50 else 0.4
    ...         return Prediction("dark", p, "known", {"dark": p, "light": 1 - p}, p)
    >>> watch = Watch(Dark())
    >>> frame = np.zeros((8, 8, 3), np.uint8)
    >>> watch.predict(frame, at=0.0)
    Prediction(label='dark', confidence=0.9, answer='known', familiarity=0.9)
    >>> watch.predict(frame + 60, at=0.5)
    Prediction(label='dark', confidence=0.71, answer='known', familiarity=0.65)
    """

    def __init__(self, learner: Learner, seconds: float = SECONDS, *, bgr: bool = False) -> None:
        if not seconds >= 0:
            raise ValueError(f"seconds must be a number from 0 on; got {seconds!r}")
        self.learner = learner
        self.seconds = seconds
        self._options: dict[str, Any] = {"bgr": True} if bgr else {}
        self._window: deque[WatchedFrame] = deque(maxlen=MOST_FRAMES)

    def __len__(self) -> int:
        """Return the number of frames that the last answer came from."""
        return len(self._window)

    def predict(self, frame: ImageLike, at: float | None = None) -> Prediction:
        """Recognise what the camera shows now.

        Args:
            frame: The newest frame, one image as for `Learner.predict`.
            at: When it was taken, in seconds from any start; by default now.

        Returns:
            The answer from all frames of the window, this one included.

        Raises:
            ValueError: If these are several frames.
        """
        prediction = self.learner.predict(frame, **self._options)
        if isinstance(prediction, list):
            raise ValueError(
                "watch.predict takes one frame at a time; for a clip call learner.predict_video"
            )
        return self.add(frame, prediction, at)

    def add(self, frame: ImageLike, prediction: Prediction, at: float | None = None) -> Prediction:
        """Add a frame that the learner was asked about already; otherwise as `predict`.

        Args:
            frame: The newest frame.
            prediction: What it shows by itself.
            at: When it was taken, in seconds from any start; by default now.

        Returns:
            The answer from all frames of the window, this one included.
        """
        newest = WatchedFrame(
            at=time.monotonic() if at is None else at,
            prediction=prediction,
            thumbnail=thumbnail(frame),
        )
        if self._window and not _continues(self._window[-1], newest):
            self._window.clear()
        while self._window and self._window[0].at <= newest.at - self.seconds:
            self._window.popleft()
        self._window.append(newest)
        return fuse([one.prediction for one in self._window], self.learner.answer_rule)

    @property
    def newest_thumbnail(self) -> Thumbnail:
        """The thumbnail of the frame that was added last; there must be one."""
        return self._window[-1].thumbnail

    def reset(self) -> None:
        """Forget all frames, as if the next one were the first."""
        self._window.clear()


def thumbnail(frame: ImageLike) -> Thumbnail:
    """Return the mean colours of 8 x 8 cells of the centre square of an image, 192 numbers.

    Args:
        frame: A PIL image, array or tensor of any size: H x W x 3, H x W or H x W x 4. Of a large
            one only some rows and columns are read. One of fewer than 8 pixels has fewer cells.
    """
    pixels = np.asarray(frame)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    side = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    step = max(1, side // (CELLS * CELL_PIXELS))
    square = pixels[top : top + side : step, left : left + side : step, :3]
    cells = min(CELLS, len(square))
    used = len(square) // cells * cells
    parts = square[:used, :used].reshape(cells, used // cells, cells, used // cells, -1)
    colours = parts.mean((1, 3), dtype=np.float64)
    flat: Thumbnail = np.broadcast_to(colours, (cells, cells, 3)).reshape(-1)
    return flat


def correlation(one: Thumbnail, two: Thumbnail) -> float:
    """(a b + e) / sqrt((a a + e) (b b + e)),  a and b the thumbnails less their means

    Return how alike two thumbnails are, from -1 to 1; e = 192 * 4^2 lets plain pictures that differ
    by the noise of a camera alone be alike. Thumbnails of different sizes have 0.

    Args:
        one: The thumbnail of a frame.
        two: The thumbnail of another frame.
    """
    if one.shape != two.shape:
        return 0.0
    a, b = one - one.mean(), two - two.mean()
    noise = len(a) * NOISE**2
    return float((a @ b + noise) / ((a @ a + noise) * (b @ b + noise)) ** 0.5)


def _continues(last: WatchedFrame, newest: WatchedFrame) -> bool:
    """Return True if a frame shows the scene of the frame before, seen with the same names."""
    return (
        newest.at >= last.at
        and newest.prediction.scores.keys() == last.prediction.scores.keys()
        and correlation(last.thumbnail, newest.thumbnail) >= SAME_SCENE
    )
