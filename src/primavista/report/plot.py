"""The figures of the report, from Python: of a folder, of results, of steps, or of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from primavista.bench.data import FolderData, why_not_comparable
from primavista.bench.evaluate import Step
from primavista.bench.folder import BatchMetrics, CellResult
from primavista.bench.plan import BackboneSpec, Cell
from primavista.errors import InputError
from primavista.report.confusion import draw_confusion
from primavista.report.curves import draw_all, draw_panel, panel_lines
from primavista.report.figures import Picture, drawing_style, printed_width
from primavista.report.read import StoredCell
from primavista.report.records import Results, load_results
from primavista.report.series import Panel, Series, build_series
from primavista.strategies.registry import strategy_info
from primavista.streams.dataset import Stream
from primavista.streams.pictures import draw_stream

Kind = Literal["accuracy", "seen_accuracy", "confusion"]
Steps = Sequence[Step]


def plot(
    what: str | Path | Results | Stream | Steps | Mapping[str, Steps | Sequence[Steps]],
    kind: Kind = "accuracy",
    *,
    width: Literal["column", "page"] | float = "column",
) -> Picture:
    """Draw a figure of the report, at the width that it will have in print.

    Args:
        what: A folder of results; what `load_results` returned, perhaps narrowed down with
            `where`; the steps of `evaluate`, or a mapping from names to the steps of a strategy or
            of several runs of it; or a stream, whose classes are drawn batch by batch.
        kind: `accuracy`: accuracy on the whole test set against batches, with a band of one sample
            standard deviation. `seen_accuracy`: the same on the classes seen so far, as papers on
            class-incremental learning draw it.
            `confusion`: the confusion matrix of one strategy.
        width: `column` (3.05 inches), `page` (6.25 inches), or a number of inches.

    Returns:
        The picture: `save("name.pdf")` writes it (also .svg and .png), `figure` is the matplotlib
        figure, and a notebook shows it.

    Raises:
        InputError: If there is nothing to draw, or more than one strategy where one is needed.
        FileError: If there are no results in the folder.
        MissingExtraError: If matplotlib is not installed.
    """
    inches = printed_width(width)
    if isinstance(what, Stream):
        with drawing_style(grid=False):
            figure = draw_stream(what, inches)
        described = f"Classes encountered over time, {what.name}, run {what.run}"
        return Picture("stream", described, figure)
    if kind not in DRAW:
        raise InputError(f"no figure {kind!r}: choose one of {', '.join(DRAW)}")
    series = _series_of(what)
    picture = DRAW[kind](series, inches)
    if picture is None:
        raise InputError(f"there is nothing to draw for {kind!r}: no test recorded what it needs")
    return picture


def _series_of(
    what: str | Path | Results | Steps | Mapping[str, Steps | Sequence[Steps]],
) -> list[Series]:
    if isinstance(what, str | Path):
        what = load_results(what)
    if isinstance(what, Results):
        return build_series(what.cells)
    named: Mapping[str, Steps | Sequence[Steps]]
    named = what if isinstance(what, Mapping) else {"strategy": what}
    return [_series_of_steps(name, _runs(own)) for name, own in named.items()]


def _runs(steps: Steps | Sequence[Steps]) -> list[list[Step]]:
    """Return the steps of each run; a list of steps is one run."""
    single = [one for one in steps if isinstance(one, Step)]
    return [single] if single else [list(one) for one in steps if not isinstance(one, Step)]


def _series_of_steps(name: str, runs: Sequence[Sequence[Step]]) -> Series:
    if not any(step.accuracy is not None for run in runs for step in run):
        raise InputError(f"there is nothing to draw for {name!r}: its steps have no test")
    panel = Panel("?", "?", why_not_comparable(None), "", "")
    cells = tuple(_cell_of_steps(name, number, run) for number, run in enumerate(runs))
    return Series(strategy_info(name).title, name, panel, cells)


def _cell_of_steps(name: str, run: int, steps: Sequence[Step]) -> StoredCell:
    """Return the steps as a cell of the benchmark would have recorded them."""
    last = [step for step in steps if step.confusion is not None][-1:]
    confusion = last[0].confusion.tolist() if last and last[0].confusion is not None else None
    classes = [str(label) for label in range(len(confusion or ()))]
    final, batches = steps[-1].measures, len(steps)
    result = CellResult(final=final, confusion=confusion, classes=classes, batches=batches)
    settings: dict[str, Any] = {
        "strategy": name,
        "options": {},
        "protocol": "?",
        "run": run,
        "seed": 0,
    }
    data, backbone = FolderData(kind="folder", path="?"), BackboneSpec()
    cell = Cell(**settings, data=data, backbone=backbone)
    lines = tuple(map(BatchMetrics.from_step, steps))
    return StoredCell(f"{name} {run}", cell, lines, result)


def _curves(measure: str, series: Sequence[Series], width: float) -> Picture | None:
    panels = panel_lines(series, {}, measure)
    if len(panels) > 1:
        return draw_all(measure, panels, width)
    return next((draw_panel(measure, *item, width) for item in panels.items()), None)


def _only(series: Sequence[Series]) -> Series:
    if len(series) != 1:
        names = ", ".join(f"{one.name} on {one.panel.title}" for one in series) or "none"
        raise InputError(
            "this figure shows one strategy on one protocol: choose it with "
            f"where(name=..., protocol=...); there are {names}"
        )
    return series[0]


DRAW: dict[str, Callable[[Sequence[Series], float], Picture | None]] = {
    "accuracy": partial(_curves, "accuracy"),
    "seen_accuracy": partial(_curves, "seen_accuracy"),
    "confusion": lambda series, width: draw_confusion(_only(series), "confusion", width),
}
