"""One writer, many readers: the learner behind the service.

One thread applies lessons and changes in order; each is on disk before it takes effect. Another
thread predicts from the last complete state, so predictions never wait for a lesson.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar

import numpy as np

from primavista.errors import InputError, PrimavistaError
from primavista.learner.learner import Learner
from primavista.learner.lesson import AlreadyTaughtError, LessonBuffer
from primavista.learner.prediction import Prediction
from primavista.media.images import ImageArray
from primavista.serve.journal import (
    CANCELLED,
    ChangeJob,
    JobCancelledError,
    JobKind,
    Journal,
    JournalEntry,
    ReportProgress,
)
from primavista.serve.limits import Budget, RefusedError, ServiceLimits
from primavista.serve.service_camera import ServiceCamera
from primavista.storage.learner_file import file_stamp

T = TypeVar("T")
MAX_FRAMES_PER_PASS = 16  # of all clients together
STREAM_PLACES = 8  # frames of streams that are decoded or recognised; the newest of others wait
SHARE_OF_FRAMES = 0.5  # of the progress of a lesson; the rest is for what comes after them
THREADS = 2  # for work on lessons, models and boxes; few, to leave cores to the network
log = logging.getLogger("primavista")


@dataclass(frozen=True)
class Snapshot:
    """The learner at one moment. A change replaces it whole, so nobody sees half a lesson.

    Attributes:
        version: The number of lessons and changes since the service started.
        learner: The learner that predictions come from.
        journal: The last lessons, each of which can be removed.
        replaced: The learner before the last change, if that change loaded another model or
            removed a lesson.
        journal_before: The journal before the last change, for undo.
    """

    version: int
    learner: Learner
    journal: Journal
    replaced: Learner | None = None
    journal_before: Journal | None = None

    @property
    def can_undo(self) -> bool:
        """True if the last change, or the loading of a model, can be taken back."""
        return self.replaced is not None or self.learner.can_undo


# the prediction, and the version of the snapshot that it comes from
VersionedPrediction: TypeAlias = tuple[Prediction, int]
# a frame that waits to be recognised, and the future for its prediction
WaitingFrame: TypeAlias = tuple[ImageArray, Future[VersionedPrediction]]


class LearnerService:
    """A learner with one writer thread and one reader thread.

    Args:
        learner: The learner to begin with.
        path: The file that every change is saved to.
        limits: The limits on queues; the defaults if None.

    Attributes:
        snapshot: The state that predictions come from. A lesson may replace it at any time: read it
            once if several facts must belong together.
        camera: The service's own camera, or None if it has none.
    """

    camera: ServiceCamera | None = None

    def __init__(self, learner: Learner, path: Path, limits: ServiceLimits | None = None) -> None:
        self.path = path
        self.limits = limits or ServiceLimits()
        at_most = "have at most {limit} bytes together"
        recalled = "the remembered frames and the clips of all streams"
        self.uploads = Budget(self.limits.upload_bytes, f"all uploads in progress {at_most}")
        self.recalled = Budget(self.limits.recall_bytes, f"{recalled} {at_most}")
        self.stream_places = asyncio.Semaphore(STREAM_PLACES)
        self.snapshot = Snapshot(0, learner, Journal(learner))
        self._stamp = file_stamp(path)
        self._jobs: dict[str, ChangeJob] = {}  # the oldest first
        self._lock = Lock()
        self._pending: queue.Queue[ChangeJob | None] = queue.Queue()
        self._requests: queue.Queue[WaitingFrame | None] = queue.Queue()
        self._writer = self._new_writer()
        self._reader = Thread(target=self._answer_requests, name="reader", daemon=True)
        self._threads = ThreadPoolExecutor(THREADS, "lesson")
        self._given_up: list[Thread] = []
        self._stopping = False

    @property
    def learner(self) -> Learner:
        """The learner of the current snapshot: to look at, not to change.

        Changes go through `submit`, so that they are saved and happen one after the other.
        """
        return self.snapshot.learner

    @property
    def queued(self) -> int:
        """The number of lessons and changes that wait in the queue or are running now."""
        with self._lock:
            return sum(not job.ended.done() for job in self._jobs.values())

    def start(self) -> None:
        """Start both threads, after a trial that warms up what the first frame and lesson need.

        The lesson is learned by a copy of the learner and thrown away. A strategy that trains its
        network only predicts: a model that asks for many epochs must not delay the start.
        """
        trial = self.learner.copy()
        blank = _blank_frames(trial)
        if trial.strategy.features_from is not None:
            # A strategy that accepts no more classes can still predict.
            with contextlib.suppress(PrimavistaError):
                trial.learn(blank, "warm")
        trial.predict(blank)
        if self.learner.labels:
            self.learner.predict(blank)  # solves for its weights, so that no client waits for that
        self._writer.start()
        self._reader.start()

    def stop(self) -> None:
        """Let the running lesson end, cancel it if it takes long, and refuse those that wait."""
        self._stopping = True
        self._pending.put(None)
        self._requests.put(None)
        _join(self._writer, self.limits.stop_seconds)
        for job in list(self._jobs.values()):
            if job.state == "running" and self.cancel(job):
                log.warning("a %s was cancelled, because it would have taken long", job.kind)
        _join(self._writer, self.limits.cancel_seconds)
        _join(self._reader, self.limits.cancel_seconds)
        self._threads.shutdown(cancel_futures=True)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run work on a whole lesson, a whole model or a picture outside the event loop.

        Pictures and videos are decoded elsewhere, see `primavista.media.decoder`.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def submit(self, job: ChangeJob) -> ChangeJob:
        """Append a lesson or a change to the queue.

        Returns:
            The job, whose `ended` is resolved when the change is on disk or has failed.

        Raises:
            RefusedError: If too many jobs wait, or if the service is stopping (429).
        """
        with self._lock:
            self._check_room(job.kind)
            self._jobs[job.id] = job
            finished = [old.id for old in self._jobs.values() if old.ended.done()]
            for id in finished[: -self.limits.finished_jobs or None]:
                del self._jobs[id]
        self._pending.put(job)
        return job

    def lesson_of(self, frames: Iterable[ImageArray]) -> LessonBuffer:
        """Return a lesson of frames at model size."""
        lesson = self.learner.open_lesson()
        for frame in frames:
            lesson.add(frame)
        return lesson

    def teach(self, lesson: LessonBuffer, label: str, again: bool = False) -> ChangeJob:
        """Queue a lesson whose frames are complete.

        Args:
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
            def progress(done: int, total: int | None) -> None:
                if total:
                    report_progress(SHARE_OF_FRAMES * done / total)

            refuse = () if again else learner.lessons
            learner.learn(lesson, label, refuse=refuse, progress=progress)

        return self.submit(ChangeJob("lesson", learn, label, lesson))

    async def change(self, job: ChangeJob) -> None:
        """Submit a small change and wait until it is done; the lessons before it come first.

        Raises:
            RefusedError: If the change failed (409), or if it takes too long or too many jobs wait
                (429).
        """
        if not await self.submit(job).wait(self.limits.wait_seconds):
            raise RefusedError(
                429,
                "the lessons before this change take long; it will be made after them: "
                "GET /api/model shows when",
            )
        if job.error is not None:
            raise RefusedError(409, job.error)

    def _check_room(self, kind: JobKind) -> None:
        """Refuse a job of this kind, with the lock held, if it would have to wait for too many."""
        self._given_up = [thread for thread in self._given_up if thread.is_alive()]
        number = len(self._given_up)
        waiting = sum(job.state == "queued" for job in self._jobs.values())
        if kind == "lesson" and number >= self.limits.given_up_jobs:
            reason = f"{number} cancelled lessons of this model are still computed"
            advice = "wait for them to end, or restart the service"
        elif self._stopping or waiting >= self.limits.queued_jobs:
            reason = f"{waiting} lessons and changes are waiting already"
            advice = "try again when some are done"
        else:
            return
        raise RefusedError(429, f"{reason}: {advice}")

    def cancel(self, job: ChangeJob) -> bool:
        """Cancel a job: at once if it still waits, otherwise as soon as its work can end.

        Return False if it is too late, because the job has ended or is being saved; otherwise True,
        and then the job will have no effect.
        """
        with self._lock:
            if job.is_final or job.ended.done():
                return False
            job.is_cancelled = True
            if job.state == "queued":
                self._close(job)
        return True

    async def end(self, job: ChangeJob) -> bool:
        """Cancel a job and wait until it has ended; one that does not end is given up.

        Returns:
            False if it is too late: the job has ended, or it is being saved.

        Raises:
            RefusedError: If the job does not end, and too many others were given up (429).
        """
        if not self.cancel(job):
            return False
        if not await job.wait(self.limits.cancel_seconds):
            self._give_up(job)
        if not job.ended.done():
            reason = "this model computes without an end: nothing of the lesson will be kept"
            raise RefusedError(429, f"{reason}, but the next one has to wait; restart the service")
        return True

    def _give_up(self, job: ChangeJob) -> None:
        """Go on without a cancelled job that does not end: a new thread takes over the queue.

        Nothing of the job will be kept, even if its computation ends some day. Nothing happens if
        it has ended, or if too many others were given up already.
        """
        with self._lock:
            if job.ended.done() or len(self._given_up) >= self.limits.given_up_jobs:
                return
            log.warning("a cancelled %s does not end; the service goes on without it", job.kind)
            self._given_up.append(self._writer)
            self._close(job)
            self._writer = self._new_writer()
            self._writer.start()

    @property
    def newest_change(self) -> ChangeJob | None:
        """The newest change that waits or runs now, among those that undo would take back."""
        with self._lock:
            for job in reversed(self._jobs.values()):
                if job.kind != "threshold" and not job.ended.done():
                    return None if job.kind == "undo" else job
        return None

    def job(self, id: str) -> ChangeJob:
        """Return a job by its id; `RefusedError` (404) if there is none or it ended long ago."""
        with self._lock:
            if id not in self._jobs:
                raise RefusedError(404, "there is no such job, or it ended long ago")
            return self._jobs[id]

    def predict(self, image: ImageArray) -> Future[VersionedPrediction]:
        """Recognise one frame at model size; frames that wait are recognised in one pass.

        The frame joins the queue of the reader thread (`_answer_requests`).

        Returns:
            A future of the prediction and the version of the snapshot that it comes from.

        Raises:
            RefusedError: If too many frames wait (429).
        """
        if self._requests.qsize() >= self.limits.waiting_frames:
            raise RefusedError(429, "too many frames wait to be recognised: send fewer per second")
        answer: Future[VersionedPrediction] = Future()
        self._requests.put((image, answer))
        return answer

    def _new_writer(self) -> Thread:
        return Thread(target=self._run_jobs, name="writer", daemon=True)

    def _run_jobs(self) -> None:
        """Run the queued jobs one after the other: the body of the writer thread."""
        while (job := self._pending.get()) is not None:
            with self._lock:
                if job.ended.done():  # it was cancelled while it waited
                    continue
                job.ended.set_running_or_notify_cancel()
            began = time.monotonic()
            self._run_job(job)
            with self._lock:
                if job.ended.done():  # it was given up, and another thread has taken over
                    return
                job.seconds = time.monotonic() - began
                self._close(job)

    def _close(self, job: ChangeJob) -> None:
        """End a job, with the lock held."""
        if job.is_cancelled:
            job.error = CANCELLED
        job.work = job.lesson = None  # the frames are in both
        job.ended.set_result(None)

    def _run_job(self, job: ChangeJob) -> None:
        try:
            if self._stopping:
                raise RefusedError(429, "the service was stopped before this began")
            self._apply(job)
        except AlreadyTaughtError:
            job.already_taught = True
            job.progress = 1.0
            job.version = self.snapshot.version
        except JobCancelledError:
            return
        except PrimavistaError as error:
            log.warning("a %s failed: %s", job.kind, error)
            # Clients are told the name of the file, not where it is.
            job.error = str(error).replace(f"{self.path.parent}{os.sep}", "")
        except Exception as error:
            log.exception("a %s failed", job.kind)
            job.error = f"it failed ({type(error).__name__}); nothing was changed"

    def _apply(self, job: ChangeJob) -> None:
        """Apply a change to a copy of the learner, save it, then make it the current snapshot."""
        before = self.snapshot
        draft = before.learner.copy()
        began = time.monotonic()
        assert job.work is not None
        draft = job.work(draft, job.report_progress) or draft
        # A strategy solves its head at the first prediction: no client should wait for that.
        _check_finite(draft.predict(list(_blank_frames(draft))))
        worked = time.monotonic()
        self._make_final(job)
        self._check_own_file()
        # On disk first: what was acknowledged or recognised is never lost.
        draft.save(self.path)
        self._stamp = file_stamp(self.path)
        job.parts = {"working": worked - began, "saving": time.monotonic() - worked}
        job.version = before.version + 1
        job.progress = 1.0
        self.snapshot = self._following(before, draft, job)
        draft.free_undo_cache()  # the previous state is kept for undo only

    def _following(self, before: Snapshot, draft: Learner, job: ChangeJob) -> Snapshot:
        """Return the snapshot after a change that has been saved."""
        version = before.version + 1
        if job.kind == "threshold":
            return replace(before, version=version, learner=draft)
        if job.kind == "undo":
            return Snapshot(version, draft, before.journal_before or Journal(draft))
        replaced = before.learner if job.kind in ("load", "remove") else None
        old, new = self._journals(before.journal, draft, job)
        return Snapshot(version, draft, new, replaced, old)

    def _journals(
        self, journal: Journal, draft: Learner, job: ChangeJob
    ) -> tuple[Journal, Journal]:
        """Return the journals before and after a change, which share one base, to save memory.

        The journal begins anew if the change cannot be repeated.
        """
        if job.removes is not None:
            return journal, journal.without(job.removes)
        entry, limits = job.change, self.limits
        if job.lesson is not None and job.label is not None:
            features = job.lesson.without_frames()
            small = features is not None and features.bytes <= limits.removable_bytes
            if features is not None and small and draft.can_learn_again(features):
                entry = JournalEntry(job.label, lesson=features, id=job.id)
        if entry is None:
            return journal, Journal(draft)
        old = journal.with_room(entry, limits.removable_lessons, limits.removable_bytes)
        return old, old.followed_by(entry)

    def _make_final(self, job: ChangeJob) -> None:
        """Decide between a job that is about to be saved and a client who cancels it."""
        with self._lock:
            if job.is_cancelled:
                raise JobCancelledError(CANCELLED)
            job.is_final = True

    def _check_own_file(self) -> None:
        """Refuse to overwrite a file that another program put in the place of the model."""
        found = file_stamp(self.path)
        if found not in (None, self._stamp):
            raise InputError(
                f"{self.path.name} was replaced by another program, and nothing was changed: move "
                "that file away to go on with this model, or start the service again to use it"
            )

    def _answer_requests(self) -> None:
        """Recognise waiting frames, several per pass: the body of the reader thread."""
        while (request := self._requests.get()) is not None:
            requests = [request]
            while len(requests) < MAX_FRAMES_PER_PASS and not self._requests.empty():
                if (following := self._requests.get()) is None:
                    self._requests.put(None)
                    break
                requests.append(following)
            wanted = [one for one in requests if one[1].set_running_or_notify_cancel()]
            if wanted:
                self._answer(wanted)

    def _answer(self, requests: list[WaitingFrame]) -> None:
        snapshot = self.snapshot
        try:
            predictions = snapshot.learner.predict([image for image, _ in requests])
        except Exception as error:
            for _, answer in requests:
                answer.set_exception(error)
            return
        for (_, answer), prediction in zip(requests, predictions, strict=True):
            answer.set_result((prediction, snapshot.version))


def check_rehearsal_free(learner: Learner) -> None:
    """Raise `InputError` if a learner keeps frames: the page promises that none are kept."""
    if not learner.strategy.rehearsal_free:
        raise InputError(
            f"{learner.strategy_name} keeps its frames, and this service keeps none: "
            "choose another strategy"
        )


def _check_finite(predictions: list[Prediction]) -> None:
    numbers = [(one.confidence, one.familiarity or 0.0) for one in predictions]
    if not np.isfinite(numbers).all():
        raise InputError("this model computes no numbers; nothing was changed")


def _blank_frames(learner: Learner) -> ImageArray:
    return np.zeros((2, learner.size, learner.size, 3), np.uint8)


def _join(thread: Thread, seconds: float) -> None:
    if thread.is_alive():
        thread.join(seconds)
