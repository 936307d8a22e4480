"""The tables of numbers: final accuracy, parity with the authors, efficiency, unfinished cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from primavista.report.published import EFFICIENCY, PublishedKey
from primavista.report.read import StoredCell
from primavista.report.series import MeanStd, Panel, Series, mean_std
from primavista.report.table import Difference, Row, Table, Verdict
from primavista.report.titles import protocol_title
from primavista.strategies.registry import strategy_info

MEGABYTE = 1e6
TIMES = ("learn_seconds", "solve_seconds", "test_seconds")


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
MEASURES = (
    ("on the classes seen (%)", "seen_accuracy"),
    ("average incremental (%)", "average"),
    ("average over tasks (%)", "average_accuracy"),
    ("average anytime (%)", "average_anytime"),
    ("forgetting", "forgetting"),
    ("backward transfer", "backward_transfer"),
    ("forward transfer", "forward_transfer"),
)


def final_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return the final metrics, as mean and sample standard deviation over the finished runs.

    Columns after the fifth that would be empty are left out.

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
        "test frames",
        "stored data (MB)",
        f"without {tuned_title} (%)",
        *(column for column, _ in MEASURES),
        "frames for forward transfer",
        "orders of batches",
        "unfinished",
    )
    notes = (
        "Mean ± sample standard deviation over the finished runs, whose number is given; one run "
        "has no deviation.",
        *run_note(cells),
        "The measures are defined in the documentation, on the page on metrics; they are percent "
        "and points of accuracy on the test frames.",
        *tuned_note(cells),
    )
    rows = [_final_row(one, tuned) for one in series]
    return Table(name, title, *_without_empty(columns, rows, 5), notes)


def _without_empty(
    columns: Sequence[str], rows: Sequence[Row], first: int
) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Leave out empty columns after the first ones."""
    kept = [i for i in range(len(columns)) if i < first or any(row[i] is not None for row in rows)]
    return tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)


def run_note(cells: Sequence[StoredCell]) -> tuple[str, ...]:
    """Return the remark on what varies between runs, if there are several.

    Args:
        cells: the cells that the remark is about.
    """
    known = [cell for cell in cells if cell.cell is not None]
    if len({cell.run for cell in known}) < 2:
        return ()
    varies = _varying(known)
    same = [name for name, own in varies.items() if not own]
    text = f"Runs differ in {' and in '.join(name for name, own in varies.items() if own)}"
    if same:
        text += f"; {' and '.join(same)} {'is' if len(same) == 1 else 'are'} the same in all"
    return (f"{text}. A deviation of 0 means that a result does not depend on these.",)


def _varying(cells: Sequence[StoredCell]) -> dict[str, bool]:
    """Return what may vary between runs, and whether it does."""
    seeds = {cell.cell.seed for cell in cells if cell.cell is not None}
    return {
        "the order of the batches": True,
        "the seed of the strategy": len(seeds) > 1,
        "the split into training and test sessions": all(cell.varies_split for cell in cells),
    }


def _final_row(series: Series, tuned: Sequence[int]) -> Row:
    finals = series.finals()
    untuned = mean_std([v for run, v in finals.items() if run not in tuned]) if tuned else None
    metrics = [series.final(field) for _, field in MEASURES]
    stored = _megabytes(series, "stored_bytes") or None  # empty if it is rehearsal-free
    accuracy = (series.final(), len(finals), series.test_frames, stored, untuned)
    asked = sorted({int(frames) for frames in series.finals("transfer_frames").values()})
    frames = " to ".join(f"{count:,}" for count in dict.fromkeys(asked[:1] + asked[-1:])) or None
    last = frames, series.orders, _unfinished_runs(series)
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
        "Rule: within one standard deviation if |ours − theirs| ≤ the authors' sample standard "
        "deviation over their 10 runs. Theirs: final accuracy on CORe50, from the public result "
        "files (Cumulative: about 85, from the text).",
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
    rows = list(map(_efficiency_row, rows_of))
    columns = (
        "strategy",
        "runs",
        "learning (min)",
        "solving (min)",
        "testing (min)",
        "data (MB)",
        "state (MB)",
        "peak memory (MB)",
        "learning (MFLOP per frame)",
        "predicting (MFLOP per frame)",
        "paper: run time (min)",
        "paper: data (MB)",
        "paper: params (MB)",
    )
    title = "tab:efficiency: run time and memory of one run"
    notes = tuple(_efficiency_notes(panel, rows_of))
    return Table("efficiency", title, *_without_empty(columns, rows, 7), notes)


def _efficiency_notes(panel: Panel, series: Sequence[Series]) -> list[str]:
    results = [cell.result for one in series for cell in one.done if cell.result]
    strategies = {one.strategy for one in series}
    notes = {
        f"{panel.title} on the data set '{panel.data_name}', mean over runs; 1 MB is 1,000,000 "
        "bytes. Solving is what the first prediction after a batch waits for, in heads that keep "
        "sums; it is done for each test. Data: the most that was stored of past patterns. State: "
        "what the strategy keeps beyond the network, its head and these data.": True,
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
        "are additional trainable parameters.": bool(strategies & EFFICIENCY.keys()),
        "EWC keeps F; its theta* is the network itself until a batch begins, so that ours does not "
        "store it twice.": "ewc" in strategies,
    }
    return [*(text for text, applies in notes.items() if applies), *_retrained_note(series)]


def _retrained_note(series: Sequence[Series]) -> list[str]:
    times = sorted({cell.retrain for one in series for cell in one.done if cell.retrain})
    if not times:
        return []
    often = " or ".join(f"{count} times" if count > 1 else "once" for count in times)
    return [
        f"Strategies that train on all data at once were retrained {often} in a run; the paper "
        "counts one retraining of Cumulative after each of the 391 batches, so that the run times "
        "cannot be compared."
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


def _fineness(series: Series) -> tuple[bool, int]:
    """Return a sorting key: the paper's protocol first of all, then the number of batches."""
    batches = max((cell.batches or cell.reached for cell in series.cells), default=0)
    return series.panel.protocol == "nicv2-391", batches


def _efficiency_row(series: Series) -> Row:
    ours = (
        *(series.over_runs(partial(_minutes, time=time)) for time in TIMES),
        _megabytes(series, "stored_bytes"),
        _megabytes(series, "state_bytes"),
        _megabytes(series, "peak_bytes"),
        *(_operations(series, kind) for kind in ("learning", "predicting")),
    )
    is_variant = series.name != strategy_info(series.strategy).title
    paper = None if is_variant else EFFICIENCY.get(series.strategy)
    theirs = (paper.minutes, paper.data_mb, paper.params_mb) if paper else (None, None, None)
    return series.name, len(series.done), *ours, *theirs


def _minutes(cell: StoredCell, time: str) -> float | None:
    seconds = getattr(cell.result, time)
    return None if seconds is None else seconds / 60


def _operations(series: Series, kind: str) -> float | None:
    """Return the mean over runs of the operations per frame, in millions."""

    def counted(cell: StoredCell) -> float | None:
        found = cell.result.operations if cell.result else None
        return None if not found or kind not in found else found[kind] / 1e6

    mean = series.over_runs(counted)
    return mean.mean if mean else None


def _megabytes(series: Series, field: str) -> float | None:
    """Return the mean over runs of the largest size that a run had after any batch."""

    def largest(cell: StoredCell) -> float | None:
        sizes = [getattr(source, field, None) for source in (*cell.steps, cell.result)]
        known = [size for size in sizes if size is not None]
        return max(known) / MEGABYTE if known else None

    mean = series.over_runs(largest)
    return mean.mean if mean else None


def stale_table(cells: Sequence[StoredCell], superseded: Sequence[StoredCell]) -> Table | None:
    """Return the cells whose code or data has changed since, or None if there is none.

    Args:
        cells: all cells of the report.
        superseded: stale cells that were run again, which the report leaves out.
    """
    rows: list[Row] = []
    for shown, group in ((True, cells), (False, superseded)):
        for cell in group:
            if cell.stale:
                reason = cell.stale if shown else f"{cell.stale}; run again since"
                shown_text = "yes" if shown else "no"
                rows.append((*_cell_columns(cell), reason, shown_text))
    if not rows:
        return None
    columns = ("cell", "strategy", "protocol", "run", "batches done", "reason", "in this report")
    note = "Run the plan again to compute stale cells anew; the old ones stay beside the new ones."
    return Table("stale", "Stale cells", columns, tuple(rows), (note,))


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
