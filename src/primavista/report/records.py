"""Results of the benchmark as tidy records, for Python, pandas and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from primavista.bench.folder import BatchMetrics
from primavista.bench.metrics import MEASURES, Measures
from primavista.errors import InputError, require_extra
from primavista.notebook import html_table
from primavista.report.read import Status, StoredCell, read_results
from primavista.report.result_tables import best_accuracies
from primavista.report.series import base_name, build_series
from primavista.report.table import format_value

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]

SHOWN = 10  # records that a notebook shows


@dataclass(frozen=True)
class Record:
    """The fields that all records share.

    Args:
        name: The name of the strategy or variant in figures and tables.
        strategy: The name of the strategy.
        protocol: The name of the protocol.
        data: The name of the data set.
        run: The number of the run; equal numbers have equal orders of batches.
    """

    name: str
    strategy: str
    protocol: str
    data: str
    run: int


@dataclass(frozen=True)
class RunRecord(Record):
    """One run of one strategy over one protocol: a cell of the benchmark.

    The page on metrics defines the measures. A missing value, such as the accuracy of an unfinished
    run, is None.

    Args:
        seed: The seed of the strategy.
        status: `done`, `in progress` or `failed`.
        groups: The groups of the plan that the run belongs to.
        batches: The number of batches.
        test_frames: The number of test frames.
        measures: The measures after the last batch; each is None if the run is not done.
        learn_seconds: The time of learning.
        solve_seconds: The time of solving.
        test_seconds: The time of testing.
        stored_bytes: Bytes kept for rehearsal.
        state_bytes: Bytes beyond the network, its head and stored data.
        peak_bytes: The most memory in use during the run.
        backbone: The name of the network.
        weights: The name of its weights.
        options: Every option of the strategy.
        stale: Why the result no longer holds, if it does not.
        path: The folder of the cell, relative to that of the results.
    """

    seed: int
    status: Status
    groups: tuple[str, ...]
    batches: int | None
    test_frames: int | None
    measures: Measures
    learn_seconds: float | None
    solve_seconds: float | None
    test_seconds: float | None
    stored_bytes: int | None
    state_bytes: int | None
    peak_bytes: int | None
    backbone: str
    weights: str
    options: Mapping[str, Any]
    stale: str | None
    path: str

    @property
    def accuracy(self) -> float | None:
        """The accuracy over all test frames, in percent."""
        return self.measures.accuracy


@dataclass(frozen=True)
class BatchRecord(Record):
    """One batch of one run; measures are None if there was no test.

    Args:
        batch: The number of the batch, from 1.
        patterns: The number of frames in it.
        new_classes: The number of classes that it showed first.
        measures: The measures after the batch.
        stored_bytes: Bytes kept for rehearsal.
        state_bytes: Bytes beyond the network, its head and stored data.
    """

    batch: int
    patterns: int | None
    new_classes: int
    measures: Measures
    stored_bytes: int | None
    state_bytes: int | None

    @property
    def accuracy(self) -> float | None:
        """The accuracy over all test frames, in percent."""
        return self.measures.accuracy


@dataclass(frozen=True)
class TaskRecord(Record):
    """One entry R[i, j] of the accuracy matrix of one run; the page on metrics defines it.

    Args:
        batch: i, the batch after which it was measured.
        task: j, the batch that first showed the classes.
        accuracy: Percent of the test frames of these classes.
    """

    batch: int
    task: int
    accuracy: float


T = TypeVar("T", bound=Record)


class Records(tuple[T, ...], Generic[T]):
    """A tuple of records that can become a pandas frame and that notebooks show as a table.

    Args:
        records: The records, all of one kind.
    """

    def to_pandas(self) -> DataFrame:
        """Return a frame with one row per record; options are columns `options.NAME`.

        Raises:
            MissingExtraError: if pandas is not installed.
        """
        pandas = require_extra("pandas", "pandas")
        frame: DataFrame = pandas.DataFrame([_flat(asdict(one)) for one in self])
        return frame

    def _repr_html_(self) -> str:
        if not self:
            return html_table([], caption="no records")
        tables = [_flat(asdict(one)) for one in self[:SHOWN]]
        names = [name for name in tables[0] if name != "path" and not name.startswith("options.")]
        rows = [[_shown(table[name]) for name in names] for table in tables]
        return html_table(rows, header=names, caption=f"{min(SHOWN, len(self))} of {len(self)}")


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a record: measures by their names, options as `options.NAME`."""
    columns: dict[str, Any] = {}
    for name, value in record.items():
        if name == "measures":
            columns |= {measure: value[measure] for measure in MEASURES}
        elif name == "options":
            columns |= {f"options.{option}": own for option, own in value.items()}
        else:
            columns[name] = value
    return columns


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else value


class Results(Records[RunRecord]):
    """The runs of a folder of results, as `load_results` reads them.

    It is a sequence of `RunRecord`; `batches` has the same runs batch by batch, `tasks` their
    accuracy matrices, and `plot` draws their figures.

    Args:
        cells: The cells of the folder.
        damaged: The reason for each folder of a cell that cannot be read.
    """

    cells: tuple[StoredCell, ...]
    damaged: dict[str, str]

    def __new__(cls, cells: Sequence[StoredCell], damaged: Mapping[str, str] | None = None) -> Self:
        """Name the runs as figures and tables do."""
        names = {cell.path: base_name(cell) for cell in cells}
        for series in build_series(cells):
            names |= {cell.path: series.name for cell in series.cells}
        self = super().__new__(cls, [_run_record(cell, names[cell.path]) for cell in cells])
        self.cells = tuple(cells)
        self.damaged = dict(damaged or {})
        return self

    def __getnewargs__(self) -> tuple[tuple[StoredCell, ...], dict[str, str]]:
        """Return the arguments that a copy is made of."""
        return self.cells, self.damaged

    @property
    def batches(self) -> Records[BatchRecord]:
        """One record per batch of every run, in the order of the batches."""
        pairs = zip(self.cells, self, strict=True)
        return Records(_batch_record(own, step) for cell, own in pairs for step in cell.steps)

    @property
    def tasks(self) -> Records[TaskRecord]:
        """One record per entry of the accuracy matrix R of every run, row by row."""
        return Records(
            TaskRecord(**_shared(own), batch=step.batch, task=task, accuracy=accuracy)
            for cell, own in zip(self.cells, self, strict=True)
            for step in cell.steps
            for task, accuracy in step.measures.task_accuracy.items()
        )

    def where(self, **wanted: object) -> Results:
        """Return the runs that have certain values.

        Args:
            **wanted: a value, or a list of values, for fields of `RunRecord`: for example
                `strategy="ar1*"`, `protocol=["nicv2-79", "nicv2-391"]`, `run=0`. For `groups`, the
                name of one group.

        Raises:
            InputError: if there is no such field, or no run is left.
        """
        known = {one.name for one in fields(RunRecord)}
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise InputError(
                f"runs have no field {unknown[0]!r}; there are {', '.join(sorted(known))}"
            )
        pairs = zip(self.cells, self, strict=True)
        kept = [cell for cell, record in pairs if _matches(record, wanted)]
        if not kept:
            raise InputError(f"no run has {wanted}: {self._values(wanted)}")
        return Results(kept)

    def _values(self, wanted: Iterable[str]) -> str:
        """Name the values that there are, for an error message."""
        parts = []
        for name in wanted:
            found = dict.fromkeys(str(_shown(getattr(one, name))) for one in self)
            parts.append(f"{name} is one of {', '.join(found)}")
        return "; ".join(parts)

    def _repr_html_(self) -> str:
        table = best_accuracies(build_series(self.cells))
        rows = [[format_value(value, table.digits) for value in row] for row in table.rows]
        return html_table(rows, header=table.columns, caption="Final accuracy")


def load_results(folder: str | Path) -> Results:
    """Read a folder of results as tidy records: one per run, per batch, and per test and task.

    Args:
        folder: The folder that `primavista bench run` wrote. Cells that are not finished or failed
            are there too, with their status; `damaged` names those that cannot be read.

    Returns:
        The runs, in the order of their folders; stale ones that were run again are left out.

    Raises:
        FileError: if there are no results in the folder.
    """
    found = read_results(Path(folder))
    return Results(found.cells, found.damaged)


def _matches(record: RunRecord, wanted: Mapping[str, object]) -> bool:
    for name, values in wanted.items():
        value = getattr(record, name)
        own = value if name == "groups" else (value,)
        several = values if isinstance(values, list | tuple | set) else (values,)
        if not any(one in several for one in own):
            return False
    return True


COSTS = (
    "learn_seconds",
    "solve_seconds",
    "test_seconds",
    "stored_bytes",
    "state_bytes",
    "peak_bytes",
)


def _run_record(cell: StoredCell, name: str) -> RunRecord:
    return RunRecord(
        name=name,
        strategy=cell.strategy,
        protocol=cell.protocol,
        data=cell.data_name,
        run=cell.run,
        seed=cell.cell.seed,
        status=cell.status,
        groups=tuple(group.name for group in cell.groups),
        batches=cell.batches,
        test_frames=cell.test_frames,
        measures=cell.measures,
        **{cost: getattr(cell.result, cost, None) for cost in COSTS},
        backbone=cell.cell.backbone.name,
        weights=cell.cell.backbone.weights,
        options=dict(cell.options),
        stale=cell.stale,
        path=cell.path,
    )


def _shared(run: RunRecord) -> dict[str, Any]:
    return {one.name: getattr(run, one.name) for one in fields(Record)}


def _batch_record(run: RunRecord, step: BatchMetrics) -> BatchRecord:
    return BatchRecord(
        **_shared(run),
        batch=step.batch,
        patterns=step.patterns,
        new_classes=len(step.new_classes),
        measures=step.measures,
        stored_bytes=step.stored_bytes,
        state_bytes=step.state_bytes,
    )
