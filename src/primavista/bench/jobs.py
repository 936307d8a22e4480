"""What executors do: jobs go in, events come out."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from primavista.bench.cell import Cell, Settings, run_cell
from primavista.bench.results import CellFolder
from primavista.errors import PrimavistaError


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


def attempt(job: Job, settings: Settings, listen: Listener, stopping: Callable[[], bool] = lambda: False) -> None:
    """Run one job in this process; whatever error it meets becomes an event and, in its own folder, `failed.json`."""
    listen(Event(job.number, "start"))

    def tell(line: dict[str, Any], batches: int) -> None:
        listen(Event(job.number, "batch", line, batches))

    try:
        with CellFolder(job.folder, job.cell.model_dump()) as folder:
            try:
                run_cell(job.cell, folder, settings, tell, stopping)
            except Exception as error:
                folder.fail(reason_of(error), traceback.format_exc())
                raise
    except Exception as error:
        listen(Event(job.number, "failed", reason=reason_of(error)))
    else:
        listen(Event(job.number, "done"))


def reason_of(error: BaseException) -> str:
    """One line for the user."""
    return str(error) if isinstance(error, PrimavistaError) else f"{type(error).__name__}: {error}"
