"""Lessons and changes, from their place in the queue to their end."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from primavista.errors import PrimavistaError
from primavista.learner.learner import Learner
from primavista.learner.lesson import LessonBuffer
from primavista.serve.journal import JournalEntry

JobKind = Literal["lesson", "remove", "rename", "forget", "threshold", "undo", "load"]
JobState = Literal["queued", "running", "done", "failed"]
ReportProgress = Callable[[float], None]
Work = Callable[[Learner, ReportProgress], Learner | None]
CANCELLED = "it was cancelled, and nothing was changed"


class JobCancelledError(PrimavistaError):
    """Ends the work of a job that was cancelled, by a client or because the service stops."""


@dataclass
class ChangeJob:
    """One lesson or change, from its place in the queue to its end.

    Attributes:
        kind: lesson, remove, rename, forget, threshold, undo or load.
        work: The function that changes a copy of the learner, until the job has ended; a learner
            that it returns takes the place of that copy.
        label: The object that it is about, if there is one.
        lesson: The frames of a lesson, until it has ended.
        change: The renaming or forgetting, for the journal.
        removes: The id of the lesson that is removed.
        frames: The number of frames of the lesson.
        id: A random name by which clients ask for the status.
        progress: The fraction that is done, or None if it cannot be told.
        error: The reason of a failure.
        seconds: The time from the start of the work to its end.
        parts: The seconds of each part: working, and saving to disk.
        version: The version of the snapshot that the job led to.
        already_taught: True if the lesson was taught before and therefore left out.
        is_cancelled: True if the job must not have an effect any more.
        is_final: True if it is too late to cancel the job: it is being saved.
        ended: A future that runs while the job does, and is resolved when the job has ended.
    """

    kind: JobKind
    work: Work | None
    label: str | None = None
    lesson: LessonBuffer | None = None
    change: JournalEntry | None = None
    removes: str | None = None
    frames: int = field(init=False)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    progress: float | None = None
    error: str | None = None
    seconds: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    version: int | None = None
    already_taught: bool = False
    is_cancelled: bool = False
    is_final: bool = False
    ended: Future[None] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.frames = 0 if self.lesson is None else len(self.lesson)

    def report_progress(self, fraction: float) -> None:
        """Set the progress, which never goes back; `JobCancelledError` if it was cancelled."""
        if self.is_cancelled:
            raise JobCancelledError(CANCELLED)
        self.progress = min(max(fraction, self.progress or 0.0), 1.0)

    @property
    def state(self) -> JobState:
        """The state of the job."""
        if self.ended.done():
            return "done" if self.error is None else "failed"
        return "running" if self.ended.running() else "queued"

    async def wait(self, seconds: float) -> bool:
        """Wait for some seconds; return True if the job has ended.

        `asyncio.wait` does not cancel what it waits for: if the client goes away, the job goes on.
        """
        done, _ = await asyncio.wait([asyncio.wrap_future(self.ended)], timeout=seconds)
        return bool(done)
