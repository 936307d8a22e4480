"""The JSON objects of the HTTP interface, as the OpenAPI document describes them.

A class with a `title` is called by that name in the document: clients may have been generated from
it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from primavista.learner.coach import NOTHING, Kind
from primavista.learner.locating import Located
from primavista.learner.prediction import Answer, Prediction
from primavista.serve.journal import ChangeJob, JobKind, JobState
from primavista.serve.learner_service import LearnerService
from primavista.storage.names import MAX_LABEL

LabelField = Annotated[str, Field(min_length=1, max_length=MAX_LABEL, examples=["mug"])]
Fraction = Annotated[float, Field(ge=0, le=1)]
# of an answer: rounding errors are clipped
Share = Annotated[Fraction, BeforeValidator(lambda share: min(max(share, 0.0), 1.0))]
Version = Annotated[
    int, Field(description="the number of lessons and changes since the start that it comes from")
]


class ResponseModel(BaseModel):
    """The base class of all answers, which are immutable; the document calls one by its title."""

    model_config = ConfigDict(frozen=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__qualname__ = cls.model_config.get("title") or cls.__qualname__


class Problem(ResponseModel):
    """The reason why a request was refused.

    `detail` is a sentence that says what is wrong and, if possible, what to send instead.
    """

    detail: str


class Score(ResponseModel):
    """The probability of one taught object.

    `share` is the probability among all taught objects; for one frame they add up to 1.
    """

    label: str
    share: Share


class Recognised(ResponseModel):
    """The answer for a frame: the object that it shows.

    `answer` is "known", "likely" (worth asking whether it is `label`) or "unknown". It is "unknown"
    too if the frame looks like what was taught as "nothing". `known` is true if it is "known".
    """

    label: str | None
    confidence: Share
    answer: Answer
    known: bool
    familiarity: float | None = Field(
        description="how much the frame looks like anything taught; with prima the share of "
        "strangers that look less like it, from 0 to 1"
    )
    scores: list[Score]
    version: Version

    @classmethod
    def of(cls, prediction: Prediction, version: int) -> Recognised:
        """Convert a prediction of a snapshot."""
        return cls(
            label=prediction.label,
            confidence=prediction.confidence,
            answer=shown_answer(prediction),
            known=prediction.recognised_object is not None,
            familiarity=prediction.familiarity,
            scores=[Score(label=label, share=share) for label, share in prediction.scores.items()],
            version=version,
        )


def shown_answer(prediction: Prediction) -> Answer:
    """Return the answer for clients: what was taught as "nothing" is never known or likely."""
    return "unknown" if prediction.label == NOTHING else prediction.answer


class RecognisedFrames(ResponseModel):
    """The answers for several frames, in the order in which these were sent."""

    frames: list[Recognised]
    version: int


class StreamAnswer(Recognised):
    """The answer for a frame of a stream by itself, and the one for the last second of the stream.

    `recent` fuses the frames of the last second, as far as they show the same scene;
    `recent_frames` says how many those are, this one included.
    """

    recent: Recognised
    recent_frames: int = Field(ge=1)

    @classmethod
    def of_stream(
        cls, prediction: Prediction, recent: Prediction, recent_frames: int, version: int
    ) -> StreamAnswer:
        """Convert the prediction for the newest frame, and that for the last second."""
        alone, fused = Recognised.of(prediction, version), Recognised.of(recent, version)
        return cls(**dict(alone), recent=fused, recent_frames=recent_frames)


class ClipNotice(ResponseModel, title="Clip"):
    """A few seconds of a stream that are kept in memory until the client says what they show.

    `label` and `answer` are the answer of the learner for them, `picture` is the frame in the
    middle as a data URL (JPEG), and `question` is true if the service asks what they show.
    """

    id: str
    frames: int = Field(ge=1)
    seconds: float
    label: str | None
    answer: Answer
    known: bool
    question: bool
    picture: str


class BoxShares(ResponseModel, title="Box"):
    """A box in a picture, as shares of its width and height from the left upper corner."""

    left: Share
    top: Share
    right: Share
    bottom: Share


class FoundObject(ResponseModel, title="Found"):
    """A taught object that was found in a picture, with its box."""

    label: str
    confidence: Share
    familiarity: float | None
    box: BoxShares

    @classmethod
    def of(cls, found: Located, width: int, height: int) -> FoundObject:
        """Convert an object that was found in a picture of this size, with its box in pixels."""
        shown = replace(found, box=found.box.in_shares(width, height))
        return cls.model_validate(shown, from_attributes=True)


class FoundObjects(ResponseModel):
    """The taught objects that were found in one picture, with their boxes, the surest first."""

    objects: list[FoundObject]
    version: Version


class TaughtObject(ResponseModel, title="Known"):
    """One object that was taught.

    `frames` is the number of frames of all its lessons together.
    """

    label: str
    frames: int = Field(ge=0)


class TeachingAdvice(ResponseModel, title="Advice"):
    """The advice for one object, or for two that are confused: the next lesson to teach.

    It comes from the last lessons of objects that were known already: their frames were predicted
    before they were learned. `frames` counts these frames, `right` those that were right, and
    `known` those that counted as known.
    """

    labels: list[str]
    kind: Kind
    text: str = Field(examples=["cup and mug are confused: show both once more"])
    lessons: int = Field(ge=0, description="the number of lessons that were predicted")
    frames: int = Field(ge=0)
    right: int = Field(ge=0)
    known: int = Field(ge=0)
    taken_for: dict[str, int] = Field(
        description="what the other frames were taken for, and how often"
    )


class RemovableLesson(ResponseModel):
    """One of the last lessons, which can be removed by itself.

    `id` is that of the job which taught it, `label` the present name of its object.
    """

    id: str
    label: str
    frames: int = Field(ge=1)


class Model(ResponseModel):
    """The current state of the learner.

    `objects` are in the order in which they were first taught. `version` is the number of lessons
    and changes since the service started. `advice` says what to teach next, urgent things first.
    """

    name: str
    strategy: str
    size: int = Field(description="the side of the square image that the network reads")
    objects: list[TaughtObject]
    can_undo: bool
    queued: int = Field(description="the number of lessons and changes that wait or run")
    version: int
    max_frames: int = Field(description="the largest number of frames of one lesson")
    threshold: Fraction = Field(description="the familiarity from which on a frame counts as known")
    advice: list[TeachingAdvice]
    nothing: str = Field(description="the name of lessons that show none of the objects")
    camera: str | None = Field(
        description="the service's own camera, without its password; null if it has none"
    )
    recall_seconds: float = Field(
        description="the longest time for which the frames of a stream are remembered"
    )
    lessons: list[RemovableLesson] = Field(
        description="the last lessons since the service started, which can be removed"
    )

    @classmethod
    def of(cls, service: LearnerService) -> Model:
        """Describe the current snapshot of a service."""
        snapshot = service.snapshot
        learner = snapshot.learner
        return cls(
            name=service.path.name,
            strategy=learner.strategy_name,
            size=learner.size,
            objects=[TaughtObject(label=name, frames=n) for name, n in learner.counts.items()],
            can_undo=snapshot.can_undo or service.newest_change is not None,
            queued=service.queued,
            version=snapshot.version,
            max_frames=service.limits.lesson_frames,
            threshold=learner.threshold,
            advice=[TeachingAdvice.model_validate(asdict(one)) for one in learner.advice()],
            nothing=NOTHING,
            camera=None if service.camera is None else service.camera.name,
            recall_seconds=service.limits.recall_seconds,
            lessons=[
                RemovableLesson(id=one.id, label=one.label, frames=len(one.lesson or ()))
                for one in snapshot.journal.lessons()
            ],
        )


class JobStatus(ResponseModel, title="Lesson"):
    """The status of a lesson or a change.

    `progress` goes from 0 to 1 and is null if it cannot be told. `done` means learned and on disk.
    `already_taught` is true if the lesson was taught before and therefore left out: nothing was
    changed.
    """

    id: str
    kind: JobKind
    label: str | None
    frames: int
    state: JobState
    progress: Fraction | None
    error: str | None
    seconds: float | None
    parts: dict[str, float] = Field(
        description="how the seconds were spent: working, and saving to disk"
    )
    version: int | None
    already_taught: bool

    @classmethod
    def of(cls, job: ChangeJob) -> JobStatus:
        """Describe a job as it is at this moment; it may be running in another thread."""
        return cls.model_validate(job, from_attributes=True)


class Checked(ResponseModel):
    """The result of a check: how many frames of an object were recognised.

    `taken_for` counts what the other frames were taken for, "unknown" among them.
    """

    label: str
    frames: int
    right: int
    accuracy: Fraction
    taken_for: dict[str, int]
    version: int


class RequestModel(BaseModel):
    """The base class of what clients send: no value is converted, and no field is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Renaming(RequestModel):
    """A new name for a taught object.

    `label` is its present name; `to` is the new one, which no other object may have.
    """

    label: LabelField
    to: LabelField


class Thresholding(RequestModel, title="Threshold"):
    """A new threshold: `known` is true from this familiarity on."""

    __qualname__ = "Threshold"

    threshold: Fraction


class Forgetting(RequestModel):
    """A taught object to remove, by its label."""

    label: LabelField


class Removing(RequestModel):
    """One of the last lessons to remove, by its id."""

    lesson: str = Field(pattern="^[0-9a-f]{16}$")


class CameraStatus(ResponseModel):
    """The state of the service's own camera; `name` is its address without a password.

    `reason` says why it gives no frame, and is empty while it gives some.
    """

    name: str
    online: bool
    reason: str


class Health(ResponseModel):
    """The answer of a service that is running and accepts requests."""

    status: Literal["ok"] = "ok"
