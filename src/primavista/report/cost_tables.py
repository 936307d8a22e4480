"""Run time, memory and operations, and the saturation of the guard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from primavista.report.final_tables import megabytes
from primavista.report.methods import retrained_strategies
from primavista.report.published import EFFICIENCY
from primavista.report.ranking import best_values, ranked
from primavista.report.read import StoredCell
from primavista.report.series import Series
from primavista.report.table import Row, Size, Table, without_empty
from primavista.strategies.registry import strategy_info

TIMES = ("learn_seconds", "solve_seconds", "test_seconds")
UNITS = {"s": 1.0, "min": 60.0}  # in seconds


def efficiency_table(name: str, title: str, series: Sequence[Series]) -> Table | None:
    """Return time, memory and operations of the finished runs, or None if no run has finished.

    Args:
        name: the stem of the table's files.
        title: the heading.
        series: one row each, sorted by accuracy as in the other tables. The paper's numbers stand
            beside ours on its protocol, NICv2-391, alone.
    """
    done = [one for one in ranked(series) if one.done]
    if not done:
        return None
    unit = _time_unit(done)
    times = [f"{title} ({unit})" for title in ("learning", "solving", "testing")]
    columns = (
        "protocol",
        "strategy",
        "runs",
        *times,
        "data (MB)",
        "state (MB)",
        "peak memory (MB)",
        "learning (MFLOP per frame)",
        "predicting (MFLOP per frame)",
        "paper: run time (min)",
        "paper: data (MB)",
        "paper: params (MB)",
    )
    kept, rows = without_empty(columns, [_efficiency_row(one, UNITS[unit]) for one in done], 3)
    rivals = [not strategy_info(one.strategy).joint for one in done]
    compared = [title for title in (*times, "peak memory (MB)") if not title.startswith("solving")]
    bold = best_values(kept, rows, dict.fromkeys(compared, "low"), rivals)
    caption = "Run time and memory of one run, mean and sample standard deviation over runs"
    notes = tuple(_efficiency_notes(done))
    return Table(name, title, kept, rows, notes, caption=caption, bold=bold)


def _time_unit(series: Sequence[Series]) -> str:
    """Return seconds if no strategy learns for two minutes, or else minutes."""
    means = [one.over_runs(partial(_time, time="learn_seconds", unit=1.0)) for one in series]
    return "s" if max((mean.mean for mean in means if mean), default=0.0) < 120 else "min"


def _efficiency_notes(series: Sequence[Series]) -> list[str]:
    results = [cell.result for one in series for cell in one.done if cell.result]
    in_paper = {one.strategy for one in series if _beside_paper(one)}
    notes = {
        "Solving is what the first prediction after a batch waits for, in heads that keep sums; it "
        "is done for each test. Data: the most that was stored of past patterns. State: what the "
        "strategy keeps beyond the network, its head and these data. 1 MB is 1,000,000 "
        "bytes.": True,
        "Where solving has no time of its own (format 1 of the results), testing contains it.": any(
            result.solve_seconds is None for result in results
        ),
        "Peak memory: the most in use during the cell beyond what was in use at its start; "
        "resident memory of the process on a CPU, torch's allocations on a GPU.": any(
            result.peak_bytes is not None for result in results
        ),
        "MFLOP: millions of floating-point operations in matrix products and convolutions, two "
        "for each multiplication with its addition, counted on the last batch.": any(
            result.operations for result in results
        ),
        "The paper: NICv2-391 on CORe50, a GTX 1080 Ti, learning and testing together; its params "
        "are additional trainable parameters.": bool(in_paper),
        "EWC keeps F; its theta* is the network itself until a batch begins, so that ours does not "
        "store it twice.": "ewc" in in_paper,
    }
    return [*(text for text, applies in notes.items() if applies), *_retrained_note(series)]


def _beside_paper(series: Series) -> bool:
    """Return whether the paper has numbers for the series: the same protocol and strategy."""
    is_variant = series.name != strategy_info(series.strategy).title
    in_paper = series.panel.protocol == "nicv2-391" and series.strategy in EFFICIENCY
    return in_paper and not is_variant


def _retrained_note(series: Sequence[Series]) -> list[str]:
    retrained = retrained_strategies(cell for one in series for cell in one.done)
    notes = [
        f"{one.title} was trained from scratch on {one.on}, after {one.after} of a run."
        for one in retrained
    ]
    if any(one.strategy == "cumulative" and _beside_paper(one) for one in series) and retrained:
        notes.append(
            "The paper counts one retraining of Cumulative after each batch, so that its run time "
            "cannot be compared with ours."
        )
    return notes


def saturation_table(series: Sequence[Series]) -> Table | None:
    """Return the share of guarded weights that are fixed, F = max_F, or None if there is no guard.

    Args:
        series: any series; those without a guard are left out.
    """
    rows: list[Row] = []
    for one in ranked(series):
        first = one.over_runs(lambda cell: _saturated(cell, 0))
        last = one.over_runs(lambda cell: _saturated(cell, -1))
        if first and last:
            rows.append((one.panel.title, one.name, first, last, first.runs))
    if not rows:
        return None
    columns = ("protocol", "strategy", "after batch 1 (%)", "at the end (%)", "runs")
    note = (
        "The share of the guarded weights whose importance F has reached max_F, mean ± sample "
        "standard deviation over runs. Modulation does not move such a weight any more; the "
        "penalty pulls it back as strongly as it can."
    )
    title = "Saturation of the guard"
    return Table("saturation", title, columns, tuple(rows), (note,), digits=1)


def _saturated(cell: StoredCell, place: int) -> float | None:
    """Return the percent of saturated weights after the first or the last batch."""
    shares = [step.saturated for step in cell.steps if step.saturated is not None]
    return 100 * shares[place] if shares else None


def _efficiency_row(series: Series, unit: float) -> Row:
    ours = (
        *(series.over_runs(partial(_time, time=time, unit=unit)) for time in TIMES),
        *(_size(series, field) for field in ("stored_bytes", "state_bytes", "peak_bytes")),
        *(_operations(series, kind) for kind in ("learning", "predicting")),
    )
    paper = EFFICIENCY[series.strategy] if _beside_paper(series) else None
    theirs = (paper.minutes, paper.data_mb, paper.params_mb) if paper else (None, None, None)
    return series.panel.title, series.name, len(series.done), *ours, *theirs


def _size(series: Series, field: str) -> Size | None:
    found = megabytes(series, field)
    return None if found is None else Size(found)


def _time(cell: StoredCell, time: str, unit: float) -> float | None:
    seconds = getattr(cell.result, time)
    if seconds is None or (time == "solve_seconds" and not seconds):
        return None  # there is nothing to solve
    return float(seconds) / unit


def _operations(series: Series, kind: str) -> float | None:
    """Return the mean over runs of the operations per frame, in millions."""

    def counted(cell: StoredCell) -> float | None:
        found = cell.result.operations if cell.result else None
        return None if not found or kind not in found else found[kind] / 1e6

    mean = series.over_runs(counted)
    return mean.mean if mean else None
