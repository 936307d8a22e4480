"""Tables of results: final measures, pairs, costs, the guard, and the published accuracies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import SupportsFloat

from primavista.bench import metrics
from primavista.bench.metrics import Better
from primavista.bench.significance import compare
from primavista.report.methods import retrained_note
from primavista.report.published import PublishedKey
from primavista.report.read import StoredCell
from primavista.report.series import MeanStd, Series, by_panel, little_learners, mean_std
from primavista.report.table import (
    Difference,
    Row,
    Table,
    Value,
    Verdict,
    format_value,
)
from primavista.report.texts import write_texts
from primavista.report.titles import DATA_TITLES
from primavista.strategies.registry import strategy_info

MEGABYTE = 1e6
SIGNIFICANT = 0.05
SHORT = 120  # seconds; longer runs are given in minutes


@dataclass(frozen=True)
class Column:
    """A column of a table that has one row per series.

    Args:
        title: The title.
        value: The value of a series.
        better: Whether high or low values are better; None if no value is the best one.
    """

    title: str
    value: Callable[[Series], Value]
    better: Better | None = None


def _stored(series: Series) -> float | None:
    """Return the stored data in megabytes; None if it is rehearsal-free."""
    return _megabytes(series, "stored_bytes") or None


PROTOCOL = Column("protocol", lambda one: one.panel.title)
STRATEGY = Column("strategy", lambda one: one.name)
FINAL = Column("final accuracy (%)", Series.final, "high")
RUNS = Column("runs", lambda one: len(one.done))
TEST_FRAMES = Column("test frames", lambda one: one.test_frames)
STORED = Column("stored data (MB)", _stored)
ORDERS = Column("orders of batches", lambda one: one.orders)
# The measures after accuracy.
MEASURES = {
    name: Column(metrics.TITLES[name], partial(Series.final, metric=name), metrics.BETTER[name])
    for name in metrics.MEASURES[1:]
}
PUBLISHED = (
    "seen_accuracy",
    "average_incremental",
    "learning_accuracy",
    "forgetting",
    "backward_transfer",
)


def series_table(
    name: str,
    title: str,
    series: Sequence[Series],
    columns: Sequence[Column],
    first: int,
    digits: int = 2,
) -> Table:
    """Return a table with one row per series, with the best values in bold.

    Columns after the first ones, as many as `first` says, are left out if they are empty.
    """
    titles = tuple(column.title for column in columns)
    rows = tuple(tuple(column.value(one) for column in columns) for one in series)
    table = Table(name, title, titles, rows, digits=digits)
    better = {column.title: column.better for column in columns if column.better}
    idle = little_learners(series)
    rivals = [not strategy_info(one.strategy).joint and one not in idle for one in series]
    return best_values(table.without_empty_columns(first), better, rivals)


def ranked(series: Sequence[Series]) -> list[Series]:
    """Sort the series of each panel by final accuracy, the best first.

    Strategies that train on all data at once follow after the others, since they are a bound and
    not a rival; series without a finished run come last.
    """
    return [one for own in by_panel(series).values() for one in sorted(own, key=_rank)]


def _rank(series: Series) -> tuple[bool, bool, float]:
    final = series.final()
    is_bound = strategy_info(series.strategy).joint
    return final is None, is_bound, -final.mean if final else 0.0


def best_values(table: Table, better: Mapping[str, Better], rivals: Sequence[bool]) -> Table:
    """Return the table with the best value of each column in bold, in each block of rows.

    Values that look the same after rounding are equally good. A block with a single rival has no
    best value.

    Args:
        table: The table; rows with the same first value, one after the other, are a block.
        better: The columns that have a best value, and which end of them it is.
        rivals: For each row, whether it takes part.
    """
    found: set[tuple[int, int]] = set()
    for block in table.blocks():
        for column, title in enumerate(table.columns):
            values = {row: table.rows[row][column] for row in block if rivals[row]}
            known = {row: float(v) for row, v in values.items() if isinstance(v, SupportsFloat)}
            if title not in better or len(known) < 2:
                continue
            best = max(known.values()) if better[title] == "high" else min(known.values())
            shown = format_value(best, table.digits)
            for row, value in known.items():
                if format_value(value, table.digits) == shown:
                    found.add((row, column))
    return replace(table, bold=frozenset(found))


def _cells(series: Sequence[Series]) -> list[StoredCell]:
    return [cell for one in series for cell in one.cells]


def accuracy_table(name: str, series: Sequence[Series]) -> Table:
    """Return the table to publish: a few measures, sorted by accuracy, the best in bold.

    Series without a finished run are left out, unless there is no other.
    """
    chosen = [one for one in ranked(series) if one.done] or ranked(series)
    same = all(one.finals("seen_accuracy") == one.finals() for one in chosen)
    measures = [MEASURES[name] for name in PUBLISHED[same:]]  # unless all classes were met
    columns = (PROTOCOL, STRATEGY, FINAL, STORED, *measures, TEST_FRAMES, RUNS)
    table = series_table(name, "Final accuracy", chosen, columns, 3, digits=1)
    cells = _cells(chosen)
    several = any(len(one.done) > 1 for one in chosen)
    data = dict.fromkeys(DATA_TITLES.get(cell.data_name, cell.data_name) for cell in cells)
    bounds = [one.name for one in chosen if strategy_info(one.strategy).joint]
    notes = write_texts(
        "accuracy",
        bounds=dict.fromkeys(bounds),
        columns=table.columns,
        cells=cells,
        retrained=retrained_note(cells),
    )
    (caption,) = write_texts("accuracy_caption", data=data, several=several)
    return replace(table, notes=notes, caption=caption)


def final_table(name: str, series: Sequence[Series]) -> Table:
    """Return every final measure, as mean and sample standard deviation over the finished runs.

    Columns after the fifth that would be empty are left out.
    """
    chosen = ranked(series)
    cells = _cells(chosen)
    chosen_on = {cell.cell.hyperparameters_chosen_on_run for cell in cells}
    tuned = sorted(run for run in chosen_on if run is not None)

    def untuned(one: Series) -> MeanStd | None:
        kept = [value for run, value in one.finals().items() if run not in tuned]
        return mean_std(kept) if tuned else None

    columns = (
        *(PROTOCOL, STRATEGY, FINAL, RUNS, TEST_FRAMES, STORED),
        Column(f"without run {', '.join(map(str, tuned))} (%)", untuned),
        *MEASURES.values(),
        ORDERS,
    )
    table = series_table(name, "All measures", chosen, columns, 5)
    notes = write_texts("final", cells=cells, retrained=retrained_note(cells))
    return replace(table, notes=notes)


def _megabytes(series: Series, field: str) -> float | None:
    """Return the mean over runs of the largest size that a run had after any batch."""

    def largest(cell: StoredCell) -> float | None:
        sizes = [getattr(source, field, None) for source in (*cell.steps, cell.result)]
        known = [size for size in sizes if size is not None]
        return max(known) / MEGABYTE if known else None

    mean = series.over_runs(largest)
    return mean.mean if mean else None


def pairwise_table(name: str, series: Sequence[Series]) -> Table:
    """Return the differences of final accuracies with tests; without a pair it has no rows.

    The series of one panel are compared with each other, over the runs that both have.
    """
    rows: list[Row] = []
    runs = 0
    for panel, own in by_panel(series).items():
        for one in compare({one.name: one.finals() for one in own}):
            numbers = one.runs, Difference(one.difference), one.effect, one.p, one.p_holm
            rows.append((panel.title, one.first, one.second, *numbers))
            runs = max(runs, one.runs)
    least = 2 / 2**runs
    frames = dict.fromkeys(one.test_frames for one in series if one.test_frames)
    significant = least <= SIGNIFICANT
    values = {"frames": frames, "runs": runs, "least": f"{least:.4g}", "significant": significant}
    notes = write_texts("pairwise", **values)
    tests = ("runs", "first − second (points)", "effect d_z", "p", "p, Holm")
    columns = ("protocol", "first", "second", *tests)
    title = "Strategies compared over runs"
    return Table(name, title, columns, tuple(rows), notes, digits=3)


# Columns of costs. None has a best value in bold: times are not equal to the last digit.
TIMES = {"learning": "learn_seconds", "solving": "solve_seconds", "testing": "test_seconds"}
SIZES = {"data": "stored_bytes", "state": "state_bytes", "peak memory": "peak_bytes"}


def efficiency_table(name: str, series: Sequence[Series]) -> Table:
    """Return time, memory and operations of the finished runs."""
    done = [one for one in ranked(series) if one.done]
    means = [_seconds(one, "learn_seconds") for one in done]
    is_short = max((mean.mean for mean in means if mean), default=0.0) < SHORT
    unit, scale = ("s", 1.0) if is_short else ("min", 60.0)
    columns = [PROTOCOL, STRATEGY, RUNS]
    for title, time in TIMES.items():
        columns.append(Column(f"{title} ({unit})", partial(_seconds, time=time, scale=scale)))
    for title, size in SIZES.items():
        columns.append(Column(f"{title} (MB)", partial(_megabytes, field=size)))
    for kind in ("learning", "predicting"):
        columns.append(Column(f"{kind} (MFLOP per frame)", partial(_operations, kind=kind)))
    table = series_table(name, "Run time and memory", done, columns, 3)
    notes = write_texts(
        "efficiency",
        columns=table.columns,
        retrained=retrained_note(cell for one in done for cell in one.done),
    )
    caption = "Run time and memory of one run, mean and sample standard deviation over runs."
    return replace(table, notes=notes, caption=caption)


def _seconds(series: Series, time: str, scale: float = 1.0) -> MeanStd | None:
    """Return the mean over runs of a time; there may be nothing to solve."""

    def measure(cell: StoredCell) -> float | None:
        seconds = getattr(cell.result, time)
        if seconds is None or (time == "solve_seconds" and not seconds):
            return None
        return float(seconds) / scale

    return series.over_runs(measure)


def _operations(series: Series, kind: str) -> float | None:
    """Return the mean over runs of the operations per frame, in millions."""

    def counted(cell: StoredCell) -> float | None:
        found = (cell.result.operations if cell.result else None) or {}
        return found[kind] / 1e6 if kind in found else None

    mean = series.over_runs(counted)
    return mean.mean if mean else None


def parity_table(series: Sequence[Series], targets: Mapping[PublishedKey, MeanStd]) -> Table:
    """Return our final accuracies beside the authors', if they published any of them."""

    def difference(one: Series) -> Difference | None:
        ours = one.final()
        return Difference(ours.mean - targets[one.published_key].mean) if ours else None

    columns = (
        *(PROTOCOL, STRATEGY),
        Column("ours (%)", Series.final),
        Column("our runs", RUNS.value),
        TEST_FRAMES,
        Column("theirs (%)", lambda one: targets[one.published_key]),
        Column("difference", difference),
        Column("our orders", ORDERS.value),
        Column("within one std", lambda one: _parity_verdict(one, targets[one.published_key])),
    )
    ordered = [one for own in by_panel(series).values() for one in own]
    shown = [one for one in ordered if one.published_key in targets]
    title = "Parity with the authors' published results"
    table = series_table("parity", title, shown, columns, len(columns))
    return replace(table, notes=write_texts("parity"))


def _parity_verdict(series: Series, target: MeanStd) -> Verdict:
    ours, reason = series.final(), series.panel.why_not_comparable
    if ours is None:
        return Verdict("no finished run", "open")
    if reason:
        return Verdict(f"not compared: {reason}", "open")
    if target.std is None:
        return Verdict("no deviation published", "open")
    if abs(ours.mean - target.mean) <= target.std:
        return Verdict("yes", "good")
    return Verdict("no", "bad")
