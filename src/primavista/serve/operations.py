"""Operations that several routes share: recognise, find objects, submit a lesson, wait."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from primavista.errors import InputError
from primavista.learner.boxed import boxed_squares
from primavista.learner.learner import Learner
from primavista.learner.lesson import LessonBuffer
from primavista.media.images import ImageArray
from primavista.serve.learner_service import ChangeJob, LearnerService
from primavista.serve.lesson_progress import ReportProgress
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import FoundObject, FoundObjects, Recognised
from primavista.serve.threads import WorkerThreads

# the longest side of a picture, in sides of the model's frames
WHOLE_SIDES = 4  # if objects are searched for in it
BOXED_SIDES = 2  # if a square for a lesson is cut out of it


async def recognise(service: LearnerService, image: ImageArray) -> Recognised:
    """Recognise one frame; it waits in the queue that all clients share.

    Args:
        service: The service.
        image: The frame at model size.

    Returns:
        The answer.

    Raises:
        RefusedError: If too many frames wait.
    """
    prediction, version = await asyncio.wrap_future(service.predict(image))
    return Recognised.of(prediction, version)


async def find_objects(
    service: LearnerService, threads: WorkerThreads, picture: ImageArray
) -> FoundObjects:
    """Find the taught objects in one picture; pictures wait for one of a few threads.

    Args:
        service: The service.
        threads: The threads that compute.
        picture: The whole picture, uint8, H x W x 3.

    Returns:
        The objects that were found.

    Raises:
        RefusedError: If the strategy of the learner cannot locate (409).
    """
    snapshot = service.snapshot
    try:
        found = await threads.run(snapshot.learner.locate, picture)
    except InputError as error:
        raise RefusedError(409, str(error)) from error
    height, width = picture.shape[:2]
    objects = [FoundObject.of(one, width, height) for one in found]
    return FoundObjects(objects=objects, version=snapshot.version)


async def cut_squares(
    threads: WorkerThreads, wholes: list[ImageArray], box: str, size: int
) -> list[ImageArray]:
    """Cut the squares around the object out of the whole frames of a lesson.

    Args:
        threads: The threads that compute.
        wholes: The frames, uint8, H x W x 3 each.
        box: The place of the object, as `boxed_squares` takes it.
        size: The side of the results in pixels.

    Returns:
        The squares, uint8, size x size x 3.

    Raises:
        RefusedError: If the box is wrong, or if nothing moves (422).
    """
    try:
        return await threads.run(boxed_squares, wholes, box, size)
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
    """Wait until a job has ended. The job goes on if the client that waits goes away.

    Args:
        job: The job.
        seconds: The longest time to wait.

    Returns:
        True if the job has ended.
    """
    done, _ = await asyncio.wait([asyncio.wrap_future(_observer(job))], timeout=seconds)
    return bool(done)


async def cancel_job(service: LearnerService, job: ChangeJob) -> bool:
    """Cancel a job and wait until it has ended; one that does not end is left behind.

    Args:
        service: The service, whose limits say how long to wait.
        job: The job.

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

    Args:
        service: The service, whose limits say how long to wait.
        job: The job of the change.

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


def _observer(job: ChangeJob) -> Future[None]:
    """Return a future that follows the job's: cancelling it leaves the job's alone."""
    observer: Future[None] = Future()

    def resolve(_: Future[None]) -> None:
        if observer.set_running_or_notify_cancel():
            observer.set_result(None)

    job.ended.add_done_callback(resolve)
    return observer
