"""Cells on a Ray cluster. The driver writes the folders; a lost node costs the batches since the last checkpoint.

Workers send lines, checkpoints and results to a mailbox beside the driver. With shared folders they write themselves.
"""

from __future__ import annotations

import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from primavista.bench.cell import Settings, Stopped, run_cell
from primavista.bench.executors.local import PATIENCE, Interrupt
from primavista.bench.folder import (
    CHECKPOINT,
    METRICS,
    RESULT,
    RUN,
    TIMINGS,
    CellFolder,
    read_json,
    write_bytes,
)
from primavista.bench.jobs import Event, Job, Listener, reason_of
from primavista.bench.plan import Cell
from primavista.errors import InputError, PrimavistaError, require_extra
from primavista.learner.fleet import ray_cluster
from primavista.storage import learner_file as files

LINES = (METRICS, TIMINGS)
TRIES = 5  # of a cell whose node was lost before it got any further
Payload = dict[str, Any]


@dataclass(frozen=True)
class RayCluster:
    """`address` is "" (the cluster of this machine, or a new one here) or "ray://HOST:PORT".

    With `shared`, the folders are on storage that every node sees under the same path.
    """

    address: str = ""
    shared: bool = False
    per_gpu: int = 1

    def run(self, jobs: Sequence[Job], settings: Settings, listen: Listener) -> None:
        """Run every job; Ray decides where and when."""
        with ray_cluster(self.address) as machines:
            _check_room(machines.ray, jobs)
            driver = _Driver(machines.ray, self, settings, listen, _mailbox(machines.ray))
            with Interrupt() as interrupt:
                try:
                    driver.run(jobs, lambda: interrupt.asked)
                except KeyboardInterrupt:
                    driver.stop()
                    raise
                finally:
                    driver.close()


class Mailbox:
    """An actor beside the driver: workers post, the driver collects."""

    def __init__(self) -> None:
        self._letters: deque[tuple[int, int, str, Payload]] = deque()
        self._stopping = False

    def post(self, job: int, attempt: int, kind: str, payload: Payload) -> bool:
        """Returns whether the worker should stop."""
        self._letters.append((job, attempt, kind, payload))
        return self._stopping

    def collect(self) -> list[tuple[int, int, str, Payload]]:
        """Everything since the last time."""
        letters = list(self._letters)
        self._letters.clear()
        return letters

    def stop(self) -> None:
        """Tell every worker to stop at its next batch."""
        self._stopping = True


@dataclass
class _Driver:
    ray: Any
    cluster: RayCluster
    settings: Settings
    listen: Listener
    mailbox: Any
    jobs: dict[int, Job] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)  # since the last checkpoint
    pending: dict[Any, int] = field(default_factory=dict)
    open: dict[int, CellFolder] = field(default_factory=dict)
    letters: deque[tuple[int, int, str, Payload]] = field(default_factory=deque)
    started: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def run(self, jobs: Sequence[Job], interrupted: Callable[[], bool]) -> None:
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
        """Wait for the checkpoints of those that run; those that have not begun never do."""
        self.listen = lambda event: None
        self.mailbox.stop.remote()
        for ref, number in self.pending.items():
            if number not in self.started:
                self.ray.cancel(ref)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            _, left = self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0.2)
            self._collect()
            if not left:
                return

    def close(self) -> None:
        for folder in self.open.values():
            folder.__exit__()
        self.ray.kill(self.mailbox)

    def _submit(self, job: Job) -> None:
        attempt = self.attempts[job.number] = self.attempts.get(job.number, -1) + 1
        seed = (
            {}
            if self.cluster.shared
            else {
                name: (job.folder / name).read_bytes()
                for name in (RUN, *LINES, CHECKPOINT)
                if (job.folder / CHECKPOINT).exists()
            }
        )
        cuda = job.cell.device == "cuda"
        task = self.ray.remote(_work).options(
            num_cpus=job.cell.threads,
            num_gpus=1 / self.cluster.per_gpu if cuda else 0,
            max_retries=0,
            name=str(job.folder),
        )
        folder = str(job.folder) if self.cluster.shared else None
        ref = task.remote(
            job.number, attempt, job.cell.model_dump(), seed, self.mailbox, self.settings, folder
        )
        self.pending[ref] = job.number

    def _collect(self) -> None:
        self.letters.extend(self.ray.get(self.mailbox.collect.remote()))
        while self.letters:
            number, attempt, kind, payload = self.letters.popleft()
            if attempt == self.attempts[number] and number not in self.ended:
                try:
                    self._read(self.jobs[number], kind, payload)
                except PrimavistaError as error:  # our own disk
                    self._fail(number, reason_of(error))

    def _read(self, job: Job, kind: str, payload: Payload) -> None:
        if kind == "start":
            self.started.add(job.number)
            if not self.cluster.shared and job.number not in self.open:
                self.open[job.number] = CellFolder(job.folder, job.cell).__enter__()
                if self.open[job.number].resume() is None and payload["position"]:
                    raise InputError(
                        f"{job.folder} lost its checkpoint while it was waiting: run it again"
                    )
            self.listen(Event(job.number, "start"))
        elif kind == "batch":
            self.listen(Event(job.number, "batch", payload["line"], payload["batches"]))
        elif kind == "failed":
            self._fail(job.number, payload["reason"], payload["traceback"])
        elif kind in ("save", "result") and not self.cluster.shared:
            folder = self.open[job.number]
            for name in LINES:
                folder.append_bytes(name, payload[name])
            if kind == "save":
                self.losses[job.number] = 0
                folder.checkpoint_bytes(payload[CHECKPOINT])
            else:
                folder.finish(payload[RESULT])
        if kind == "result":
            self._close(job.number)
            self.listen(Event(job.number, "done"))

    def _end(self, ref: Any) -> None:
        number = self.pending.pop(ref)
        try:
            self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            self._fail(number, reason_of(error))
        except self.ray.exceptions.RayError as error:
            if number in self.ended:
                return
            self.losses[number] = self.losses.get(number, 0) + 1
            if self.losses[number] >= TRIES:
                self._fail(
                    number, f"its node or process was lost {TRIES} times: {reason_of(error)}"
                )
                return
            self.listen(
                Event(
                    number,
                    "again",
                    reason=f"lost ({type(error).__name__}), begins again from its checkpoint",
                )
            )
            self._submit(self.jobs[number])

    def _fail(self, number: int, reason: str, trace: str = "") -> None:
        if number in self.ended:
            return
        if number in self.open:
            self.open[number].fail(reason, trace)
        self._close(number)
        self.listen(Event(number, "failed", reason=reason))

    def _close(self, number: int) -> None:
        self.ended.add(number)
        if number in self.open:
            self.open.pop(number).__exit__()


def _work(
    number: int,
    attempt: int,
    cell: Payload,
    seed: Payload,
    mailbox: Any,
    settings: Settings,
    shared: str | None,
) -> None:
    """What a task does on its node: the cell in a folder of its own, everything in it sent to the mailbox."""
    ray = require_extra("ray", "ray")
    stop = [False]

    def post(kind: str, payload: Payload) -> None:
        stop[0] = ray.get(mailbox.post.remote(number, attempt, kind, payload))

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(shared or temporary)
        for name, data in seed.items():
            write_bytes(folder / name, data)
        if not settings.cache.is_dir():
            settings = replace(settings, cache=Path(tempfile.gettempdir()) / "primavista-data")
        try:
            _run(
                Cell.model_validate(cell),
                folder,
                seed,
                settings,
                post,
                lambda: stop[0],
                shared is not None,
            )
        except Stopped:
            return
        except Exception as error:
            post("failed", {"reason": reason_of(error), "traceback": traceback.format_exc()})


def _run(
    cell: Cell,
    path: Path,
    seed: Payload,
    settings: Settings,
    post: Callable[[str, Payload], None],
    stopping: Callable[[], bool],
    shared: bool,
) -> None:
    position = files.decode(seed[CHECKPOINT], CHECKPOINT)[1]["position"] if seed else 0
    sent = {
        name: sum(map(len, seed[name].splitlines(keepends=True)[:position])) if seed else 0
        for name in LINES
    }

    def news() -> Payload:
        found = {name: (path / name).read_bytes()[sent[name] :] for name in LINES}
        sent.update({name: sent[name] + len(data) for name, data in found.items()})
        return found

    def saved() -> None:
        if not shared:
            post("save", {**news(), CHECKPOINT: (path / CHECKPOINT).read_bytes()})

    with CellFolder(path, cell) as folder:
        post("start", {"position": bool(seed)})
        try:
            run_cell(
                cell,
                folder,
                settings,
                lambda line, n: post("batch", {"line": line, "batches": n}),
                stopping,
                saved,
            )
        except Exception as error:
            if shared:
                folder.fail(reason_of(error), traceback.format_exc())
            raise
        result = read_json(path / RESULT)
        post("result", {} if shared else {**news(), RESULT: result})


def _mailbox(ray: Any) -> Any:
    """On the driver's own node (of a remote driver: the node that it is connected to), so that no other's loss takes it."""
    strategies = require_extra("ray.util.scheduling_strategies", "ray")
    here = strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    return ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()


def _check_room(ray: Any, jobs: Sequence[Job]) -> None:
    """A task that fits no node would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
    for job in jobs:
        if job.cell.threads > most:
            raise InputError(
                f"cells have {job.cell.threads} threads, and no node of the cluster has more than {most}"
            )
        if job.cell.device == "cuda" and not any(node.get("GPU") for node in nodes):
            raise InputError(
                "cells are for a GPU, and no node of the cluster has one: --device cpu"
            )
