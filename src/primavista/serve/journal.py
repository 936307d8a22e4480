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
class RecentLesson:
    """A lesson that can be removed.

    Attributes:
        id: The id of the job that taught it.
        label: The name of its object now.
        lesson: Its features.
    """

    id: str
    label: str
    lesson: LessonFeatures


@dataclass(frozen=True)
class RecentChange:
    """A renaming or forgetting that came between two lessons.

    Attributes:
        label: The name of the object that was renamed or forgotten.
        renamed: Its name from then on; None if it was forgotten.
    """

    label: str
    renamed: str | None = None

    def make(self, learner: Learner) -> None:
        """Make the change; nothing happens if the only lesson of the object was removed.

        Args:
            learner: The learner to change.
        """
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
    entries: tuple[RecentLesson | RecentChange, ...] = ()

    @property
    def bytes(self) -> int:
        """The memory that the features of all lessons take."""
        return sum(one.lesson.bytes for one in self.entries if isinstance(one, RecentLesson))

    def lessons(self) -> list[RecentLesson]:
        """Return the lessons that can be removed, under the present names of their objects.

        Lessons of an object that was forgotten are not among them.
        """
        found: list[RecentLesson] = []
        for entry in self.entries:
            if isinstance(entry, RecentLesson):
                found.append(entry)
            elif entry.renamed is None:
                found = [one for one in found if one.label != entry.label]
            else:
                new = entry.renamed
                found = [
                    replace(one, label=new) if one.label == entry.label else one for one in found
                ]
        return found

    def followed_by(
        self, entry: RecentLesson | RecentChange, lessons: int, most_bytes: int
    ) -> Journal:
        """Return the journal after one more lesson or change; the oldest move into its base.

        Args:
            entry: The newest lesson or change.
            lessons: The largest number of entries.
            most_bytes: The memory that the features of all lessons may take.
        """
        journal = Journal(self.base, (*self.entries, entry))
        while len(journal.entries) > lessons or journal.bytes > most_bytes:
            base = journal.base.copy()
            _make(base, journal.entries[0])
            base = base.without_undo()
            base.strategy.derived.clear()  # values that it computed for predictions
            journal = Journal(base, journal.entries[1:])
        return journal

    def without(self, id: str) -> Journal:
        """Return the journal without one lesson.

        Args:
            id: The id of the lesson.

        Raises:
            InputError: If it is not among those that can be removed.
        """
        if id not in [one.id for one in self.lessons()]:
            raise InputError(
                "this lesson can no longer be removed by itself: forget the object, and teach it "
                "again"
            )
        kept = [one for one in self.entries if not isinstance(one, RecentLesson) or one.id != id]
        return Journal(self.base, tuple(kept))

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
            _make(learner, entry)
            report_progress(0.9 * number / len(self.entries))
        return learner.without_undo()


def _make(learner: Learner, entry: RecentLesson | RecentChange) -> None:
    if isinstance(entry, RecentLesson):
        learner.learn_again(entry.lesson, entry.label)
    else:
        entry.make(learner)
