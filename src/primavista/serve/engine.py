"""One writer, many readers: lessons are learned in order, each on disk before it is known; predictions go on meanwhile."""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal

import numpy as np

from primavista.errors import InputError, PrimavistaError
from primavista.learner.learner import Learner, Prediction
from primavista.serve.limits import Limits, RefusedError
from primavista.serve.metrics import Metrics

State = Literal["queued", "running", "done", "failed"]
Tell = Callable[[float], None]
Work = Callable[[Learner, Tell], Learner | None]
AT_ONCE = 16  # frames of different clients that are recognised in one pass
log = logging.getLogger("primavista")


class KnownLessonError(PrimavistaError):
    """A lesson that was taught before: it is left out, and nothing changes."""


@dataclass(frozen=True)
class Live:
    """What is known now, and the number of changes that led to it. It is replaced whole: no one sees half a lesson."""

    version: int
    learner: Learner
    replaced: Learner | None = (
        None  # what was known before, where the last change was to load another model
    )

    @property
    def can_undo(self) -> bool:
        """Whether the last change can be taken back."""
        return self.replaced is not None or self.learner.can_undo


@dataclass
class Job:
    """One lesson or change, from its place in the queue to its end."""

    kind: str
    label: str | None
    frames: int
    work: Work
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "queued"
    progress: float | None = None
    error: str | None = None
    seconds: float | None = None
    parts: dict[str, float] = field(default_factory=dict)  # of the seconds
    version: int | None = None
    known: bool = False  # taught before, and so left out
    ended: Future[None] = field(default_factory=Future)


class Engine:
    """The learner of one file: `submit` changes it, `predict` asks it, `live` is what it knows now."""

    def __init__(self, learner: Learner, path: Path, limits: Limits | None = None) -> None:
        self.path, self.limits, self.metrics = path, limits or Limits(), Metrics()
        self._live = Live(0, learner)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = Lock()
        self._pending: queue.Queue[Job | None] = queue.Queue()
        self._asked: queue.Queue[tuple[Any, Future[tuple[Prediction, int]]] | None] = queue.Queue()
        self._threads = [
            Thread(target=run, name=run.__name__, daemon=True) for run in (self._write, self._read)
        ]
        self._stopping = False

    @property
    def live(self) -> Live:
        """The state that predictions come from."""
        return self._live

    @property
    def queued(self) -> int:
        """How many lessons and changes wait or run."""
        with self._lock:
            return sum(job.state in ("queued", "running") for job in self._jobs.values())

    def start(self) -> None:
        """Begin to learn and to predict. A lesson that is thrown away warms everything that the first one will need."""
        trial = self.live.learner.copy()
        blank = _blank(trial)
        with contextlib.suppress(
            PrimavistaError
        ):  # a strategy that takes no more names still predicts
            trial.learn(blank, "warm")
        trial.predict(blank)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the lesson that is being learned end; those that wait are refused."""
        self._stopping = True
        self._pending.put(None)
        self._asked.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def submit(self, kind: str, work: Work, label: str | None = None, frames: int = 0) -> Job:
        """Put a change at the end of the queue."""
        job = Job(kind, label, frames, work)
        with self._lock:
            waiting = sum(other.state == "queued" for other in self._jobs.values())
            if self._stopping or waiting >= self.limits.queue:
                self.metrics.count("refused")
                raise RefusedError(
                    429,
                    f"{waiting} lessons and changes are waiting already: try again when some are done",
                )
            self._jobs[job.id] = job
            for old in [o for o in self._jobs.values() if o.ended.done()][
                : -self.limits.jobs or None
            ]:
                del self._jobs[old.id]
        self._pending.put(job)
        return job

    def job(self, id: str) -> Job:
        """One that was submitted not too long ago."""
        with self._lock:
            if id not in self._jobs:
                raise RefusedError(404, "there is no such job, or it ended long ago")
            return self._jobs[id]

    def predict(self, image: Any) -> Future[tuple[Prediction, int]]:
        """What one frame at model size shows, and the version of what was known. Frames that wait are recognised together."""
        if self._asked.qsize() >= self.limits.waiting:
            self.metrics.count("refused")
            raise RefusedError(429, "too many frames wait to be recognised: send fewer a second")
        answer: Future[tuple[Prediction, int]] = Future()
        self._asked.put((image, answer))
        return answer

    def _write(self) -> None:
        while (job := self._pending.get()) is not None:
            began = time.monotonic()
            try:
                if self._stopping:
                    raise RefusedError(429, "the service was stopped before this began")
                self._do(job)
            except KnownLessonError:
                job.known, job.state, job.progress, job.version = (
                    True,
                    "done",
                    1.0,
                    self.live.version,
                )
            except PrimavistaError as error:
                job.error, job.state = str(error), "failed"
            except Exception as error:
                log.exception("a %s failed", job.kind)
                job.error, job.state = (
                    f"it failed ({type(error).__name__}); nothing was changed",
                    "failed",
                )
            else:
                job.state = "done"
            job.seconds = time.monotonic() - began
            job.work = _nothing  # its frames are let go of
            self.metrics.job(job.kind, "known" if job.known else job.state, job.seconds, job.frames)
            job.ended.set_result(None)

    def _do(self, job: Job) -> None:
        job.state = "running"

        def tell(progress: float) -> None:
            job.progress = min(max(progress, job.progress or 0.0), 1.0)

        live = self.live
        draft = live.learner.copy()
        began = time.monotonic()
        draft = job.work(draft, tell) or draft
        draft.predict(
            _blank(draft)
        )  # what a strategy solves when it is first asked is solved now, not in a client's time
        worked = time.monotonic()
        draft.save(
            self.path
        )  # on disk first: what has been acknowledged or recognised is never lost
        job.parts = {"working": worked - began, "saving": time.monotonic() - worked}
        job.version = live.version + 1
        job.progress = 1.0
        self._live = Live(job.version, draft, live.learner if job.kind == "load" else None)
        draft.rest()  # who predicts now asks the new state

    def _read(self) -> None:
        while (first := self._asked.get()) is not None:
            together = [first]
            while len(together) < AT_ONCE:
                try:
                    more = self._asked.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._asked.put(None)
                    break
                together.append(more)
            live, began = self.live, time.monotonic()
            fitting = [
                (image, answer)
                for image, answer in together
                if answer.set_running_or_notify_cancel()
            ]
            try:
                found = live.learner.predict([image for image, _ in fitting]) if fitting else []
            except Exception as error:
                for _, answer in fitting:
                    answer.set_exception(error)
                continue
            self.metrics.predicted(len(fitting), time.monotonic() - began)
            for (_, answer), prediction in zip(fitting, found, strict=True):
                answer.set_result((prediction, live.version))


def _blank(learner: Learner) -> np.ndarray[Any, Any]:
    return np.zeros((2, learner.size, learner.size, 3), np.uint8)


def check_keeps_nothing(learner: Learner) -> None:
    """The page promises that no frame is kept."""
    if not learner.strategy.rehearsal_free:
        raise InputError(
            f"{learner.strategy_name} keeps its frames, and here none are kept: choose another strategy"
        )


def _nothing(learner: Learner, tell: Tell) -> Learner | None:
    return None
