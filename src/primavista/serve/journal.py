"""The last lessons and changes, kept so that one lesson can be taken out of the middle.

No frames are kept: a lesson is here as the features that it was learned from, in memory only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from primavista.errors import InputError
from primavista.learner.learner import Learner
from primavista.learner.lesson import LessonFeatures


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
