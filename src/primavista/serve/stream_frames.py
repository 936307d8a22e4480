"""Recognition of one client's stream of frames: each by itself, and the last second together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from primavista.learner.prediction import Prediction
from primavista.learner.watch import Thumbnail
from primavista.media.images import ImageArray
from primavista.serve.learner_service import LearnerService


@dataclass(frozen=True)
class StreamFrame:
    """A recognised frame of a stream.

    Attributes:
        image: The frame at model size.
        thumbnail: Its thumbnail, by which scenes are told apart.
        prediction: The answer for the frame by itself.
        recent: The answer for the frames of the last second together.
        recent_frames: The number of those frames, this one included.
        version: The version of the model that both answers come from.
    """

    image: ImageArray
    thumbnail: Thumbnail
    prediction: Prediction
    recent: Prediction
    recent_frames: int
    version: int


class StreamRecogniser:
    """Recognises the frames of one stream; a new version of the model starts a new last second.

    Args:
        service: The service.
    """

    def __init__(self, service: LearnerService) -> None:
        self._service = service
        self._watch = service.learner.watch()
        self._version = service.snapshot.version

    async def recognise(self, image: ImageArray) -> StreamFrame:
        """Recognise the next frame; it waits in the queue that all clients share.

        Args:
            image: The frame at model size.

        Returns:
            The frame with its answers.

        Raises:
            RefusedError: If too many frames wait.
        """
        prediction, version = await asyncio.wrap_future(self._service.predict(image))
        if version != self._version:
            self._watch, self._version = self._service.learner.watch(), version
        recent = self._watch.add(image, prediction)
        return StreamFrame(
            image=image,
            thumbnail=self._watch.newest_thumbnail,
            prediction=prediction,
            recent=recent,
            recent_frames=len(self._watch),
            version=version,
        )
