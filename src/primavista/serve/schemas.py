"""What the service says, as OpenAPI describes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from primavista.learner.learner import Prediction
from primavista.serve.engine import Engine, Job
from primavista.storage.names import MAX_LABEL

NOTHING = "nothing"  # a lesson of this name shows the background: what looks like it is not known
Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL, examples=["mug"])]
Share = Annotated[float, Field(ge=0, le=1)]


class Said(BaseModel):
    """Whatever the service answers."""

    model_config = ConfigDict(frozen=True)


class Problem(Said):
    """Why a request was refused."""

    detail: str


class Score(Said):
    """The share of one known object."""

    label: str
    share: Share


class Recognised(Said):
    """What a frame shows. `known` is false where nothing that was taught looks like it, or what was taught as "nothing"."""

    label: str | None
    confidence: Share
    known: bool
    familiarity: Annotated[
        float | None, Field(description="how much it looks like anything taught: from 0 to about 1")
    ]
    scores: list[Score]
    version: Annotated[
        int,
        Field(description="the number of lessons and changes, since the start, that it comes from"),
    ]

    @classmethod
    def of(cls, prediction: Prediction, version: int) -> Recognised:
        """From what the learner says."""
        return cls(
            label=prediction.label,
            confidence=min(max(prediction.confidence, 0.0), 1.0),
            known=prediction.known and prediction.label != NOTHING,
            familiarity=prediction.familiarity,
            scores=[
                Score(label=name, share=min(max(p, 0.0), 1.0))
                for name, p in prediction.scores.items()
            ],
            version=version,
        )


class Known(Said):
    """One object that was taught."""

    label: str
    frames: Annotated[int, Field(ge=0)]


class Model(Said):
    """What is known now."""

    name: str
    strategy: str
    size: Annotated[int, Field(description="the side of the square that the network sees")]
    objects: list[Known]
    can_undo: bool
    queued: Annotated[int, Field(description="lessons and changes that wait or run")]
    version: int
    max_frames: Annotated[int, Field(description="of one lesson")]

    @classmethod
    def of(cls, engine: Engine) -> Model:
        """As it stands."""
        live = engine.live
        return cls(
            name=engine.path.name,
            strategy=live.learner.strategy_name,
            size=live.learner.size,
            objects=[
                Known(label=label, frames=frames) for label, frames in live.learner.counts.items()
            ],
            can_undo=live.can_undo,
            queued=engine.queued,
            version=live.version,
            max_frames=engine.limits.frames,
        )


class Lesson(Said):
    """A lesson or a change. `progress` goes from 0 to 1, null where it cannot be told; done means: learned, and on disk.

    `known` is true where it was taught before, and so left out: nothing was changed.
    """

    id: str
    kind: Literal["lesson", "rename", "forget", "undo", "load"]
    label: str | None
    frames: int
    state: Literal["queued", "running", "done", "failed"]
    progress: Share | None
    error: str | None
    seconds: float | None
    parts: Annotated[
        dict[str, float], Field(description="of the seconds: working, and saving to the disk")
    ]
    version: int | None
    known: bool

    @classmethod
    def of(cls, job: Job) -> Lesson:
        """As it stands."""
        return cls.model_validate(job, from_attributes=True)


class Checked(Said):
    """How many held-out frames of an object were recognised, and what the others were taken for ("unknown" if not known)."""

    label: str
    frames: int
    right: int
    accuracy: Share
    taken_for: dict[str, int]
    version: int


class Renaming(BaseModel):
    """Another name for a known object."""

    label: Label
    to: Label


class Forgetting(BaseModel):
    """A known object to take out."""

    label: Label


class Health(Said):
    """That it is there."""

    status: Literal["ok"] = "ok"
