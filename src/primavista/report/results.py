"""The tables of numbers: final accuracy, parity with the authors, efficiency, progress and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primavista.report.names import look, protocol_name
from primavista.report.published import EFFICIENCY, Key
from primavista.report.read import Cell, number
from primavista.report.series import Series, Spread, spread
from primavista.report.table import Mark, Signed, Table, Value

MEGABYTE = 1e6


def tuned_on(cells: Sequence[Cell]) -> list[int]:
    """The runs on which hyperparameters were chosen."""
    found = {cell.plan.get("hyperparameters_chosen_on_run") for cell in cells}
    return sorted(run for run in found if isinstance(run, int) and not isinstance(run, bool))


def final_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Mean and population standard deviation over the finished runs, with and without those the tuning saw."""
    rows: list[tuple[Value, ...]] = []
    tuned = tuned_on([cell for one in series for cell in one.cells])
    for one in series:
        unseen = [value for run, value in one.finals().items() if run not in tuned]
        rows.append(
            (
                one.panel.title,
                one.name,
                one.final(),
                len(one.finals()),
                spread(unseen),
                one.final("average"),
                one.final("forgetting"),
                one.final("forward_transfer"),
                _unfinished(one),
            )
        )
    without = f"without run {', '.join(map(str, tuned))}" if tuned else "without the run tuned on"
    columns: tuple[str, ...] = (
        "protocol",
        "strategy",
        "final accuracy (%)",
        "runs",
        f"{without} (%)",
        "average over the batches (%)",
        "forgetting",
        "forward transfer",
        "unfinished",
    )
    kept = [i for i in range(len(columns)) if i < 4 or any(row[i] is not None for row in rows)]
    columns, rows = tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]
    note = "Mean ± population standard deviation over the finished runs, whose number is given; one run has no deviation."
    return Table(
        name,
        title,
        columns,
        tuple(rows),
        (note, *tuned_note([cell for one in series for cell in one.cells])),
    )


def tuned_note(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The mark that every report carries."""
    tuned = tuned_on(cells)
    runs = ", ".join(map(str, tuned))
    if not tuned:
        return ()
    if {cell.run for cell in cells} <= set(tuned):
        return (f"Hyperparameters were chosen on run {runs}, and there is no other run here.",)
    return (
        f"Hyperparameters were chosen on run {runs} and then fixed: that run is part of the means, as in the paper.",
    )


def parity_table(series: Sequence[Series], theirs: Mapping[Key, Spread]) -> Table:
    """Ours beside the authors': the difference, and whether it lies within one standard deviation of theirs."""
    rows: list[tuple[Value, ...]] = []
    for one in series:
        key = (
            one.panel.protocol,
            one.strategy,
            one.norm or ("bn" if one.strategy == "cumulative" else "brn"),
        )
        if (target := theirs.get(key)) is None:
            continue
        ours = one.final()
        difference = Signed(ours.mean - target.mean) if ours else None
        rows.append(
            (
                one.panel.title,
                one.name,
                ours,
                ours.runs if ours else 0,
                target,
                difference,
                _parity(one, target),
            )
        )
    columns = (
        "protocol",
        "strategy",
        "ours (%)",
        "our runs",
        "theirs (%)",
        "difference",
        "within one std",
    )
    notes = (
        "Rule: within one standard deviation if |ours − theirs| ≤ the authors' standard deviation over their 10 runs. "
        "Theirs: final accuracy on CORe50, from the public result files (Cumulative: about 85, from the text).",
        "Only the same data can be compared: accuracy on other data than CORe50 stands beside theirs for orientation.",
    )
    return Table(
        "parity", "Parity with the authors' published results", columns, tuple(rows), notes
    )


def _parity(series: Series, target: Spread) -> Mark:
    ours = series.final()
    if ours is None:
        return Mark("no finished run", "open")
    if not series.panel.core50:
        return Mark("other data", "open")
    if target.std is None:
        return Mark("no deviation published", "open")
    within = abs(ours.mean - target.mean) <= target.std
    return Mark("yes", "good") if within else Mark("no", "bad")


def efficiency_table(series: Sequence[Series]) -> Table | None:
    """The paper's tab:efficiency, over the finest protocol that has finished runs."""
    done = [one for one in series if one.done]
    if not done:
        return None
    finest = max(done, key=lambda one: (one.panel.protocol == "nicv2-391", _batches(one))).panel
    rows: list[tuple[Value, ...]] = []
    for one in (one for one in done if one.panel == finest):
        paper = EFFICIENCY.get(one.strategy) if one.name == look(one.strategy).name else None
        rows.append(
            (
                one.name,
                len(one.done),
                one.over_runs(lambda cell: cell.seconds / 60 if cell.seconds is not None else None),
                _megabytes(one, "stored_bytes"),
                _megabytes(one, "state_bytes"),
                *(
                    (paper.minutes, float(paper.data_mb), float(paper.params_mb))
                    if paper
                    else (None, None, None)
                ),
            )
        )
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
        f"Ours: {finest.title} on the data set '{finest.data_name}', learning and testing together, mean over runs. The paper: "
        "NICv2-391 on CORe50, a GTX 1080 Ti.",
        "Data: the most that was stored of past patterns. Params: state that the strategy keeps beyond the backbone, which for "
        "ours includes the head; the paper counts additional trainable parameters. 1 MB is 1,000,000 bytes.",
    )
    return Table(
        "efficiency", "tab:efficiency: run time and memory of one run", columns, tuple(rows), notes
    )


def _batches(series: Series) -> int:
    return max((cell.batches or cell.reached for cell in series.cells), default=0)


def _megabytes(series: Series, key: str) -> float | None:
    def most(cell: Cell) -> float | None:
        seen = [number(step.get(key)) for step in cell.steps] + [
            number((cell.result or {}).get(key))
        ]
        values = [value for value in seen if value is not None]
        return max(values) / MEGABYTE if values else None

    found = series.over_runs(most)
    return found.mean if found else None


def _unfinished(series: Series) -> str | None:
    parts = []
    for cell in series.cells:
        if cell.status != "done":
            of = f"/{cell.batches}" if cell.batches else ""
            parts.append(
                f"run {cell.run} {'failed' if cell.status == 'failed' else 'at'} {cell.reached}{of}"
            )
    return "; ".join(parts) or None


def failed_table(cells: Sequence[Cell]) -> Table | None:
    """Every failed or damaged cell, with its reason."""
    failed = [cell for cell in cells if cell.status == "failed"]
    rows: list[tuple[Value, ...]] = [
        (
            cell.path,
            look(cell.strategy).name,
            protocol_name(cell.protocol),
            str(cell.run),
            cell.reached,
            cell.reason,
        )
        for cell in failed
    ]
    columns = ("cell", "strategy", "protocol", "run", "batches done", "reason")
    return Table("failed", "Cells that failed", columns, tuple(rows)) if rows else None


def progress_table(cells: Sequence[Cell]) -> Table | None:
    """Cells that are not done and have not failed."""
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        if cell.status == "in progress":
            last = list(cell.curve.values())[-1:]
            rows.append(
                (
                    cell.path,
                    look(cell.strategy).name,
                    protocol_name(cell.protocol),
                    str(cell.run),
                    cell.reached,
                    cell.batches,
                    last[0] if last else None,
                )
            )
    columns = ("cell", "strategy", "protocol", "run", "batches done", "of", "accuracy so far (%)")
    return Table("unfinished", "Cells in progress", columns, tuple(rows)) if rows else None
