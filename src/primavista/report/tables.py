"""The tables of numbers: final accuracy, parity with the authors, efficiency, unfinished cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from primavista.report.published import EFFICIENCY, PublishedKey
from primavista.report.read import StoredCell
from primavista.report.series import MeanStd, Panel, Series, mean_std
from primavista.report.table import Difference, Row, Table, Verdict
from primavista.report.titles import protocol_title
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


def final_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return the final metrics, as mean and population standard deviation over the finished runs.

    Columns after the fourth that would be empty are left out.

    Args:
        name: the stem of the table's files.
        title: the title of the table.
        series: one row each.
    """
    cells = [cell for one in series for cell in one.cells]
    tuned = tuned_runs(cells)
    tuned_title = f"run {', '.join(map(str, tuned))}" if tuned else "the run tuned on"
    columns = (
        "protocol",
        "strategy",
        "final accuracy (%)",
        "runs",
        f"without {tuned_title} (%)",
        "average over the batches (%)",
        "forgetting",
        "forward transfer",
        "orders of batches",
        "unfinished",
    )
    rows = [_final_row(one, tuned) for one in series]
    kept = [i for i in range(len(columns)) if i < 4 or any(row[i] is not None for row in rows)]
    note = (
        "Mean ± population standard deviation over the finished runs, whose number is given; "
        "one run has no deviation."
    )
    return Table(
        name,
        title,
        tuple(columns[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in rows),
        (note, *tuned_note(cells)),
    )


def _final_row(series: Series, tuned: Sequence[int]) -> Row:
    finals = series.finals()
    untuned = mean_std([value for run, value in finals.items() if run not in tuned])
    metrics = map(series.final, ("average", "forgetting", "forward_transfer"))
    accuracy = (series.final(), len(finals), untuned)
    last = series.orders, _unfinished_runs(series)
    return series.panel.title, series.name, *accuracy, *metrics, *last


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


def parity_table(series: Sequence[Series], targets: Mapping[PublishedKey, MeanStd]) -> Table:
    """Return our final accuracies beside the authors'.

    Args:
        series: one row each; those for which there is no published result are left out.
        targets: the authors' final accuracies.
    """
    rows: list[Row] = []
    for one in series:
        norm = one.norm or strategy_info(one.strategy).norm or "brn"
        target = targets.get((one.panel.protocol, one.strategy, norm))
        if target is not None:
            rows.append(_parity_row(one, target))
    columns = (
        "protocol",
        "strategy",
        "ours (%)",
        "our runs",
        "theirs (%)",
        "difference",
        "our orders",
        "within one std",
    )
    notes = (
        "Rule: within one standard deviation if |ours − theirs| ≤ the authors' standard deviation "
        "over their 10 runs. Theirs: final accuracy on CORe50, from the public result files "
        "(Cumulative: about 85, from the text).",
        "A verdict needs the same data: the complete CORe50, its objects as classes, at 128 px, "
        "tested on an official test set. Other accuracies are shown beside theirs for orientation "
        "only. Our orders: official if they come from the authors' files, generated if those were "
        "not there.",
    )
    title = "Parity with the authors' published results"
    return Table("parity", title, columns, tuple(rows), notes)


def _parity_row(series: Series, target: MeanStd) -> Row:
    ours = series.final()
    difference = Difference(ours.mean - target.mean) if ours else None
    runs = ours.runs if ours else 0
    verdict = _parity_verdict(ours, series.panel, target)
    numbers = ours, runs, target, difference
    return series.panel.title, series.name, *numbers, series.orders, verdict


def _parity_verdict(ours: MeanStd | None, panel: Panel, target: MeanStd) -> Verdict:
    if ours is None:
        return Verdict("no finished run", "open")
    if not panel.comparison.comparable:
        return Verdict(f"not compared: {panel.comparison.reason}", "open")
    if target.std is None:
        return Verdict("no deviation published", "open")
    if abs(ours.mean - target.mean) <= target.std:
        return Verdict("yes", "good")
    return Verdict("no", "bad")


def efficiency_table(series: Sequence[Series]) -> Table | None:
    """Return tab:efficiency, over the finest protocol that has finished runs.

    Args:
        series: any series; None is returned if no run has finished.
    """
    done = [one for one in series if one.done]
    if not done:
        return None
    panel = max(done, key=_fineness).panel
    rows_of = [one for one in done if one.panel == panel]
    rows = tuple(map(_efficiency_row, rows_of))
    columns = (
        "strategy",
        "runs",
        "run time (min)",
        "data (MB)",
        "params (MB)",
        "paper: run time (min)",
        "paper: data (MB)",
        "paper: params (MB)",
    )
    notes = (
        f"Ours: {panel.title} on the data set '{panel.data_name}', learning and testing together, "
        "mean over runs. The paper: NICv2-391 on CORe50, a GTX 1080 Ti.",
        "Data: the most that was stored of past patterns, as frames of one byte per channel. "
        "Params: state that the strategy keeps beyond the network with its head; the paper counts "
        "additional trainable parameters. EWC keeps F; its theta* is the network itself until a "
        "batch begins, so that ours does not store it twice. 1 MB is 1,000,000 bytes.",
        *_retrained_note(rows_of),
    )
    title = "tab:efficiency: run time and memory of one run"
    return Table("efficiency", title, columns, rows, notes)


def _retrained_note(series: Sequence[Series]) -> list[str]:
    times = sorted({cell.retrain for one in series for cell in one.done if cell.retrain})
    if not times:
        return []
    often = " or ".join(f"{count} times" if count > 1 else "once" for count in times)
    return [
        f"Cumulative was retrained {often} in its run; the paper counts one retraining after each "
        "of the 391 batches, so that the run times cannot be compared."
    ]


def saturation_table(series: Sequence[Series]) -> Table | None:
    """Return the share of guarded weights that are fixed, F = max_F, or None if there is no guard.

    Args:
        series: any series; those without a guard are left out.
    """
    rows: list[Row] = []
    for one in series:
        first = one.over_runs(lambda cell: _saturated(cell, 0))
        last = one.over_runs(lambda cell: _saturated(cell, -1))
        if first and last:
            rows.append((one.panel.title, one.name, first, last, first.runs))
    if not rows:
        return None
    columns = ("protocol", "strategy", "after batch 1 (%)", "at the end (%)", "runs")
    note = (
        "The share of the guarded weights whose importance F has reached max_F, mean ± population "
        "standard deviation over runs. Modulation does not move such a weight any more; the "
        "penalty pulls it back as strongly as it can."
    )
    title = "Saturation of the guard"
    return Table("saturation", title, columns, tuple(rows), (note,), digits=1)


def _saturated(cell: StoredCell, place: int) -> float | None:
    """Return the percent of saturated weights after the first or the last batch."""
    shares = [step.saturated for step in cell.steps if step.saturated is not None]
    return 100 * shares[place] if shares else None


def _fineness(series: Series) -> tuple[bool, int]:
    """Return a sorting key: the paper's protocol first of all, then the number of batches."""
    batches = max((cell.batches or cell.reached for cell in series.cells), default=0)
    return series.panel.protocol == "nicv2-391", batches


def _efficiency_row(series: Series) -> Row:
    ours = (
        series.over_runs(_minutes),
        _megabytes(series, "stored_bytes"),
        _megabytes(series, "state_bytes"),
    )
    is_variant = series.name != strategy_info(series.strategy).title
    paper = None if is_variant else EFFICIENCY.get(series.strategy)
    theirs = (paper.minutes, paper.data_mb, paper.params_mb) if paper else (None, None, None)
    return series.name, len(series.done), *ours, *theirs


def _minutes(cell: StoredCell) -> float | None:
    return None if cell.seconds is None else cell.seconds / 60


def _megabytes(series: Series, field: Literal["stored_bytes", "state_bytes"]) -> float | None:
    """Return the mean over runs of the largest size that a run had after any batch."""

    def largest(cell: StoredCell) -> float | None:
        sizes = [getattr(source, field) for source in (*cell.steps, cell.result)]
        known = [size for size in sizes if size is not None]
        return max(known) / MEGABYTE if known else None

    mean = series.over_runs(largest)
    return mean.mean if mean else None


def failed_table(cells: Sequence[StoredCell]) -> Table | None:
    """Return every failed or damaged cell with its reason, or None if there is none.

    Args:
        cells: all cells.
    """
    rows = [(*_cell_columns(cell), cell.failure) for cell in cells if cell.status == "failed"]
    if not rows:
        return None
    columns = ("cell", "strategy", "protocol", "run", "batches done", "reason")
    return Table("failed", "Cells that failed", columns, tuple(rows))


def progress_table(cells: Sequence[StoredCell]) -> Table | None:
    """Return the cells that are neither done nor failed, or None if there is none.

    Args:
        cells: all cells.
    """
    rows: list[Row] = []
    for cell in cells:
        if cell.status == "in progress":
            accuracies = list(cell.curve.values())
            last = accuracies[-1] if accuracies else None
            rows.append((*_cell_columns(cell), cell.batches, last))
    if not rows:
        return None
    columns = ("cell", "strategy", "protocol", "run", "batches done", "of", "accuracy so far (%)")
    return Table("unfinished", "Cells in progress", columns, tuple(rows))


def _cell_columns(cell: StoredCell) -> Row:
    strategy, protocol = strategy_info(cell.strategy).title, protocol_title(cell.protocol)
    return cell.path, strategy, protocol, str(cell.run), cell.reached
