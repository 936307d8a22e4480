"""Tables of settings: the options of the strategies, and cells that are not as they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primavista.bench.resolve import all_options
from primavista.errors import InputError
from primavista.report.read import FolderResults
from primavista.report.series import Series
from primavista.report.table import Row, Table
from primavista.report.texts import write_texts
from primavista.strategies.registry import strategy_info


def option_table(series: Sequence[Series]) -> Table:
    """Return every option of each strategy as it was run, and how they differ from its preset."""
    rows: list[Row] = []
    for one in series:
        options = (f"{name} {plain_text(value)}" for name, value in one.options.items())
        source = strategy_info(one.strategy).source or None
        changes = "; ".join(_changes(one)) or None
        rows.append((one.panel.title, one.name, "; ".join(options) or None, changes, source))
    columns = ("protocol", "strategy", "options", "other than the preset", "source of the preset")
    table = Table("hyperparameters", "Hyperparameters", columns, tuple(rows))
    return table.without_empty_columns(3)


def _changes(series: Series) -> list[str]:
    """Say which options differ from the strategy's own on this protocol."""
    try:
        usual = all_options(series.strategy, series.panel.protocol, {})
    except InputError:  # of a strategy that cannot be created here
        return []
    if series.cells[0].cell.retrain is not None:
        usual.pop("every", None)  # the plan says how often it is retrained
    return [
        f"{name} {plain_text(value)} instead of {plain_text(usual[name])}"
        for name, value in series.options.items()
        if name in usual and value != usual[name]
    ]


def plain_text(value: object) -> str | None:
    """Return a value of a JSON file as one line; None stays None.

    >>> plain_text(3.5e-05), plain_text(2e6), plain_text({"a": 1})
    ('3.5e-05', '2e+06', 'a: 1')
    """
    match value:
        case None:
            return None
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case Mapping():
            return ", ".join(f"{key}: {plain_text(item)}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(str(plain_text(item)) for item in value)
    return str(value)


def cell_table(results: FolderResults) -> Table:
    """Return the cells that are unfinished, failed, damaged or stale."""
    rows: list[Row] = []
    for cell in (*results.cells, *results.superseded):
        if cell.status == "done" and not cell.stale:
            continue
        state = "stale" if cell.status == "done" else cell.status
        batches = f"{cell.reached}{f' of {cell.batches}' if cell.batches else ''}"
        last = next(reversed(cell.curve.values()), None)
        shown = "no" if cell in results.superseded else "yes"
        title, reason = strategy_info(cell.strategy).title, cell.failure or cell.stale
        rows.append((state, cell.path, title, batches, last, reason, shown))
    for path, why in results.damaged.items():
        rows.append(("damaged", path, None, None, None, why, "no"))
    rows.sort(key=lambda row: str(row[0]))
    columns = ("state", "cell", "strategy", "batches", "accuracy so far (%)", "reason", "shown")
    title, notes = "Failed, unfinished and stale cells", write_texts("cells")
    return Table("cells", title, columns, tuple(rows), notes)
