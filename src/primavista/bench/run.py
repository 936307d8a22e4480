"""Running a plan: the folders of its cells, the state of each, and the time that is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, TypeAlias, get_args

import torch

from primavista.bench.cell import CellEvent, CellJob, OnEvent, RunSettings, cell_stream
from primavista.bench.data import Data, open_cell_data, split_of
from primavista.bench.folder import (
    FAILED,
    LOCK,
    RUN,
    TIMES,
    TIMINGS,
    CellStatus,
    cell_status,
    claim_folder,
    make_folder,
    read_folder_record,
    read_json,
    read_lines,
    read_model,
    read_result,
)
from primavista.bench.metrics import learned_little
from primavista.bench.plan import Cell, Plan, PlannedCell
from primavista.errors import FileError, InputError
from primavista.progress import Progress
from primavista.storage.disk import FileLock, check_inside
from primavista.strategies.registry import registered
from primavista.streams.dataset import DataSet
from primavista.streams.rendered.dataset import rendered

DATA_CACHE = "data"  # the folder of rendered data, inside that of the results


@dataclass
class CellState:
    """The progress of one cell of a plan, which begins with what its folder tells.

    Args:
        planned: The cell.
        path: Its folder, which need not exist.
        status: The status of its folder, or that of its last event since.
        batch: The last batch that it has learned.
        batches: How many batches it has; None if that is not known yet.
        accuracy: The last accuracy, in percent.
        learning: The learning accuracy at the end, in percent; None before it.
        reason: Why it failed, or was restarted.
        seconds: The time spent on its batches.
        began: When its batch at hand began, on the monotonic clock.
    """

    planned: PlannedCell
    path: Path
    status: CellStatus = "waiting"
    batch: int = 0
    batches: int | None = None
    accuracy: float | None = None
    learning: float | None = None
    reason: str = ""
    seconds: float = 0.0
    began: float | None = None

    def __post_init__(self) -> None:
        self.status = cell_status(self.path)
        self.read()

    def update(self, event: CellEvent) -> None:
        """Follow an event of the cell.

        Args:
            event: The event.
        """
        if event.kind == "batch":
            now = time.monotonic()
            self.batch, self.batches = event.line["batch"], event.batches
            self.seconds += 0.0 if self.began is None else now - self.began
            self.began = now
            accuracy = event.line["measures"]["accuracy"]
            self.accuracy = self.accuracy if accuracy is None else accuracy
        elif event.kind == "done":
            self.status = "done"
            self.read()
        elif event.kind == "failed":
            self.status, self.reason = "failed", event.reason
        elif event.kind in ("start", "restarted"):
            self.status, self.reason, self.began = "running", event.reason, time.monotonic()

    def read(self) -> None:
        """Read how far the cell is from its folder, which need not exist.

        If a file of the cell is damaged, the cell has failed, and the others go on.
        """
        try:
            result = read_result(self.path)
            failed = read_json(self.path / FAILED) if self.status == "failed" else None
        except FileError as error:
            self.status, self.reason = "failed", str(error)
            return
        lines = read_lines(self.path / TIMINGS)
        self.batch = len(lines)
        self.seconds = sum(sum(_seconds(line)) for line in lines)
        self.batches = self.planned.cell.batches
        if result is not None:
            self.batches, self.accuracy = result.batches, result.final.accuracy
            self.learning = result.final.learning_accuracy
        if isinstance(failed, dict):
            self.reason = str(failed.get("reason", ""))


OnCellEvent: TypeAlias = Callable[[CellState, CellEvent], None]


class Executor(Protocol):
    """Something that runs jobs, in any order and anywhere."""

    def run(self, jobs: Sequence[CellJob], settings: RunSettings, on_event: OnEvent) -> None:
        """Run every job; one that fails does not stop the others.

        Args:
            jobs: The jobs.
            settings: How cells are run.
            on_event: Called with every event of every job, in the calling thread.

        Raises:
            KeyboardInterrupt: If the user stopped it; each running job has written a checkpoint.
        """


@dataclass
class Suite:
    """The cells of a plan and their folders.

    Args:
        plan: The plan.
        out: The folder of the results.
        groups: The names of the groups to run; all if there are none.
        settings: How cells are run; by default rendered data goes into `out`.
        progress: Called with (done, total) in bytes while files of the data are read for the first
            time, for their fingerprint.

    Raises:
        InputError: If the plan has no such group, or if a folder holds another cell.
    """

    plan: Plan
    out: Path
    groups: Sequence[str] = ()
    settings: RunSettings | None = None
    progress: InitVar[Progress | None] = None
    states: list[CellState] = field(init=False)

    def __post_init__(self, progress: Progress | None) -> None:
        names = [group.name for group in self.plan.groups]
        if unknown := sorted(set(self.groups) - set(names)):
            raise InputError(
                f"the plan {self.plan.name!r} has no group {', '.join(unknown)}: "
                f"it has {', '.join(names)}"
            )
        self.out = self.out.expanduser().absolute()  # other nodes have other working folders
        wanted = set(self.groups) or set(names)
        self.settings = self.settings or RunSettings(self.out / DATA_CACHE)
        self._planned = self.plan.planned(progress)
        planned = [cell for cell in self._planned if wanted & set(cell.groups)]
        self.states = [CellState(cell, self.out / cell.folder) for cell in planned]

    def run(
        self,
        executor: Executor,
        on_event: OnCellEvent = lambda state, event: None,
        progress: Progress | None = None,
    ) -> list[CellState]:
        """Run the cells that are not done yet.

        Args:
            executor: The executor.
            on_event: Called with every event and the state of its cell after it.
            progress: Called while frames are rendered, with their number and total.

        Returns:
            The cells that failed.

        Raises:
            InputError: If something is wrong with the plan; it is found before the first cell runs.
            KeyboardInterrupt: If the user stopped it; the same call resumes.
        """
        assert self.settings is not None
        self.settings = replace(self.settings, registered=self._registered())
        make_folder(self.out)
        with FileLock(self.out / LOCK):
            claim_folder(self.out, self.plan, self._planned)
            if any(state.status != "done" for state in self.states):
                self._prepare(self.settings, progress)
            jobs = self._jobs()

            def handle(event: CellEvent) -> None:
                state = self.states[event.job]
                state.update(event)
                on_event(state, event)

            executor.run(jobs, self.settings, handle)
        return [state for state in self.states if state.status == "failed"]

    def _registered(self) -> dict[str, str]:
        """Return the references of the code of the user's own that the cells need."""
        needed = {name for state in self.states for name in state.planned.cell.own_names}
        return {name: where for name, where in registered().items() if name in needed}

    def _jobs(self) -> list[CellJob]:
        jobs = []
        for number, state in enumerate(self.states):
            if state.status != "done":
                state.status, state.reason = "waiting", ""
                jobs.append(CellJob(number, state.planned.cell, state.path))
        return jobs

    def _prepare(self, settings: RunSettings, progress: Progress | None) -> None:
        """Open the data and build the streams and the backbone, before the first cell begins.

        An error in the plan is found here, and data is drawn once for all cells. Each cell opens
        and builds its own, perhaps in another process; only the lengths of the streams are kept.
        """
        opened: dict[tuple[Data, int], DataSet] = {}
        lengths: dict[tuple[Data, str, int], int] = {}
        for state in self.states:
            cell = state.planned.cell
            split = split_of(cell.data, cell.run)
            data = opened.get((cell.data, split))
            if data is None:
                data = _open_first(cell.data, settings.cache, cell.device, progress, split)
                self.plan.backbone.build(data.frames)
                opened[cell.data, split] = data
            stream = cell.data, cell.protocol, cell.run
            if stream not in lengths:
                lengths[stream] = len(cell_stream(cell, data))
            state.batches = lengths[stream]


def _open_first(
    data: Data, cache: Path, device: str, progress: Progress | None, split: int
) -> DataSet:
    if data.kind == "rendered" and device == "cuda" and not torch.cuda.is_available():
        return rendered(data.scene)  # a driver without a GPU: the nodes of its cluster draw
    return open_cell_data(data, cache, device, None, progress, resident=False, split=split)


def recorded_states(out: Path, plan: str) -> list[CellState]:
    """Return the states of the cells of a plan that were begun, from the files of a folder alone.

    Args:
        out: The folder of the results.
        plan: The name of the plan, whose code need not be registered.

    Raises:
        FileError: If a file is damaged, or leads out of the folder.
    """
    record = read_folder_record(out)
    groups: dict[str, list[str]] = {}
    for group in record.groups if record else ():
        for folder in group.cells if group.plan == plan else ():
            groups.setdefault(folder, []).append(group.name)
    states = []
    for folder, names in groups.items():
        check_inside(out, out / folder)
        if cell := read_model(out / folder / RUN, Cell):
            states.append(CellState(PlannedCell(cell, folder, folder, names), out / folder))
    return states


def learning_warnings(states: Iterable[CellState]) -> list[str]:
    """Say which strategies learned little of what they were taught, compared with the others.

    Args:
        states: The states of cells; those that are not done have no influence.
    """
    found: dict[tuple[str, Data], dict[str, list[float]]] = {}
    for state in states:
        cell = state.planned.cell
        if state.learning is not None:
            rivals = found.setdefault((cell.protocol, cell.data), {})
            rivals.setdefault(cell.series, []).append(state.learning)
    warnings = []
    for runs in found.values():
        means = {name: fmean(values) for name, values in runs.items()}
        best = max(means, key=lambda name: means[name])
        warnings += [
            f"{name} learned little: {means[name]:.1f} % right on the classes of a batch that it "
            f"has just learned, where {best} has {means[best]:.1f} %. "
            "`primavista bench tune` chooses hyperparameters"
            for name in learned_little(means)
        ]
    return warnings


def counts(states: Iterable[CellState]) -> dict[str, int]:
    """Count the cells by status: done, running, failed, stopped and waiting."""
    found = Counter(state.status for state in states)
    return {status: found[status] for status in get_args(CellStatus)}


def seconds_left(states: Sequence[CellState], at_once: int) -> float | None:
    """Estimate the time that is left from the batches so far.

    A strategy that has not run yet is estimated by the mean of those that have. A cell whose number
    of batches is not known yet has as many as the longest known one.

    Args:
        states: The cells.
        at_once: How many cells run side by side.

    Returns:
        Seconds; None if no batch has been learned yet, or nothing tells how many are left.
    """
    rates: dict[str, list[float]] = {}
    for state in states:
        if state.batch:
            rates.setdefault(state.planned.cell.strategy, []).append(state.seconds / state.batch)
    longest = max((state.batches or 0 for state in states), default=0)
    if not rates or not longest:
        return None
    mean = {name: fmean(values) for name, values in rates.items()}
    usual = fmean(mean.values())
    left = []
    for state in states:
        if state.status not in ("done", "failed"):
            rate = mean.get(state.planned.cell.strategy, usual)
            left.append(max((state.batches or longest) - state.batch, 0) * rate)
    return max(sum(left) / max(1, at_once), max(left, default=0.0))


def _seconds(timings: Mapping[str, Any]) -> list[float]:
    """Return the times in a line of `timings.jsonl`."""
    return [timings[name] for name in TIMES if isinstance(timings.get(name), int | float)]
