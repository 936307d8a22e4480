"""Cells on a Ray cluster.

Workers send events, lines, checkpoints and results to a mailbox beside the driver, which writes the
folders. A lost node costs the batches since the last checkpoint.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from primavista.bench.cell import (
    CellEvent,
    CellJob,
    Interrupted,
    OnEvent,
    RunSettings,
    run_cell,
)
from primavista.bench.folder import (
    CHECKPOINT,
    FAILED,
    METRICS,
    RESULT,
    RUN,
    TIMINGS,
    CellFolder,
    failure_reason,
    write_bytes,
)
from primavista.bench.local import STOP_SECONDS, DeferredInterrupt
from primavista.bench.plan import Cell
from primavista.bench.ray_cluster import ray_cluster
from primavista.errors import InputError, PrimavistaError, require_extra

LINES = (METRICS, TIMINGS)
# the files that go with an event, the lines before the file that counts them
SENT = {"checkpoint": (*LINES, CHECKPOINT), "done": (*LINES, RESULT), "failed": (FAILED,)}
MOST_LOSSES = 5  # of the node of a cell, before it got any further
Files = dict[str, bytes]
Letter = tuple[int, CellEvent, Files]  # the number of the attempt, an event, and files


@dataclass(frozen=True)
class RayCluster:
    """Run jobs on a Ray cluster.

    Args:
        address: "" (the cluster of this machine, or a new one here) or "ray://HOST:PORT".
        per_gpu: How many cells run at a time on each GPU.
    """

    address: str = ""
    per_gpu: int = 1

    def run(self, jobs: Sequence[CellJob], settings: RunSettings, on_event: OnEvent) -> None:
        """Run every job; Ray decides where and when. See `Executor`.

        Args:
            jobs: The jobs.
            settings: How cells are run.
            on_event: Called with every event.

        Raises:
            InputError: If no node has room for a job.
            KeyboardInterrupt: After Ctrl-C; the checkpoints are written.
        """
        with ray_cluster(self.address) as ray:
            for job in jobs:
                _check_room(ray, job.cell)
            tasks = {job.number: _Task(job) for job in jobs}
            driver = _Driver(ray, self.per_gpu, settings, on_event, _make_mailbox(ray), tasks)
            with DeferredInterrupt() as interrupt:
                try:
                    driver.run(interrupt.is_requested)
                except KeyboardInterrupt:
                    driver.stop()
                    raise
                finally:
                    driver.close()


class Mailbox:
    """A Ray actor beside the driver: workers post letters, the driver collects them."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._stopping = False

    def post(self, letter: Letter) -> bool:
        """Keep a letter for the driver, and return whether the worker should stop.

        Args:
            letter: The letter; those of a lost attempt are ignored.
        """
        self._letters.append(letter)
        return self._stopping

    def collect(self) -> list[Letter]:
        """Return the letters since the last call."""
        letters, self._letters = self._letters, []
        return letters

    def stop(self) -> None:
        """Tell every worker to stop after its next batch."""
        self._stopping = True


@dataclass(eq=False)
class _Task:
    """A job on the cluster.

    Args:
        job: The job.
        attempt: The number of the attempt that runs, from 1.
        losses: How often its node was lost since the last checkpoint.
        folder: Its folder, open from its first event on.
        ended: True if it is done or has failed.
    """

    job: CellJob
    attempt: int = 0
    losses: int = 0
    folder: CellFolder | None = None
    ended: bool = False

    def open(self) -> CellFolder:
        """Open its folder, unless it is open."""
        if self.folder is None:
            self.folder = CellFolder(self.job.folder, self.job.cell).__enter__()
        return self.folder

    def end(self) -> None:
        """Close its folder; events that come later are ignored."""
        self.ended = True
        if self.folder is not None:
            self.folder.__exit__()
            self.folder = None


@dataclass
class _Driver:
    ray: Any
    per_gpu: int
    settings: RunSettings
    on_event: OnEvent
    mailbox: Any
    tasks: dict[int, _Task]
    pending: dict[Any, _Task] = field(default_factory=dict)
    letters: deque[Letter] = field(default_factory=deque)

    def run(self, interrupted: Callable[[], bool]) -> None:
        for task in self.tasks.values():
            self._submit(task)
        while self.pending:
            ready, _ = self.ray.wait(list(self.pending), timeout=0.2)
            self._collect()  # a task ends after its last letter: nothing is missed
            for ref in ready:
                self._end(ref)
            if interrupted():  # here, where no file is half written
                raise KeyboardInterrupt

    def stop(self) -> None:
        """Wait for the checkpoints of the jobs that run, and cancel those that have not started."""
        self.on_event = lambda event: None
        self.mailbox.stop.remote()
        for ref, task in self.pending.items():
            if task.folder is None:
                self.ray.cancel(ref)
        until = time.monotonic() + STOP_SECONDS
        while time.monotonic() < until:
            _, left = self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0.2)
            self._collect()
            if not left:
                return

    def close(self) -> None:
        for task in self.tasks.values():
            task.end()
        self.ray.kill(self.mailbox)

    def _submit(self, task: _Task) -> None:
        task.attempt += 1
        job = task.job
        files = {}
        if (job.folder / CHECKPOINT).exists():
            files = {name: (job.folder / name).read_bytes() for name in (RUN, *LINES, CHECKPOINT)}
        remote = self.ray.remote(_work).options(
            num_cpus=job.cell.threads,
            num_gpus=1 / self.per_gpu if job.cell.device == "cuda" else 0,
            max_retries=0,
            name=str(job.folder),
        )
        ref = remote.remote(job, task.attempt, files, self.mailbox, self.settings)
        self.pending[ref] = task

    def _collect(self) -> None:
        self.letters.extend(self.ray.get(self.mailbox.collect.remote()))
        while self.letters:
            attempt, event, files = self.letters.popleft()
            task = self.tasks[event.job]
            if attempt == task.attempt and not task.ended:
                try:
                    self._read(task, event, files)
                except PrimavistaError as error:  # our own disk
                    self._fail(task, failure_reason(error))

    def _read(self, task: _Task, event: CellEvent, files: Files) -> None:
        if task.folder is None:
            task.open().resume()  # refuses a damaged checkpoint under the name of this folder
        task.open().replace(files)
        if event.kind == "checkpoint":
            task.losses = 0
        elif event.kind in ("done", "failed"):
            task.end()
        self.on_event(event)

    def _end(self, ref: Any) -> None:
        task = self.pending.pop(ref)
        try:
            self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            self._fail(task, failure_reason(error))
        except self.ray.exceptions.RayError as error:
            self._restart(task, error)

    def _restart(self, task: _Task, error: Exception) -> None:
        if task.ended:
            return
        task.losses += 1
        if task.losses >= MOST_LOSSES:
            why = failure_reason(error)
            self._fail(task, f"its node or process was lost {MOST_LOSSES} times: {why}")
            return
        reason = f"lost ({type(error).__name__}), restarts from its checkpoint"
        self.on_event(CellEvent(task.job.number, "restarted", reason=reason))
        self._submit(task)

    def _fail(self, task: _Task, reason: str) -> None:
        if task.ended:
            return
        with suppress(PrimavistaError):  # the folder may be that of another cell or process
            task.open().fail(reason)
        task.end()
        self.on_event(CellEvent(task.job.number, "failed", reason=reason))


def _work(job: CellJob, attempt: int, files: Files, mailbox: Any, settings: RunSettings) -> None:
    """Run a cell on a node: the main function of a Ray task.

    The cell runs in a temporary folder that begins with `files`; everything that is written there
    is sent to the mailbox.
    """
    ray = require_extra("ray", "ray")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, data in files.items():
            write_bytes(folder / name, data)
        if not settings.cache.is_dir():
            settings = replace(settings, cache=Path(tempfile.gettempdir()) / "primavista-data")
        stop = False

        def send(event: CellEvent) -> None:
            nonlocal stop
            paths = [folder / name for name in SENT.get(event.kind, ())]
            written = {path.name: path.read_bytes() for path in paths if path.exists()}
            stop = ray.get(mailbox.post.remote((attempt, event, written)))

        with suppress(Interrupted):
            run_cell(replace(job, folder=folder), settings, send, lambda: stop)


def _make_mailbox(ray: Any) -> Any:
    """Make the mailbox on the driver's own node, so that it survives the loss of any other node.

    The node of a remote driver is the one that it is connected to.
    """
    strategies = require_extra("ray.util.scheduling_strategies", "ray")
    node = ray.get_runtime_context().get_node_id()
    here = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()


def _check_room(ray: Any, cell: Cell) -> None:
    """Refuse a cell that fits no node, which would wait forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
    if cell.threads > most:
        raise InputError(
            f"cells have {cell.threads} threads, and no node of the cluster has more than {most}"
        )
    if cell.device == "cuda" and not any(node.get("GPU") for node in nodes):
        raise InputError(
            "cells are for a GPU, and no node of the cluster has one: choose --device cpu"
        )
