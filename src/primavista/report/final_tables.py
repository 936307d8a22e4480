"""Final accuracy: the table to publish, and the one with every measure."""

from __future__ import annotations

from collections.abc import Sequence

from primavista.bench import metrics
from primavista.bench.metrics import Better
from primavista.report.methods import retrained_strategies
from primavista.report.ranking import best_values, ranked
from primavista.report.read import StoredCell
from primavista.report.series import Series, mean_std
from primavista.report.table import Row, Size, Table, without_empty
from primavista.report.titles import DATA_TITLES
from primavista.strategies.registry import strategy_info

MEGABYTE = 1e6


def tuned_runs(cells: Sequence[StoredCell]) -> list[int]:
    """Return the runs on which hyperparameters were chosen.

    Args:
        cells: any cells.
    """
    return sorted({cell.tuned_on_run for cell in cells if cell.tuned_on_run is not None})


def tuned_note(cells: Sequence[StoredCell]) -> tuple[str, ...]:
    """Return the remark on the runs on which hyperparameters were chosen, if there are any.

    Args:
        cells: the cells that the remark is about.
    """
    tuned = tuned_runs(cells)
    runs = ", ".join(map(str, tuned))
    if not tuned:
        return ()
    if {cell.run for cell in cells} <= set(tuned):
        return (f"Hyperparameters were chosen on run {runs}, and there is no other run here.",)
    return (
        f"Hyperparameters were chosen on run {runs} and then fixed: "
        "that run is part of the means, as in the paper.",
    )


# The measures of the final table after accuracy: the title of the column, and the field.
MEASURE_COLUMNS = tuple((metrics.TITLES[name], name) for name in metrics.MEASURES[1:])
FINAL = "final accuracy (%)"
BETTER: dict[str, Better] = {
    FINAL: "high",
    **{metrics.TITLES[name]: better for name, better in metrics.BETTER.items() if better},
}
SPREAD = "Mean ± sample standard deviation over the finished runs; one run has no deviation."


def accuracy_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return the table to publish: a few measures, sorted by accuracy, the best in bold.

    Args:
        name: the stem of the table's files.
        title: the heading.
        series: one row each, sorted here.
    """
    chosen = _finished(ranked(series))
    shown = ["average", "forgetting", "backward_transfer"]
    if any(one.finals("seen_accuracy") != one.finals() for one in chosen):
        shown.append("seen_accuracy")
    measures = [(column, field) for column, field in MEASURE_COLUMNS if field in shown]
    columns = (
        *("protocol", "strategy", FINAL, "stored data (MB)"),
        *(column for column, _ in measures),
        *("test frames", "runs"),
    )
    rows = [_accuracy_row(one, [field for _, field in measures]) for one in chosen]
    kept, values = without_empty(columns, rows, 3)
    rivals = [not strategy_info(one.strategy).joint for one in chosen]
    cells = [cell for one in chosen for cell in one.cells]
    notes = (*_bound_note(chosen), *_stored_note(kept), *_tests_note(cells))
    return Table(
        name,
        title,
        kept,
        values,
        notes,
        digits=1,
        caption=_caption(chosen, cells),
        bold=best_values(kept, values, BETTER, rivals, 1),
    )


def _finished(series: list[Series]) -> list[Series]:
    """Leave out series without a finished run, unless there is no other."""
    return [one for one in series if one.done] or series


def _accuracy_row(series: Series, fields: Sequence[str]) -> Row:
    measures = (series.final(field) for field in fields)
    stored = _stored(series)
    first = series.panel.title, series.name, series.final(), stored
    return *first, *measures, series.test_frames, len(series.done)


def _caption(series: Sequence[Series], cells: Sequence[StoredCell]) -> str:
    """Return the caption of the table in a document: what it shows, and how to read it."""
    names = dict.fromkeys(DATA_TITLES.get(c.data_name, c.data_name) for c in cells if c.readable)
    text = f"Accuracy after the last batch on {', '.join(names)}"
    several = any(len(one.done) > 1 for one in series)
    spread = ", mean and sample standard deviation over runs" if several else ""
    return f"{text}{spread}. The best values are bold."


def _bound_note(series: Sequence[Series]) -> list[str]:
    bounds = [one.name for one in series if strategy_info(one.strategy).joint]
    names = ", ".join(dict.fromkeys(bounds))
    return [f"{names}: trained on all data at once, not among the best."] if names else []


def _stored_note(columns: Sequence[str]) -> list[str]:
    if "stored data (MB)" not in columns:
        return []
    return ["Stored data: frames or activations kept for rehearsal; 1 MB is 1,000,000 bytes."]


def _tests_note(cells: Sequence[StoredCell]) -> list[str]:
    """Say which strategies have other tests than the rest: averages over them are not the same."""
    found = retrained_strategies(cells)
    if not found or all(cell.retrain is not None for cell in cells):
        return []
    tests = "; ".join(f"{one.title}: after {one.after}" for one in found)
    return [
        f"Measures over several tests, such as averages and forgetting, are over the tests that a "
        f"strategy had. Not all had the same ({tests})."
    ]


def final_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return every final measure, as mean and sample standard deviation over the finished runs.

    Columns after the fifth that would be empty are left out.

    Args:
        name: the stem of the table's files.
        title: the title of the table.
        series: one row each, sorted here.
    """
    chosen = ranked(series)
    cells = [cell for one in chosen for cell in one.cells]
    tuned = tuned_runs(cells)
    tuned_title = f"run {', '.join(map(str, tuned))}" if tuned else "the run tuned on"
    columns = (
        "protocol",
        "strategy",
        FINAL,
        "runs",
        "test frames",
        "stored data (MB)",
        f"without {tuned_title} (%)",
        *(column for column, _ in MEASURE_COLUMNS),
        "frames for forward transfer",
        "orders of batches",
        "unfinished",
    )
    notes = (
        SPREAD,
        *run_note(cells),
        "The measures are defined in the documentation, on the page on metrics; they are percent "
        "and points of accuracy on the test frames.",
        *_tests_note(cells),
        *tuned_note(cells),
    )
    kept, rows = without_empty(columns, [_final_row(one, tuned) for one in chosen], 5)
    rivals = [not strategy_info(one.strategy).joint for one in chosen]
    bold = best_values(kept, rows, BETTER, rivals)
    return Table(name, title, kept, rows, notes, bold=bold)


def run_note(cells: Sequence[StoredCell]) -> tuple[str, ...]:
    """Return the remark on what varies between runs, if there are several.

    Args:
        cells: the cells that the remark is about.
    """
    known = [cell for cell in cells if cell.cell is not None]
    if len({cell.run for cell in known}) < 2:
        return ()
    varies = varying(known)
    same = [name for name, own in varies.items() if not own]
    text = f"Runs differ in {' and in '.join(name for name, own in varies.items() if own)}"
    if same:
        text += f"; {' and '.join(same)} {'is' if len(same) == 1 else 'are'} the same in all"
    return (f"{text}. A deviation of 0 means that all runs came to the same number.",)


def varying(cells: Sequence[StoredCell]) -> dict[str, bool]:
    """Return what may vary between runs, and whether it does.

    Args:
        cells: cells of several runs.
    """
    seeds = {cell.cell.seed for cell in cells if cell.cell is not None}
    return {
        "the order of the batches": True,
        "the seed of the strategy": len(seeds) > 1,
        "the split into training and test sessions": all(cell.varies_split for cell in cells),
    }


def _final_row(series: Series, tuned: Sequence[int]) -> Row:
    finals = series.finals()
    untuned = mean_std([v for run, v in finals.items() if run not in tuned]) if tuned else None
    measures = [series.final(field) for _, field in MEASURE_COLUMNS]
    stored = _stored(series)
    accuracy = (series.final(), len(finals), series.test_frames, stored, untuned)
    asked = sorted({int(frames) for frames in series.finals("transfer_frames").values()})
    frames = " to ".join(f"{count:,}" for count in dict.fromkeys(asked[:1] + asked[-1:])) or None
    last = frames, series.orders, _unfinished_runs(series)
    return series.panel.title, series.name, *accuracy, *measures, *last


def _unfinished_runs(series: Series) -> str | None:
    """Return how far each unfinished run got."""
    parts = []
    for cell in series.cells:
        if cell.status == "done":
            continue
        state = "failed" if cell.status == "failed" else "at"
        of = f"/{cell.batches}" if cell.batches else ""
        parts.append(f"run {cell.run} {state} {cell.reached}{of}")
    return "; ".join(parts) or None


def _stored(series: Series) -> Size | None:
    """Return the stored data in megabytes; None if it is rehearsal-free."""
    found = megabytes(series, "stored_bytes")
    return Size(found) if found else None


def megabytes(series: Series, field: str) -> float | None:
    """Return the mean over runs of the largest size that a run had after any batch.

    Args:
        series: the runs.
        field: `stored_bytes`, `state_bytes` or `peak_bytes`.
    """

    def largest(cell: StoredCell) -> float | None:
        sizes = [getattr(source, field, None) for source in (*cell.steps, cell.result)]
        known = [size for size in sizes if size is not None]
        return max(known) / MEGABYTE if known else None

    mean = series.over_runs(largest)
    return mean.mean if mean else None
