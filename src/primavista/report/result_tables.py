"""Tables of results: final measures, pairs, costs, the guard, and the published accuracies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from primavista.bench import metrics
from primavista.bench.metrics import Better
from primavista.bench.significance import compare
from primavista.report.methods import retrained_note
from primavista.report.published import EFFICIENCY, Efficiency, PublishedKey
from primavista.report.read import StoredCell
from primavista.report.series import MeanStd, Series, by_panel, mean_std
from primavista.report.table import (
    Difference,
    Row,
    Size,
    Table,
    Value,
    Verdict,
    format_value,
)
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


def _stored(series: Series) -> Size | None:
    """Return the stored data in megabytes; None if it is rehearsal-free."""
    found = _megabytes(series, "stored_bytes")
    return found if found and found.value else None


def _unfinished_runs(series: Series) -> str | None:
    """Return how far each unfinished run got."""
    parts = []
    for cell in series.cells:
        if cell.status != "done":
            state = "failed" if cell.status == "failed" else "at"
            of = f"/{cell.batches}" if cell.batches else ""
            parts.append(f"run {cell.run} {state} {cell.reached}{of}")
    return "; ".join(parts) or None


def _transfer_frames(series: Series) -> str | None:
    """Return the numbers of frames that forward transfer was measured on."""
    asked = sorted({int(frames) for frames in series.finals("transfer_frames").values()})
    return " to ".join(f"{count:,}" for count in dict.fromkeys(asked[:1] + asked[-1:])) or None


PROTOCOL = Column("protocol", lambda one: one.panel.title)
STRATEGY = Column("strategy", lambda one: one.name)
FINAL = Column("final accuracy (%)", Series.final, "high")
RUNS = Column("runs", lambda one: len(one.done))
TEST_FRAMES = Column("test frames", lambda one: one.test_frames)
STORED = Column("stored data (MB)", _stored)
# The measures after accuracy.
MEASURES = {
    name: Column(metrics.TITLES[name], partial(Series.final, metric=name), metrics.BETTER[name])
    for name in metrics.MEASURES[1:]
}
PUBLISHED = ("average", "forgetting", "backward_transfer", "seen_accuracy")


def series_table(
    name: str,
    title: str,
    series: Sequence[Series],
    columns: Sequence[Column],
    first: int,
    digits: int = 2,
    caption: str = "",
) -> Table:
    """Return a table with one row per series, with the best values in bold.

    Columns after the first ones, as many as `first` says, are left out if they are empty.
    """
    titles = tuple(column.title for column in columns)
    rows = tuple(tuple(column.value(one) for column in columns) for one in series)
    table = Table(name, title, titles, rows, digits=digits, caption=caption)
    better = {column.title: column.better for column in columns if column.better}
    rivals = [not strategy_info(one.strategy).joint for one in series]
    return best_values(table.without_empty_columns(first), better, rivals)


def ranked(series: Sequence[Series]) -> list[Series]:
    """Sort the series of each panel by final accuracy, the best first.

    Strategies that train on all data at once follow after the others, since they are a bound and
    not a rival; series without a finished run come last.
    """
    found: list[Series] = []
    for own in by_panel(series).values():
        found += sorted(own, key=_rank)
    return found


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
            values = {row: _number(table.rows[row][column]) for row in block if rivals[row]}
            known = {row: value for row, value in values.items() if value is not None}
            if title not in better or len(known) < 2:
                continue
            best = max(known.values()) if better[title] == "high" else min(known.values())
            shown = format_value(best, table.digits)
            found |= {
                (row, column)
                for row, value in known.items()
                if format_value(value, table.digits) == shown
            }
    return table.with_bold(found)


def _number(value: Value) -> float | None:
    if isinstance(value, MeanStd):
        return value.mean
    if isinstance(value, Size):
        return value.value
    return float(value) if isinstance(value, int | float) else None


def tuned_runs(cells: Sequence[StoredCell]) -> list[int]:
    """Return the runs on which hyperparameters were chosen."""
    tuned = {cell.cell.hyperparameters_chosen_on_run for cell in cells}
    return sorted(run for run in tuned if run is not None)


def tuned_note(cells: Sequence[StoredCell]) -> tuple[str, ...]:
    """Return the remark on the runs on which hyperparameters were chosen, if there are any."""
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


def run_note(cells: Sequence[StoredCell]) -> tuple[str, ...]:
    """Return the remark on what varies between runs, if there are several."""
    if len({cell.run for cell in cells}) < 2:
        return ()
    varies = varying(cells)
    same = [name for name, own in varies.items() if not own]
    text = f"Runs differ in {' and in '.join(name for name, own in varies.items() if own)}"
    if same:
        text += f"; {' and '.join(same)} {'is' if len(same) == 1 else 'are'} the same in all"
    return (f"{text}. A deviation of 0 means that all runs came to the same number.",)


def varying(cells: Sequence[StoredCell]) -> dict[str, bool]:
    """Return what may vary between runs, and whether it does."""
    return {
        "the order of the batches": True,
        "the seed of the strategy": len({cell.cell.seed for cell in cells}) > 1,
        "the split into training and test sessions": all(cell.varies_split for cell in cells),
    }


def accuracy_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return the table to publish: a few measures, sorted by accuracy, the best in bold.

    Series without a finished run are left out, unless there is no other.
    """
    chosen = [one for one in ranked(series) if one.done] or ranked(series)
    cells = [cell for one in chosen for cell in one.cells]
    has_new_classes = any(one.finals("seen_accuracy") != one.finals() for one in chosen)
    shown = PUBLISHED if has_new_classes else PUBLISHED[:-1]
    measures = [column for measure, column in MEASURES.items() if measure in shown]
    columns = (PROTOCOL, STRATEGY, FINAL, STORED, *measures, TEST_FRAMES, RUNS)
    caption = _caption(chosen, cells)
    table = series_table(name, title, chosen, columns, 3, digits=1, caption=caption)
    notes = (*_bound_note(chosen), *_stored_note(table), *_tests_note(cells))
    return replace(table, notes=notes)


def _caption(series: Sequence[Series], cells: Sequence[StoredCell]) -> str:
    names = dict.fromkeys(DATA_TITLES.get(c.data_name, c.data_name) for c in cells)
    several = any(len(one.done) > 1 for one in series)
    spread = ", mean and sample standard deviation over runs" if several else ""
    where = ", ".join(names)
    return f"Accuracy after the last batch on {where}{spread}. The best values are bold."


def _bound_note(series: Sequence[Series]) -> list[str]:
    bounds = [one.name for one in series if strategy_info(one.strategy).joint]
    names = ", ".join(dict.fromkeys(bounds))
    return [f"{names}: trained on all data at once, not among the best."] if names else []


def _stored_note(table: Table) -> list[str]:
    if STORED.title not in table.columns:
        return []
    return ["Stored data: frames or activations kept for rehearsal; 1 MB is 1,000,000 bytes."]


def _tests_note(cells: Sequence[StoredCell]) -> list[str]:
    """Say which strategies have other tests than the rest: averages over them are not the same."""
    found = retrained_note(cells)
    if not found or all(cell.cell.retrain is not None for cell in cells):
        return []
    return [
        "Measures over several tests, such as averages and forgetting, are over the tests that a "
        f"strategy had. Not all had the same. {' '.join(found)}"
    ]


def final_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return every final measure, as mean and sample standard deviation over the finished runs.

    Columns after the fifth that would be empty are left out.
    """
    chosen = ranked(series)
    cells = [cell for one in chosen for cell in one.cells]
    tuned = tuned_runs(cells)

    def untuned(one: Series) -> MeanStd | None:
        kept = [value for run, value in one.finals().items() if run not in tuned]
        return mean_std(kept) if tuned else None

    columns = (
        *(PROTOCOL, STRATEGY, FINAL, RUNS, TEST_FRAMES, STORED),
        Column(f"without run {', '.join(map(str, tuned))} (%)", untuned),
        *MEASURES.values(),
        Column("frames for forward transfer", _transfer_frames),
        Column("orders of batches", lambda one: one.orders),
        Column("unfinished", _unfinished_runs),
    )
    notes = (
        "Mean ± sample standard deviation over the finished runs; one run has no deviation.",
        *run_note(cells),
        "The measures are defined in the documentation, on the page on metrics; they are percent "
        "and points of accuracy on the test frames.",
        *_tests_note(cells),
        *tuned_note(cells),
    )
    return replace(series_table(name, title, chosen, columns, 5), notes=notes)


def _megabytes(series: Series, field: str) -> Size | None:
    """Return the mean over runs of the largest size that a run had after any batch."""

    def largest(cell: StoredCell) -> float | None:
        sizes = [getattr(source, field, None) for source in (*cell.steps, cell.result)]
        known = [size for size in sizes if size is not None]
        return max(known) / MEGABYTE if known else None

    mean = series.over_runs(largest)
    return Size(mean.mean) if mean else None


def pairwise_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return the differences of final accuracies with tests; without a pair it has no rows.

    The series of one panel are compared with each other, over the runs that both have.
    """
    rows: list[Row] = []
    for panel, own in by_panel(series).items():
        for one in compare({one.name: one.finals() for one in own}):
            numbers = one.runs, Difference(one.difference), one.effect, one.p, one.p_holm
            rows.append((panel.title, one.first, one.second, *numbers))
    tests = ("runs", "first − second (points)", "effect d_z", "p", "p, Holm")
    runs = max((int(str(row[3])) for row in rows), default=0)
    least = 2 / 2**runs
    frames = " or ".join(dict.fromkeys(one.test_frames for one in series if one.test_frames))
    tested = f" on {frames} test frames" if frames else ""
    unreachable = f", so that no pair here can reach {SIGNIFICANT:g}"
    notes = (
        f"Final accuracy{tested}, paired by run: the mean difference; d_z, the mean in units of "
        "the sample standard deviation of the differences, none if they are all the same; p of a "
        "two-sided paired permutation test, exact up to 16 runs; p after Holm's correction for all "
        "pairs of the protocol.",
        f"With {runs} runs p cannot be below {least:.4g}"
        f"{unreachable if least > SIGNIFICANT else ''}.",
    )
    return Table(name, title, ("protocol", "first", "second", *tests), tuple(rows), notes, digits=3)


def efficiency_table(name: str, title: str, series: Sequence[Series]) -> Table:
    """Return time, memory and operations of the finished runs.

    The paper's numbers stand beside ours on its protocol, NICv2-391, alone.
    """
    done = [one for one in ranked(series) if one.done]
    means = [one.over_runs(_seconds("learn_seconds")) for one in done]
    is_short = max((mean.mean for mean in means if mean), default=0.0) < SHORT
    unit, scale = ("s", 1.0) if is_short else ("min", 60.0)

    def time(title: str, field: str, better: Better | None = None) -> Column:
        seconds = _seconds(field, scale)
        return Column(f"{title} ({unit})", lambda one: one.over_runs(seconds), better)

    def size(title: str, field: str, better: Better | None = None) -> Column:
        return Column(f"{title} (MB)", partial(_megabytes, field=field), better)

    def operations(title: str) -> Column:
        return Column(f"{title} (MFLOP per frame)", partial(_operations, kind=title))

    def paper(title: str, field: str) -> Column:
        return Column(f"paper: {title}", lambda one: getattr(_in_paper(one), field, None))

    columns = (
        *(PROTOCOL, STRATEGY, RUNS),
        time("learning", "learn_seconds", "low"),
        time("solving", "solve_seconds"),
        time("testing", "test_seconds", "low"),
        size("data", "stored_bytes"),
        size("state", "state_bytes"),
        size("peak memory", "peak_bytes", "low"),
        *(operations("learning"), operations("predicting")),
        paper("run time (min)", "minutes"),
        paper("data (MB)", "data_mb"),
        paper("params (MB)", "params_mb"),
    )
    caption = "Run time and memory of one run, mean and sample standard deviation over runs."
    table = series_table(name, title, done, columns, 3, caption=caption)
    return replace(table, notes=tuple(_efficiency_notes(done, table.columns)))


def _seconds(time: str, scale: float = 1.0) -> Callable[[StoredCell], float | None]:
    def measure(cell: StoredCell) -> float | None:
        seconds = getattr(cell.result, time)
        if seconds is None or (time == "solve_seconds" and not seconds):
            return None  # there is nothing to solve
        return float(seconds) / scale

    return measure


def _operations(series: Series, kind: str) -> float | None:
    """Return the mean over runs of the operations per frame, in millions."""

    def counted(cell: StoredCell) -> float | None:
        found = cell.result.operations if cell.result else None
        return None if not found or kind not in found else found[kind] / 1e6

    mean = series.over_runs(counted)
    return mean.mean if mean else None


def _in_paper(series: Series) -> Efficiency | None:
    """Return the paper's numbers for a series: those of the same protocol and strategy."""
    is_variant = series.name != strategy_info(series.strategy).title
    if is_variant or series.panel.protocol != "nicv2-391":
        return None
    return EFFICIENCY.get(series.strategy)


def _efficiency_notes(series: Sequence[Series], columns: Sequence[str]) -> list[str]:
    in_paper = {one.strategy for one in series if _in_paper(one)}
    retrained = retrained_note([cell for one in series for cell in one.done])
    notes = {
        "Solving is what the first prediction after a batch waits for, in heads that keep sums; it "
        "is done for each test. Data: the most that was stored of past patterns. State: what the "
        "strategy keeps beyond the network, its head and these data. 1 MB is 1,000,000 "
        "bytes.": True,
        "Peak memory: the most in use during the cell beyond what was in use at its start; "
        "resident memory of the process on a CPU, torch's allocations on a GPU.": (
            "peak memory (MB)" in columns
        ),
        "MFLOP: millions of floating-point operations in matrix products and convolutions, two "
        "for each multiplication with its addition, counted on the last batch.": (
            "learning (MFLOP per frame)" in columns
        ),
        "The paper: NICv2-391 on CORe50, a GTX 1080 Ti, learning and testing together; its params "
        "are additional trainable parameters.": bool(in_paper),
        "EWC keeps F; its theta* is the network itself until a batch begins, so that ours does not "
        "store it twice.": "ewc" in in_paper,
        " ".join(retrained): bool(retrained),
        "The paper counts one retraining of Cumulative after each batch, so that its run time "
        "cannot be compared with ours.": "cumulative" in in_paper and bool(retrained),
    }
    return [text for text, applies in notes.items() if applies]


def saturation_table(series: Sequence[Series]) -> Table:
    """Return the share of guarded weights with F = max_F of the strategies with a guard."""

    def saturated(place: int) -> Callable[[Series], MeanStd | None]:
        return lambda one: one.over_runs(partial(_saturated, place=place))

    columns = (
        *(PROTOCOL, STRATEGY),
        Column("after batch 1 (%)", saturated(0)),
        Column("at the end (%)", saturated(-1)),
        Column("runs", lambda one: sum(_saturated(cell, 0) is not None for cell in one.done)),
    )
    note = (
        "The share of the guarded weights whose importance F has reached max_F, mean ± sample "
        "standard deviation over runs. Modulation does not move such a weight any more; the "
        "penalty pulls it back as strongly as it can."
    )
    guarded = [one for one in ranked(series) if saturated(0)(one)]
    table = series_table("saturation", "Saturation of the guard", guarded, columns, 5, digits=1)
    return replace(table, notes=(note,))


def _saturated(cell: StoredCell, place: int) -> float | None:
    """Return the percent of saturated weights after the first or the last batch."""
    shares = [step.saturated for step in cell.steps if step.saturated is not None]
    return 100 * shares[place] if shares else None


def parity_table(series: Sequence[Series], targets: Mapping[PublishedKey, MeanStd]) -> Table:
    """Return our final accuracies beside the authors', if they published any of them."""

    def difference(one: Series) -> Difference | None:
        ours = one.final()
        return Difference(ours.mean - targets[one.published_key].mean) if ours else None

    columns = (
        *(PROTOCOL, STRATEGY),
        Column("ours (%)", Series.final),
        Column("our runs", lambda one: len(one.done)),
        TEST_FRAMES,
        Column("theirs (%)", lambda one: targets[one.published_key]),
        Column("difference", difference),
        Column("our orders", lambda one: one.orders),
        Column("within one std", lambda one: _parity_verdict(one, targets[one.published_key])),
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
    shown = [one for one in series if one.published_key in targets]
    title = "Parity with the authors' published results"
    return replace(series_table("parity", title, shown, columns, len(columns)), notes=notes)


def _parity_verdict(series: Series, target: MeanStd) -> Verdict:
    ours, comparison = series.final(), series.panel.comparison
    if ours is None:
        return Verdict("no finished run", "open")
    if not comparison.comparable:
        return Verdict(f"not compared: {comparison.reason}", "open")
    if target.std is None:
        return Verdict("no deviation published", "open")
    if abs(ours.mean - target.mean) <= target.std:
        return Verdict("yes", "good")
    return Verdict("no", "bad")
