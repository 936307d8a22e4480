"""Teaching one lesson from its source: a video, pictures or a camera."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from primavista.errors import PrimavistaError
from primavista.learner.learner import Learner
from primavista.learner.lesson import AlreadyTaughtError
from primavista.media.video import Lesson, open_frames
from primavista.progress import Progress


@dataclass(frozen=True)
class LessonOutcome:
    """The outcome of one lesson.

    Args:
        status: "learned", "already taught" (and so left out), or "failed".
        id: Its id, if its frames could be read.
        frames: The number of frames that were learned.
        seconds: The time that opening and learning took.
        note: What was thinned or left out of its source.
        reason: Why it failed.
    """

    status: Literal["learned", "already taught", "failed"]
    id: str = ""
    frames: int = 0
    seconds: float = 0.0
    note: str = ""
    reason: str = ""


# A function that opens and learns one lesson, as `learn_lesson` does, with `refuse` and `coach`.
LearnLesson: TypeAlias = Callable[..., LessonOutcome]


def learn_lesson(
    learner: Learner,
    lesson: Lesson[Any],
    *,
    refuse: Collection[str] = (),
    coach: bool = True,
    reading: Progress | None = None,
    learning: Progress | None = None,
    **how: Any,
) -> LessonOutcome:
    """Open the source of a lesson and learn its frames; a lesson that fails changes nothing.

    Args:
        learner: The learner.
        lesson: The lesson.
        refuse: Ids of lessons that are left out.
        coach: Whether to predict a known object first, for advice.
        reading: Told how many frames were read.
        learning: Told how many frames were learned.
        **how: More arguments of `open_frames`.
    """
    began = time.monotonic()
    try:
        clip = open_frames(lesson.source, size=learner.size, progress=reading, **how)
        report = learner.learn(clip, lesson.label, refuse=refuse, coach=coach, progress=learning)
    except AlreadyTaughtError as error:
        return LessonOutcome("already taught", error.lesson_id)
    except PrimavistaError as error:
        return LessonOutcome("failed", reason=str(error))
    except (RuntimeError, MemoryError) as error:  # mostly out of memory
        advice = "Nothing was changed; with fewer frames it may fit (--max-frames 200)"
        return LessonOutcome("failed", reason=f"{type(error).__name__}: {error}. {advice}")
    seconds = round(time.monotonic() - began, 3)
    return LessonOutcome("learned", report.id, report.total, seconds, clip.note)
