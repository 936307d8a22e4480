"""Class by class: confusion matrices, accuracy of every class over time, and curves by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from primavista.report.drawing import Picture, new_figure, picture, style
from primavista.report.names import DASHES, FAINT, look
from primavista.report.read import Cell, mapping, number
from primavista.report.series import Panel, Series, mean_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Matrix = np.ndarray[Any, np.dtype[np.float64]]
BLUE = (
    47 / 255,
    128 / 255,
    202 / 255,
)  # with its opacity as the value, it reads on white and on a dark page
MOST_ROWS = 60  # more classes are not named one by one


def confusion(series: Series) -> Matrix | None:
    """Percent of each true class (row) that was taken for each class (column), over the finished runs."""
    total: Matrix | None = None
    for cell in series.done:
        matrix = _matrix((cell.result or {}).get("confusion"))
        if matrix is not None and (total is None or matrix.shape == total.shape):
            total = matrix if total is None else total + matrix
    if total is None:
        return None
    shares: Matrix = 100 * total / np.maximum(total.sum(1, keepdims=True), 1)
    return shares


def _matrix(value: object) -> Matrix | None:
    try:
        matrix: Matrix = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError):
        return None
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        return None
    return matrix


def draw_confusion(series: Series, name: str) -> Picture | None:
    """The matrix as shades of one colour, from 0 to 100%."""
    matrix = confusion(series)
    if matrix is None:
        return None
    names, groups = class_names(series.done[0])
    with style():
        figure = new_figure(4.3, 4.0)
        axes = figure.add_axes((0.31, 0.325, 0.545, 0.605))
        axes.imshow(_shades(matrix, 0.5), interpolation="nearest", aspect="auto")
        _name_rows(axes, names, groups, matrix.shape[0], "y")
        _name_rows(axes, names, groups, matrix.shape[1], "x")
        axes.set_ylabel("true class")
        axes.set_xlabel("predicted class")
        _finish(axes, series.name)
        _scale(figure.add_axes((0.88, 0.325, 0.025, 0.605)), "% of the true class", 0.5)
    return picture(
        figure,
        name,
        f"Confusion matrix of {series.name}, {series.panel.title}: mean of the diagonal "
        f"{float(np.diag(matrix).mean()):.1f}%",
    )


def draw_history(series: Series, name: str) -> Picture | None:
    """The accuracy of each class (row) after each tested batch (column), in the first run of the series."""
    cell = next(
        (cell for cell in series.cells if any(step.get("class_accuracy") for step in cell.steps)),
        None,
    )
    if cell is None:
        return None
    by_class = _class_curves(cell)
    batches = sorted({batch for curve in by_class.values() for batch in curve})
    matrix = np.full((len(by_class), len(batches)), np.nan)
    for row, curve in enumerate(by_class.values()):
        for column, batch in enumerate(batches):
            matrix[row, column] = curve.get(batch, np.nan)
    names, groups = class_names(cell, len(by_class))
    with style():
        figure = new_figure(4.3, 3.5)
        axes = figure.add_axes((0.27, 0.15, 0.57, 0.77))
        first, last = batches[0], batches[-1]
        extent = (first - 0.5, last + 0.5, len(matrix) - 0.5, -0.5)
        axes.imshow(_shades(matrix), interpolation="nearest", aspect="auto", extent=extent)
        _name_rows(axes, names, groups, len(matrix), "y")
        axes.set_xlabel(f"training batch (run {cell.run})")
        _finish(axes, series.name)
        _scale(figure.add_axes((0.87, 0.15, 0.025, 0.77)), "accuracy (%)")
    return picture(
        figure,
        name,
        f"Accuracy of every class over the batches, {series.name}, {series.panel.title}",
    )


def draw_categories(panel: Panel, series: Sequence[Series], name: str) -> Picture | None:
    """Small multiples: the mean accuracy of each category's classes over the batches, a curve a strategy."""
    known = next(
        (
            cell
            for one in series
            for cell in one.done
            if any(s.get("class_accuracy") for s in cell.steps)
        ),
        None,
    )
    if known is None:
        return None
    names, groups = class_names(known)
    wanted: dict[str, list[str]] = {}
    for label, group in zip(_class_curves(known), groups or names, strict=False):
        wanted.setdefault(group, []).append(label)
    if not 1 < len(wanted) <= 24:
        return None
    columns = 2
    rows = -(-len(wanted) // columns)
    with style():
        figure = new_figure(4.7, 0.97 + 1.3 * rows)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (group, labels) in zip(grid.flat, wanted.items(), strict=False):
            _category(axes, group, labels, series)
        for place, axes in enumerate(grid.flat):
            axes.set_visible(place < len(wanted))
            axes.tick_params(labelbottom=place + columns >= len(wanted))
        handles, texts = grid.flat[0].get_legend_handles_labels()
        high = figure.get_figheight()
        under = (0.5, 1 - 0.22 / high)
        figure.legend(
            handles,
            texts,
            loc="upper center",
            bbox_to_anchor=under,
            ncols=min(4, len(texts)),
            fontsize=8,
            columnspacing=1.2,
        )
        figure.text(0.02, 1 - 0.16 / high, panel.title, fontsize=11, fontweight="bold", va="center")
        figure.supxlabel("training batch", fontsize=10, y=0.06 / high)
        figure.supylabel("accuracy (%)", fontsize=10, x=0.01)
        top = 1 - (0.52 + 0.17 * -(-len(texts) // 4)) / high
        figure.subplots_adjust(
            left=0.13, right=0.98, bottom=0.5 / high, top=top, hspace=0.32, wspace=0.08
        )
    return picture(figure, name, f"Accuracy by category, {panel.title}")


def _category(axes: Axes, group: str, labels: Sequence[str], series: Sequence[Series]) -> None:
    seen: dict[str, int] = {}
    for one in series:
        place = seen[one.strategy] = seen.get(one.strategy, -1) + 1
        curves = [
            curve
            for cell in one.cells
            for label, curve in _class_curves(cell).items()
            if label in labels
        ]
        points = mean_curve(curves)
        if points:
            axes.plot(
                [batch for batch, _ in points],
                [spread.mean for _, spread in points],
                color=look(one.strategy).light,
                linewidth=1.2,
                linestyle=DASHES[place % len(DASHES)],
                label=one.name,
            )
    axes.set_ylim(0, 100)
    axes.locator_params(axis="x", nbins=4, integer=True)
    axes.set_title(group, fontsize=9, loc="left", pad=3)
    axes.tick_params(labelsize=8, length=2)


def _class_curves(cell: Cell) -> dict[str, dict[int, float]]:
    """The accuracy of each class after each tested batch, in the order of the labels."""
    curves: dict[str, dict[int, float]] = {}
    for step in cell.steps:
        for label, value in mapping(step.get("class_accuracy")).items():
            if (accuracy := number(value)) is not None and isinstance(step.get("batch"), int):
                curves.setdefault(label, {})[step["batch"]] = accuracy
    return dict(
        sorted(curves.items(), key=lambda item: (not item[0].isdecimal(), item[0].zfill(9)))
    )


def class_names(cell: Cell, count: int | None = None) -> tuple[list[str], list[str]]:
    """The name of each class, and of its category (none where no category has two classes)."""
    result: Mapping[str, Any] = cell.result or {}
    classes, categories = result.get("classes"), result.get("categories")
    names = (
        [str(name) for name in classes]
        if isinstance(classes, list)
        else [str(i) for i in range(count or 0)]
    )
    if (
        not isinstance(categories, list)
        or len(categories) != len(names)
        or len(set(map(str, categories))) == len(names)
    ):
        return names, []
    groups = [str(category) for category in categories]
    known = _families(cell)
    if all(group.isdecimal() and int(group) < len(known) for group in groups):
        return names, [known[int(group)] for group in groups]
    members: dict[str, list[str]] = {}
    for name, group in zip(names, groups, strict=True):
        members.setdefault(group, []).append(name)
    return names, [group if not group.isdecimal() else _common(members[group]) for group in groups]


def _families(cell: Cell) -> tuple[str, ...]:
    """The names of the categories, where the data set's are ours or CORe50's."""
    if cell.data_name == "rendered":
        from primavista.streams.rendered.renderer import CATEGORIES
    elif cell.on_core50:
        from primavista.streams.names import CATEGORIES
    else:
        return ()
    return tuple(CATEGORIES)


def _common(names: Sequence[str]) -> str:
    """What names of one category share, else its first and last.

    >>> _common(["cup 1", "cup 2"]), _common(["red", "green", "blue"])
    ('cup', 'red – blue')
    """
    stems = {name.rstrip("0123456789").strip(" _-") for name in names}
    stem = stems.pop()
    return stem if not stems and len(stem) > 2 else f"{names[0]} – {names[-1]}"


def _shades(matrix: Matrix, gamma: float = 1.0) -> Matrix:
    """The opacity is the share to the power of `gamma`: below 1, small shares are seen better."""
    shades = np.zeros((*matrix.shape, 4))
    shades[..., :3] = BLUE
    shades[..., 3] = np.nan_to_num(np.clip(matrix / 100, 0, 1)) ** gamma
    return shades


def _name_rows(
    axes: Axes, names: Sequence[str], groups: Sequence[str], count: int, side: str
) -> None:
    """Categories at their middle with a line between them, else the classes, else nothing."""
    if groups and len(groups) >= count:
        edges = [0, *(i for i in range(1, count) if groups[i] != groups[i - 1]), count]
        if len(edges) <= 25:
            ticks = [(a + b - 1) / 2 for a, b in pairwise(edges)]
            texts = [groups[a] for a in edges[:-1]]
            line = axes.axhline if side == "y" else axes.axvline
            for edge in edges[1:-1]:
                line(edge - 0.5, color=FAINT, linewidth=0.3)
            _set_ticks(axes, ticks, texts, side, 7.5)
            return
    if len(names) >= count and count <= MOST_ROWS:
        _set_ticks(
            axes,
            list(map(float, range(count))),
            list(names[:count]),
            side,
            7.5 if count <= 20 else 4.0,
        )


def _set_ticks(
    axes: Axes, ticks: Sequence[float], texts: Sequence[str], side: str, size: float
) -> None:
    short = [text if len(text) <= 16 else text[:15] + "…" for text in texts]
    if side == "y":
        axes.set_yticks(ticks, short, fontsize=size)
    else:
        axes.set_xticks(ticks, short, fontsize=size, rotation=90)


def _finish(axes: Axes, title: str) -> None:
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontweight="bold")
    for spine in axes.spines.values():
        spine.set_visible(True)


def _scale(axes: Axes, text: str, gamma: float = 1.0) -> None:
    """The key of the shades."""
    ramp = np.linspace(100, 0, 64)[:, None]
    axes.imshow(_shades(ramp, gamma), aspect="auto", extent=(0, 1, 0, 100))
    axes.grid(False)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.set_yticks([0, 50, 100])
    axes.tick_params(length=0, labelsize=8)
    axes.set_ylabel(text, fontsize=8, labelpad=1)
    for spine in axes.spines.values():
        spine.set_visible(True)
