"""Teach, recognise, check: what is done with frames."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, File, Form, Path, Query, UploadFile

from primavista.learner.learner import Learner
from primavista.learner.lesson import Lesson
from primavista.learner.state import lesson_id
from primavista.serve import uploads
from primavista.serve.common import TheEngine, TheHands, ended, refusals
from primavista.serve.engine import Engine, Job, KnownLessonError, Tell
from primavista.serve.limits import RefusedError, check_label
from primavista.serve.schemas import NOTHING, Checked, Recognised
from primavista.serve.schemas import Lesson as Said

router = APIRouter(prefix="/api")
Name = Annotated[
    str, Form(min_length=1, max_length=200, description="the object's name", examples=["mug"])
]
Pictures = Annotated[
    list[UploadFile],
    File(description="images: JPEG, PNG, WebP or BMP of any size; the centre square counts"),
]
Video = Annotated[UploadFile | None, File(description="or one video: MP4, WebM, MKV, MOV or AVI")]
CHUNK = 16


@router.post("/lessons", status_code=202, tags=["teach"], responses=refusals(400, 408, 413, 422))
async def teach(
    engine: TheEngine,
    hands: TheHands,
    label: Name,
    frames: Pictures = [],
    video: Video = None,
    wait: Annotated[
        float, Query(ge=0, le=60, description="answer when it is done, or after so many seconds")
    ] = 0,
    again: Annotated[
        bool, Query(description="learn it even if the same was taught before")
    ] = False,
) -> Said:
    """One lesson: frames or a video of one object, and its name. It is learned after those before it.

    The same frames a second time are left out (`known` is true then), or they would count twice.
    """
    name = check_label(label, engine.live.learner.labels)
    images = await _pictures(engine, hands, frames, video)
    lesson = engine.live.learner.open_lesson()
    for image in images:
        lesson.add(image)
    job = submit_lesson(engine, lesson, name, again)
    if wait:
        await ended(job, wait)
    return Said.of(job)


@router.get("/lessons/{id}", tags=["teach"], responses=refusals(404, 422))
async def progress(
    engine: TheEngine,
    id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")],
    wait: Annotated[
        float, Query(ge=0, le=60, description="answer when it is done, or after so many seconds")
    ] = 0,
) -> Said:
    """How far a lesson is."""
    job = engine.job(id)
    if wait:
        await ended(job, wait)
    return Said.of(job)


@router.post("/predict", tags=["recognise"], responses=refusals(400, 408, 413, 422))
async def predict(
    engine: TheEngine,
    hands: TheHands,
    frame: Annotated[UploadFile, File(description="one image; its centre square counts")],
) -> Recognised:
    """What one frame shows."""
    image = await hands.quick(uploads.image, frame.file, engine.live.learner.size, engine.limits)
    return await recognise(engine, image)


@router.post("/check", tags=["recognise"], responses=refusals(400, 408, 409, 413, 422))
async def check(
    engine: TheEngine,
    hands: TheHands,
    label: Name,
    frames: Pictures = [],
    video: Video = None,
) -> Checked:
    """A quick accuracy check: frames of a known object that were not taught, and how many of them are recognised."""
    live = engine.live
    name = check_label(label, live.learner.labels)
    if name not in live.learner.labels:
        raise RefusedError(409, f"{name!r} was not taught, so it cannot be checked")
    images = await _pictures(engine, hands, frames, video)
    seen: Counter[str] = Counter()
    for start in range(
        0, len(images), CHUNK
    ):  # in pieces, so that other clients' frames come in between
        for p in await hands.long(live.learner.predict, images[start : start + CHUNK]):
            recognised = Recognised.of(p, live.version)
            seen[str(p.label) if recognised.known or p.label == name == NOTHING else "unknown"] += 1
    right = seen.pop(name, 0)
    return Checked(
        label=name,
        frames=len(images),
        right=right,
        accuracy=right / len(images),
        taken_for=dict(seen),
        version=live.version,
    )


async def recognise(engine: Engine, image: Any) -> Recognised:
    """What one frame at model size shows; in the frames' common queue."""
    prediction, version = await asyncio.wrap_future(engine.predict(image))
    return Recognised.of(prediction, version)


def submit_lesson(engine: Engine, lesson: Lesson, label: str, again: bool = False) -> Job:
    """Queue a lesson whose frames are all there; one that was taught before is left out, unless `again`."""
    if not len(lesson):
        raise RefusedError(422, "there are no frames: send at least one")

    def learn(learner: Learner, tell: Tell) -> None:
        if not again and lesson_id(lesson) in learner.lessons:
            raise KnownLessonError
        for done in lesson.finish():
            tell(0.9 * done / len(lesson))
        passes, read = getattr(getattr(learner.strategy, "options", None), "epochs", None), 0

        def watch(frames: int) -> None:
            nonlocal read
            read += frames
            if passes:
                tell(0.95 * read / (passes * len(lesson)))

        lesson.watch = watch
        learner.learn(lesson, label)

    return engine.submit("lesson", learn, label, len(lesson))


async def _pictures(
    engine: Engine, hands: TheHands, frames: list[UploadFile], video: UploadFile | None
) -> list[Any]:
    size, limits = engine.live.learner.size, engine.limits
    if bool(frames) == (video is not None):
        raise RefusedError(422, "send either frames or a video")
    if video is not None:
        return await hands.long(uploads.video, video.file, size, limits)
    files: list[BinaryIO] = [frame.file for frame in frames]
    return await hands.long(uploads.images, files, size, limits)
