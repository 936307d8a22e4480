"""Executors on one machine: in this process, or in several processes of their own."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from primavista.bench.cell import CellEvent, CellJob, Interrupted, OnEvent, RunSettings, run_cell
from primavista.bench.folder import CellFolder
from primavista.bench.plan import Cell
from primavista.engine.representation import free_memory
from primavista.errors import PrimavistaError

STOP_SECONDS = 20.0  # for a process that was asked to stop to write its checkpoint
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Inline:
    """Run jobs one after the other in this process."""

    def run(self, jobs: Sequence[CellJob], settings: RunSettings, on_event: OnEvent) -> None:
        """Run every job; see `Executor`. Ctrl-C lets the batch at hand end first.

        Args:
            jobs: The jobs.
            settings: How cells are run.
            on_event: Called with every event.

        Raises:
            KeyboardInterrupt: After Ctrl-C; the checkpoint is written.
        """
        with DeferredInterrupt() as interrupt:
            for job in jobs:
                try:
                    run_cell(job, settings, on_event, interrupt.is_requested)
                    free_memory()
                except Interrupted:
                    raise KeyboardInterrupt from None
                if interrupt.requested:
                    raise KeyboardInterrupt


@dataclass(frozen=True)
class Processes:
    """Run several jobs at a time, in processes of their own.

    A process that dies, for example of too little memory, fails its own cell and no other.

    Args:
        threads: CPU threads; each cell takes as many as it has.
        gpus: How many GPUs there are.
        per_gpu: How many cells run at a time on each GPU.
        fresh: Each cell has a process of its own, so that its peak memory can be measured.
    """

    threads: int
    gpus: int = 0
    per_gpu: int = 1
    fresh: bool = False

    def places(self, cell: Cell) -> int:
        """Return how many cells like this one run at a time.

        Args:
            cell: The cell.
        """
        if cell.device == "cuda":
            return max(1, self.gpus) * self.per_gpu
        return max(1, self.threads // cell.threads)

    def run(self, jobs: Sequence[CellJob], settings: RunSettings, on_event: OnEvent) -> None:
        """Run every job, the first ones first; see `Executor`.

        Args:
            jobs: The jobs.
            settings: How cells are run.
            on_event: Called with every event.

        Raises:
            KeyboardInterrupt: After Ctrl-C; the checkpoints are written.
        """
        waiting = deque(jobs)
        workers: list[_Worker] = []
        try:
            while waiting or workers:
                while waiting and len(workers) < self.places(waiting[0].cell):
                    gpu = min(range(max(1, self.gpus)), key=[one.gpu for one in workers].count)
                    visible = {"CUDA_VISIBLE_DEVICES": _gpu_name(gpu)} if self.gpus > 1 else {}
                    workers.append(_start_worker(gpu, visible, settings, waiting.popleft()))
                for pipe in wait([worker.pipe for worker in workers]):
                    worker = next(worker for worker in workers if worker.pipe is pipe)
                    event = worker.receive()
                    on_event(event)
                    if event.kind in ("done", "failed"):
                        if waiting and not self.fresh and worker.process.is_alive():
                            worker.take(waiting.popleft())
                        else:
                            workers.remove(worker)
                            worker.end()
        except KeyboardInterrupt:
            _stop(workers)
            raise
        finally:
            for worker in workers:
                worker.process.kill()


@dataclass
class _Worker:
    """A process that runs one job after the other."""

    process: SpawnProcess
    pipe: Connection
    gpu: int
    job: CellJob

    def take(self, job: CellJob) -> None:
        self.job = job
        self.pipe.send(job)

    def receive(self) -> CellEvent:
        """Return the next event of its job; if the process has died, the job has failed."""
        try:
            event: CellEvent = self.pipe.recv()
        except (EOFError, OSError):
            return self._fail_lost()
        return event

    def _fail_lost(self) -> CellEvent:
        self.process.join()
        code = self.process.exitcode or 0
        ending = f"ended with exit code {code}"
        if code < 0:
            ending = f"was killed by {signal.Signals(-code).name}"
        reason = (
            f"its process {ending}: was there too little memory, or did somebody stop it? "
            "The same command resumes from its checkpoint"
        )
        with (
            contextlib.suppress(PrimavistaError),
            CellFolder(self.job.folder, self.job.cell) as folder,
        ):
            folder.fail(reason)
        return CellEvent(self.job.number, "failed", reason=reason)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(5)
        self.process.kill()
        self.pipe.close()


def _start_worker(
    gpu: int, environment: dict[str, str], settings: RunSettings, job: CellJob
) -> _Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    arguments = (there, settings, os.getpid(), environment)
    process = context.Process(target=work, args=arguments, daemon=True)
    process.start()
    there.close()
    worker = _Worker(process, here, gpu, job)
    worker.take(job)
    return worker


def _stop(workers: Sequence[_Worker]) -> None:
    """Ask every process to write its checkpoint and end; those that take too long are killed."""
    for worker in workers:
        worker.process.terminate()
    until = time.monotonic() + STOP_SECONDS
    for worker in workers:
        while worker.process.is_alive() and time.monotonic() < until:
            with contextlib.suppress(EOFError, OSError):
                while worker.pipe.poll(0.05):
                    worker.pipe.recv()


def work(pipe: Connection, settings: RunSettings, parent: int, environment: dict[str, str]) -> None:
    """Run jobs from a pipe and send their events back: the main function of a worker process.

    SIGTERM asks it to stop; it ignores Ctrl-C, which its parent handles.

    Args:
        pipe: The connection with the parent; None ends the process.
        settings: How cells are run.
        parent: The process id of the parent.
        environment: Environment variables to set.
    """
    os.environ.update(environment)
    _end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: requests.append(number))
    gc.freeze()  # the imported modules, which later collections then need not search
    try:
        while job := _next_job(pipe, requests):
            run_cell(job, settings, pipe.send, lambda: bool(requests))
            free_memory()
    except (Interrupted, EOFError, BrokenPipeError):
        return


def _next_job(pipe: Connection, requests: list[int]) -> CellJob | None:
    """Return the next job from the parent; None if the process is to end."""
    while not requests:
        if pipe.poll(POLL_SECONDS):
            job: CellJob | None = pipe.recv()
            return job
    return None


def _end_with_parent(parent: int) -> None:
    """On Linux the system ends this process with its parent; elsewhere the pipe breaks."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _gpu_name(gpu: int) -> str:
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[gpu] if gpu < len(visible) else str(gpu)


class DeferredInterrupt:
    """Inside its `with` block the first Ctrl-C only sets `requested`; the second one interrupts."""

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def is_requested(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self.requested

    def __enter__(self) -> DeferredInterrupt:
        with contextlib.suppress(ValueError):  # in a thread there are no signals
            self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
