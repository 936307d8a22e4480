"""Runs the cells of a plan side by side on one GPU, each in its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from primavista.bench.cell import (
    CellJob,
    CellRun,
    Interrupted,
    OnEvent,
    RunSettings,
    cell_folder,
    check_device,
    ignore,
    never,
    report_outcome,
    torch_settings,
)
from primavista.bench.evaluate import TestSchedule, TestSet
from primavista.bench.stacked import StackedRun, advance
from primavista.strategies.registry import strategy_info

LARGEST_STACK = 10  # runs


def stack(jobs: Sequence[CellJob], largest: int = LARGEST_STACK) -> list[CellJob]:
    """Return the first job and those that gain by running side by side with it.

    These are other runs of the same cell, on a GPU. Stacks round differently from single runs, so
    deterministic cells run alone.

    Args:
        jobs: the jobs that wait, at least one.
        largest: how many jobs a stack has at most.
    """
    first = jobs[0].cell
    stackable = strategy_info(first.strategy).stackable
    if first.device != "cuda" or first.deterministic or not stackable:
        return list(jobs[:1])

    def is_alike(job: CellJob) -> bool:
        return job.cell.model_copy(update={"run": first.run, "seed": first.seed}) == first

    return [job for job in jobs if is_alike(job)][:largest]


def run_stacked(
    jobs: Sequence[CellJob],
    settings: RunSettings,
    on_event: OnEvent = ignore,
    should_stop: Callable[[], bool] = never,
) -> None:
    """Run cells side by side, each in its folder; see `run_cell`.

    A cell that fails leaves the others alone. If `should_stop` asks for it, each cell writes a
    checkpoint after its next batch.

    Args:
        jobs: cells that `stack` chose.
        settings: how cells are run.
        on_event: called with every event of every job.
        should_stop: asked after every batch of every job.

    Raises:
        Interrupted: if a cell was stopped.
    """
    with torch_settings(jobs[0].cell):
        cells = [StackedCell(job, settings, on_event, should_stop) for job in jobs]
        active = [cell for cell in cells if cell.open()]
        while active:
            advance([cell.run for cell in active])
            active = [cell for cell in active if cell.record()]
    if any(cell.interrupted for cell in cells):
        raise Interrupted


class StackedCell:
    """A cell among those that run side by side.

    Args:
        job: the cell and its folder.
        settings: how cells are run.
        on_event: called with every event.
        should_stop: asked after every batch.
    """

    run: StackedRun

    def __init__(
        self,
        job: CellJob,
        settings: RunSettings,
        on_event: OnEvent,
        should_stop: Callable[[], bool],
    ) -> None:
        self.interrupted = False
        self._job = job
        self._settings = settings
        self._on_event = on_event
        self._should_stop = should_stop
        self._contexts = ExitStack()
        self._cell: CellRun | None = None

    def open(self) -> bool:
        """Open the folder, the data and the checkpoint; return whether batches are left."""
        job = self._job
        self._contexts.enter_context(report_outcome(job, self._on_event))
        try:
            folder = self._contexts.enter_context(cell_folder(job))
            if folder.done:
                return self._close()
            check_device(job.cell)
            settings, on_event, should_stop = self._settings, self._on_event, self._should_stop
            cell = CellRun(job, folder, settings, on_event, should_stop, alone=False)
        except Exception as error:
            return self._close(error)
        schedule = TestSchedule(len(cell.stream), job.cell.test_every)
        test_set = TestSet(cell.stream, job.cell.test_thin, cell.features)
        self._cell = cell
        self.run = StackedRun(
            cell.strategy, cell.stream, schedule, test_set, cell.start, cell.tally
        )
        return True

    def record(self) -> bool:
        """Write the last batch to the folder; return whether there is another one to learn."""
        assert self._cell is not None
        try:
            self._cell.record(self.run.next_step())
            if self.run.done:
                self._cell.finish()
        except Interrupted as stop:
            self.interrupted = True
            return self._close(stop)
        except Exception as error:
            return self._close(error)
        return self._close() if self.run.done else True

    def _close(self, error: BaseException | None = None) -> bool:
        """Leave the contexts as a `with` statement would; return False, for there is no more."""
        if error is None:
            self._contexts.close()
        else:
            self._contexts.__exit__(type(error), error, error.__traceback__)
        return False
