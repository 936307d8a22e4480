"""The last seconds of one client's stream, to correct answers and to ask about doubtful ones.

Everything here is in memory only, belongs to one WebSocket, and is gone when that closes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from PIL import Image

from primavista.learner.coach import NOTHING
from primavista.learner.prediction import Prediction
from primavista.learner.watch import Thumbnail, correlation, fuse
from primavista.media.images import ImageArray
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import ClipNotice, shown_answer

OTHER_SCENE = 0.3  # the correlation of thumbnails below which a frame shows another scene
SPACING = 0.1  # seconds between two frames that are kept
DOUBT_SECONDS = 1.5  # that a doubt must last without a break before a question is asked
LEAST_FRAMES = 5  # of a question, all of the present scene
SURE = 0.6  # the least confidence of a known object that is not doubtful
REJUDGED_FRAMES = 4  # of a question, which are recognised again when the model has changed
QUALITY = 80  # of the picture of a clip, as JPEG


class KeptFrame(NamedTuple):
    """A frame of the last seconds: its time in seconds, its pixels and thumbnail, and its answer.

    The answer is the object that the client was told, None for unknown.
    """

    at: float
    image: ImageArray
    thumbnail: Thumbnail
    answer: str | None


@dataclass(frozen=True)
class StreamClip:
    """Some seconds of a stream that are kept until the client says what they show.

    Attributes:
        frames: The frames at model size.
        seconds: The time from the first to the last.
        answer: The answer of the learner for them.
        is_question: True if the service asks about the clip, False if the client asked for it.
        id: A random name, by which the client refers to the clip.
    """

    frames: tuple[ImageArray, ...]
    seconds: float
    answer: Prediction
    is_question: bool
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def bytes(self) -> int:
        """The memory that the frames take."""
        return sum(frame.nbytes for frame in self.frames)

    def notice(self) -> dict[str, Any]:
        """Return the message that tells the client of the clip, with a picture of its middle."""
        file = io.BytesIO()
        Image.fromarray(self.frames[len(self.frames) // 2]).save(file, "JPEG", quality=QUALITY)
        picture = base64.b64encode(file.getvalue()).decode()
        told = ClipNotice(
            id=self.id,
            frames=len(self.frames),
            seconds=self.seconds,
            label=self.answer.label,
            answer=shown_answer(self.answer),
            known=self.answer.recognised_object is not None,
            question=self.is_question,
            picture=f"data:image/jpeg;base64,{picture}",
        )
        return {"clip": told.model_dump()}


class StreamClips:
    """The last seconds of one stream, and the clips of it that wait for the client's answer.

    Args:
        service: The service, whose limit of bytes holds for all streams together.
        seconds: The time for which a frame is remembered; 0 remembers none.

    Attributes:
        asks: True if the service may ask about doubtful scenes.
    """

    def __init__(self, service: LearnerService, seconds: float) -> None:
        self._service = service
        self._seconds = min(seconds, service.limits.recall_seconds)
        self._frames: deque[KeptFrame] = deque()
        self._clips: dict[str, StreamClip] = {}
        self._answer = Prediction(None, 0.0, "unknown")
        self._doubt_since: float | None = None
        self._is_asked = False  # about this doubt, as long as the scene is the same
        self._asked: set[str | None] = set()
        self._version = self._answer_version = service.snapshot.version
        self.asks = False

    def add(
        self, image: ImageArray, thumbnail: Thumbnail, answer: Prediction, version: int
    ) -> None:
        """Remember a frame; the frames of another scene or of another model are forgotten.

        A scene goes on as long as the new frame resembles any frame that is remembered of it, so a
        hand that moves fast does not end it.

        Args:
            image: The newest frame of the stream at model size.
            thumbnail: Its thumbnail.
            answer: The answer for the last second of the stream.
            version: The version of the model that the answer comes from.
        """
        now = time.monotonic()
        self._answer = answer
        likeness = [correlation(thumbnail, kept.thumbnail) for kept in self._frames]
        is_new_model = version != self._answer_version
        if is_new_model or max(likeness, default=1.0) < OTHER_SCENE:
            self._answer_version = version
            self._forget(len(self._frames))
            self._is_asked = False
        old = sum(kept.at <= now - self._seconds for kept in self._frames)
        self._forget(old)
        if not self._frames or now - self._frames[-1].at >= SPACING:
            self._keep(KeptFrame(now, image, thumbnail, answer.recognised_object))
        if not is_doubtful(answer):
            self._doubt_since, self._is_asked = None, False
        elif self._doubt_since is None or is_new_model:
            self._doubt_since = now

    def _keep(self, frame: KeptFrame) -> None:
        budget = self._service.recalled
        size = frame.image.nbytes
        if self._seconds > 0 and budget.left < size:
            self._forget(1)  # other streams have the rest: this one remembers a shorter time
        if self._seconds > 0 and budget.left >= size:
            budget.take(size)
            self._frames.append(frame)

    def _forget(self, count: int) -> None:
        for _ in range(min(count, len(self._frames))):
            self._service.recalled.give_back(self._frames.popleft().image.nbytes)

    def clip(self, is_question: bool = False) -> StreamClip:
        """Keep the remembered frames of the present scene until the client says what they show.

        The clip has the frames for which the client was told the same as now.

        Raises:
            RefusedError: If nothing is remembered (409), or if too much is kept already (429).
        """
        kept_frames = self._with_this_answer()
        if not kept_frames:
            raise RefusedError(409, "no frame of this scene is remembered yet: wait a moment")
        if len(self._clips) >= self._service.limits.clips:
            limit = self._service.limits.clips
            raise RefusedError(429, f"{limit} clips are kept already: teach or drop one first")
        seconds = kept_frames[-1].at - kept_frames[0].at
        images = tuple(frame.image for frame in kept_frames)
        kept = StreamClip(images, seconds, self._answer, is_question)
        self._service.recalled.take(kept.bytes)
        self._clips[kept.id] = kept
        return kept

    def _with_this_answer(self) -> list[KeptFrame]:
        told = self._answer.recognised_object
        return [frame for frame in self._frames if frame.answer == told]

    def find(self, id: object) -> StreamClip:
        """Return a clip by the id that the client sent; `RefusedError` (404) if there is none."""
        if not isinstance(id, str) or id not in self._clips:
            raise RefusedError(404, "there is no such clip: it was taught, dropped or answered")
        return self._clips[id]

    def drop(self, clip: StreamClip) -> None:
        """Forget a clip that is kept."""
        self._service.recalled.give_back(self._clips.pop(clip.id).bytes)

    def close(self) -> None:
        """Forget everything, because the client has gone."""
        self._forget(len(self._frames))
        for clip in list(self._clips.values()):
            self.drop(clip)

    async def notices(self) -> list[dict[str, Any]]:
        """Return messages for the client: a new question, and the questions that are withdrawn.

        Until the model changes, there is at most one question about one doubt, and at most one
        about each object that the learner guesses. When the model has changed, the questions to
        which it knows the answer are withdrawn.
        """
        found: list[dict[str, Any]] = []
        version = self._service.snapshot.version
        if version != self._version:
            # again with the next frame, if too many frames wait now
            with contextlib.suppress(RefusedError):
                found += await self._withdrawn()
                self._asked = {one.answer.label for one in self._clips.values() if one.is_question}
                self._version = version
        if self._is_time_to_ask():
            self._asked.add(self._answer.label)
            self._is_asked = True
            found.append(self.clip(is_question=True).notice())
        return found

    def _is_time_to_ask(self) -> bool:
        return (
            self.asks
            and not self._is_asked
            and self._doubt_since is not None
            and time.monotonic() - self._doubt_since >= DOUBT_SECONDS
            and len(self._with_this_answer()) >= LEAST_FRAMES
            and self._answer.label not in self._asked
            and len(self._clips) < self._service.limits.clips
            and self._service.recalled.left >= sum(one.image.nbytes for one in self._frames)
        )

    async def _withdrawn(self) -> list[dict[str, Any]]:
        """Drop the questions to which the present model knows the answer; return the messages."""
        found = []
        for clip in [one for one in self._clips.values() if one.is_question]:
            step = -(-len(clip.frames) // REJUDGED_FRAMES)
            asked = [self._service.predict(frame) for frame in clip.frames[::step]]
            answers = [await asyncio.wrap_future(answer) for answer in asked]
            rule = self._service.learner.answer_rule
            known = not is_doubtful(fuse([prediction for prediction, _ in answers], rule))
            if known and clip.id in self._clips:
                self.drop(clip)
                found.append({"dropped": clip.id})
        return found


def is_doubtful(answer: Prediction) -> bool:
    """Return True if a scene is worth a question: not the background, and not surely known."""
    if answer.label is None:
        return False
    if answer.label == NOTHING:
        return answer.confidence < SURE
    return not answer.known or answer.confidence < SURE
