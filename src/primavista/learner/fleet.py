"""Many machines teach one learner: each shard of lessons teaches a learner of its own (map), and these are merged (reduce)."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from torch import nn

from primavista.backbones.base import CUSTOM
from primavista.engine.onnx_runtime import Engine
from primavista.errors import InputError, PrimavistaError, require_extra
from primavista.frames import model_frames
from primavista.learner.learner import Learner
from primavista.learner.state import lesson_id
from primavista.streams.video import open_frames

SHARDS = 4  # for each processor: small enough that the last ones end together


@dataclass(frozen=True)
class Lesson:
    """One video of one object; `source` is what the opener takes: the path of a video, images, a folder of them."""

    label: str
    source: Any


@dataclass(frozen=True)
class Outcome:
    """What became of a lesson: learned, known (left out, as it was taught before) or failed, with the reason."""

    lesson: Lesson
    status: Literal["learned", "known", "failed"]
    id: str = ""
    frames: int = 0
    seconds: float = 0.0
    note: str = ""
    reason: str = ""


Opener = Callable[[Any, int], Any]  # a source and the side of the images to frames
Listener = Callable[[Sequence[Outcome]], None]


def open_source(source: Any, size: int, **how: Any) -> Any:
    """The frames of a video, an image or a folder; `how` is what `open_frames` takes."""
    return open_frames(source, size=size, **how)


class Machines(Protocol):
    """Where functions run: `call` begins one and gives handles of its results, `ready` waits for some of them."""

    @property
    def processors(self) -> int:
        """How many run at once."""

    def share(self, value: Any) -> Any:
        """A handle of something that many calls take."""

    def call(self, results: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Begin; arguments may be handles."""

    def ready(self, handles: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Handles of results that are there, at least one, and the others."""

    def get(self, handle: Any) -> Any:
        """The result; what went wrong is raised."""


@dataclass(frozen=True, eq=False)
class _Done:
    value: Any


class Here:
    """In this process, one after the other."""

    processors = 1

    def share(self, value: Any) -> Any:
        """As it is."""
        return _Done(value)

    def call(self, results: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """At once."""
        value = function(*(a.value if isinstance(a, _Done) else a for a in arguments))
        return [_Done(v) for v in (value if results > 1 else [value])]

    def ready(self, handles: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Every one is."""
        return list(handles), []

    def get(self, handle: Any) -> Any:
        """What it came to."""
        return handle.value


class RayMachines:
    """On a Ray cluster. Functions are pure, so what a lost node had begun is begun again on another."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    @property
    def processors(self) -> int:
        """Of the whole cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Any:
        """In the object store."""
        return self.ray.put(value)

    def call(self, results: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """A task on one processor."""
        handles = (
            self.ray.remote(function)
            .options(num_cpus=1, num_returns=results, max_retries=3)
            .remote(*arguments)
        )
        return list(handles) if results > 1 else [handles]

    def ready(self, handles: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """At least one."""
        done, rest = self.ray.wait(list(handles), num_returns=1)
        return list(done), list(rest)

    def get(self, handle: Any) -> Any:
        """From the object store."""
        return self.ray.get(handle)


@contextmanager
def ray_cluster(address: str = "") -> Iterator[RayMachines]:
    """The machines of a Ray cluster: "" is the one of this machine, or a new one here; else "ray://HOST:PORT"."""
    ray = require_extra("ray", "ray")
    ours = not ray.is_initialized()
    try:
        if ours:
            try:
                ray.init(
                    address or None,
                    logging_level="warning",
                    log_to_driver=False,
                    configure_logging=False,
                )
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise InputError(
                    f"no Ray cluster at {address or 'this machine'}: {error}"
                ) from error
        yield RayMachines(ray)
    finally:
        if ours:  # also where no cluster answered: Ray would stay in its client mode, and connect to no other one
            ray.shutdown()


def teach(
    learner: Learner,
    lessons: Sequence[Lesson],
    machines: Machines | None = None,
    *,
    shards: int | None = None,
    opener: Opener = open_source,
    listen: Listener = lambda outcomes: None,
) -> list[Outcome]:
    """Teach `learner` all lessons, shard by shard on `machines` (None: here): the same as one by one, names in the same order.

    Only for the strategies that can be merged. A lesson that fails is left out and named, and so is one that was taught
    before or comes twice. The learner changes once, when all are done; `undo` takes them all back. Sources are opened where
    they are learned: every machine must see them under the same name.
    """
    if shards is not None and shards < 1:
        raise InputError(f"shards is a number of parts, at least 1; got {shards}")
    machines = machines or Here()
    empty = learner.untaught()
    learner.untaught().merge(empty)  # says so if the strategy cannot be merged
    own: nn.Module | None = (
        empty.strategy.backbone if empty.strategy.backbone.spec.name == CUSTOM else None
    )
    # a task of a cluster has a processor and no GPU; features by another engine could not be merged
    how = How(
        own, str(learner.strategy.device) if isinstance(machines, Here) else "cpu", learner.engine
    )
    seed = machines.share(empty.to_bytes())
    count = min(len(lessons), shards or SHARDS * machines.processors)
    cuts = [len(lessons) * k // count for k in range(count + 1)] if count else [0]
    parts = [list(lessons[a:b]) for a, b in pairwise(cuts)]
    seen = set(learner.lessons)
    taught_before = machines.share(frozenset(seen))
    begun = {
        k: machines.call(2, teach_shard, seed, part, taught_before, opener, how)
        for k, part in enumerate(parts)
    }
    outcomes = _collect(machines, begun, listen)
    for k, part in enumerate(parts):  # in order: of a lesson that came twice the first stays
        learned = {outcome.id for outcome in outcomes[k] if outcome.status == "learned"}
        if learned & seen:
            begun[k] = machines.call(2, teach_shard, seed, part, frozenset(seen), opener, how)
            outcomes[k] = machines.get(begun[k][1])
        seen |= learned
    taught = [
        begun[k][0]
        for k in range(len(parts))
        if any(outcome.status == "learned" for outcome in outcomes[k])
    ]
    while len(taught) > 1:  # neighbours, so that names stay in order
        pairs = [taught[k : k + 2] for k in range(0, len(taught), 2)]
        taught = [
            machines.call(1, merge_two, *pair, how)[0] if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    if taught:
        learner.merge(how.loaded(machines.get(taught[0])))
    return [outcome for k in range(len(parts)) for outcome in outcomes[k]]


@dataclass(frozen=True)
class How:
    """How a learner is made of its bytes on another machine, so that it can be merged with those of all others."""

    own: nn.Module | None  # a backbone that is not in the file
    device: str
    engine: Engine

    def loaded(self, data: bytes) -> Learner:
        """A machine that has not got the engine says so."""
        return Learner.from_bytes(data, backbone=self.own, device=self.device, engine=self.engine)


def teach_shard(
    seed: bytes, lessons: Sequence[Lesson], skip: frozenset[str], opener: Opener, how: How
) -> tuple[bytes, list[Outcome]]:
    """The learner in `seed` after these lessons, without those whose ids are in `skip`, and what became of each."""
    try:
        learner = how.loaded(seed)
    except PrimavistaError as error:
        return seed, [
            Outcome(lesson, "failed", reason=f"on {platform.node()}: {error}") for lesson in lessons
        ]
    outcomes = []
    for lesson in lessons:
        began = time.monotonic()
        try:
            clip = opener(lesson.source, learner.size)
            frames, _ = model_frames(clip, learner.size)
            identity = lesson_id(frames)
            if identity in skip or identity in learner.lessons:
                outcomes.append(Outcome(lesson, "known", identity))
                continue
            learner.learn(frames, lesson.label)
            took, note = time.monotonic() - began, getattr(clip, "note", "")
            outcomes.append(Outcome(lesson, "learned", identity, len(frames), took, note))
        except Exception as error:  # whatever an opener may raise, the other lessons go on
            reason = (
                str(error)
                if isinstance(error, PrimavistaError)
                else f"{type(error).__name__}: {error}"
            )
            outcomes.append(Outcome(lesson, "failed", reason=reason))
    return learner.settled().to_bytes(), outcomes


def merge_two(first: bytes, second: bytes, how: How) -> bytes:
    """The learner of both."""
    learner = how.loaded(first)
    learner.merge(how.loaded(second))
    return learner.settled().to_bytes()


def _collect(
    machines: Machines, begun: dict[int, list[Any]], listen: Listener
) -> dict[int, list[Outcome]]:
    """What became of the lessons of each shard, told as it comes."""
    outcomes: dict[int, list[Outcome]] = {}
    shard = {told: k for k, (_, told) in begun.items()}
    waiting = list(shard)
    while waiting:
        done, waiting = machines.ready(waiting)
        for handle in done:
            outcomes[shard[handle]] = machines.get(handle)
            listen(outcomes[shard[handle]])
    return outcomes
