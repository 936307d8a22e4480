"""Where cells are run on one machine: one after the other in this process, or several at a time in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from primavista.bench.cell import Settings, Stopped
from primavista.bench.folder import CellFolder
from primavista.bench.jobs import Event, Job, Listener, alike, attempt
from primavista.bench.plan import Cell
from primavista.errors import PrimavistaError

PATIENCE = 20.0  # seconds for a process that was asked to stop to write its checkpoint


@dataclass(frozen=True)
class Inline:
    """One after the other, here."""

    def run(self, jobs: Sequence[Job], settings: Settings, listen: Listener) -> None:
        """Run every job. Ctrl-C lets the batch at hand end, and writes a checkpoint."""
        with Interrupt() as interrupt:
            waiting = list(jobs)
            while waiting:
                group = alike(waiting)
                waiting = [job for job in waiting if job not in group]
                try:
                    attempt(group, settings, listen, lambda: interrupt.asked)
                except Stopped:
                    raise KeyboardInterrupt from None
                if interrupt.asked:
                    raise KeyboardInterrupt


@dataclass(frozen=True)
class Processes:
    """Several at a time: as many as `threads` hold cells of their thread count; on a GPU, `per_gpu` on each of them.

    A process that dies, of memory say, fails its cell and no other.
    """

    threads: int
    gpus: int = 0
    per_gpu: int = 1

    def places(self, cell: Cell) -> int:
        """How many cells like this one run at a time."""
        if cell.device == "cuda":
            return max(1, self.gpus) * self.per_gpu
        return max(1, self.threads // cell.threads)

    def run(self, jobs: Sequence[Job], settings: Settings, listen: Listener) -> None:
        """Run every job, the first ones first."""
        pool = _Pool(self, settings, listen)
        try:
            pool.run(list(jobs))
        except KeyboardInterrupt:
            pool.stop()
            raise
        finally:
            pool.close()


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    gpu: int
    jobs: list[Job] = field(default_factory=list)  # side by side


@dataclass
class _Pool:
    executor: Processes
    settings: Settings
    listen: Listener
    workers: list[_Worker] = field(default_factory=list)

    def run(self, waiting: list[Job]) -> None:
        while waiting or any(worker.jobs for worker in self.workers):
            self._hand_out(waiting)
            for pipe in wait([worker.pipe for worker in self.workers]):
                worker = next(w for w in self.workers if w.pipe is pipe)
                self._hear(worker)

    def _hand_out(self, waiting: list[Job]) -> None:
        while waiting and sum(bool(w.jobs) for w in self.workers) < self.executor.places(
            waiting[0].cell
        ):
            idle = next((worker for worker in self.workers if not worker.jobs), None)
            worker = idle or self._begin()
            worker.jobs = alike(waiting)
            waiting[:] = [job for job in waiting if job not in worker.jobs]
            worker.pipe.send(
                [(job.number, job.cell.model_dump(), job.folder) for job in worker.jobs]
            )

    def _begin(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        taken = [worker.gpu for worker in self.workers]
        gpu = min(range(max(1, self.executor.gpus)), key=taken.count)
        visible = {"CUDA_VISIBLE_DEVICES": _gpu_name(gpu)} if self.executor.gpus > 1 else {}
        process = context.Process(
            target=_work, args=(there, self.settings, os.getpid(), visible), daemon=True
        )
        process.start()
        there.close()
        self.workers.append(worker := _Worker(process, here, gpu))
        return worker

    def _hear(self, worker: _Worker) -> None:
        try:
            event: Event = worker.pipe.recv()
        except (EOFError, OSError):
            self._lost(worker)
            return
        self.listen(event)
        if event.kind in ("done", "failed"):
            worker.jobs = [job for job in worker.jobs if job.number != event.job]

    def _lost(self, worker: _Worker) -> None:
        worker.process.join()
        self.workers.remove(worker)
        code = worker.process.exitcode or 0
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        reason = f"its process {how}: out of memory, or stopped by somebody? The same command goes on from its checkpoint"
        for job in worker.jobs:
            with (
                contextlib.suppress(PrimavistaError),
                CellFolder(job.folder, job.cell) as folder,
            ):
                folder.fail(reason)
            self.listen(Event(job.number, "failed", reason=reason))

    def stop(self) -> None:
        """Ask every process to write its checkpoint and end; those that take too long are ended."""
        for worker in self.workers:
            with contextlib.suppress(OSError, ValueError):
                os.kill(worker.process.pid or 0, signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        for worker in self.workers:
            while worker.process.is_alive() and time.monotonic() < until:
                with contextlib.suppress(EOFError, OSError):
                    while worker.pipe.poll(0.05):
                        worker.pipe.recv()

    def close(self) -> None:
        for worker in self.workers:
            if not worker.jobs:
                with contextlib.suppress(OSError):
                    worker.pipe.send(None)
                worker.process.join(5)
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _work(pipe: Connection, settings: Settings, parent: int, environment: dict[str, str]) -> None:
    """What a process does: jobs from the pipe, events into it. SIGTERM is the wish to stop; Ctrl-C is the parent's affair."""
    os.environ.update(environment)
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        while not asked and (given := _next_jobs(pipe, asked)) is not None:
            jobs = [
                Job(number, Cell.model_validate(cell), folder) for number, cell, folder in given
            ]
            attempt(jobs, settings, pipe.send, lambda: bool(asked))
    except (Stopped, EOFError, BrokenPipeError):
        return


def _next_jobs(pipe: Connection, asked: list[int]) -> Any:
    while not pipe.poll(0.2):
        if asked:
            return None
    return pipe.recv()


def _die_with(parent: int) -> None:
    """Linux ends this process with its parent, however that ends; elsewhere the next event finds the pipe broken."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _gpu_name(gpu: int) -> str:
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[gpu] if gpu < len(visible) else str(gpu)


class Interrupt:
    """While it lasts, the first Ctrl-C only sets `asked`; the second interrupts at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        with contextlib.suppress(ValueError):  # in a thread there are no signals
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
