"""A plan is run: its cells' folders, what has become of each, and how long the rest will take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from primavista.backbones.registry import build
from primavista.bench.cell import Settings, make_stream
from primavista.bench.data import open_data
from primavista.bench.folder import (
    FAILED,
    LOCK,
    RESULT,
    RUN,
    TIMINGS,
    cell_status,
    claim_folder,
    read_json,
    read_lines,
)
from primavista.bench.jobs import Event, Executor, Job
from primavista.bench.plan import Plan, PlannedCell
from primavista.bench.trackers import Logger
from primavista.errors import CHOOSE_FOLDER, InputError, file_errors
from primavista.frames import read_frames
from primavista.storage.lock import FileLock
from primavista.streams.rendered.dataset import rendered

CACHE = "data"
# what a batch costs beside AR1*'s, for strategies that have not run yet
COSTS = {
    "ewc": 0.75,
    "lwf": 0.6,
    "naive": 0.5,
    "prima": 0.15,
    "cwr*": 0.1,
    "cwr+": 0.1,
    "ridge": 0.06,
    "dslda": 0.05,
    "lda": 0.05,
    "ncm": 0.04,
}


@dataclass
class State:
    """How far a cell is."""

    planned: PlannedCell
    path: Path
    status: str  # done, running, failed, stopped, waiting
    batch: int = 0
    batches: int | None = None
    accuracy: float | None = None
    reason: str = ""
    seconds: float = 0.0  # spent on the batches so far
    began: float | None = None  # of this sitting, on the monotonic clock

    @property
    def left(self) -> int | None:
        """How many batches are left."""
        return (
            0
            if self.status == "done"
            else None
            if self.batches is None
            else self.batches - self.batch
        )


@dataclass
class Suite:
    """The cells of a plan and their folders under `out`; `groups` are those to be run, all if none."""

    plan: Plan
    out: Path
    groups: Sequence[str] = ()
    settings: Settings | None = None
    states: list[State] = field(init=False)

    def __post_init__(self) -> None:
        if strange := sorted(set(self.groups) - {group.name for group in self.plan.groups}):
            there = ", ".join(group.name for group in self.plan.groups)
            raise InputError(
                f"the plan {self.plan.name!r} has no group {', '.join(strange)}: it has {there}"
            )
        self.out = self.out.expanduser().absolute()  # other nodes have other working folders
        wanted = set(self.groups) or {group.name for group in self.plan.groups}
        self.settings = self.settings or Settings(self.out / CACHE)
        self.states = [_look(p, self.out) for p in self.plan.planned() if wanted & set(p.groups)]

    def run(
        self,
        executor: Executor,
        listen: Callable[[State, Event], None] = lambda state, event: None,
        loggers: Sequence[Logger] = (),
        drawing: Callable[[int, int], None] | None = None,
    ) -> list[State]:
        """Run what is not done yet. Returns the cells that failed; KeyboardInterrupt leaves everything ready to go on."""
        assert self.settings is not None
        with file_errors("make", self.out, CHOOSE_FOLDER):
            self.out.mkdir(parents=True, exist_ok=True)
        with FileLock(self.out / LOCK):
            claim_folder(self.out, self.plan, self.plan.planned())
            todo = [number for number, state in enumerate(self.states) if state.status != "done"]
            if todo:
                self._check(drawing)
            for number in todo:
                self.states[number].status, self.states[number].reason = "waiting", ""
            jobs = [Job(n, self.states[n].planned.cell, self.states[n].path) for n in todo]

            def hear(event: Event) -> None:
                state = self.states[event.job]
                _update(state, event)
                for logger in loggers:
                    _log(logger, state, event)
                listen(state, event)

            try:
                executor.run(jobs, self.settings, hear)
            finally:
                for logger in loggers:
                    logger.close()
        return [state for state in self.states if state.status == "failed"]

    def _check(self, drawing: Callable[[int, int], None] | None) -> None:
        """Everything that could be wrong with the plan is found before the first cell begins."""
        assert self.settings is not None
        cells = [state.planned.cell for state in self.states]
        for data in {cell.data: None for cell in cells}:
            if (
                data.kind == "rendered"
                and cells[0].device == "cuda"
                and not torch.cuda.is_available()
            ):
                opened = rendered(
                    data.scene
                )  # a driver without a GPU: the nodes of its cluster draw
            else:
                opened = open_data(
                    data, self.settings.cache, cells[0].device, None, drawing, resident=False
                )
            for cell in {(c.protocol, c.run, c.limit): c for c in cells if c.data == data}.values():
                stream = make_stream(cell, opened)
                for state in self.states:
                    own = state.planned.cell
                    if (own.data, own.protocol, own.run) == (data, cell.protocol, cell.run):
                        state.batches = len(stream)
            size = int(read_frames(opened.frames, torch.tensor([0]), torch.device("cpu")).shape[1])
            spec = self.plan.backbone
            options: dict[str, Any] = dict(spec.options)
            build(spec.name, spec.weights, size=size, seed=spec.seed, **options)


def counts(states: Iterable[State]) -> dict[str, int]:
    """How many cells are done, running, failed, stopped and waiting."""
    found = dict.fromkeys(("done", "running", "failed", "stopped", "waiting"), 0)
    for state in states:
        found[state.status] += 1
    return found


def seconds_left(states: Sequence[State], at_once: int) -> float | None:
    """What is left, by the time that batches of the same strategy took so far, `at_once` cells side by side."""
    rates: dict[str, list[float]] = {}
    for state in states:
        if state.batch:
            rates.setdefault(state.planned.cell.strategy, []).append(state.seconds / state.batch)
    if not rates:
        return None
    mean = {name: sum(values) / len(values) for name, values in rates.items()}
    usual = sum(rate / COSTS.get(name, 1.0) for name, rate in mean.items()) / len(mean)
    lefts = [
        (state.left or 0)
        * mean.get(name := state.planned.cell.strategy, usual * COSTS.get(name, 1.0))
        for state in states
        if state.status not in ("done", "failed")
    ]
    return max(sum(lefts) / max(1, at_once), max(lefts, default=0.0))


def _look(planned: PlannedCell, out: Path) -> State:
    path = out / planned.folder
    state = State(planned, path, cell_status(path))
    result = read_json(path / RESULT)
    lines = read_lines(path / TIMINGS)
    state.batch, state.seconds = (
        len(lines),
        sum(line["learn_seconds"] + line["test_seconds"] for line in lines),
    )
    if result is not None:
        if read_json(path / RUN) != planned.cell.model_dump(mode="json"):
            raise InputError(
                f"{path} holds the results of another cell: choose another folder, or delete it"
            )
        state.batches, state.accuracy = result["batches"], result["final"]["accuracy"]
    elif match := re.search(r"-(\d+)$", planned.cell.protocol):
        state.batches = min(int(match[1]), planned.cell.limit or int(match[1]))
    if state.status == "failed":
        state.reason = (read_json(path / FAILED) or {}).get("reason", "")
    return state


def _update(state: State, event: Event) -> None:
    now = time.monotonic()
    if event.kind in ("start", "again"):
        state.status, state.began, state.reason = "running", now, event.reason
    elif event.kind == "batch":
        state.batch, state.batches = event.line["batch"], event.batches
        if state.began is not None:
            state.seconds += now - state.began
        state.began = now
        if event.line["accuracy"] is not None:
            state.accuracy = event.line["accuracy"]
    elif event.kind == "done":
        done = _look(state.planned, _out(state))
        state.status, state.batch, state.accuracy, state.batches = (
            "done",
            done.batch,
            done.accuracy,
            done.batches,
        )
    else:
        state.status, state.reason = "failed", event.reason


def _out(state: State) -> Path:
    return state.path.parents[state.planned.folder.count("/")]


def _log(logger: Logger, state: State, event: Event) -> None:
    name = state.planned.folder
    if event.kind == "start":
        logger.start(name, state.planned.cell.model_dump(mode="json"))
    elif event.kind == "batch":
        logger.log(name, event.line)
    elif event.kind in ("done", "failed"):
        logger.finish(name, read_json(state.path / RESULT) if event.kind == "done" else None)
