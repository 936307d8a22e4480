"""Runs that differ in nothing but their order, put together: means and standard deviations over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from primavista.report.names import look, protocol_name, protocol_rank, rank
from primavista.report.read import Cell


@dataclass(frozen=True)
class Spread:
    """A mean over `runs`, with the population standard deviation (none for a single run)."""

    mean: float
    std: float | None
    runs: int


def spread(values: Sequence[float]) -> Spread | None:
    """Of no values: None.

    >>> spread([2.0, 4.0])
    Spread(mean=3.0, std=1.0, runs=2)
    """
    if not values:
        return None
    return Spread(fmean(values), pstdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Panel:
    """A protocol over a data set: what may share the axes of a figure; `core50`: it may be compared with the paper."""

    protocol: str
    data_name: str
    core50: bool
    key: str  # the data set in full
    title: str


@dataclass(frozen=True, eq=False)
class Series:
    """The runs of one strategy with one set of options, at most one cell a run."""

    name: str
    strategy: str
    panel: Panel
    cells: tuple[Cell, ...]

    @property
    def done(self) -> tuple[Cell, ...]:
        """The finished runs."""
        return tuple(cell for cell in self.cells if cell.status == "done")

    @property
    def options(self) -> dict[str, Any]:
        """The options that all its runs share."""
        return self.cells[0].options

    @property
    def norm(self) -> str | None:
        """Batch norm or renormalisation."""
        return self.options.get("norm")

    def finals(self, metric: str = "accuracy") -> dict[int, float]:
        """The closing number of each finished run."""
        pairs = ((cell.run, cell.final(metric)) for cell in self.done)
        return {run: value for run, value in pairs if value is not None}

    def final(self, metric: str = "accuracy") -> Spread | None:
        """The mean of the closing number over the finished runs."""
        return spread(list(self.finals(metric).values()))

    def over_runs(self, take: Callable[[Cell], float | None]) -> Spread | None:
        """The mean of a number of each finished run."""
        return spread([value for cell in self.done if (value := take(cell)) is not None])

    def curve(self) -> list[tuple[int, Spread]]:
        """Accuracy after each batch, over the runs that were tested there."""
        return mean_curve([cell.curve for cell in self.cells])


def mean_curve(curves: Sequence[dict[int, float]]) -> list[tuple[int, Spread]]:
    """At each batch, over those curves that have a value there."""
    points: list[tuple[int, Spread]] = []
    for batch in sorted({batch for curve in curves for batch in curve}):
        found = spread([curve[batch] for curve in curves if batch in curve])
        if found:
            points.append((batch, found))
    return points


def gather(cells: Iterable[Cell]) -> list[Series]:
    """Series by panel, coarse protocols first, then in the order of `LOOKS`; of a run that occurs twice, the one further on."""
    cells = [cell for cell in cells if cell.plan]
    panels = _panels(cells)
    buckets: dict[tuple[Panel, str], dict[int, Cell]] = {}
    for cell in cells:
        runs = buckets.setdefault((panels[_data_key(cell), cell.protocol], _variant(cell)), {})
        if cell.run not in runs or _progress(cell) > _progress(runs[cell.run]):
            runs[cell.run] = cell
    found = [(panel, [runs[run] for run in sorted(runs)]) for (panel, _), runs in buckets.items()]
    names = _names(found)
    series = [
        Series(n, own[0].strategy, p, tuple(own)) for n, (p, own) in zip(names, found, strict=True)
    ]
    return sorted(
        series,
        key=lambda s: (
            s.panel.data_name,
            s.panel.key,
            protocol_rank(s.panel.protocol),
            _order(s),
            s.name,
        ),
    )


def by_panel(series: Iterable[Series]) -> dict[Panel, list[Series]]:
    """The series of each panel, in their order."""
    panels: dict[Panel, list[Series]] = {}
    for one in series:
        panels.setdefault(one.panel, []).append(one)
    return panels


def base_name(cell: Cell) -> str:
    """The label that the plan gives, else the strategy, with its normalisation where it is not the usual one."""
    if cell.label:
        return cell.label
    name = look(cell.strategy).name
    usual = "bn" if cell.strategy == "cumulative" else "brn"
    norm = cell.options.get("norm", usual)
    return name if norm == usual or cell.strategy == "dslda" else f"{name} with {str(norm).upper()}"


def _order(series: Series) -> tuple[int, tuple[int, str]]:
    plain = series.name == look(series.strategy).name
    return (0 if plain else 1), rank(series.strategy)


def _progress(cell: Cell) -> tuple[bool, int]:
    return cell.status == "done", cell.reached


def _data_key(cell: Cell) -> str:
    return json.dumps(cell.data, sort_keys=True, default=str)


def _panels(cells: Sequence[Cell]) -> dict[tuple[str, str], Panel]:
    """A panel's title names the data set where the folder holds several."""
    data = {_data_key(cell): cell.data for cell in cells}
    short = {key: str(value.get("name", "?")) for key, value in data.items()}
    different = sorted(differing(list(data.values())) - {"name", "kind"})
    panels: dict[tuple[str, str], Panel] = {}
    for cell in cells:
        key = _data_key(cell)
        title = protocol_name(cell.protocol)
        if len(data) > 1:
            more = [f"{name} {cell.data[name]}" for name in different if name in cell.data]
            title += f" ({', '.join([short[key], *more])})"
        panels[key, cell.protocol] = Panel(cell.protocol, short[key], cell.on_core50, key, title)
    return panels


def _settings(cell: Cell) -> dict[str, Any]:
    """What two cells of one series have in common, beside strategy and label."""
    plan = {key: cell.plan.get(key) for key in ("precision", "engine", "test_thin")}
    backbone = cell.plan.get("backbone")
    parts = backbone if isinstance(backbone, dict) else {"backbone": backbone}
    return {**cell.options, **plan, **{f"backbone {key}": value for key, value in parts.items()}}


def _variant(cell: Cell) -> str:
    return json.dumps([cell.strategy, cell.label, _settings(cell)], sort_keys=True, default=str)


def differing(settings: Sequence[dict[str, Any]]) -> set[str]:
    """The keys whose values are not the same in all.

    >>> differing([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    {'b'}
    """
    keys = {key for one in settings for key in one}
    return {
        key
        for key in keys
        if len({json.dumps(one.get(key), sort_keys=True, default=str) for one in settings}) > 1
    }


def _names(found: Sequence[tuple[Panel, list[Cell]]]) -> list[str]:
    """Series of one panel that would share a name are told apart by what differs between them."""
    names = []
    for panel, cells in found:
        name = base_name(cells[0])
        rivals = [own[0] for where, own in found if where == panel and base_name(own[0]) == name]
        keys = sorted(differing([_settings(cell) for cell in rivals]))
        settings = _settings(cells[0])
        names.append(name + "".join(f", {key}={settings.get(key)}" for key in keys[:4]))
    return names
