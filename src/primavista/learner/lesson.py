"""Lessons: one that arrives frame by frame, one kept as features, and the report on one.

What is still to be taught, the name of an object and a source of frames, is `media.video.Lesson`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from primavista.arrays import array_namespace
from primavista.errors import InputError
from primavista.learner.strategy import TaughtStrategy
from primavista.media.frames import FrameArray, ImageLike, Indices, lesson_id
from primavista.media.images import centre_square
from primavista.progress import Progress

# Frames whose features are computed together. Fixed, so that features do not depend on how fast the
# frames came.
CHUNK = 16


class AlreadyTaughtError(InputError):
    """Raised by `Learner.learn` if the lesson is one of those to refuse; nothing was changed.

    Args:
        lesson_id: The id of the lesson, also an attribute of the exception.
    """

    def __init__(self, lesson_id: str) -> None:
        super().__init__("this lesson was taught before: the same frames would count twice")
        self.lesson_id = lesson_id


@dataclass(frozen=True, repr=False)
class LessonReport:
    """The outcome of one lesson, as `Learner.learn` returns it.

    Args:
        id: The id of the lesson, the last of `learner.lessons`; equal frames have equal ids.
        frames: How many frames of each object were learned.
        new: The names that were taught for the first time.
        losses: The mean loss of each epoch; empty for strategies without gradient descent.
        stored_bytes: The size of all frames or activations that the learner keeps; 0 if it is
            rehearsal-free.
    """

    id: str
    frames: dict[str, int]
    new: tuple[str, ...] = ()
    losses: tuple[float, ...] = ()
    stored_bytes: int = 0

    @property
    def total(self) -> int:
        """The number of frames of the lesson, of all its objects together."""
        return sum(self.frames.values())

    def __repr__(self) -> str:
        facts = [f"frames={self.frames!r}", f"new={self.new!r}"]
        if self.losses:
            facts.append(f"losses=({', '.join(f'{loss:.3g}' for loss in self.losses)})")
        if self.stored_bytes:
            facts.append(f"stored_bytes={self.stored_bytes}")
        return f"LessonReport({', '.join(facts)})"


@dataclass(frozen=True)
class LessonFeatures:
    """A lesson as the features of its frames: `Learner.learn_again` learns it without the frames.

    `LessonBuffer.without_frames` makes one.

    Args:
        id: The id of the lesson, as `lesson_id` gives it.
        features: The features of all frames, N x D.
        features_from: Identifies the representation that computed them; see `TaughtStrategy`.
    """

    id: str
    features: Any
    features_from: object

    def __len__(self) -> int:
        """Return the number of frames that the lesson had."""
        return len(self.features)

    @property
    def bytes(self) -> int:
        """The memory that the features take."""
        return int(self.features.nbytes)


class LessonBuffer:
    """The frames of a lesson that arrive one by one, with their features if these are frozen.

    A buffer satisfies `Frames`, so `learner.learn(buffer, "mug")` learns it like any other frames.
    Its features are computed while frames still arrive; the strategy then need not run the network,
    as long as the representation has not changed since. `Learner.open_lesson` makes one.

    Args:
        strategy: Computes the features.
    """

    is_rgb = True

    def __init__(self, strategy: TaughtStrategy) -> None:
        self.size = strategy.settings.spec.size
        self._strategy = strategy
        self._features_from = strategy.features_from
        self._frames: list[FrameArray] = []
        self._features: list[Any] = []

    def add(self, image: ImageLike, *, bgr: bool = False) -> None:
        """Append one image of any size; its centre square is resized.

        Args:
            image: A PIL image or a uint8 array, H x W x 3, H x W or H x W x 4.
            bgr: Whether the colours of an array are in the order blue, green, red, as OpenCV has
                them.
        """
        frame = centre_square(image, self.size)
        if bgr and isinstance(image, Image.Image):
            raise InputError("a PIL image is RGB: leave out bgr")
        self._frames.append(frame[..., ::-1] if bgr else frame)

    def prepare(self) -> None:
        """Compute the features of all full chunks of frames that have arrived and have none yet."""
        if self._features_from is not None:
            self._embed(len(self._frames) // CHUNK * CHUNK)

    def features_for(self, strategy: TaughtStrategy, progress: Progress | None = None) -> Any:
        """Return the features of all frames, N x D, if `strategy` can learn from them.

        Args:
            strategy: The strategy that is about to learn.
            progress: Told of the frames whose features are computed now.

        Returns:
            The features, or None if the strategy needs the frames themselves: because it trains its
            representation, or because that is not the one that computed the features.
        """
        fits = self._features_from is not None and strategy.features_from == self._features_from
        if not fits or not self._frames:
            return None
        self._embed(len(self._frames), progress)
        return array_namespace(self._features[0]).concat(self._features, axis=0)

    def without_frames(self) -> LessonFeatures | None:
        """Return the lesson as its features alone, to be learned again after the frames are gone.

        Returns:
            The features with the id of the lesson, or None if there are none, because there is no
            frame or because the strategy trains its representation.
        """
        features = self.features_for(self._strategy)
        if features is None:
            return None
        return LessonFeatures(lesson_id(self), features, self._features_from)

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, indices: Indices) -> FrameArray:
        if not self._frames:
            raise InputError("there are no frames: give at least one")
        return np.stack([self._frames[int(i)] for i in indices.tolist()])

    def _embed(self, count: int, progress: Progress | None = None) -> None:
        """Compute the features of the first `count` frames that are missing, chunk by chunk."""
        for start in range(len(self._features) * CHUNK, count, CHUNK):
            chunk = np.stack(self._frames[start : start + CHUNK])
            self._features.append(self._strategy.features(chunk))
            if progress is not None:
                progress(min(start + CHUNK, count), len(self._frames))
