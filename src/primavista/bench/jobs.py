"""What executors do: jobs go in, events come out."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from primavista.bench.cell import Settings, Stopped, pausing_cell, switches
from primavista.bench.folder import CellFolder
from primavista.bench.plan import Cell
from primavista.bench.together import Pause, together
from primavista.errors import PrimavistaError

ABREAST = ("dslda", "lda", "ncm")  # those whose runs learn, are solved and are tested as a stack
TOGETHER = 10


@dataclass(frozen=True)
class Job:
    """A cell to be run in a folder."""

    number: int
    cell: Cell
    folder: Path


@dataclass(frozen=True)
class Event:
    """What has become of a job: it was begun, has learned a batch, is done, failed, or begins again elsewhere."""

    job: int
    kind: Literal["start", "batch", "done", "failed", "again"]
    line: dict[str, Any] = field(default_factory=dict)  # of metrics.jsonl
    batches: int = 0
    reason: str = ""


Listener = Callable[[Event], None]


class Executor(Protocol):
    """Runs jobs, in any order. KeyboardInterrupt stops the jobs that run, each with a checkpoint, and is raised again."""

    def run(self, jobs: Sequence[Job], settings: Settings, listen: Listener) -> None:
        """Run every job; one that fails does not stop the others."""


def attempt(
    jobs: Sequence[Job],
    settings: Settings,
    listen: Listener,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Run one job in this process, or several `alike` side by side; asked to stop, each writes its checkpoint.

    Whatever error one meets becomes an event and, in its own folder, `failed.json`.
    """
    stopped: list[Job] = []
    with switches(
        jobs[0].cell
    ):  # around them all: the first that ends must not put back what the others need
        for _ in together([_pausing(job, settings, listen, stopping, stopped) for job in jobs]):
            pass
    if stopped:
        raise Stopped


def alike(jobs: Sequence[Job], most: int = TOGETHER) -> list[Job]:
    """The first job and those that gain by being run side by side with it: other runs of the same cell, on a GPU.

    Their updates and factorisations are one then, with other rounding than one by one; where every bit matters they are not.
    """
    first = jobs[0].cell
    if first.device != "cuda" or first.deterministic or first.strategy not in ABREAST:
        return list(jobs[:1])
    return [
        job
        for job in jobs
        if job.cell.model_copy(update={"run": first.run, "seed": first.seed}) == first
    ][:most]


def _pausing(
    job: Job, settings: Settings, listen: Listener, stopping: Callable[[], bool], stopped: list[Job]
) -> Iterator[Pause]:
    listen(Event(job.number, "start"))

    def tell(line: dict[str, Any], batches: int) -> None:
        listen(Event(job.number, "batch", line, batches))

    try:
        with CellFolder(job.folder, job.cell) as folder:
            try:
                yield from pausing_cell(job.cell, folder, settings, tell, stopping)
            except Exception as error:
                folder.fail(reason_of(error), traceback.format_exc())
                raise
    except Exception as error:
        listen(Event(job.number, "failed", reason=reason_of(error)))
    except Stopped:
        stopped.append(job)
    else:
        listen(Event(job.number, "done"))


def reason_of(error: BaseException) -> str:
    """One line for the user."""
    return str(error) if isinstance(error, PrimavistaError) else f"{type(error).__name__}: {error}"
