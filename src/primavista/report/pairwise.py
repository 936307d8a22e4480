"""Every two strategies of a panel compared over their runs."""

from __future__ import annotations

from collections.abc import Sequence

from primavista.bench.significance import compare
from primavista.report.series import Series, by_panel
from primavista.report.table import Difference, Row, Table

SIGNIFICANT = 0.05


def pairwise_table(name: str, title: str, series: Sequence[Series]) -> Table | None:
    """Return the differences of final accuracies with tests, or None if there is no pair.

    Args:
        name: the stem of the table's files.
        title: the title of the table.
        series: those of one panel are compared with each other, over the runs that both have.
    """
    rows: list[Row] = []
    for panel, own in by_panel(series).items():
        found = compare({one.name: one.finals() for one in own})
        for one in found:
            numbers = one.runs, Difference(one.difference), one.effect, one.p, one.p_holm
            rows.append((panel.title, one.first, one.second, *numbers))
    if not rows:
        return None
    columns = (
        "protocol",
        "first",
        "second",
        "runs",
        "first − second (points)",
        "effect d_z",
        "p",
        "p, Holm",
    )
    most = max(int(str(row[3])) for row in rows)
    frames = " or ".join(dict.fromkeys(one.test_frames for one in series if one.test_frames))
    tested = f" on {frames} test frames" if frames else ""
    notes = (
        f"Final accuracy{tested}, paired by run: the mean difference; d_z, the mean in units of "
        "the sample standard deviation of the differences, none if they are all the same; p of a "
        "two-sided paired permutation test, exact up to 16 runs; p after Holm's correction for all "
        "pairs of the protocol.",
        f"With {most} runs p cannot be below {2 / 2**most:.4g}"
        + (f", so that no pair here can reach {SIGNIFICANT:g}." if 2 / 2**most > 0.05 else "."),
    )
    return Table(name, title, columns, tuple(rows), notes, digits=3)
