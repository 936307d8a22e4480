"""Folders of results: one per cell, and `plan.json`, which says which plans were run there.

The folder of a cell holds

- `run.json`: the cell;
- `metrics.jsonl` and `timings.jsonl`: one line per batch, the reproducible part and the times;
- `checkpoint.safetensors`: the state of the strategy, until the cell is done;
- `result.json`: renamed into place at the end; its presence means that the cell is done. It has the
  checksums of itself, of `run.json` and of `metrics.jsonl`;
- `failed.json`: the reason, if the cell failed.

Every file is either appended to by whole lines or replaced atomically, so a process that ends at
any moment loses no more than the batches since the last checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from primavista.bench.data import DataFacts, StrictModel
from primavista.bench.metrics import Measures
from primavista.bench.plan import Cell, Plan, PlannedCell
from primavista.errors import CHOOSE_FOLDER, FileError, InputError, PrimavistaError, file_errors
from primavista.storage import disk, learner_file
from primavista.storage.disk import (
    FileLock,
    check_inside,
    is_locked,
    remove_leftovers,
    write_atomically,
)

if TYPE_CHECKING:
    from primavista.bench.evaluate import Step

RUN = "run.json"
METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
FAILED = "failed.json"
LOCK = ".lock"
PLAN = "plan.json"
PLAN_ADVICE = ". Restore it, or choose another folder with --out"
TIMES = ("learn_seconds", "solve_seconds", "test_seconds")  # in a line of `timings.jsonl`
KEPT = (
    "Free some space or choose another folder; what is written is kept, "
    "and the same command resumes"
)

Model = TypeVar("Model", bound=BaseModel)
CellStatus = Literal["done", "running", "failed", "stopped", "waiting"]  # in the order of tables


class _FileModel(BaseModel):
    """The content of a file; fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class BatchMetrics(_FileModel):
    """One line of `metrics.jsonl`: the reproducible facts of one batch.

    Args:
        batch: The number of the batch, from 1.
        patterns: The number of its patterns.
        new_classes: The classes that it showed for the first time.
        losses: The mean loss of each epoch; None if it was not finite.
        saturated: The share of guarded weights whose importance is at its limit.
        state_bytes: Bytes beyond the network, its head and stored data.
        stored_bytes: Bytes of stored data.
        measures: See `bench.metrics`; each is None if there was no test.
        class_accuracy: Percent for each class of the test set; empty if there was no test.
    """

    batch: int
    patterns: int | None = None
    new_classes: tuple[int, ...] = ()
    losses: tuple[float | None, ...] = ()
    saturated: float | None = None
    state_bytes: int | None = None
    stored_bytes: int | None = None
    measures: Measures = Measures()
    class_accuracy: dict[int, float] = {}

    @classmethod
    def from_step(cls, step: Step) -> BatchMetrics:
        """Return the reproducible part of the measurements after a batch."""
        return cls(
            batch=step.batch,
            patterns=step.report.patterns,
            new_classes=step.report.new_classes,
            losses=tuple(loss if isfinite(loss) else None for loss in step.report.losses),
            saturated=step.report.saturated,
            state_bytes=step.state_bytes,
            stored_bytes=step.report.stored_bytes,
            measures=step.measures,
            class_accuracy=step.class_accuracy,
        )


class CellResult(_FileModel):
    """The content of `result.json`.

    Args:
        format: The version of the file.
        final: The measures after the last batch.
        confusion: The confusion matrix after the last batch: rows are true classes.
        classes: The names of the classes.
        batches: How many batches were learned.
        learn_seconds: Time spent learning.
        solve_seconds: Time spent solving for the weights of heads that keep sums.
        test_seconds: Time spent testing.
        peak_bytes: The most memory in use beyond what was in use at the start; see `bench.cost`.
        operations: Floating-point operations per frame of the last batch, by the fields of
            `cost.Operations`; None if they cannot be counted.
        state_bytes: Bytes beyond the network, its head and stored data.
        stored_bytes: Bytes of stored data.
        parameters: The parameters of the network, and D for each class: those of a linear head.
        order: The origin of the order of the batches.
        data: The facts of the data.
        state_sha256: The checksum of the strategy's final state.
        machine: The machine that ran the last batches.
        checksums: The SHA-256 of `run.json`, of `metrics.jsonl`, and of the rest of this file.
    """

    format: Literal[1] = 1
    final: Measures = Measures()
    confusion: list[list[int]] | None = None
    classes: list[str] = []
    batches: int
    learn_seconds: float | None = None
    solve_seconds: float | None = None
    test_seconds: float | None = None
    peak_bytes: int | None = None
    operations: dict[str, float] | None = None
    state_bytes: int | None = None
    stored_bytes: int | None = None
    parameters: int | None = None
    order: str | None = None
    data: DataFacts | None = None
    state_sha256: str | None = None
    machine: dict[str, Any] = {}
    checksums: dict[str, str] = {}


def read_result(path: Path) -> CellResult | None:
    """Read `result.json` of a cell's folder; None if the cell is not done.

    Raises:
        FileError: If it does not match its checksums, or another file does not; the message names
            the file and says what to do about this cell.
    """
    try:
        raw = read_json(path / RESULT)
        if raw is None:
            return None
        result = _validated(path / RESULT, raw, CellResult, "")
        for name, checksum in _checksums(path, raw).items():
            if result.checksums.get(name) != checksum:
                raise FileError(
                    f"{path / name} is damaged or was changed: it does not match its checksum in "
                    f"{RESULT}. Restore it from a copy"
                )
        return result
    except FileError as error:
        raise FileError(f"{error}; to run this cell again, delete {path}") from error


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write `result.json` of a cell's folder, with checksums of what is in the folder.

    Args:
        path: The folder.
        result: The fields of `CellResult`.

    Raises:
        FileError: If it cannot be written.
    """
    write_json(path / RESULT, {**result, "checksums": _checksums(path, result)})


def _checksums(path: Path, result: Mapping[str, Any]) -> dict[str, str]:
    rest = {key: value for key, value in result.items() if key != "checksums"}
    contents = {RESULT: json.dumps(rest, sort_keys=True).encode()}
    for name in (RUN, METRICS):
        with file_errors("read", path / name, "Check its permissions"):
            contents[name] = (path / name).read_bytes() if (path / name).exists() else b""
    return {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}


def read_metrics(path: Path) -> Iterator[BatchMetrics]:
    """Read `metrics.jsonl` of a cell's folder, up to the first line that is torn or damaged."""
    for line in read_lines(path / METRICS):
        try:
            yield BatchMetrics.model_validate(line)
        except ValidationError:
            return


class CellFolder:
    """The folder of a cell, locked for writing: `with CellFolder(path, cell) as folder`.

    An exception in the block goes to `failed.json`.

    Args:
        path: The folder; it is made if it does not exist.
        cell: The cell that `run.json` must hold; a folder of another cell is refused.

    Raises:
        InputError: On entering, if the folder holds another cell.
        FileError: On entering, if it cannot be written, or if another process holds it.
    """

    def __init__(self, path: Path, cell: Cell) -> None:
        self.path = path
        self.cell = cell
        self._lock = FileLock(path / LOCK)
        self._lines: dict[str, int] = {}  # descriptors

    def __enter__(self) -> CellFolder:
        make_folder(self.path)
        self._lock.__enter__()
        try:
            self._claim()
        except BaseException:
            self._lock.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        _, error, _ = exception or (None, None, None)
        if isinstance(error, Exception):
            self.fail(failure_reason(error), "".join(traceback.format_exception(error)))
        for file in self._lines.values():
            os.close(file)
        self._lines = {}
        self._lock.__exit__()

    @property
    def done(self) -> bool:
        """True if the result is there; `FileError` if it is damaged."""
        return read_result(self.path) is not None

    def resume(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Read the checkpoint, and cut the lines of later batches, ready to append.

        Returns:
            The arrays and the manifest of the checkpoint; None if there is none.

        Raises:
            FileError: If the checkpoint is damaged, or has seen lines that are not there.
        """
        state = self._read_checkpoint()
        position = 0 if state is None else state[1]["position"]
        with self._writing():
            for name in (METRICS, TIMINGS):
                self._lines[name] = disk.open_regular(self.path / name)
                _truncate(self._lines[name], position, self.path)
            disk.sync_folder(self.path)  # their names before that of a checkpoint which counts them
        return state

    def _read_checkpoint(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if not (self.path / CHECKPOINT).exists():
            return None
        try:
            return learner_file.read(self.path / CHECKPOINT)
        except FileError as error:
            raise FileError(f"{error}, or delete {self.path} to restart this cell") from error

    def append(self, metrics: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """Append one line to `metrics.jsonl` and one to `timings.jsonl` about a batch."""
        with self._writing():
            for name, line in ((METRICS, metrics), (TIMINGS, timings)):
                text = json.dumps(line, allow_nan=False) + "\n"
                disk.write(self._lines[name], text.encode())

    def checkpoint(self, arrays: learner_file.Arrays, manifest: Mapping[str, Any]) -> None:
        """Write the state of the strategy after `manifest["position"]` batches, and the tally."""
        self._sync()
        try:
            learner_file.write(self.path / CHECKPOINT, arrays, manifest)
        except FileError as error:
            raise FileError(f"{error}. {KEPT}") from error

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`; from now on this cell is done."""
        self._sync()
        write_result(self.path, result)
        self._drop_checkpoint()

    def replace(self, files: Mapping[str, bytes]) -> None:
        """Write files that another machine wrote, in their order; a result ends the cell."""
        for name, data in files.items():
            write_bytes(self.path / name, data)
        if RESULT in files:
            self._drop_checkpoint()

    def _drop_checkpoint(self) -> None:
        with contextlib.suppress(OSError):
            disk.remove(self.path / CHECKPOINT)

    def fail(self, reason: str, trace: str = "") -> None:
        """Write why the cell failed, in one line for the user, if the disk allows it."""
        with contextlib.suppress(FileError):
            write_json(self.path / FAILED, {"format": 1, "reason": reason, "traceback": trace})

    def _claim(self) -> None:
        found, wanted = read_json(self.path / RUN), self.cell.model_dump(mode="json")
        if found is None:
            write_json(self.path / RUN, wanted)
        elif found != wanted:
            raise InputError(f"{self.path} holds another cell: choose another folder, or delete it")
        with self._writing():
            disk.remove(self.path / FAILED)
            remove_leftovers(self.path)

    def _sync(self) -> None:
        with self._writing():
            for file in self._lines.values():
                disk.sync(file)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return file_errors("write in", self.path, KEPT)


def failure_reason(error: BaseException) -> str:
    """Return one line for the user about an error."""
    return str(error) if isinstance(error, PrimavistaError) else f"{type(error).__name__}: {error}"


def cell_status(path: Path) -> CellStatus:
    """Return the status of a cell; "stopped" is begun, but no process is working on it."""
    if (path / RESULT).exists():
        return "done"
    if is_locked(path / LOCK):
        return "running"
    if (path / FAILED).exists():
        return "failed"
    return "stopped" if (path / RUN).exists() else "waiting"


class GroupRecord(StrictModel):
    """A group of a plan in `plan.json`.

    Args:
        name: The name of the group.
        title: Its heading in reports.
        plan: The name of its plan.
        cells: The folders of its cells, relative to the folder of the results.
    """

    name: str
    title: str = ""
    plan: str
    cells: list[str]


class FolderRecord(StrictModel):
    """The content of `plan.json`: several plans may share a folder of results.

    Args:
        format: The version of the file.
        base: The settings that all cells share.
        groups: The groups of all the plans; a cell that was begun stays in its groups.
        plans: The plans as they were last run, by name; those of another version as they are.
    """

    format: Literal[1] = 1
    base: dict[str, Any]
    groups: list[GroupRecord]
    plans: dict[str, dict[str, Any]]


def claim_folder(out: Path, plan: Plan, planned: Sequence[PlannedCell]) -> None:
    """Record in `plan.json` that a plan is run in this folder, beside earlier ones.

    Any plan may claim a folder without started cells.

    Args:
        out: The folder of the results.
        plan: The plan.
        planned: Its cells.

    Raises:
        InputError: If the folder holds results with another base; nothing is changed.
        FileError: If the folder of a cell is a link that leads elsewhere.
    """
    for own in planned:
        check_inside(out, out / own.folder)
    found, base = read_folder_record(out), plan.base()
    if found is None or not any(out.rglob(RUN)):
        earlier = FolderRecord(base=base, groups=[], plans={})
    else:
        earlier = found
    _check_base(out, earlier.base, base)
    groups = _begun_groups(out, earlier)
    for group in plan.groups:
        key = plan.name, group.name
        cells = [own.folder for own in planned if group.name in own.groups]
        if key in groups:
            cells += [cell for cell in groups[key].cells if cell not in cells]
        groups[key] = GroupRecord(name=group.name, title=group.title, plan=plan.name, cells=cells)
    plans = {**earlier.plans, plan.name: plan.model_dump(mode="json")}
    kept = [group for group in groups.values() if group.cells]
    record = FolderRecord(base=base, groups=kept, plans=plans)
    if record != found:
        write_json(out / PLAN, record.model_dump(mode="json"))


def _check_base(out: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    wrong = [key for key in wanted | found if found.get(key) != wanted.get(key)]
    if wrong:
        raise InputError(
            f"{out} holds results with another {', '.join(wrong)}: "
            "choose another folder with --out, or delete it"
        )


def _begun_groups(out: Path, record: FolderRecord) -> dict[tuple[str, str], GroupRecord]:
    """Return the groups of earlier plans, without the cells that were never begun."""
    groups = {}
    for group in record.groups:
        begun = [cell for cell in group.cells if (out / cell / RUN).exists()]
        groups[group.plan, group.name] = group.model_copy(update={"cells": begun})
    return groups


def saved_plan(out: Path, name: str) -> Plan | None:
    """Return a plan as it was last run in a folder, with everything that was set then.

    Args:
        out: The folder of the results.
        name: The name of the plan.

    Raises:
        FileError: If `plan.json` is damaged, or if this version does not accept the plan.
    """
    record = read_folder_record(out)
    if record is None or name not in record.plans:
        return None
    return _validated(out / PLAN, record.plans[name], Plan, PLAN_ADVICE)


def read_folder_record(out: Path) -> FolderRecord | None:
    """Read `plan.json` of a folder of results.

    Args:
        out: The folder.

    Returns:
        Its content; None if there is no such file.

    Raises:
        FileError: If it is damaged.
    """
    return read_model(out / PLAN, FolderRecord, PLAN_ADVICE)


def make_folder(path: Path) -> None:
    """Make a folder and its parents.

    Args:
        path: The folder, which may exist already.

    Raises:
        FileError: If it cannot be made.
    """
    with file_errors("make", path, CHOOSE_FOLDER):
        path.mkdir(parents=True, exist_ok=True)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Args:
        path: The file.

    Returns:
        Its content; None if there is no such file.

    Raises:
        FileError: If it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(
            f"cannot read {path}: {error}. Restore it from a copy, or delete its folder"
        ) from error


def read_model(path: Path, model: type[Model], advice: str = "") -> Model | None:
    """Read a JSON file as a model of pydantic.

    Args:
        path: The file.
        model: The class of its content.
        advice: Ends the message about a file that does not hold such a model.

    Returns:
        Its content; None if there is no such file.

    Raises:
        FileError: If it cannot be read, or does not hold such a model; it names the field.
    """
    raw = read_json(path)
    return None if raw is None else _validated(path, raw, model, advice)


def _validated(path: Path, raw: Any, model: type[Model], advice: str) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FileError(f"{path} has an invalid field {place}: {first['msg']}{advice}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON lines file up to the first line that is torn or damaged.

    A power cut may leave zeros at the end of a file; what follows the last checkpoint is cut off
    when the cell resumes.

    Args:
        path: The file.

    Returns:
        One object per line; an empty list if there is no such file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict):
            break
        found.append(value)
    return found


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, the whole of it or nothing; each key begins a line.

    Args:
        path: The file.
        value: Its content.

    Raises:
        FileError: If it cannot be written.
    """
    items = value.items()
    lines = [f" {json.dumps(key)}: {json.dumps(item, allow_nan=False)}" for key, item in items]
    write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, the whole of it or nothing.

    Args:
        path: The file.
        data: Its content.

    Raises:
        FileError: If it cannot be written.
    """
    with file_errors("write", path, KEPT):
        write_atomically(path, data)


def _truncate(file: int, lines: int, folder: Path) -> None:
    """Cut a file after a number of lines, and go to its end."""
    with open(file, "rb", closefd=False) as reader:
        data, end = reader.read(), 0
    for _ in range(lines):
        end = data.find(b"\n", end) + 1
        if not end:
            raise FileError(
                f"{folder} lacks lines that its checkpoint has seen: delete it to restart this cell"
            )
    disk.truncate(file, end)
    os.lseek(file, end, os.SEEK_SET)
