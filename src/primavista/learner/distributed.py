"""Teaching on a Ray cluster: workers learn parts of the lessons, which are merged in order."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primavista.errors import InputError, PrimavistaError, require_extra
from primavista.learner.learner import Learner
from primavista.learner.teaching import LearnLesson, LessonOutcome, learn_lesson
from primavista.media.video import Lesson

PARTS_PER_PROCESSOR = 4  # small enough that the last parts end at about the same time


def teach(
    learner: Learner, lessons: Sequence[Lesson[Any]], ray: Any, learn: LearnLesson = learn_lesson
) -> Iterator[list[LessonOutcome]]:
    """Learn lessons on a cluster; the result is the same as if they were taught one by one.

    The lessons are split into consecutive parts. As soon as a part and all parts before it are
    done, it is merged into the learner and its outcomes are yielded: save the learner then, and an
    interrupted command loses only what was not merged. A lesson that was taught before is left
    out. Ray starts a part again elsewhere if its node is lost.

    Args:
        learner: The learner, whose strategy must be one that can be merged.
        lessons: The lessons. Every machine must see their sources under the same path.
        ray: The module `ray`, connected as `ray_cluster` does it.
        learn: Opens and learns one lesson, on the machine of the worker.

    Yields:
        The outcomes of the lessons of each part, in order.

    Raises:
        InputError: If the strategy cannot be merged.
    """
    from primavista.strategies.registry import registered

    empty = learner.untaught()
    learner.untaught().merge(empty)  # raises if the strategy cannot be merged
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
    length = max(1, -(-len(lessons) // (PARTS_PER_PROCESSOR * workers)))
    parts = [lessons[k : k + length] for k in range(0, len(lessons), length)]
    start = EmptyLearner(empty.to_bytes(), learner.engine, registered())
    shared = ray.put(start)
    task = ray.remote(num_cpus=1, max_retries=3)(learn_part)
    before = ray.put(frozenset(learner.lessons))
    for part, handle in [(part, task.remote(shared, part, before, learn)) for part in parts]:
        data, outcomes = _result(ray, handle, part)
        if _learned(outcomes).intersection(learner.lessons):  # a lesson of an earlier part again
            again = task.remote(shared, part, frozenset(learner.lessons), learn)
            data, outcomes = _result(ray, again, part)
        if _learned(outcomes):
            learner.merge(start.load(data))
        yield outcomes


@dataclass(frozen=True)
class EmptyLearner:
    """A learner that was taught nothing, and what it takes to load others that fit it.

    Args:
        data: The bytes of its file.
        engine: What computes its features: those of another engine could not be merged.
        registered: The references of the user's own code, by name.
    """

    data: bytes
    engine: Any
    registered: Mapping[str, str] = field(default_factory=dict)

    def load(self, data: bytes) -> Learner:
        """Return the learner of some bytes; it is one of our own, and so may be of any size."""
        from primavista.strategies.registry import register_all

        register_all(self.registered)
        return Learner.from_bytes(data, device="cpu", engine=self.engine, trusted=True)


def learn_part(
    start: EmptyLearner, lessons: Sequence[Lesson[Any]], taught: Collection[str], learn: LearnLesson
) -> tuple[bytes, list[LessonOutcome]]:
    """Teach some lessons to the empty learner; return its bytes and the outcome of each lesson.

    The coach is off: a learner that has had the lessons of its part only is tested too easily.
    """
    try:
        learner = start.load(start.data)
    except PrimavistaError as error:
        reason = f"on {platform.node()}: {error}"
        return b"", [LessonOutcome("failed", reason=reason) for _ in lessons]
    outcomes = []
    for lesson in lessons:
        refuse = {*taught, *learner.lessons}
        try:
            outcomes.append(learn(learner, lesson, refuse=refuse, coach=False))
        except Exception as error:  # whatever it raises, the other lessons go on
            reason = f"{type(error).__name__}: {error}"
            outcomes.append(LessonOutcome("failed", reason=reason))
    return learner.without_undo().to_bytes(), outcomes


def _learned(outcomes: Sequence[LessonOutcome]) -> set[str]:
    return {outcome.id for outcome in outcomes if outcome.status == "learned"}


def _result(
    ray: Any, handle: Any, part: Sequence[Lesson[Any]]
) -> tuple[bytes, list[LessonOutcome]]:
    """Wait for a part; if Ray gives it up, its lessons have failed."""
    try:
        data, outcomes = ray.get(handle)
    except ray.exceptions.RayError as error:
        return b"", [LessonOutcome("failed", reason=f"on the cluster: {error}") for _ in part]
    return data, outcomes


@contextmanager
def ray_cluster(address: str = "") -> Iterator[Any]:
    """Connect to a Ray cluster, and disconnect at the end if there was no connection before.

    A cluster that is started here listens on the loopback interface only, and needs a token. The
    nodes of a cluster send each other pickled objects: connect only to one that you trust.

    Args:
        address: "ray://HOST:PORT", or "" for the cluster of this machine that `ray start` began or
            RAY_ADDRESS names; one is started if there is none.

    Yields:
        The module `ray`, connected to the cluster.

    Raises:
        InputError: If no cluster answers.
        MissingExtraError: If Ray is not installed.
    """
    ray = _import_ray(on_loopback=not address)
    ours = not ray.is_initialized()
    try:
        if ours:
            _connect(ray, address)
        yield ray
    finally:
        # also if no cluster answered: Ray would stay in client mode and connect to no other one
        if ours:
            ray.shutdown()


def _import_ray(on_loopback: bool) -> Any:
    """Import Ray, which decides then whether clusters that it starts listen on loopback only."""
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    if not on_loopback or name in os.environ:
        return require_extra("ray", "ray")
    os.environ[name] = "0"
    try:
        return require_extra("ray", "ray")
    finally:
        del os.environ[name]


def _connect(ray: Any, address: str) -> None:
    quiet = {"logging_level": "warning", "log_to_driver": False, "configure_logging": False}
    try:
        ray.init(address or None, **quiet)
        with suppress(OSError, RuntimeError):  # no file, a file of another owner, or no home
            # Ray creates the file of its token with the usual permissions
            (Path.home() / ".ray" / "auth_token").chmod(0o600)
    except (ConnectionError, RuntimeError, ValueError) as error:
        place = address or "this machine"
        raise InputError(f"no Ray cluster at {place}: {error}") from error
