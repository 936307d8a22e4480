"""The progress of a lesson: an even bar, although its frames are only a part of its time."""

from __future__ import annotations

import time
from collections.abc import Callable

from primavista.progress import Progress

ReportProgress = Callable[[float], None]
MOST_OF_A_LESSON = 0.95  # of its progress; the rest is for what comes after its frames


class LessonProgress:
    """Gives the frames of a lesson the share of its progress that they had of the last one's time.

    Attributes:
        frames_seconds: The time that the frames of the newest lesson have taken so far.
        frames_share: The share of the progress of the next lesson that its frames have.
    """

    def __init__(self) -> None:
        self.frames_seconds = 0.0
        self.frames_share = 0.5

    def of_frames(self, report_progress: ReportProgress) -> Progress:
        """Begin a lesson.

        Args:
            report_progress: Takes the progress of the whole lesson, from 0 to 1.

        Returns:
            The function that the learner informs of how many frames are done.
        """
        began, share = time.monotonic(), self.frames_share
        self.frames_seconds = 0.0

        def progress(done: int, total: int | None) -> None:
            if total:
                report_progress(share * done / total)
                self.frames_seconds = time.monotonic() - began

        return progress

    def end(self, seconds: float) -> None:
        """End a lesson that was learned; one that took no frames changes nothing.

        Args:
            seconds: The time that the whole lesson has taken.
        """
        if self.frames_seconds:
            share = self.frames_seconds / max(seconds, self.frames_seconds)
            self.frames_share = min(share, MOST_OF_A_LESSON)
