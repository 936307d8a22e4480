"""Class by class: confusion matrices, the accuracy of every class over time, and categories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from primavista.report.curves import line_styles
from primavista.report.figures import (
    FAINT,
    LineStyle,
    Picture,
    drawing_style,
    new_figure,
    save_picture,
)
from primavista.report.read import StoredCell
from primavista.report.series import Panel, Series, mean_curve
from primavista.strategies.registry import strategy_info
from primavista.streams.names import CATEGORIES as CORE50_CATEGORIES
from primavista.streams.rendered.renderer import CATEGORIES as RENDERED_CATEGORIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, np.dtype[np.float64]]
# A value is the opacity of this blue, which can be read on white and on a dark page.
BLUE = (47 / 255, 128 / 255, 202 / 255)
MOST_CLASS_NAMES = 60  # with more classes, single classes are not named
MOST_CATEGORIES = 24
COLUMNS = 2  # of the small multiples of the categories


def confusion_matrix(series: Series) -> Matrix | None:
    """Return the percentage of each true class that was taken for each class.

    Args:
        series: the finished runs are added up; those without a matrix are left out.

    Returns:
        One row per true class and one column per predicted class, or None if no run has a matrix.
    """
    total: Matrix | None = None
    for cell in series.done:
        matrix = _matrix(cell.result.confusion if cell.result else None)
        if matrix is None:
            continue
        if total is None:
            total = matrix
        elif matrix.shape == total.shape:
            total = total + matrix
    if total is None:
        return None
    percentages: Matrix = 100 * total / np.maximum(total.sum(1, keepdims=True), 1)
    return percentages


def _matrix(rows: list[list[int]] | None) -> Matrix | None:
    """Return the rows as a matrix, or None if there are none or their lengths differ."""
    if not rows or not rows[0] or len(set(map(len, rows))) > 1:
        return None
    return np.asarray(rows, dtype=np.float64)


def draw_confusion(series: Series, name: str) -> Picture | None:
    """Draw the confusion matrix in shades of one colour, from 0 to 100%.

    Args:
        series: the runs of one strategy.
        name: the name of the picture.
    """
    matrix = confusion_matrix(series)
    if matrix is None:
        return None
    names, categories = class_names(series.done[0])
    with drawing_style():
        figure = new_figure(4.3, 4.0)
        axes = figure.add_axes((0.31, 0.325, 0.545, 0.605))
        axes.imshow(_shades(matrix, 0.5), interpolation="nearest", aspect="auto")
        _name_classes(axes, names, categories, matrix.shape[0], "y")
        _name_classes(axes, names, categories, matrix.shape[1], "x")
        axes.set_ylabel("true class")
        axes.set_xlabel(f"predicted class{_frames_note(series)}")
        _finish_matrix(axes, series.name)
        _draw_key(figure.add_axes((0.88, 0.325, 0.025, 0.605)), "% of the true class", 0.5)
    diagonal = float(np.diag(matrix).mean())
    title = f"Confusion matrix of {series.name}, {series.panel.title}"
    return save_picture(figure, name, f"{title}: mean of the diagonal {diagonal:.1f}%")


def draw_class_accuracy(series: Series, name: str) -> Picture | None:
    """Draw the accuracy of each class after each tested batch, in the first run that has it.

    Args:
        series: the runs of one strategy.
        name: the name of the picture.
    """
    cell = next((cell for cell in series.cells if _has_classes(cell)), None)
    if cell is None:
        return None
    curves = _class_curves(cell)
    batches = sorted({batch for curve in curves.values() for batch in curve})
    rows = [[curve.get(batch, np.nan) for batch in batches] for curve in curves.values()]
    matrix = np.array(rows, dtype=np.float64).reshape(len(curves), len(batches))
    names, categories = class_names(cell, len(curves))
    with drawing_style():
        figure = new_figure(4.3, 3.5)
        axes = figure.add_axes((0.27, 0.15, 0.57, 0.77))
        extent = (batches[0] - 0.5, batches[-1] + 0.5, len(matrix) - 0.5, -0.5)
        axes.imshow(_shades(matrix), interpolation="nearest", aspect="auto", extent=extent)
        _name_classes(axes, names, categories, len(matrix), "y")
        axes.set_xlabel(f"training batch (run {cell.run}{_frames_note(series, ', ', '')})")
        _finish_matrix(axes, series.name)
        _draw_key(figure.add_axes((0.87, 0.15, 0.025, 0.77)), "accuracy (%)")
    title = f"Accuracy of every class over the batches, {series.name}, {series.panel.title}"
    return save_picture(figure, name, title)


def _frames_note(series: Series, before: str = " (", after: str = ")") -> str:
    """Return the number of test frames as part of a label, if it is known."""
    found = series.test_frames
    return f"{before}{found} test frames{after}" if found else ""


def draw_categories(panel: Panel, series: Sequence[Series], name: str) -> Picture | None:
    """Draw small multiples: one per category, with the mean accuracy of its classes per strategy.

    Args:
        panel: the protocol and data set.
        series: the series of the panel.
        name: the name of the picture.
    """
    labels_of = _labels_by_category(series)
    if not 1 < len(labels_of) <= MOST_CATEGORIES:
        return None
    rows = -(-len(labels_of) // COLUMNS)
    styles = line_styles(series)
    with drawing_style():
        figure = new_figure(4.7, 0.97 + 1.3 * rows)
        grid = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
        for axes, (category, labels) in zip(grid.flat, labels_of.items(), strict=False):
            _draw_category(axes, category, labels, list(zip(series, styles, strict=True)))
        for place, axes in enumerate(grid.flat):
            axes.set_visible(place < len(labels_of))
            axes.tick_params(labelbottom=place + COLUMNS >= len(labels_of))
        notes = dict.fromkeys(filter(None, map(_frames_note, series)))
        _finish_categories(figure, panel.title, grid.flat[0], "".join(notes))
    return save_picture(figure, name, f"Accuracy by category, {panel.title}")


def _labels_by_category(series: Sequence[Series]) -> dict[str, list[str]]:
    """Return the labels of each category, from the first finished cell that knows its classes."""
    done = [cell for one in series for cell in one.done if _has_classes(cell)]
    if not done:
        return {}
    names, categories = class_names(done[0])
    labels_of: dict[str, list[str]] = {}
    for label, category in zip(_class_curves(done[0]), categories or names, strict=False):
        labels_of.setdefault(category, []).append(label)
    return labels_of


def _finish_categories(figure: Figure, title: str, axes: Axes, tested: str) -> None:
    """Add the title, the legend and the labels of the axes, and make room for them."""
    handles, texts = axes.get_legend_handles_labels()
    height = figure.get_figheight()
    figure.legend(
        handles,
        texts,
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - 0.22 / height),
        ncols=min(4, len(texts)),
        fontsize=8,
        columnspacing=1.2,
    )
    bold: dict[str, Any] = {"fontsize": 11, "fontweight": "bold", "va": "center"}
    figure.text(0.02, 1 - 0.16 / height, title, **bold)
    figure.supxlabel("training batch", fontsize=10, y=0.06 / height)
    figure.supylabel(f"accuracy (%){tested}", fontsize=10, x=0.01)
    top = 1 - (0.52 + 0.17 * -(-len(texts) // 4)) / height
    bottom = 0.5 / height
    figure.subplots_adjust(left=0.13, right=0.98, bottom=bottom, top=top, hspace=0.32, wspace=0.08)


def _draw_category(
    axes: Axes,
    category: str,
    labels: Sequence[str],
    series: Sequence[tuple[Series, LineStyle]],
) -> None:
    for one, line_style in series:
        points = mean_curve(_curves_of(one, labels))
        if points:
            axes.plot(
                [batch for batch, _ in points],
                [mean.mean for _, mean in points],
                color=strategy_info(one.strategy).drawn.light,
                linewidth=1.2,
                linestyle=line_style,
                label=one.name,
            )
    axes.set_ylim(0, 100)
    axes.locator_params(axis="x", nbins=4, integer=True)
    axes.set_title(category, fontsize=9, loc="left", pad=3)
    axes.tick_params(labelsize=8, length=2)


def _curves_of(series: Series, labels: Sequence[str]) -> list[dict[int, float]]:
    """Return the curves of some classes in all runs."""
    curves = [item for cell in series.cells for item in _class_curves(cell).items()]
    return [curve for label, curve in curves if label in labels]


def _has_classes(cell: StoredCell) -> bool:
    return any(step.class_accuracy for step in cell.steps)


def _class_curves(cell: StoredCell) -> dict[str, dict[int, float]]:
    """Return the accuracy of each class after each tested batch, in the order of the labels."""
    curves: dict[str, dict[int, float]] = {}
    for step in cell.steps:
        for label, accuracy in (step.class_accuracy or {}).items():
            curves.setdefault(label, {})[step.batch] = accuracy
    return {label: curves[label] for label in sorted(curves, key=_label_order)}


def _label_order(label: str) -> tuple[bool, str]:
    return not label.isdecimal(), label.zfill(9)


def class_names(cell: StoredCell, count: int = 0) -> tuple[list[str], list[str]]:
    """Return the name of each class and the name of its category.

    Args:
        cell: a cell; its result names the classes.
        count: the number of classes if the result does not name them.

    Returns:
        The names and the categories; there are none of the latter if every category has one class.
    """
    names = cell.result.classes if cell.result else []
    categories = cell.result.categories if cell.result else []
    if not names:
        names = [str(label) for label in range(count)]
    if len(categories) != len(names) or len(set(categories)) == len(names):
        return names, []
    return names, _category_names(names, categories, _known_categories(cell))


def _category_names(
    names: Sequence[str], categories: Sequence[int], known: Sequence[str]
) -> list[str]:
    """Return the name of each class's category: the known one, or what its classes share."""
    if all(0 <= category < len(known) for category in categories):
        return [known[category] for category in categories]
    members: dict[int, list[str]] = {}
    for name, category in zip(names, categories, strict=True):
        members.setdefault(category, []).append(name)
    titles = {category: _common_name(own) for category, own in members.items()}
    return [titles[category] for category in categories]


def _known_categories(cell: StoredCell) -> tuple[str, ...]:
    """Return the names of the categories of rendered data and of CORe50."""
    if cell.data_name == "rendered":
        return tuple(RENDERED_CATEGORIES)
    return tuple(CORE50_CATEGORIES) if cell.is_core50 else ()


def _common_name(names: Sequence[str]) -> str:
    """Return what the names of one category share, or else the first and the last.

    >>> _common_name(["cup 1", "cup 2"]), _common_name(["red", "green", "blue"])
    ('cup', 'red – blue')
    """
    stems = {name.rstrip("0123456789").strip(" _-") for name in names}
    stem = stems.pop()
    return stem if not stems and len(stem) > 2 else f"{names[0]} – {names[-1]}"


def _shades(matrix: Matrix, gamma: float = 1.0) -> Matrix:
    """Return RGBA values: the opacity is (percentage / 100)^gamma.

    With gamma below 1, small percentages are easier to see.
    """
    shades = np.zeros((*matrix.shape, 4))
    shades[..., :3] = BLUE
    shades[..., 3] = np.nan_to_num(np.clip(matrix / 100, 0, 1)) ** gamma
    return shades


def _name_classes(
    axes: Axes, names: Sequence[str], categories: Sequence[str], count: int, side: str
) -> None:
    """Name the categories at their middle, or else the classes, or else nothing."""
    edges = _category_edges(categories, count)
    if 0 < len(edges) <= MOST_CATEGORIES + 1:
        line = axes.axhline if side == "y" else axes.axvline
        for edge in edges[1:-1]:
            line(edge - 0.5, color=FAINT, linewidth=0.3)
        ticks = [(low + high - 1) / 2 for low, high in pairwise(edges)]
        _set_ticks(axes, ticks, [categories[edge] for edge in edges[:-1]], side, 7.5)
    elif count <= min(len(names), MOST_CLASS_NAMES):
        size = 7.5 if count <= 20 else 4.0
        _set_ticks(axes, [float(i) for i in range(count)], names[:count], side, size)


def _category_edges(categories: Sequence[str], count: int) -> list[int]:
    """Return the classes at which a category begins, and the end; nothing without categories."""
    if not categories or len(categories) < count:
        return []
    return [0, *(i for i in range(1, count) if categories[i] != categories[i - 1]), count]


def _set_ticks(
    axes: Axes, ticks: Sequence[float], texts: Sequence[str], side: str, size: float
) -> None:
    short = [text if len(text) <= 16 else text[:15] + "…" for text in texts]
    if side == "y":
        axes.set_yticks(ticks, short, fontsize=size)
    else:
        axes.set_xticks(ticks, short, fontsize=size, rotation=90)


def _finish_matrix(axes: Axes, title: str) -> None:
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontweight="bold")
    for spine in axes.spines.values():
        spine.set_visible(True)


def _draw_key(axes: Axes, text: str, gamma: float = 1.0) -> None:
    """Draw the colour key of a matrix."""
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
