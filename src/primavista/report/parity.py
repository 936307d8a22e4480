"""Final accuracies beside those that the authors published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primavista.report.published import PublishedKey
from primavista.report.series import MeanStd, Panel, Series
from primavista.report.table import Difference, Row, Table, Verdict
from primavista.strategies.registry import strategy_info


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
        "test frames",
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
    numbers = ours, runs, series.test_frames, target, difference
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
