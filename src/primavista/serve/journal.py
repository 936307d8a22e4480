"""Lessons and changes: as jobs from the queue to their end, and then as entries of a journal.

The journal keeps the last of them, so that one lesson can be taken out of the middle. No frames are
kept: a lesson is there as the features that it was learned from, in memory only.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal

from primavista.errors import InputError, PrimavistaError
from primavista.learner.learner import Learner
from primavista.learner.lesson import LessonBuffer, LessonFeatures

JobKind = Literal["lesson", "remove", "rename", "forget", "threshold", "undo", "load"]
JobState = Literal["queued", "running", "done", "failed"]
ReportProgress = Callable[[float], None]
Work = Callable[[Learner, ReportProgress], Learner | None]
CANCELLED = "it was cancelled, and nothing was changed"


@dataclass(frozen=True)
class JournalEntry:
    """A lesson, a renaming or a forgetting, which can be made again.

    Attributes:
        label: The name of its object.
        renamed: The name of the object from then on, if it was renamed.
        lesson: The features of a lesson; None for a renaming or forgetting.
        id: The id of the job that taught the lesson.
    """

    label: str
    renamed: str | None = None
    lesson: LessonFeatures | None = None
    id: str = ""

    def make(self, learner: Learner) -> None:
        """Make the change; it is left out if the only lesson of its object was removed."""
        if self.lesson is not None:
            learner.learn_again(self.lesson, self.label)
            return
        with contextlib.suppress(InputError):
            if self.renamed is None:
                learner.forget(self.label)
            else:
                learner.rename(self.label, self.renamed)


@dataclass(frozen=True)
class Journal:
    """A learner, and the lessons and changes that it has had since.

    Attributes:
        base: The learner before the first of them.
        entries: The lessons and changes, in order.
    """

    base: Learner
    entries: tuple[JournalEntry, ...] = ()

    @property
    def bytes(self) -> int:
        """The memory that the features of all lessons take."""
        return sum(one.lesson.bytes for one in self.entries if one.lesson is not None)

    def lessons(self) -> list[JournalEntry]:
        """Return the lessons that can be removed, under the present names of their objects.

        Lessons of an object that was forgotten are not among them.
        """
        found: list[JournalEntry] = []
        for entry in self.entries:
            new = entry.renamed
            if entry.lesson is not None:
                found.append(entry)
            elif new is None:
                found = [one for one in found if one.label != entry.label]
            else:
                found = [
                    replace(one, label=new) if one.label == entry.label else one for one in found
                ]
        return found

    def with_room(self, entry: JournalEntry, entries: int, most_bytes: int) -> Journal:
        """Return a journal that one more entry fits into; the oldest entries move into its base.

        Args:
            entry: The newest lesson or change.
            entries: The largest number of entries.
            most_bytes: The memory that the features of all lessons may take.
        """
        journal = self
        added = 0 if entry.lesson is None else entry.lesson.bytes
        while journal.entries and (
            len(journal.entries) >= entries or journal.bytes + added > most_bytes
        ):
            base = journal.base.copy()
            journal.entries[0].make(base)
            base.free_undo_cache()
            journal = Journal(base.without_undo(), journal.entries[1:])
        return journal

    def followed_by(self, entry: JournalEntry) -> Journal:
        """Return the journal after one more lesson or change."""
        return Journal(self.base, (*self.entries, entry))

    def without(self, id: str) -> Journal:
        """Return the journal without one lesson; `InputError` if it cannot be removed."""
        if id not in [one.id for one in self.lessons()]:
            raise InputError(
                "this lesson can no longer be removed by itself: forget the object, and teach it "
                "again"
            )
        return Journal(self.base, tuple(one for one in self.entries if one.id != id))

    def replayed(
        self, threshold: float, report_progress: Callable[[float], None] = lambda fraction: None
    ) -> Learner:
        """Return the base after all lessons and changes, with nothing to undo.

        Args:
            threshold: The threshold of that learner.
            report_progress: Called with the fraction that is done.
        """
        learner = self.base.copy()
        learner.threshold = threshold
        for number, entry in enumerate(self.entries, 1):
            entry.make(learner)
            report_progress(0.9 * number / len(self.entries))
        return learner.without_undo()


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
