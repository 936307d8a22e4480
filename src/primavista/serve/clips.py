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
from typing import Any, Literal, NamedTuple, TypeAlias

from PIL import Image

from primavista.learner.coach import NOTHING
from primavista.learner.prediction import Prediction
from primavista.learner.watch import Thumbnail, correlation, fuse
from primavista.media.images import ImageArray
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import ClipNotice, shown_answer
from primavista.storage.names import UNKNOWN

OTHER_SCENE = 0.3  # the correlation of thumbnails below which a frame shows another scene
SPACING = 0.1  # seconds between two frames that are kept
DOUBT_SECONDS = 1.5  # that a doubt must last without a break before a question is asked
ASK_AGAIN_SECONDS = 60.0  # between two questions about the same object
LEAST_FRAMES = 5  # of a question, all of the present scene
SURE = 0.6  # the least confidence of a known object that is not doubtful
REJUDGED_FRAMES = 4  # of a question, which are recognised again when the model has changed
QUALITY = 80  # of the picture of a clip, as JPEG

# What the service may ask about: nothing, likely answers, or everything that it doubts.
Asks: TypeAlias = bool | Literal["likely"]
# A doubt about a likely answer, any other doubt, or none.
Doubt: TypeAlias = Literal["", "likely", "other"]


class KeptFrame(NamedTuple):
    """A frame of the last seconds: its time in seconds, its pixels and thumbnail, and its answer.

    The answer is what the client was told: "cup", "cup?" or "unknown".
    """

    at: float
    image: ImageArray
    thumbnail: Thumbnail
    answer: str


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
        asks: What the service may ask about.
    """

    def __init__(self, service: LearnerService, seconds: float) -> None:
        self._service = service
        self._seconds = min(seconds, service.limits.recall_seconds)
        self._frames: deque[KeptFrame] = deque()
        self._clips: dict[str, StreamClip] = {}
        self._answer = Prediction(None, 0.0, "unknown")
        self._doubt: Doubt = ""
        self._doubt_since = 0.0
        self._is_asked = False  # about this doubt, as long as the scene is the same
        self._asked_at: dict[str | None, float] = {}  # by the object that was guessed
        self._version = self._answer_version = service.snapshot.version
        self.asks: Asks = False

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
            self._keep(KeptFrame(now, image, thumbnail, told(answer)))
        doubt = doubt_about(answer)
        if doubt != self._doubt or is_new_model:
            self._doubt, self._doubt_since, self._is_asked = doubt, now, False

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
        now = told(self._answer)
        return [frame for frame in self._frames if frame.answer == now]

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

        There is at most one question about one doubt, and at most one per minute about each object
        that the learner guesses. When the model has changed, the questions to which it knows the
        answer are withdrawn.
        """
        found: list[dict[str, Any]] = []
        version = self._service.snapshot.version
        if version != self._version:
            # again with the next frame, if too many frames wait now
            with contextlib.suppress(RefusedError):
                found += await self._withdrawn()
                self._version = version
        now = time.monotonic()
        if self._is_time_to_ask(now):
            self._asked_at[self._answer.label] = now
            self._is_asked = True
            found.append(self.clip(is_question=True).notice())
        return found

    def _is_time_to_ask(self, now: float) -> bool:
        label = self._answer.label
        return (
            self._may_ask()
            and not self._is_asked
            and now - self._doubt_since >= DOUBT_SECONDS
            and len(self._with_this_answer()) >= LEAST_FRAMES
            and now - self._asked_at.get(label, -ASK_AGAIN_SECONDS) >= ASK_AGAIN_SECONDS
            and len(self._clips) < self._service.limits.clips
            and self._service.recalled.left >= sum(one.image.nbytes for one in self._frames)
        )

    def _may_ask(self) -> bool:
        if self.asks == "likely":
            return self._doubt == "likely"
        return self.asks and self._doubt != ""

    async def _withdrawn(self) -> list[dict[str, Any]]:
        """Drop the questions to which the present model knows the answer; return the messages."""
        found = []
        for clip in [one for one in self._clips.values() if one.is_question]:
            step = -(-len(clip.frames) // REJUDGED_FRAMES)
            asked = [self._service.predict(frame) for frame in clip.frames[::step]]
            answers = [await asyncio.wrap_future(answer) for answer in asked]
            rule = self._service.learner.answer_rule
            doubt = doubt_about(fuse([prediction for prediction, _ in answers], rule))
            if not doubt and clip.id in self._clips:
                self.drop(clip)
                found.append({"dropped": clip.id})
        return found


def told(answer: Prediction) -> str:
    """Return what the client was told: the background is unknown, like a stranger."""
    return UNKNOWN if shown_answer(answer) == "unknown" else answer.said


def doubt_about(answer: Prediction) -> Doubt:
    """Return what is doubtful about an answer: nothing about the background and what is sure."""
    if answer.label is None:
        return ""
    if shown_answer(answer) == "likely":
        return "likely"
    is_sure = answer.confidence >= SURE and (answer.known or answer.label == NOTHING)
    return "" if is_sure else "other"
