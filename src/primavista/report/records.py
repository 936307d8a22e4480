"""Results of the benchmark as tidy rows, for Python, pandas and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from primavista.bench.metrics import MEASURES, Measures
from primavista.errors import InputError
from primavista.report.read import StoredCell, read_results
from primavista.report.series import base_name, build_series

Row = dict[str, Any]
SHARED = ("name", "strategy", "protocol", "data", "run")  # what rows of all kinds have
COSTS = (
    "learn_seconds",
    "solve_seconds",
    "test_seconds",
    "stored_bytes",
    "state_bytes",
    "peak_bytes",
)


class Results(list[Row]):
    """The runs of a folder of results, one row each; `pandas.DataFrame(results)` is a frame.

    A row has the name of the strategy or variant in figures and tables (`name`), `strategy`,
    `protocol`, `data`, `run`, `seed`, `status` (`done`, `in progress` or `failed`), the `groups` of
    the plan, the numbers of `batches` and `test_frames`, the measures after the last batch and the
    costs, the `backbone` with its `weights`, each option as `options.NAME`, the reason why the
    result is `stale`, and the `path` of its folder. What is missing, such as the accuracy of an
    unfinished run, is None. The page on metrics defines the measures.

    Args:
        cells: The cells of the folder.
        damaged: The reason for each folder of a cell that cannot be read.
    """

    def __init__(
        self, cells: Sequence[StoredCell], damaged: Mapping[str, str] | None = None
    ) -> None:
        names = {cell.path: base_name(cell) for cell in cells}
        for series in build_series(cells):
            names |= {cell.path: series.name for cell in series.cells}
        super().__init__(_run_row(cell, names[cell.path]) for cell in cells)
        self.cells = tuple(cells)
        self.damaged = dict(damaged or {})

    @property
    def batches(self) -> list[Row]:
        """One row per batch of every run; measures are None if there was no test."""
        return [
            {
                **{name: row[name] for name in SHARED},
                "batch": step.batch,
                "patterns": step.patterns,
                "new_classes": len(step.new_classes),
                **_measures(step.measures),
                "stored_bytes": step.stored_bytes,
                "state_bytes": step.state_bytes,
            }
            for row, cell in zip(self, self.cells, strict=True)
            for step in cell.steps
        ]

    @property
    def tasks(self) -> list[Row]:
        """One row per entry R[i, j] of the accuracy matrix of every run.

        `batch` is i, after which it was measured, `task` is j, the batch that first showed the
        classes, and `accuracy` is the percent of the test frames of these classes.
        """
        return [
            {
                **{name: row[name] for name in SHARED},
                "batch": step.batch,
                "task": task,
                "accuracy": accuracy,
            }
            for row, cell in zip(self, self.cells, strict=True)
            for step in cell.steps
            for task, accuracy in step.measures.task_accuracy.items()
        ]

    def where(self, **wanted: object) -> Results:
        """Return the runs that have certain values.

        Args:
            **wanted: A value, or a list of values, for fields of a row: for example
                `strategy="ar1*"`, `protocol=["nicv2-79", "nicv2-391"]`, `run=0`. For `groups`, the
                name of one group.

        Raises:
            InputError: If there is no such field, or no run is left.
        """
        known = sorted({name for row in self for name in row})
        unknown = sorted(set(wanted) - set(known))
        if unknown:
            raise InputError(f"runs have no field {unknown[0]!r}; there are {', '.join(known)}")
        pairs = zip(self.cells, self, strict=True)
        kept = [cell for cell, row in pairs if _matches(row, wanted)]
        if not kept:
            found = [
                f"{name} is one of {', '.join(dict.fromkeys(str(row.get(name)) for row in self))}"
                for name in wanted
            ]
            raise InputError(f"no run has {wanted}: {'; '.join(found)}")
        return Results(kept)


def load_results(folder: str | Path) -> Results:
    """Read a folder of results as tidy rows: one per run, per batch, and per test and task.

    Args:
        folder: The folder that `primavista bench run` wrote. Cells that are not finished or failed
            are there too, with their status; `damaged` names those that cannot be read.

    Returns:
        The runs, in the order of their folders; stale ones that were run again are left out.

    Raises:
        FileError: If there are no results in the folder.
    """
    found = read_results(Path(folder))
    return Results(found.cells, found.damaged)


def _matches(row: Row, wanted: Mapping[str, object]) -> bool:
    for name, values in wanted.items():
        value = row.get(name)
        own = value if isinstance(value, tuple) else (value,)
        several = values if isinstance(values, list | tuple | set) else (values,)
        if not any(one in several for one in own):
            return False
    return True


def _run_row(cell: StoredCell, name: str) -> Row:
    return {
        "name": name,
        "strategy": cell.strategy,
        "protocol": cell.protocol,
        "data": cell.data_name,
        "run": cell.run,
        "seed": cell.cell.seed,
        "status": cell.status,
        "groups": tuple(group.name for group in cell.groups),
        "batches": cell.batches,
        "test_frames": cell.test_frames,
        **_measures(cell.measures),
        **{cost: getattr(cell.result, cost, None) for cost in COSTS},
        "backbone": cell.cell.backbone.name,
        "weights": cell.cell.backbone.weights,
        **{f"options.{option}": value for option, value in cell.options.items()},
        "stale": cell.stale,
        "path": cell.path,
    }


def _measures(measures: Measures) -> Row:
    return {name: getattr(measures, name) for name in MEASURES}
