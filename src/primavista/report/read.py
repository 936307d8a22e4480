"""Cells as they are on disk: finished, in progress, failed, or damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from primavista.backbones.spec import OWN_FUNCTIONS
from primavista.bench.data import Data, DataFacts, why_not_comparable
from primavista.bench.folder import (
    FAILED,
    PLAN,
    RUN,
    BatchMetrics,
    CellResult,
    read_folder_record,
    read_json,
    read_metrics,
    read_model,
    read_result,
)
from primavista.bench.identity import code_fingerprint, fingerprint_of
from primavista.bench.metrics import Measures
from primavista.bench.plan import Cell
from primavista.errors import FileError
from primavista.networks.base import NETWORKS
from primavista.storage.references import is_reference
from primavista.strategies.registry import names

CLAIM = "claim:"  # the names of groups that test a claim begin with it

Status = Literal["done", "in progress", "failed"]


@dataclass(frozen=True)
class FigureGroup:
    """A figure or a claim that cells were planned for.

    Args:
        name: The name of the plan's group, without `claim:`.
        title: Its title, which may be empty.
        claim: True if it tests a claim of the paper.
        number: Its number among the groups of the folder's plans.
    """

    name: str
    title: str = ""
    claim: bool = False
    number: int = 0


@dataclass(frozen=True, eq=False)
class StoredCell:
    """The content of a cell's folder.

    Args:
        path: The folder, relative to the folder of the results.
        cell: The cell, from `run.json`.
        steps: The lines of `metrics.jsonl` so far, one per batch.
        result: The content of `result.json`; None if the cell is not done.
        failure: The reason why the cell failed or its result could not be read.
        groups: The figures and claims that the cell was planned for.
        stale: The reason why the result no longer holds; None if it holds, or if that cannot be
            told.
    """

    path: str
    cell: Cell
    steps: tuple[BatchMetrics, ...] = ()
    result: CellResult | None = None
    failure: str | None = None
    groups: tuple[FigureGroup, ...] = ()
    stale: str | None = None

    @property
    def status(self) -> Status:
        """`done` if there is a result, `failed` if there is a reason for it."""
        if self.result is not None:
            return "done"
        return "failed" if self.failure is not None else "in progress"

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return self.cell.strategy

    @property
    def protocol(self) -> str:
        """The name of the protocol, such as `nicv2-391`."""
        return self.cell.protocol

    @property
    def run(self) -> int:
        """The number of the run."""
        return self.cell.run

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the strategy."""
        return self.cell.options

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The settings of the data set in full."""
        return self.cell.data.model_dump()

    @property
    def data_name(self) -> str:
        """The name of the data set."""
        return str(self.data.get("name", "?"))

    @property
    def facts(self) -> DataFacts | None:
        """The facts of the data that the result recorded."""
        return self.result.data if self.result else None

    @property
    def why_not_comparable(self) -> str:
        """The reason why its accuracy cannot be compared with the paper's; empty if it can."""
        return why_not_comparable(self.facts)

    @property
    def is_core50(self) -> bool:
        """True if the data is CORe50 or a part of it, under any name."""
        if self.facts is not None:
            return self.facts.core50 is not None
        return self.cell.data.kind == "core50"

    @property
    def order(self) -> str | None:
        """The origin of the order of batches, `official` or `generated`; None if not recorded."""
        return self.facts.order if self.facts else None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that all runs of a series share, beside the strategy."""
        backbone = self.cell.backbone.model_dump()
        return {
            **self.options,
            "precision": self.cell.precision,
            "engine": self.cell.engine,
            "test_thin": self.cell.test_thin,
            **{f"backbone {key}": value for key, value in backbone.items()},
        }

    @property
    def full_test(self) -> bool:
        """True if every frame of the test set is tested, False if a reduced set is."""
        if self.facts is not None and self.facts.core50 is not None:
            return self.facts.core50.test_set == "full" and self.facts.test_thin == 1
        if self.cell.data.kind == "core50":
            return self.data.get("test") == "full"
        return self.cell.test_thin == 1

    @property
    def test_frames(self) -> int | None:
        """The number of frames of each test, of a finished cell."""
        if self.facts is not None:
            return self.facts.test_frames
        confusion = self.result.confusion if self.result else None
        return sum(map(sum, confusion)) if confusion else None

    @property
    def varies_split(self) -> bool:
        """True if other runs of the cell have other test sessions."""
        return self.data.get("split") == "run"

    def curve(self, measure: str = "accuracy") -> dict[int, float]:
        """Return a measure after each batch that was tested."""
        pairs = ((step.batch, getattr(step.measures, measure)) for step in self.steps)
        return {batch: value for batch, value in pairs if value is not None}

    @property
    def reached(self) -> int:
        """The last batch learned so far."""
        return max((step.batch for step in self.steps), default=0)

    @property
    def batches(self) -> int | None:
        """The number of batches, from the result or else from the protocol's name, if known."""
        return self.result.batches if self.result else self.cell.batches

    def final(self, measure: str = "accuracy") -> float | None:
        """Return a measure after the last batch, or None if the cell is not done."""
        value: float | None = getattr(self.measures, measure)
        return value

    @property
    def measures(self) -> Measures:
        """The measures after the last batch; each is None if the cell is not done."""
        return self.result.final if self.result else Measures()


@dataclass(frozen=True)
class FolderResults:
    """The cells of a folder.

    Args:
        cells: Every cell that was begun, in the order of their paths.
        damaged: The reason for each folder whose `run.json` cannot be read.
        waiting: The number of cells of the folder's plans that were not begun.
        superseded: Cells that were run again; they are in no figure or table of results.
        title: The title of the plan, if the folder has one plan.
    """

    cells: list[StoredCell]
    damaged: dict[str, str] = field(default_factory=dict)
    waiting: int = 0
    superseded: list[StoredCell] = field(default_factory=list)
    title: str = ""

    @property
    def total(self) -> int:
        """The number of cells that were begun, damaged ones included."""
        return len(self.cells) + len(self.damaged)

    def count(self, status: Status) -> int:
        """Return the number of cells with a status."""
        return sum(cell.status == status for cell in self.cells)


def read_results(folder: Path) -> FolderResults:
    """Read every cell under a folder that `primavista bench run` wrote.

    Raises:
        FileError: If there is no such folder, or no cell in it.
    """
    if not folder.is_dir():
        raise FileError(
            f"there is no results folder {folder}: "
            "give the folder that `primavista bench run` wrote"
        )
    groups = _planned_groups(folder)
    staleness = _staleness_now()
    cells: list[StoredCell] = []
    damaged: dict[str, str] = {}
    for place in sorted(run.parent for run in folder.rglob(RUN)):
        path = place.relative_to(folder).as_posix()
        own = groups.pop(place, ())
        try:
            cell = _read_stored(place, path, own)
        except FileError as error:
            damaged[path] = str(error)
            continue
        cells.append(replace(cell, stale=staleness(cell.cell)))
    if not cells and not damaged:
        raise FileError(
            f"there are no results in {folder}: no folder in it holds a run.json. "
            "Run `primavista bench run` first"
        )
    kept, superseded = _latest(cells, folder)
    return FolderResults(kept, damaged, len(groups), superseded, _plan_title(folder))


def _read_stored(place: Path, path: str, groups: tuple[FigureGroup, ...]) -> StoredCell:
    """Read a cell; one whose result is damaged counts as failed."""
    cell = read_model(place / RUN, Cell)
    assert cell is not None  # the folder was found by this file
    metrics: tuple[BatchMetrics, ...] = ()
    result, failure = None, None
    try:
        result = read_result(place)
        metrics = tuple(read_metrics(place))
        failed = None if result is not None else read_json(place / FAILED)
        if failed is not None:
            failure = str(failed.get("reason") or "no reason was given")
    except (FileError, OSError, AttributeError) as error:
        failure = str(error)
    return StoredCell(path, cell, metrics, result, failure, groups)


def _latest(cells: Sequence[StoredCell], folder: Path) -> tuple[list[StoredCell], list[StoredCell]]:
    """Divide cells into those that count and those that were run again with other code or data.

    Among cells with equal settings, one that is not stale counts, then the one started last.
    """

    def rank(one: StoredCell) -> tuple[bool, int]:
        return one.stale is None, (folder / one.path / RUN).stat().st_mtime_ns

    latest = {one.cell.question: one for one in sorted(cells, key=rank)}
    again = "it was run again with other code or data"
    kept, old = [], []
    for one in cells:
        if latest[one.cell.question] is one:
            kept.append(one)
        else:
            old.append(replace(one, stale=one.stale or again))
    return kept, old


def _staleness_now() -> Callable[[Cell], str | None]:
    """Return a function that says why a cell is stale; None if it is not, or does not tell.

    The identities of code and data as they are now are each computed once. Code that is not
    registered and data of another machine cannot be checked.
    """
    code_now = cache(code_fingerprint)

    @cache
    def data_now(data: Data) -> str | None:
        try:
            return fingerprint_of(data)
        except FileError:
            return None

    def staleness(cell: Cell) -> str | None:
        strategy, backbone, protocol = cell.own_names
        known = strategy in names() and backbone in {*NETWORKS, *OWN_FUNCTIONS}
        known = known and (protocol in OWN_FUNCTIONS or not is_reference(protocol))
        if cell.code and known and code_now(*cell.own_names) != cell.code:
            return "the code that computes it has changed"
        if cell.data_sha256 and data_now(cell.data) not in (None, cell.data_sha256):
            return "its data has changed"
        return None

    return staleness


def _plan_title(folder: Path) -> str:
    try:
        record = read_folder_record(folder)
    except FileError:
        return ""
    plans = list(record.plans.values()) if record else []
    return str(plans[0].get("title", "")) if len(plans) == 1 else ""


def _planned_groups(folder: Path) -> dict[Path, tuple[FigureGroup, ...]]:
    """Return the groups of each planned cell, from every `plan.json` that can be read."""
    found: dict[Path, tuple[FigureGroup, ...]] = {}
    for place in sorted(plan.parent for plan in folder.rglob(PLAN)):
        try:
            record = read_folder_record(place)
        except FileError:
            continue
        for number, group in enumerate(record.groups if record else ()):
            name, is_claim = group.name.removeprefix(CLAIM).strip(), group.name.startswith(CLAIM)
            figure_group = FigureGroup(name, group.title, is_claim, number)
            for cell in group.cells:
                found[place / cell] = (*found.get(place / cell, ()), figure_group)
    return found
