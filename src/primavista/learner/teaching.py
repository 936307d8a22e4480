"""Teaching lessons from their sources: one here, or many on a Ray cluster.

The workers of a cluster learn parts of the lessons, which are merged in order.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from primavista.errors import PrimavistaError
from primavista.learner.learner import Learner
from primavista.learner.lesson import AlreadyTaughtError
from primavista.media.video import Lesson, open_frames
from primavista.strategies.registry import register_all, registered

PARTS_PER_PROCESSOR = 4  # small enough that the last parts end at about the same time


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


def learn_lesson(
    learner: Learner, lesson: Lesson, how: Mapping[str, Any], **teaching: Any
) -> LessonOutcome:
    """Open the source of a lesson and learn its frames; a lesson that fails changes nothing.

    Args:
        learner: The learner.
        lesson: The lesson.
        how: Arguments of `open_frames`.
        **teaching: Arguments of `Learner.learn`.
    """
    began = time.monotonic()
    try:
        clip = open_frames(lesson.source, size=learner.size, **how)
        report = learner.learn(clip, lesson.label, **teaching)
    except AlreadyTaughtError as error:
        return LessonOutcome("already taught", error.lesson_id)
    except PrimavistaError as error:
        return LessonOutcome("failed", reason=str(error))
    except (RuntimeError, MemoryError) as error:  # mostly out of memory
        advice = "Nothing was changed; with fewer frames it may fit (--max-frames 200)"
        return LessonOutcome("failed", reason=f"{type(error).__name__}: {error}. {advice}")
    seconds = round(time.monotonic() - began, 3)
    return LessonOutcome("learned", report.id, report.total, seconds, clip.note)


def teach(
    learner: Learner, lessons: Sequence[Lesson], ray: Any, **how: Any
) -> Iterator[list[LessonOutcome]]:
    """Learn lessons on a cluster; the result is the same as if they were taught one by one.

    The lessons are split into consecutive parts. As soon as a part and all parts before it are
    done, it is merged into the learner and its outcomes are yielded: save the learner then, and an
    interrupted command loses only what was not merged. A lesson that was taught before is left
    out. Ray starts a part again elsewhere if its node is lost.

    Args:
        learner: The learner, whose strategy must be one that can be merged.
        lessons: The lessons. Every machine must see their sources under the same path.
        ray: The module `ray`, connected as `bench.ray_cluster.ray_cluster` does it.
        **how: Arguments of `open_frames`.

    Yields:
        The outcomes of the lessons of each part, in order.

    Raises:
        InputError: If the strategy cannot be merged.
    """
    empty = learner.untaught()
    learner.untaught().merge(empty)  # raises if the strategy cannot be merged
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
    length = max(1, -(-len(lessons) // (PARTS_PER_PROCESSOR * workers)))
    parts = [lessons[k : k + length] for k in range(0, len(lessons), length)]
    task = ray.remote(num_cpus=1, max_retries=3)(_learn_part)
    start = (ray.put(empty.to_bytes()), learner.engine, registered())
    before = ray.put(frozenset(learner.lessons))
    handles = [task.remote(*start, part, before, how) for part in parts]
    for part, handle in zip(parts, handles, strict=True):
        data, outcomes = _result(ray, handle, part)
        if _learned(outcomes).intersection(learner.lessons):  # a lesson of an earlier part again
            again = task.remote(*start, part, frozenset(learner.lessons), how)
            data, outcomes = _result(ray, again, part)
        if _learned(outcomes):
            learner.merge(_load(data, learner.engine))
        yield outcomes


def _learn_part(
    empty: bytes,
    engine: str,
    references: Mapping[str, str],
    lessons: Sequence[Lesson],
    taught: Collection[str],
    how: Mapping[str, Any],
) -> tuple[bytes, list[LessonOutcome]]:
    """Teach some lessons to the empty learner; return its bytes and the outcome of each lesson.

    This runs on the machine of a worker. The engine is given, since features of another one could
    not be merged. The coach is off: a learner that has had the lessons of its part only is tested
    too easily.
    """
    try:
        register_all(references)
        learner = _load(empty, engine)
    except PrimavistaError as error:
        return b"", _failed(lessons, f"on {platform.node()}: {error}")
    outcomes = []
    for lesson in lessons:
        refuse = {*taught, *learner.lessons}
        try:
            outcomes.append(learn_lesson(learner, lesson, how, refuse=refuse, coach=False))
        except Exception as error:  # whatever it raises, the other lessons go on
            outcomes += _failed([lesson], f"{type(error).__name__}: {error}")
    return learner.without_undo().to_bytes(), outcomes


def _load(data: bytes, engine: Any) -> Learner:
    """Return the learner of some bytes; it is one of our own, and so may be of any size."""
    return Learner.from_bytes(data, device="cpu", engine=engine, trusted=True)


def _failed(lessons: Sequence[Lesson], reason: str) -> list[LessonOutcome]:
    return [LessonOutcome("failed", reason=reason) for _ in lessons]


def _learned(outcomes: Sequence[LessonOutcome]) -> set[str]:
    return {outcome.id for outcome in outcomes if outcome.status == "learned"}


def _result(ray: Any, handle: Any, part: Sequence[Lesson]) -> tuple[bytes, list[LessonOutcome]]:
    """Wait for a part; if Ray gives it up, its lessons have failed."""
    try:
        data, outcomes = ray.get(handle)
    except ray.exceptions.RayError as error:
        return b"", _failed(part, f"on the cluster: {error}")
    return data, outcomes
