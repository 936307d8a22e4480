"""The order of rows in tables of results, and which values are printed in bold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from primavista.bench.metrics import Better
from primavista.report.series import MeanStd, Series, by_panel
from primavista.report.table import Row, Size, Value, format_value
from primavista.strategies.registry import strategy_info


def ranked(series: Sequence[Series]) -> list[Series]:
    """Sort the series of each panel by final accuracy, the best first.

    Strategies that train on all data at once follow after the others, since they are a bound and
    not a rival; series without a finished run come last.

    Args:
        series: series of any panels; the order of the panels stays.
    """
    found: list[Series] = []
    for own in by_panel(series).values():
        found += sorted(own, key=_rank)
    return found


def _rank(series: Series) -> tuple[bool, bool, float]:
    final = series.final()
    is_bound = strategy_info(series.strategy).joint
    return final is None, is_bound, -final.mean if final else 0.0


def best_values(
    columns: Sequence[str],
    rows: Sequence[Row],
    better: Mapping[str, Better],
    rivals: Sequence[bool],
    digits: int = 2,
) -> frozenset[tuple[int, int]]:
    """Return the places, row and column, of the best value of each column in each block of rows.

    Values that look the same after rounding are equally good. A block with a single rival has no
    best value.

    Args:
        columns: the titles of the columns.
        rows: the rows; those with the same first value, one after the other, are a block.
        better: which columns have a best value, and which end of them it is.
        rivals: for each row, whether it takes part.
        digits: the digits that the table shows.
    """
    found: set[tuple[int, int]] = set()
    for _, block in groupby(range(len(rows)), key=lambda i: rows[i][0]):
        places = [i for i in block if rivals[i]]
        for column, title in enumerate(columns):
            known = {i: value for i in places if (value := _number(rows[i][column])) is not None}
            if title not in better or len(known) < 2:
                continue
            best = max(known.values()) if better[title] == "high" else min(known.values())
            shown = format_value(best, digits)
            found |= {(i, column) for i in known if format_value(known[i], digits) == shown}
    return frozenset(found)


def _number(value: Value) -> float | None:
    if isinstance(value, MeanStd):
        return value.mean
    if isinstance(value, Size):
        return value.value
    return float(value) if isinstance(value, int | float) else None
