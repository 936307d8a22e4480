"""Cells on a Ray cluster.

Workers send lines, checkpoints and results to a mailbox beside the driver, which writes the
folders; with shared storage the workers write them. A lost node costs the batches since the last
checkpoint.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from primavista.bench.cell import (
    CellEvent,
    CellJob,
    Interrupted,
    OnEvent,
    RunSettings,
    ignore,
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
    read_json,
    write_bytes,
)
from primavista.bench.local import STOP_SECONDS, DeferredInterrupt
from primavista.bench.plan import Cell
from primavista.errors import InputError, PrimavistaError, require_extra
from primavista.learner.distributed import ray_cluster

LINES = (METRICS, TIMINGS)
MOST_LOSSES = 5  # of the node of a cell, before it got any further
Payload = dict[str, Any]
Letter = tuple[int, int, str, Payload]  # job, attempt, kind, content


@dataclass(frozen=True)
class RayCluster:
    """Run jobs on a Ray cluster.

    Args:
        address: "" (the cluster of this machine, or a new one here) or "ray://HOST:PORT".
        shared: Whether the folders are on storage that every node sees under the same path.
        per_gpu: How many cells run at a time on each GPU.
    """

    address: str = ""
    shared: bool = False
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
            _check_room(ray, jobs)
            driver = _Driver(ray, self, settings, on_event, _make_mailbox(ray))
            with DeferredInterrupt() as interrupt:
                try:
                    driver.run(jobs, interrupt.is_requested)
                except KeyboardInterrupt:
                    driver.stop()
                    raise
                finally:
                    driver.close()


class Mailbox:
    """A Ray actor beside the driver: workers post letters, the driver collects them."""

    def __init__(self) -> None:
        self._letters: deque[Letter] = deque()
        self._stopping = False

    def post(self, job: int, attempt: int, kind: str, payload: Payload) -> bool:
        """Keep a letter for the driver, and return whether the worker should stop.

        Args:
            job: The number of the job.
            attempt: The number of the attempt; letters of a lost attempt are ignored.
            kind: "save", or the kind of an event of the cell.
            payload: The content.
        """
        self._letters.append((job, attempt, kind, payload))
        return self._stopping

    def collect(self) -> list[Letter]:
        """Return the letters since the last call."""
        letters = list(self._letters)
        self._letters.clear()
        return letters

    def stop(self) -> None:
        """Tell every worker to stop after its next batch."""
        self._stopping = True


@dataclass
class _Driver:
    ray: Any
    cluster: RayCluster
    settings: RunSettings
    on_event: OnEvent
    mailbox: Any
    jobs: dict[int, CellJob] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)  # since the last checkpoint
    pending: dict[Any, int] = field(default_factory=dict)
    folders: dict[int, CellFolder] = field(default_factory=dict)
    letters: deque[Letter] = field(default_factory=deque)
    started: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def run(self, jobs: Sequence[CellJob], interrupted: Callable[[], bool]) -> None:
        self.jobs = {job.number: job for job in jobs}
        for job in jobs:
            self._submit(job)
        while self.pending:
            ready, _ = self.ray.wait(list(self.pending), timeout=0.2)
            self._collect()  # a task ends after its last letter: nothing is missed
            for ref in ready:
                self._end(ref)
            if interrupted():  # here, where no file is half written
                raise KeyboardInterrupt

    def stop(self) -> None:
        """Wait for the checkpoints of the jobs that run, and cancel those that have not started."""
        self.on_event = ignore
        self.mailbox.stop.remote()
        for ref, number in self.pending.items():
            if number not in self.started:
                self.ray.cancel(ref)
        until = time.monotonic() + STOP_SECONDS
        while time.monotonic() < until:
            _, left = self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0.2)
            self._collect()
            if not left:
                return

    def close(self) -> None:
        for folder in self.folders.values():
            folder.__exit__()
        self.ray.kill(self.mailbox)

    def _submit(self, job: CellJob) -> None:
        attempt = self.attempts[job.number] = self.attempts.get(job.number, -1) + 1
        files = {}
        if not self.cluster.shared and (job.folder / CHECKPOINT).exists():
            files = {name: (job.folder / name).read_bytes() for name in (RUN, *LINES, CHECKPOINT)}
        cuda = job.cell.device == "cuda"
        task = self.ray.remote(_work).options(
            num_cpus=job.cell.threads,
            num_gpus=1 / self.cluster.per_gpu if cuda else 0,
            max_retries=0,
            name=str(job.folder),
        )
        folder = str(job.folder) if self.cluster.shared else None
        cell = job.cell.model_dump()
        ref = task.remote(job.number, attempt, cell, files, self.mailbox, self.settings, folder)
        self.pending[ref] = job.number

    def _collect(self) -> None:
        self.letters.extend(self.ray.get(self.mailbox.collect.remote()))
        while self.letters:
            number, attempt, kind, payload = self.letters.popleft()
            if attempt == self.attempts[number] and number not in self.ended:
                try:
                    self._read(self.jobs[number], kind, payload)
                except PrimavistaError as error:  # our own disk
                    self._fail(number, failure_reason(error))

    def _read(self, job: CellJob, kind: str, payload: Payload) -> None:
        if kind == "start":
            self._start(job, payload["resumes"])
        elif kind == "batch":
            self.on_event(CellEvent(job.number, "batch", payload["line"], payload["batches"]))
        elif kind == "failed":
            self._fail(job.number, payload["reason"], payload["traceback"])
        else:
            self.losses[job.number] = 0
            if not self.cluster.shared:
                self.folders[job.number].replace(payload)
            if kind == "done":
                self._close(job.number)
                self.on_event(CellEvent(job.number, "done"))

    def _start(self, job: CellJob, resumes: bool) -> None:
        self.started.add(job.number)
        if not self.cluster.shared and job.number not in self.folders:
            folder = self.folders[job.number] = CellFolder(job.folder, job.cell).__enter__()
            if folder.resume() is None and resumes:
                raise InputError(
                    f"{job.folder} lost its checkpoint while it was waiting: run it again"
                )
        self.on_event(CellEvent(job.number, "start"))

    def _end(self, ref: Any) -> None:
        number = self.pending.pop(ref)
        try:
            self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            self._fail(number, failure_reason(error))
        except self.ray.exceptions.RayError as error:
            if number not in self.ended:
                self._restart(number, error)

    def _restart(self, number: int, error: Exception) -> None:
        self.losses[number] = self.losses.get(number, 0) + 1
        if self.losses[number] >= MOST_LOSSES:
            why = failure_reason(error)
            self._fail(number, f"its node or process was lost {MOST_LOSSES} times: {why}")
            return
        reason = f"lost ({type(error).__name__}), restarts from its checkpoint"
        self.on_event(CellEvent(number, "restarted", reason=reason))
        self._submit(self.jobs[number])

    def _fail(self, number: int, reason: str, trace: str = "") -> None:
        if number in self.ended:
            return
        if number in self.folders:
            self.folders[number].fail(reason, trace)
        self._close(number)
        self.on_event(CellEvent(number, "failed", reason=reason))

    def _close(self, number: int) -> None:
        self.ended.add(number)
        if number in self.folders:
            self.folders.pop(number).__exit__()


def _work(
    number: int,
    attempt: int,
    cell: Payload,
    files: dict[str, bytes],
    mailbox: Any,
    settings: RunSettings,
    shared: str | None,
) -> None:
    """Run a cell on a node: the main function of a Ray task.

    Without a `shared` folder, the cell runs in a temporary one that begins with `files`, and
    everything that is written there is sent to the mailbox.
    """
    ray = require_extra("ray", "ray")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(shared or temporary)
        for name, data in files.items():
            write_bytes(folder / name, data)
        if not settings.cache.is_dir():
            settings = replace(settings, cache=Path(tempfile.gettempdir()) / "primavista-data")
        job = CellJob(number, Cell.model_validate(cell), folder)

        def post(kind: str, payload: Payload) -> bool:
            found: bool = ray.get(mailbox.post.remote(number, attempt, kind, payload))
            return found

        sender = _Sender(job, bool(files), post, shared is not None)
        try:
            run_cell(job, settings, sender.on_event, sender.should_stop, sender.on_checkpoint)
        except Interrupted:
            return


@dataclass
class _Sender:
    """Posts the events of a cell and, unless storage is shared, the content of its folder."""

    job: CellJob
    resumes: bool
    post: Callable[[str, Payload], bool]
    shared: bool
    stop: bool = False

    def should_stop(self) -> bool:
        return self.stop

    def on_event(self, event: CellEvent) -> None:
        if event.kind == "start":
            payload: Payload = {"resumes": self.resumes}
        elif event.kind == "batch":
            payload = {"line": event.line, "batches": event.batches}
        elif event.kind == "failed":
            failed = read_json(self.job.folder / FAILED) or {}
            payload = {"reason": event.reason, "traceback": failed.get("traceback", "")}
        else:
            payload = self._files(RESULT)
        self.stop = self.post(event.kind, payload)

    def on_checkpoint(self) -> None:
        self.stop = self.post("save", self._files(CHECKPOINT))

    def _files(self, last: str) -> Payload:
        """Return the content of the files of the cell, the lines before the file that counts them.

        With shared storage they are in place already.
        """
        names = () if self.shared else (*LINES, last)
        return {name: (self.job.folder / name).read_bytes() for name in names}


def _make_mailbox(ray: Any) -> Any:
    """Make the mailbox on the driver's own node, so that it survives the loss of any other node.

    The node of a remote driver is the one that it is connected to.
    """
    strategies = require_extra("ray.util.scheduling_strategies", "ray")
    node = ray.get_runtime_context().get_node_id()
    here = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()


def _check_room(ray: Any, jobs: Sequence[CellJob]) -> None:
    """Refuse a job that fits no node, which would wait forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
    has_gpu = any(node.get("GPU") for node in nodes)
    for job in jobs:
        if job.cell.threads > most:
            raise InputError(
                f"cells have {job.cell.threads} threads, "
                f"and no node of the cluster has more than {most}"
            )
        if job.cell.device == "cuda" and not has_gpu:
            raise InputError(
                "cells are for a GPU, and no node of the cluster has one: choose --device cpu"
            )
