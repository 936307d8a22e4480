"""Cells as they are on disk: finished, in progress, failed, or damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from primavista.backbones.spec import OWN_NETWORKS
from primavista.bench.data import CORe50Comparison, compare_with_core50
from primavista.bench.folder import (
    FAILED,
    FORMATS,
    PLAN,
    RESULT,
    RUN,
    BatchMetrics,
    CellResult,
    FinalMetrics,
    GroupRecord,
    read_folder_record,
    read_json,
    read_metrics,
)
from primavista.bench.identity import code_fingerprint, fingerprint_of
from primavista.bench.metrics import Tally
from primavista.bench.plan import Cell, batches_in_name
from primavista.errors import FileError
from primavista.networks.base import NETWORKS
from primavista.strategies.registry import names, rules_of_version_0_1

CLAIM = "claim:"  # the names of groups that test a claim begin with it
CLAIMS = "claims"  # the plan in which every group tests a claim, if it is not for a figure
FOR_A_FIGURE = ("fig:", "tab:")
# Values of required fields that a damaged or foreign file lacks.
CELL_DEFAULTS: Mapping[str, Any] = {
    "strategy": "?",
    "options": {},
    "protocol": "?",
    "run": 0,
    "data": {"kind": "folder", "name": "?", "path": "?"},
    "backbone": {"name": "?"},
    "seed": 0,
}
RESULT_DEFAULTS: Mapping[str, Any] = {"batches": 0}

Json = dict[str, Any]
Status = Literal["done", "in progress", "failed"]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class FigureGroup:
    """A figure or a claim that cells were planned for.

    Args:
        name: the name of the plan's group, without `claim:`.
        title: its title, which may be empty.
        claim: whether it tests a claim of the paper.
        number: its number among the groups of the folder's plans.
    """

    name: str
    title: str = ""
    claim: bool = False
    number: int = 0


@dataclass(frozen=True, eq=False)
class StoredCell:
    """The content of a cell's folder.

    Args:
        path: the folder, relative to the folder of the results.
        cell: the cell as `run.json` describes it; None if that file cannot be read.
        foreign: the fields of `run.json` that are not valid in this version, as they are there;
            `cell` has a default in their place.
        steps: the lines of `metrics.jsonl` so far, one per batch.
        result: the content of `result.json`; None if the cell is not done.
        failure: the reason why the cell failed or could not be read.
        groups: the figures and claims that the cell was planned for.
        stale: why the result no longer holds: its code or its data has changed; None if it holds,
            or if that cannot be told.
    """

    path: str
    cell: Cell | None = None
    foreign: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[BatchMetrics, ...] = ()
    result: CellResult | None = None
    failure: str | None = None
    groups: tuple[FigureGroup, ...] = ()
    stale: str | None = None

    @property
    def readable(self) -> bool:
        """True if `run.json` could be read."""
        return self.cell is not None

    @property
    def valid_cell(self) -> Cell | None:
        """The cell, if every field of it is as `run.json` has it."""
        return None if self.foreign.keys() & Cell.model_fields.keys() else self.cell

    @property
    def status(self) -> Status:
        """`done` if there is a result, `failed` if there is a reason for it."""
        if self.result is not None:
            return "done"
        return "failed" if self.failure is not None else "in progress"

    @property
    def strategy(self) -> str:
        """The name of the strategy, or `?`."""
        return self.cell.strategy if self.cell else "?"

    @property
    def protocol(self) -> str:
        """The name of the protocol, such as `nicv2-391`, or `?`."""
        return self.cell.protocol if self.cell else "?"

    @property
    def run(self) -> int:
        """The number of the run."""
        return self.cell.run if self.cell else 0

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The options of the strategy; those that version 0.1 did not have, as it learned."""
        stored = self.stored_options
        return {**stored, **rules_of_version_0_1(self.strategy, stored)}

    @property
    def stored_options(self) -> Mapping[str, Any]:
        """The options of the strategy as `run.json` has them, under their present names."""
        return self._field("options")

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The settings of the data set in full."""
        return self._field("data")

    @property
    def data_name(self) -> str:
        """The name of the data set."""
        return str(self.data.get("name", "?"))

    @property
    def comparison(self) -> CORe50Comparison:
        """The comparison with the paper's accuracies that the recorded data allows."""
        return compare_with_core50(self.result.data if self.result else None)

    @property
    def is_core50(self) -> bool:
        """True if the data is CORe50 or a part of it, under any name."""
        facts = self.result.data if self.result else None
        if facts is not None:
            return facts.core50 is not None
        return self.data.get("kind") == "core50"

    @property
    def order(self) -> str | None:
        """The origin of the order of batches, `official` or `generated`; None if not recorded."""
        if self.result is None:
            return None
        if self.result.data is not None:
            return self.result.data.order
        if self.result.order is None:
            return None
        return "generated" if self.result.order == "generated" else "official"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that all runs of a series share, beside strategy and label."""
        if self.cell is None:
            return {}
        backbone = self._field("backbone")
        return {
            **self.options,
            "precision": self.cell.precision,
            "engine": self.cell.engine,
            "test_thin": self.cell.test_thin,
            **{f"backbone {key}": value for key, value in backbone.items()},
        }

    @property
    def label(self) -> str | None:
        """The name of its curve, if `run.json` gives one."""
        label = self.foreign.get("label")
        return str(label) if label else None

    @property
    def test_thin(self) -> int | None:
        """The thinning of the test: one frame in `test_thin` of each test session is tested."""
        return self.cell.test_thin if self.cell else None

    @property
    def full_test(self) -> bool:
        """True if every frame of the test set is tested, False if a reduced set is."""
        facts = self.result.data if self.result else None
        if facts is not None and facts.core50 is not None:
            return facts.core50.test_set == "full" and facts.test_thin == 1
        if self.data.get("kind") == "core50":
            return self.data.get("test") == "full"
        return self.test_thin == 1

    @property
    def retrain(self) -> int | None:
        """The number of retrainings of Cumulative or GDumb, if the plan says it."""
        return self.cell.retrain if self.cell else None

    @property
    def tuned_on_run(self) -> int | None:
        """The run on which the hyperparameters were chosen, if the plan named one.

        Format 1 always named run 0, so its value says nothing.
        """
        if self.cell is None or self.cell.format == 1:
            return None
        return self.cell.hyperparameters_chosen_on_run

    @property
    def records_identity(self) -> bool:
        """True if the cell records its code, so that a change of it is noticed."""
        return self.cell is not None and self.cell.code is not None

    @property
    def test_frames(self) -> int | None:
        """The number of frames of each test, of a finished cell."""
        if self.result is None:
            return None
        if self.result.data is not None:
            return self.result.data.test_frames
        return sum(map(sum, self.result.confusion)) if self.result.confusion else None

    @property
    def varies_split(self) -> bool:
        """True if other runs of the cell have other test sessions."""
        return self.data.get("split") == "run"

    @property
    def limited(self) -> bool:
        """True if only the first batches of the stream are learned."""
        return self.cell is not None and self.cell.limit is not None

    @cached_property
    def curve(self) -> dict[int, float]:
        """The accuracy in percent after each batch that was tested."""
        return {step.batch: step.accuracy for step in self.steps if step.accuracy is not None}

    @property
    def reached(self) -> int:
        """The last batch learned so far."""
        return max((step.batch for step in self.steps), default=0)

    @property
    def batches(self) -> int | None:
        """The number of batches, from the result or else from the protocol's name, if known."""
        if self.result and self.result.batches:
            return self.result.batches
        batches = batches_in_name(self.protocol)
        limit = self.cell.limit if self.cell else None
        return batches if limit is None else min(limit, batches or limit)

    def final(self, metric: str = "accuracy") -> float | None:
        """Return a metric after the last batch, or None if the cell is not done.

        Args:
            metric: a field of `FinalMetrics`.
        """
        value: float | None = getattr(self.measures, metric) if self.measures else None
        return value

    @cached_property
    def measures(self) -> FinalMetrics | None:
        """The measures after the last batch, all as `bench.metrics` defines them now.

        Those of a result of format 1 are computed from its accuracies by class.
        """
        if self.result is None or self.result.format > 1:
            return self.result.final if self.result else None
        return _measured_again(self.steps, self.result)

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that finished the cell and how it was used; empty if it is not known."""
        if self.cell is None or self.result is None or not self.result.machine:
            return {}
        names = {"device", "threads", "precision", "engine"} & self.cell.model_fields_set
        return {**self.result.machine, **self.cell.model_dump(include=names)}

    def _field(self, name: str) -> Mapping[str, Any]:
        """Return a field of the cell as a mapping, from the file itself if it is foreign."""
        if name in self.foreign:
            value = self.foreign[name]
            return value if isinstance(value, dict) else {"name": str(value or "?")}
        value = getattr(self.cell, name, {})
        return value.model_dump() if isinstance(value, BaseModel) else value


@dataclass(frozen=True)
class FolderResults:
    """The cells of a folder.

    Args:
        cells: every cell that was begun, in the order of their paths.
        waiting: how many cells of the folder's plans were not begun.
        superseded: stale cells that were run again; they are in no figure or table of results.
        title: the title of the plan, if the folder has one plan.
    """

    cells: list[StoredCell]
    waiting: int = 0
    superseded: list[StoredCell] = field(default_factory=list)
    title: str = ""


def read_results(folder: Path) -> FolderResults:
    """Read every cell under a folder; a damaged one counts as failed, with the reason.

    Args:
        folder: a folder that `primavista bench run` wrote.

    Raises:
        FileError: there is no such folder, or no cell in it.
    """
    if not folder.is_dir():
        raise FileError(
            f"there is no results folder {folder}: "
            "give the folder that `primavista bench run` wrote"
        )
    groups = _planned_groups(folder)
    now = _Fingerprints()
    cells = []
    for place in sorted(_folders_with(RUN, folder)):
        path = place.relative_to(folder).as_posix()
        cell = _read_stored(place, path, groups.pop(place, ()))
        cells.append(replace(cell, stale=now.staleness(cell)))
    if not cells:
        raise FileError(
            f"there are no results in {folder}: no folder in it holds a run.json. "
            "Run `primavista bench run` first"
        )
    old = [*_superseded(cells), *_begun_earlier(cells, folder)]
    left_out = {cell.path for cell in old}
    kept = [cell for cell in cells if cell.path not in left_out]
    return FolderResults(kept, len(groups), old, _plan_title(folder))


def _superseded(cells: Sequence[StoredCell]) -> list[StoredCell]:
    """Return the stale cells that were run again: another one has the same settings."""
    valid = [(cell, cell.valid_cell.question) for cell in cells if cell.valid_cell]
    fresh = {question for cell, question in valid if not cell.stale}
    return [cell for cell, question in valid if cell.stale and question in fresh]


def _begun_earlier(cells: Sequence[StoredCell], folder: Path) -> list[StoredCell]:
    """Return the cells that were run again with code or data that cannot be compared with theirs.

    Own code that is not registered and data of another machine are not here. Of several cells with
    the same settings the one that was begun last holds.
    """
    valid = [(cell, cell.valid_cell) for cell in cells if cell.valid_cell and not cell.stale]
    valid.sort(key=lambda pair: (folder / pair[0].path / RUN).stat().st_mtime_ns)
    last = {one.question: one.key for _, one in valid}
    return [
        replace(cell, stale="it was run again with other code or data")
        for cell, one in valid
        if last[one.question] != one.key
    ]


class _Fingerprints:
    """The fingerprints of code and data as they are now, each computed once."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], str] = {}
        self._data: dict[str, str | None] = {}

    def staleness(self, stored: StoredCell) -> str | None:
        """Return why a cell is stale, as a sentence; None if it is not, or if it does not tell."""
        cell = stored.valid_cell
        if cell is None or cell.code is None:
            return None
        code = cell.strategy, cell.backbone.name
        is_here = code[0] in names() and code[1] in {*NETWORKS, *OWN_NETWORKS}
        if is_here and code not in self._code:
            self._code[code] = code_fingerprint(*code)
        if is_here and self._code[code] != cell.code:
            return "the code that computes it has changed"
        if cell.data_sha256 is None:
            return None
        key = cell.data.model_dump_json()
        if key not in self._data:
            self._data[key] = _fingerprint(cell)
        now = self._data[key]
        return None if now in (None, cell.data_sha256) else "its data has changed"


def _fingerprint(cell: Cell) -> str | None:
    """Return the fingerprint of a cell's data; None if it is not on this machine."""
    try:
        return fingerprint_of(cell.data)
    except FileError:
        return None


def _plan_title(folder: Path) -> str:
    try:
        record = read_folder_record(folder)
    except FileError:
        return ""
    plans = list(record.plans.values()) if record else []
    title = plans[0].get("title") if len(plans) == 1 else ""
    return title if isinstance(title, str) else ""


def _measured_again(steps: Sequence[BatchMetrics], result: CellResult) -> FinalMetrics:
    """Compute the measures of a result of format 1 from the accuracies of its classes.

    The numbers of test frames of the classes are the sums of the rows of the confusion matrix.
    """
    final = result.final
    counts = dict(enumerate(map(sum, result.confusion or ())))
    tally, found = Tally(), None
    for step in steps:
        tally.teach(step.new_classes, step.batch)
        by_class = {int(label): value for label, value in (step.class_accuracy or {}).items()}
        if by_class and all(counts.get(label) for label in by_class):
            right = {c: (round(v * counts[c] / 100), counts[c]) for c, v in by_class.items()}
            found = tally.test(right)
    if found is None or not steps or steps[-1].batch != result.batches:
        return final.model_copy(update={"forgetting": None})
    told = {"accuracy": final.accuracy, "average": final.average}
    told["forward_transfer"] = final.forward_transfer
    return FinalMetrics.model_validate(
        {**vars(found), "transfer_batches": None, "transfer_frames": None, **told}
    )


def _folders_with(name: str, folder: Path) -> Iterator[Path]:
    for place, _, files in os.walk(folder):
        if name in files:
            yield Path(place)


def _planned_groups(folder: Path) -> dict[Path, tuple[FigureGroup, ...]]:
    """Return the groups of each planned cell, from every `plan.json` that can be read.

    The folders of cells in a `plan.json` are relative to its own.
    """
    found: dict[Path, tuple[FigureGroup, ...]] = {}
    for place in sorted(_folders_with(PLAN, folder)):
        try:
            record = read_folder_record(place)
        except FileError:
            continue
        for number, group in enumerate(record.groups if record else ()):
            figure_group = _figure_group(group, number)
            for cell in group.cells:
                found[place / cell] = (*found.get(place / cell, ()), figure_group)
    return found


def _figure_group(group: GroupRecord, number: int) -> FigureGroup:
    for_claims = group.plan == CLAIMS and not group.name.startswith(FOR_A_FIGURE)
    claim = group.name.startswith(CLAIM) or for_claims
    return FigureGroup(group.name.removeprefix(CLAIM).strip(), group.title, claim, number)


def _read_stored(place: Path, path: str, groups: tuple[FigureGroup, ...]) -> StoredCell:
    try:
        run = _read_json_object(place / RUN)
    except FileError as error:
        return StoredCell(path, failure=str(error))
    cell, foreign = _parse(Cell, run, CELL_DEFAULTS)
    if run.get("format") not in FORMATS:
        known = " and ".join(map(str, FORMATS))
        reason = f"run.json has format {run.get('format')!r}; this version reads {known}"
        return StoredCell(path, cell, foreign, failure=reason)
    result, failure = _read_outcome(place)
    groups = (*_own_group(foreign), *groups)
    return StoredCell(path, cell, foreign, _read_steps(place), result, failure, groups)


def _own_group(foreign: Mapping[str, Any]) -> tuple[FigureGroup, ...]:
    """Return the group that `run.json` itself names, if it does."""
    name = str(foreign.get("group") or "")
    if not name:
        return ()
    claim = name.startswith(CLAIM)
    return (FigureGroup(name.removeprefix(CLAIM).strip(), claim=claim),)


def _read_outcome(place: Path) -> tuple[CellResult | None, str | None]:
    """Return the result of a cell and the reason for its failure; each is None if there is none."""
    try:
        if (place / RESULT).is_file():
            result, _ = _parse(CellResult, _read_json_object(place / RESULT), RESULT_DEFAULTS)
            return result, None
        if (place / FAILED).is_file():
            reason = _read_json_object(place / FAILED).get("reason")
            return None, str(reason or "no reason was given")
    except FileError as error:
        return None, str(error)
    return None, None


def _read_steps(place: Path) -> tuple[BatchMetrics, ...]:
    try:
        return tuple(read_metrics(place))
    except OSError:
        return ()


def _read_json_object(path: Path) -> Json:
    """Read a JSON object; the message names the file alone, since reports name the folder."""
    try:
        value = read_json(path)
    except FileError as error:
        raise FileError(f"{path.name} cannot be read: {error.__cause__}") from error
    if not isinstance(value, dict):
        raise FileError(f"{path.name} cannot be read: it does not hold a JSON object")
    return value


def _parse(model: type[Model], raw: Json, defaults: Mapping[str, Any]) -> tuple[Model, Json]:
    """Return the content of a file, and its fields that are unknown to the model or not valid.

    Files may be damaged or come from other programs or versions: a wrong field must not hide the
    others.
    """
    fields = model.model_fields
    foreign = {key: value for key, value in raw.items() if key not in fields}
    known = {key: value for key, value in raw.items() if key in fields}
    try:
        return model.model_validate({**defaults, **known}), foreign
    except ValidationError as error:
        wrong = {str(one["loc"][0]) for one in error.errors()}
    valid = {key: value for key, value in known.items() if key not in wrong}
    foreign |= {key: value for key, value in known.items() if key in wrong}
    return model.model_validate({**defaults, **valid}), foreign
