"""Teaching on many machines: each shard of the lessons has its own learner; all are merged."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import nn

from primavista.engine.representation import Engine
from primavista.errors import InputError, PrimavistaError, require_extra
from primavista.learner.learner import Learner
from primavista.learner.lesson import AlreadyTaughtError
from primavista.media.frames import model_frames
from primavista.media.video import Lesson, open_frames
from primavista.networks.base import NETWORKS
from primavista.strategies.registry import register_all, registered

SHARDS_PER_PROCESSOR = 4  # small enough that the last shards end at about the same time


@dataclass(frozen=True)
class LessonOutcome:
    """The outcome of one lesson.

    Args:
        lesson: The lesson.
        status: "learned", "already taught" (and so left out), or "failed".
        id: Its id, if its frames could be read.
        frames: How many frames were learned.
        seconds: How long opening and learning took.
        note: What the opener has to say, such as frames that were left out.
        reason: Why it failed.
    """

    lesson: Lesson[Any]
    status: Literal["learned", "already taught", "failed"]
    id: str = ""
    frames: int = 0
    seconds: float = 0.0
    note: str = ""
    reason: str = ""


Opener = Callable[[Any, int], Any]  # from a source and the side of the images to frames
Listener = Callable[[Sequence[LessonOutcome]], None]


def open_source(source: Any, size: int, **how: Any) -> Any:
    """Open the frames of a video, an image or a folder, on the machine that learns them.

    Args:
        source: What `open_frames` takes.
        size: The side of the frames, in pixels.
        **how: More arguments of `open_frames`.
    """
    return open_frames(source, size=size, **how)


class Machines(Protocol):
    """Machines that run functions; a result is a handle until it is asked for."""

    @property
    def processors(self) -> int:
        """The number of functions that run at the same time."""

    def share(self, value: Any) -> Any:
        """Return a handle of a value that many calls take as an argument.

        Args:
            value: What to share.
        """

    def call(self, results: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Start a function and return one handle per result.

        Args:
            results: How many results it returns, as a tuple if more than one.
            function: The function, which must be pure: it may be started again elsewhere.
            *arguments: Its arguments; handles are replaced by their values.
        """

    def ready(self, handles: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Wait until at least one result is there; return the handles of those, and the others.

        Args:
            handles: Handles of results.
        """

    def get(self, handle: Any) -> Any:
        """Return a result; an exception of its function is raised here.

        Args:
            handle: The handle of the result.
        """


@dataclass(frozen=True, eq=False)
class _Value:
    """The handle of a value in this process."""

    value: Any


class ThisProcess:
    """Machines that run every function at once, in this process."""

    processors = 1

    def share(self, value: Any) -> Any:
        """Return a handle of the value itself; see `Machines.share`."""
        return _Value(value)

    def call(self, results: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run the function now; see `Machines.call`."""
        value = function(*(a.value if isinstance(a, _Value) else a for a in arguments))
        return [_Value(v) for v in (value if results > 1 else [value])]

    def ready(self, handles: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return all handles: every result is there; see `Machines.ready`."""
        return list(handles), []

    def get(self, handle: Any) -> Any:
        """Return the value of a handle; see `Machines.get`."""
        return handle.value


class RayMachines:
    """The machines of a Ray cluster. A task that is lost with its node is started on another one.

    Args:
        ray: The module `ray`, connected to the cluster.
    """

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    @property
    def processors(self) -> int:
        """The number of processors of the whole cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Any:
        """Put the value into the object store; see `Machines.share`."""
        return self.ray.put(value)

    def call(self, results: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Start a task on one processor; see `Machines.call`."""
        task = self.ray.remote(function)
        task = task.options(num_cpus=1, num_returns=results, max_retries=3)
        handles = task.remote(*arguments)
        return list(handles) if results > 1 else [handles]

    def ready(self, handles: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Wait for at least one result; see `Machines.ready`."""
        done, rest = self.ray.wait(list(handles), num_returns=1)
        return list(done), list(rest)

    def get(self, handle: Any) -> Any:
        """Fetch a result from the object store; see `Machines.get`."""
        return self.ray.get(handle)


@contextmanager
def ray_cluster(address: str = "") -> Iterator[RayMachines]:
    """Connect to a Ray cluster, and disconnect at the end if there was no connection before.

    A cluster that is started here listens on the loopback interface only, and needs a token. The
    nodes of a cluster send each other pickled objects: connect only to one that you trust.

    Args:
        address: "ray://HOST:PORT", or "" for the cluster of this machine that `ray start` began or
            RAY_ADDRESS names; one is started if there is none.

    Yields:
        The machines of the cluster.

    Raises:
        InputError: If no cluster answers.
        MissingExtraError: If Ray is not installed.
    """
    ray = _import_ray(on_loopback=not address)
    ours = not ray.is_initialized()
    try:
        if ours:
            _connect(ray, address)
        yield RayMachines(ray)
    finally:
        # also if no cluster answered: Ray would stay in client mode and connect to no other one
        if ours:
            ray.shutdown()


def teach(
    learner: Learner,
    lessons: Sequence[Lesson[Any]],
    machines: Machines | None = None,
    *,
    shards: int | None = None,
    opener: Opener = open_source,
    listen: Listener = lambda outcomes: None,
) -> list[LessonOutcome]:
    """Teach lessons on many machines; the result is the same as if they were taught one by one.

    A lesson that fails is left out, and so is one that was taught before or comes twice. The
    learner changes once, when all lessons are done; `undo` takes them all back.

    Args:
        learner: The learner, whose strategy must be one that can be merged.
        lessons: The lessons. Their sources are opened on the machine that learns them, so every
            machine must see them under the same name.
        machines: Where to learn; None for this process.
        shards: Into how many parts the lessons are split; by default four per processor.
        opener: Opens a source: called with the source and the side of the images.
        listen: Called with the outcomes of each shard as soon as it is done.

    Returns:
        The outcome of each lesson, in order.

    Raises:
        InputError: If the strategy cannot be merged, or if `shards` is not at least 1.
    """
    if shards is not None and shards < 1:
        raise InputError(f"shards is a number of parts, at least 1; got {shards}")
    machines = machines or ThisProcess()
    shards = shards or SHARDS_PER_PROCESSOR * machines.processors
    empty = learner.untaught()
    learner.untaught().merge(empty)  # raises if the strategy cannot be merged
    loader = _loader(learner, machines)
    seed = machines.share(empty.to_bytes())
    parts = _split(lessons, min(len(lessons), shards))

    def start(part: Sequence[Lesson[Any]], taught: Any) -> _Shard:
        handles = machines.call(2, teach_shard, seed, part, taught, opener, loader)
        return _Shard(part, handles[0], handles[1])

    taught_before = machines.share(frozenset(learner.lessons))
    done = [start(part, taught_before) for part in parts]
    _collect(machines, done, listen)
    taught = set(learner.lessons)
    for k, shard in enumerate(done):  # in order: of a lesson that comes twice the first one stays
        learned = shard.learned
        if learned & taught:
            done[k] = start(shard.lessons, frozenset(taught))
            done[k].outcomes = machines.get(done[k].told)
        taught |= learned
    merged = _merge_all(machines, done, loader)
    if merged is not None:
        learner.merge(loader.load(machines.get(merged)))
    return [outcome for shard in done for outcome in shard.outcomes]


@dataclass
class _Shard:
    """Some lessons, the handles of their results, and their outcomes once these are known."""

    lessons: Sequence[Lesson[Any]]
    state: Any
    told: Any
    outcomes: Sequence[LessonOutcome] = ()

    @property
    def learned(self) -> set[str]:
        """The ids of the lessons that were learned."""
        return {outcome.id for outcome in self.outcomes if outcome.status == "learned"}


@dataclass(frozen=True)
class LearnerLoader:
    """Loads a learner from its bytes on another machine, so that all of them can be merged.

    Args:
        backbone: A backbone that is not in the file, if the learner has one.
        device: Where the learner computes.
        engine: What computes its features: those of another engine could not be merged.
        registered: The reference of its strategy by name, if that is code of the user's own.
    """

    backbone: nn.Module | None
    device: str
    engine: Engine
    registered: Mapping[str, str] = field(default_factory=dict)

    def load(self, data: bytes) -> Learner:
        """Return the learner.

        Args:
            data: The bytes of its file.

        Raises:
            PrimavistaError: If this machine does not have the engine.
        """
        register_all(self.registered)
        return Learner.from_bytes(
            data,
            backbone=self.backbone,
            device=self.device,
            engine=self.engine,
            trusted=True,  # the user's own learner, or one that was taught from it
        )


def teach_shard(
    seed: bytes,
    lessons: Sequence[Lesson[Any]],
    taught: frozenset[str],
    opener: Opener,
    loader: LearnerLoader,
) -> tuple[bytes, list[LessonOutcome]]:
    """Teach some lessons to a learner that knows nothing yet.

    Args:
        seed: The bytes of that learner.
        lessons: The lessons.
        taught: Ids of lessons to leave out.
        opener: Opens a source.
        loader: Makes a learner of its bytes.

    Returns:
        The bytes of the learner after the lessons, and the outcome of each.
    """
    try:
        learner = loader.load(seed)
    except PrimavistaError as error:
        reason = f"on {platform.node()}: {error}"
        return seed, [LessonOutcome(lesson, "failed", reason=reason) for lesson in lessons]
    outcomes = [_teach_one(learner, lesson, taught, opener) for lesson in lessons]
    return learner.settled().to_bytes(), outcomes


def merge_two(first: bytes, second: bytes, loader: LearnerLoader) -> bytes:
    """Return the bytes of the learner that was taught the lessons of both.

    Args:
        first: The bytes of one learner, whose names come first.
        second: The bytes of the other.
        loader: Makes a learner of its bytes.
    """
    learner = loader.load(first)
    learner.merge(loader.load(second))
    return learner.settled().to_bytes()


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
        _protect_token()
    except (ConnectionError, RuntimeError, ValueError) as error:
        place = address or "this machine"
        raise InputError(f"no Ray cluster at {place}: {error}") from error


def _protect_token() -> None:
    """Let nobody else read the token of Ray, which creates its file with the usual permissions."""
    with suppress(OSError, RuntimeError):  # no file, a file of another owner, or no home
        (Path.home() / ".ray" / "auth_token").chmod(0o600)


def _loader(learner: Learner, machines: Machines) -> LearnerLoader:
    backbone = learner.strategy.backbone
    own = None if backbone.spec.name in NETWORKS else backbone
    # a task of a cluster has a processor and no GPU
    device = str(learner.strategy.device) if isinstance(machines, ThisProcess) else "cpu"
    needed = {n: r for n, r in registered().items() if n == learner.strategy_name}
    return LearnerLoader(own, device, learner.engine, needed)


def _split(lessons: Sequence[Lesson[Any]], count: int) -> list[list[Lesson[Any]]]:
    """Split lessons into `count` consecutive parts of nearly equal size."""
    cuts = [len(lessons) * k // count for k in range(count + 1)] if count else [0]
    return [list(lessons[start:stop]) for start, stop in pairwise(cuts)]


def _collect(machines: Machines, begun: Sequence[_Shard], listen: Listener) -> None:
    """Wait for the outcomes of all shards, and tell the listener as they come."""
    shards = {shard.told: shard for shard in begun}
    waiting = list(shards)
    while waiting:
        done, waiting = machines.ready(waiting)
        for handle in done:
            shards[handle].outcomes = machines.get(handle)
            listen(shards[handle].outcomes)


def _merge_all(machines: Machines, shards: Sequence[_Shard], loader: LearnerLoader) -> Any:
    """Merge neighbours until one is left, so that names stay in order; None if none learned."""
    states = [shard.state for shard in shards if shard.learned]
    while len(states) > 1:
        pairs = [states[k : k + 2] for k in range(0, len(states), 2)]
        states = [
            machines.call(1, merge_two, *pair, loader)[0] if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return states[0] if states else None


def _teach_one(
    learner: Learner, lesson: Lesson[Any], taught: frozenset[str], opener: Opener
) -> LessonOutcome:
    began = time.monotonic()
    try:
        clip = opener(lesson.source, learner.size)
        frames, _ = model_frames(clip, learner.size)
        # a learner that knows the lessons of its shard alone would be tested too easily
        learner.learn(frames, lesson.label, refuse=taught.union(learner.lessons), coach=False)
    except AlreadyTaughtError as error:
        return LessonOutcome(lesson, "already taught", error.lesson_id)
    except PrimavistaError as error:
        return LessonOutcome(lesson, "failed", reason=str(error))
    except Exception as error:  # whatever an opener may raise, the other lessons go on
        return LessonOutcome(lesson, "failed", reason=f"{type(error).__name__}: {error}")
    seconds, note = time.monotonic() - began, getattr(clip, "note", "")
    identity = learner.lessons[-1]
    return LessonOutcome(lesson, "learned", identity, len(frames), seconds, note)
