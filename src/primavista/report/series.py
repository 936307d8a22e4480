"""Runs of one strategy with the same settings, averaged: means and standard deviations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from primavista.bench.metrics import learned_little
from primavista.report.read import StoredCell
from primavista.report.titles import protocol_order, protocol_title, strategy_order
from primavista.strategies.registry import strategy_info


@dataclass(frozen=True)
class MeanStd:
    """A mean over runs with the sample standard deviation, whose divisor is the runs less one.

    Args:
        mean: The mean.
        std: The sample standard deviation; None for a single run.
        runs: The number of runs.
    """

    mean: float
    std: float | None
    runs: int

    def __float__(self) -> float:
        return self.mean


Points = list[tuple[int, MeanStd]]  # batches, counted from 1, and the mean after each


def mean_std(values: Sequence[float]) -> MeanStd | None:
    """Return the mean and the sample standard deviation, or None if there are no values.

    >>> mean_std([2.0, 4.0, 6.0])
    MeanStd(mean=4.0, std=2.0, runs=3)
    """
    if not values:
        return None
    std = stdev(values) if len(values) > 1 else None
    return MeanStd(fmean(values), std, len(values))


def mean_curve(curves: Sequence[Mapping[int, float]]) -> Points:
    """Return the mean at each batch, over those curves that have a value there."""
    points = []
    for batch in sorted({batch for curve in curves for batch in curve}):
        mean = mean_std([curve[batch] for curve in curves if batch in curve])
        if mean:
            points.append((batch, mean))
    return points


def number_range(numbers: Iterable[int]) -> str | None:
    """Return the least and the greatest number; None if there are none.

    >>> number_range([1200, 40]), number_range([40, 40])
    ('40 to 1,200', '40')
    """
    found = sorted(set(numbers))
    return " to ".join(f"{number:,}" for number in found[:1] + found[1:][-1:]) or None


@dataclass(frozen=True)
class Panel:
    """A protocol over a data set: curves of one panel may share the axes of a figure.

    Args:
        protocol: The name of the protocol.
        data_name: The name of the data set.
        why_not_comparable: Why its accuracies cannot be compared with the paper's; empty if they
            can.
        key: The settings of the data set in full.
        title: The title of its figures.
    """

    protocol: str
    data_name: str
    why_not_comparable: str
    key: str
    title: str


@dataclass(frozen=True, eq=False)
class Series:
    """The runs of one strategy with one set of options in one panel.

    Args:
        name: The name in legends and tables.
        strategy: The name of the strategy.
        panel: The protocol and the data set.
        cells: One cell per run, in the order of the runs.
    """

    name: str
    strategy: str
    panel: Panel
    cells: tuple[StoredCell, ...]

    @property
    def done(self) -> tuple[StoredCell, ...]:
        """The finished runs."""
        return tuple(cell for cell in self.cells if cell.status == "done")

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the strategy, which all runs share."""
        return self.cells[0].options

    @property
    def norm(self) -> str | None:
        """The option `norm`: `bn` for batch normalisation, `brn` for batch renormalisation."""
        return self.options.get("norm")

    @property
    def published_key(self) -> tuple[str, str, str]:
        """The key of the paper's numbers for the same protocol, strategy and normalisation."""
        norm = self.norm or strategy_info(self.strategy).norm or "brn"
        return self.panel.protocol, self.strategy, norm

    def finals(self, metric: str = "accuracy") -> dict[int, float]:
        """Return the final value of a metric for each finished run that has one."""
        pairs = ((cell.run, cell.final(metric)) for cell in self.done)
        return {run: value for run, value in pairs if value is not None}

    def final(self, metric: str = "accuracy") -> MeanStd | None:
        """Return the mean of the final values of a metric over the finished runs."""
        return mean_std(list(self.finals(metric).values()))

    def over_runs(self, measure: Callable[[StoredCell], float | None]) -> MeanStd | None:
        """Return the mean of a measure over the finished runs; None leaves a run out."""
        values = map(measure, self.done)
        return mean_std([value for value in values if value is not None])

    @property
    def test_frames(self) -> str | None:
        """The number of test frames of the finished runs; a range if it varies with the split."""
        return number_range(cell.test_frames for cell in self.done if cell.test_frames is not None)

    @property
    def orders(self) -> str | None:
        """The origin of the orders of batches: `official`, `generated` or both, if it is known."""
        return ", ".join(sorted({cell.order for cell in self.cells if cell.order})) or None

    @property
    def brings_new_classes(self) -> bool:
        """True if every batch brought new classes, and there was more than one."""
        steps = [step for cell in self.cells for step in cell.steps]
        return any(s.batch > 1 for s in steps) and all(step.new_classes for step in steps)

    def curve(self, measure: str = "accuracy") -> Points:
        """Return a measure after each batch, over the runs that were tested there."""
        return mean_curve([cell.curve(measure) for cell in self.cells])


def build_series(cells: Iterable[StoredCell]) -> list[Series]:
    """Return the series of all cells whose settings are known, in the order of every table.

    They are sorted by data set, then from coarse to fine protocols, then by strategy. If a run
    occurs twice in a series, a finished cell counts before others, then one that is not stale.
    """
    best_first = sorted(
        cells, key=lambda cell: (cell.status != "done", cell.stale is not None, -cell.reached)
    )
    panels = _find_panels(best_first)
    runs_of: dict[tuple[Panel, str], dict[int, StoredCell]] = {}
    for cell in best_first:
        panel = panels[json_text(cell.data), cell.protocol]
        runs = runs_of.setdefault((panel, json_text([cell.strategy, cell.settings])), {})
        runs.setdefault(cell.run, cell)
    groups = [(panel, [runs[run] for run in sorted(runs)]) for (panel, _), runs in runs_of.items()]
    series = [
        Series(_variant_name(panel, cells, groups), cells[0].strategy, panel, tuple(cells))
        for panel, cells in groups
    ]
    return sorted(series, key=_series_order)


def by_panel(series: Iterable[Series]) -> dict[Panel, list[Series]]:
    """Return the series of each panel, in their order."""
    panels: dict[Panel, list[Series]] = {}
    for one in series:
        panels.setdefault(one.panel, []).append(one)
    return panels


def little_learners(series: Iterable[Series]) -> dict[Series, Series]:
    """Return the series that learned little of what they were taught, each with the one that
    learned most in its panel."""
    found: dict[Series, Series] = {}
    for own in by_panel(series).values():
        means = {one: one.final("learning_accuracy") for one in own}
        learning = {one: mean.mean for one, mean in means.items() if mean}
        for one in learned_little(learning):
            found[one] = max(learning, key=lambda other: learning[other])
    return found


def base_name(cell: StoredCell) -> str:
    """Return the title of a cell's strategy, with its normalisation if that is not the usual."""
    info = strategy_info(cell.strategy)
    norm = cell.options.get("norm", info.norm)
    if info.norm is None or norm == info.norm:
        return info.title
    return f"{info.title} with {str(norm).upper()}"


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the keys whose values are not the same in all settings.

    >>> differing_keys([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    {'b'}
    """
    keys = {key for one in settings for key in one}
    return {key for key in keys if len({json_text(one.get(key)) for one in settings}) > 1}


def json_text(value: object) -> str:
    """Return a text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def _series_order(series: Series) -> tuple[Any, ...]:
    """Return a sorting key: variants of a strategy come after all strategies as they are."""
    panel = series.panel
    is_variant = series.name != strategy_info(series.strategy).title
    protocol = protocol_order(panel.protocol)
    strategy = strategy_order(series.strategy)
    return panel.data_name, panel.key, protocol, is_variant, strategy, series.name


def _find_panels(cells: Sequence[StoredCell]) -> dict[tuple[str, str], Panel]:
    """Return the panel of each data key and protocol, with the facts of its first cell.

    The titles name the data set if there are several.
    """
    data = {json_text(cell.data): cell.data for cell in cells}
    different = sorted(differing_keys(list(data.values())) - {"name", "kind"})
    panels: dict[tuple[str, str], Panel] = {}
    for cell in cells:
        key = json_text(cell.data)
        title = protocol_title(cell.protocol)
        if len(data) > 1:
            more = [f"{name} {cell.data[name]}" for name in different if name in cell.data]
            title += f" ({', '.join([cell.data_name, *more])})"
        panel = Panel(cell.protocol, cell.data_name, cell.why_not_comparable, key, title)
        panels.setdefault((key, cell.protocol), panel)
    return panels


def _variant_name(
    panel: Panel,
    cells: Sequence[StoredCell],
    groups: Sequence[tuple[Panel, Sequence[StoredCell]]],
) -> str:
    """Return the name of a group of cells; of several with one name, it mentions what is unusual.

    A value that more than half of the rivals have is not mentioned.
    """
    name = base_name(cells[0])
    rivals = [own[0] for other, own in groups if other == panel and base_name(own[0]) == name]
    keys = sorted(differing_keys([cell.settings for cell in rivals]))
    settings = cells[0].settings
    unusual = [key for key in keys if not _is_usual(key, settings.get(key), rivals)]
    return name + "".join(f", {key}={settings.get(key)}" for key in unusual)


def _is_usual(key: str, value: object, rivals: Sequence[StoredCell]) -> bool:
    same = sum(json_text(rival.settings.get(key)) == json_text(value) for rival in rivals)
    return 2 * same > len(rivals)
