"""A lesson that arrives frame by frame, with the features of its frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from primavista.errors import InputError
from primavista.media.frames import ImageLike, crop_and_resize
from primavista.media.frames import lesson_id as lesson_id
from primavista.media.video import Lesson as Lesson
from primavista.progress import Progress
from primavista.strategies.base import Strategy, is_frozen

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


@dataclass(frozen=True)
class LessonFeatures:
    """A lesson as the features of its frames: `Learner.learn_again` learns it without the frames.

    `LessonBuffer.without_frames` makes one.

    Args:
        id: The id of the lesson, as `lesson_id` gives it.
        features: The features of all frames, N x D.
        version: The version of the representation that computed them.
        origin: Identifies the learner and its copies; other learners cannot use the features.
    """

    id: str
    features: Tensor
    version: int
    origin: object

    def __len__(self) -> int:
        """Return the number of frames that the lesson had."""
        return len(self.features)

    @property
    def bytes(self) -> int:
        """The memory that the features take."""
        return self.features.numel() * self.features.element_size()


class LessonBuffer:
    """The frames of a lesson that arrive one by one, with their features if these are frozen.

    A buffer satisfies `Frames`, so `learner.learn(buffer, "mug")` learns it like any other frames.
    Its features are computed while frames still arrive; the strategy then need not run the network,
    as long as the representation has not changed since. `Learner.open_lesson` makes one.

    Args:
        strategy: Computes the features.
        size: The side of the frames, in pixels.
        origin: Identifies the learner and its copies; features are not used by other learners.
    """

    is_rgb = True

    def __init__(self, strategy: Strategy, size: int, origin: object) -> None:
        self.size = size
        self._strategy = strategy
        self._origin = origin
        self._version = int(strategy.embedding_version)
        self._frames: list[Tensor] = []
        self._features: list[Tensor] = []

    def add(self, image: ImageLike, *, bgr: bool = False) -> None:
        """Append one image of any size; its centre square is resized.

        Args:
            image: A PIL image or a uint8 array, H x W x 3, H x W or H x W x 4.
            bgr: Whether the colours of an array are in the order blue, green, red, as OpenCV has
                them.
        """
        frame = torch.from_numpy(crop_and_resize(image, self.size))
        if bgr and isinstance(image, Image.Image):
            raise InputError("a PIL image is RGB: leave out bgr")
        self._frames.append(frame.flip(-1) if bgr else frame)

    def prepare(self) -> None:
        """Compute the features of all full chunks of frames that have arrived and have none yet."""
        while self._strategy.embeds and (len(self._features) + 1) * CHUNK <= len(self._frames):
            self._embed_next()

    def finish(self) -> Iterator[int]:
        """Compute the features that are missing, one chunk at a time.

        Yields:
            How many frames have features, after each chunk.
        """
        while self._strategy.embeds and len(self._features) * CHUNK < len(self._frames):
            self._embed_next()
            yield min(len(self._features) * CHUNK, len(self._frames))

    def features_for(
        self, strategy: Strategy, origin: object, progress: Progress | None = None
    ) -> Tensor | None:
        """Return the features of all frames, N x D, if `strategy` can learn from them.

        Args:
            strategy: The strategy that is about to learn.
            origin: Identifies its learner.
            progress: Told of the frames whose features are computed now.

        Returns:
            The features, or None if the strategy needs the frames themselves: because it trains its
            representation, or because that is not the one that computed the features.
        """
        same = origin is self._origin and int(strategy.embedding_version) == self._version
        if not same or not strategy.embeds:
            return None
        for done in self.finish():
            if progress is not None:
                progress(done, len(self._frames))
        return torch.cat(self._features) if self._features else None

    def without_frames(self) -> LessonFeatures | None:
        """Return the lesson as its features alone, to be learned again after the frames are gone.

        Returns:
            The features with the id of the lesson, or None if there are none, because there is no
            frame or because the strategy trains its representation.
        """
        if not self._frames or not self._strategy.embeds:
            return None
        for _ in self.finish():
            pass
        return LessonFeatures(
            lesson_id(self), torch.cat(self._features), self._version, self._origin
        )

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        if not self._frames:
            raise InputError("there are no frames: give at least one")
        return torch.stack([self._frames[int(i)] for i in indices.tolist()])

    def _embed_next(self) -> None:
        assert is_frozen(self._strategy)
        start = len(self._features) * CHUNK
        chunk = torch.stack(self._frames[start : start + CHUNK])
        self._features.append(self._strategy.embed(chunk))
