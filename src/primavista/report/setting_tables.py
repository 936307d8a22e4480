"""Tables of settings: the presets, how cells differ from them, machines, and unfinished cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from primavista.bench.resolve import all_options
from primavista.errors import InputError
from primavista.report.published import HARDWARE, OPTION_TITLES
from primavista.report.read import FolderResults, StoredCell
from primavista.report.series import Series, json_text
from primavista.report.table import Row, Table
from primavista.report.texts import write_texts
from primavista.report.titles import strategy_order
from primavista.strategies.info import StrategyInfo
from primavista.strategies.registry import hyperparameters, renorm_limits, strategy_info


def preset_table(cells: Iterable[StoredCell]) -> Table:
    """Return tab:hyper_core50 as the presets of the strategies have it, with the source of each.

    A strategy gets a row if its `StrategyInfo` has hyperparameters or names their source. Options
    without a title in the paper follow by name.
    """
    strategies = sorted({cell.strategy for cell in cells}, key=strategy_order)
    infos = [info for info in map(strategy_info, strategies) if _has_preset(info)]
    used = {key for info in infos for key in hyperparameters(info)}
    keys = [key for key in dict.fromkeys([*OPTION_TITLES, *sorted(used)]) if key in used]
    rows: list[Row] = []
    for info in infos:
        own = hyperparameters(info)
        rows.append((info.title, *(plain_text(own.get(key)) for key in keys), info.source))
    columns = ("strategy", *(OPTION_TITLES.get(key, key) for key in keys), "source")
    title, notes = "Hyperparameters of the presets", write_texts("hyperparameters")
    return Table("hyperparameters", title, columns, tuple(rows), notes)


def _has_preset(info: StrategyInfo) -> bool:
    return bool(info.options or info.source)


def changed_table(series: Sequence[Series]) -> Table:
    """Return how cells differ from their presets; a strategy without one shows all its options."""
    found = [(one, "; ".join(_changes(one))) for one in series]
    rows = tuple((one.panel.title, one.name, changes) for one, changes in found if changes)
    columns = ("protocol", "strategy", "changes")
    return Table("changed", "Where cells differ from the presets", columns, rows)


def _changes(series: Series) -> list[str]:
    info = strategy_info(series.strategy)
    if not _has_preset(info):
        return [f"{key} {plain_text(value)}" for key, value in series.options.items()]
    preset = {**hyperparameters(info), **renorm_limits(info, series.panel.protocol)}
    changes = []
    for key, usual in (preset | _defaults(series, preset)).items():
        value = series.options.get(key, usual)
        if value != usual:
            changes.append(f"{key} {plain_text(value)} instead of {plain_text(usual)}")
    return changes


def _defaults(series: Series, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a preset does not name, with the defaults of the class."""
    try:
        usual = all_options(series.strategy, series.panel.protocol, {})
    except InputError:  # of a strategy that cannot be created here
        return {}
    if series.cells[0].cell.retrain is not None:
        usual.pop("every", None)  # the plan says how often it is retrained
    return {key: value for key, value in usual.items() if key not in preset}


def machine_table(cells: Iterable[StoredCell]) -> Table:
    """Return each machine that finished cells, beside the paper's."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        if cell.machine:
            found.setdefault(json_text(cell.machine), []).append(cell.machine)
    machines = [same[0] for same in found.values()]
    properties = [name for machine in machines for name in machine]
    rows: list[Row] = []
    for name in dict.fromkeys([*properties, *HARDWARE]):
        ours = (plain_text(machine.get(name)) for machine in machines)
        rows.append((name, *ours, HARDWARE.get(name)))
    rows.append(("cells", *(str(len(same)) for same in found.values()), None))
    titles = [f"ours, {place}" for place in range(1, len(machines) + 1)]
    columns = ("", *(["ours"] if len(machines) == 1 else titles), "the paper")
    return Table("machine", "The machines", columns, tuple(rows))


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
