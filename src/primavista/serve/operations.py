"""Parts that several routes share: refusals, locating, submitting a lesson, waiting for a job."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Depends
from fastapi.requests import HTTPConnection

from primavista.errors import InputError
from primavista.learner.boxed import boxed_squares
from primavista.learner.learner import Learner
from primavista.learner.lesson import LessonBuffer
from primavista.media.images import ImageArray
from primavista.serve.jobs import ChangeJob, ReportProgress
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import FoundObject, FoundObjects, Problem

# the longest side of a picture, in sides of the model's frames
WHOLE_SIDES = 4  # if objects are searched for in it
BOXED_SIDES = 2  # if a square for a lesson is cut out of it
REASONS = {
    400: "the body cannot be parsed",
    401: "a token is required",
    403: "the request comes from another page or is addressed to another host",
    404: "there is no such thing",
    408: "the body came too slowly",
    409: "the current state of the learner does not allow it",
    413: "too large: bytes, pixels or frames",
    422: "the contents are invalid",
    429: "too many requests at once: try again in a moment",
}
ALWAYS = (401, 403, 429)  # every route may refuse with these


def _service(connection: HTTPConnection) -> LearnerService:
    service: LearnerService = connection.app.state.service
    return service


Service = Annotated[LearnerService, Depends(_service)]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a FastAPI route that may also refuse with these statuses."""
    return {
        status: {"model": Problem, "description": REASONS[status]}
        for status in sorted({*ALWAYS, *statuses})
    }


async def find_objects(service: LearnerService, picture: ImageArray) -> FoundObjects:
    """Find the taught objects in one picture; `RefusedError` (409) if the learner cannot locate."""
    snapshot = service.snapshot
    try:
        found = await service.in_thread(snapshot.learner.locate, picture)
    except InputError as error:
        raise RefusedError(409, str(error)) from error
    height, width = picture.shape[:2]
    objects = [FoundObject.of(one, width, height) for one in found]
    return FoundObjects(objects=objects, version=snapshot.version)


async def cut_squares(
    service: LearnerService, wholes: list[ImageArray], box: str
) -> list[ImageArray]:
    """Cut the squares around the object out of the whole frames of a lesson, at model size.

    Args:
        service: The service.
        wholes: The frames, uint8, H x W x 3 each.
        box: The place of the object, as `boxed_squares` takes it.

    Raises:
        RefusedError: If the box is wrong, or if nothing moves (422).
    """
    try:
        return await service.in_thread(boxed_squares, wholes, box, service.learner.size)
    except InputError as error:
        raise RefusedError(422, str(error)) from error


def submit_lesson(
    service: LearnerService, lesson: LessonBuffer, label: str, again: bool = False
) -> ChangeJob:
    """Queue a lesson whose frames are complete.

    Args:
        service: The service.
        lesson: The frames of the lesson.
        label: The name of the object that they show.
        again: Learn the lesson even if the same one was taught before.

    Returns:
        The job; its `already_taught` is True in the end if the lesson was left out.

    Raises:
        RefusedError: If there are no frames (422) or the queue is full (429).
    """
    if not len(lesson):
        raise RefusedError(422, "there are no frames: send at least one")

    def learn(learner: Learner, report_progress: ReportProgress) -> None:
        refuse = () if again else learner.lessons
        progress = service.lesson_progress.of_frames(report_progress)
        learner.learn(lesson, label, refuse=refuse, progress=progress)

    return service.submit("lesson", learn, label, lesson)


async def wait_for_job(job: ChangeJob, seconds: float) -> bool:
    """Wait for some seconds; return True if the job has ended.

    `asyncio.wait` does not cancel what it waits for: if the client goes away, the job goes on.
    """
    done, _ = await asyncio.wait([asyncio.wrap_future(job.ended)], timeout=seconds)
    return bool(done)


async def cancel_job(service: LearnerService, job: ChangeJob) -> bool:
    """Cancel a job and wait until it has ended; one that does not end is left behind.

    Returns:
        False if it is too late: the job has ended, or it is being saved.

    Raises:
        RefusedError: If the job does not end, and too many others were left behind (429).
    """
    if not service.cancel(job):
        return False
    if not await wait_for_job(job, service.limits.cancel_seconds):
        service.give_up(job)
    if not job.ended.done():
        reason = "this model computes without an end: nothing of the lesson will be kept"
        raise RefusedError(429, f"{reason}, but the next one has to wait; restart the service")
    return True


async def wait_for_change(service: LearnerService, job: ChangeJob) -> None:
    """Wait until a small change is done; the lessons before it come first.

    Raises:
        RefusedError: If the change failed (409) or if it takes too long (429).
    """
    if not await wait_for_job(job, service.limits.wait_seconds):
        raise RefusedError(
            429,
            "the lessons before this change take long; it will be made after them: "
            "GET /api/model shows when",
        )
    if job.state == "failed":
        raise RefusedError(409, job.error or "it failed")
