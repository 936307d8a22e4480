"""Class by class: confusion matrices, and the accuracy of every class over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from primavista.errors import require_extra
from primavista.report.figures import FAINT, SMALL, WIDTHS, Picture, drawing_style, new_figure
from primavista.report.read import StoredCell
from primavista.report.series import Series
from primavista.report.titles import shorten_names
from primavista.streams.conventions import CATEGORIES as CORE50_CATEGORIES
from primavista.streams.rendered.renderer import CATEGORIES as RENDERED_CATEGORIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, np.dtype[np.float64]]
# A value is the opacity of this blue, which can be read on white and on a dark page.
BLUE = (47 / 255, 128 / 255, 202 / 255)
NAME_GAP = 0.115  # inches per name
MOST_INCHES = 8.0  # the height of a page; with more names than fit, classes are not named
NAME_LETTERS = 20  # longer names are shortened
MOST_ACROSS = 16  # names below a matrix as wide as a column; with more it spans the page


def has_classes(cell: StoredCell) -> bool:
    """Return True if a cell recorded the accuracy of single classes."""
    return any(step.class_accuracy for step in cell.steps)


def class_curves(cell: StoredCell) -> dict[str, dict[int, float]]:
    """Return the accuracy of each class after each tested batch, in the order of the labels."""
    curves: dict[str, dict[int, float]] = {}
    for step in cell.steps:
        for label, accuracy in step.class_accuracy.items():
            curves.setdefault(str(label), {})[step.batch] = accuracy
    return {label: curves[label] for label in sorted(curves, key=lambda label: label.zfill(9))}


def class_names(cell: StoredCell, count: int = 0) -> tuple[list[str], list[str]]:
    """Return the name of each class and of its category, as the result has them.

    If the result does not name the classes, `count` of them are named by their numbers. There are
    no categories if every category has one class.
    """
    names = cell.result.classes if cell.result else []
    categories = cell.result.categories if cell.result else []
    if not names:
        names = [str(label) for label in range(count)]
    if len(categories) != len(names) or len(set(categories)) == len(names):
        return names, []
    known: Sequence[str] = RENDERED_CATEGORIES if cell.data_name == "rendered" else ()
    if cell.is_core50:
        known = CORE50_CATEGORIES
    if all(0 <= category < len(known) for category in categories):
        return names, [known[category] for category in categories]
    members: dict[int, list[str]] = {}
    for name, category in zip(names, categories, strict=True):
        members.setdefault(category, []).append(name)
    titles = {category: _common_name(own) for category, own in members.items()}
    return names, [titles[category] for category in categories]


def _common_name(names: Sequence[str]) -> str:
    """Return what the names of one category share, or else the first and the last.

    >>> _common_name(["cup 1", "cup 2"]), _common_name(["red", "green", "blue"])
    ('cup', 'red – blue')
    """
    stems = {name.rstrip("0123456789").strip(" _-") for name in names}
    stem = stems.pop()
    return stem if not stems and len(stem) > 2 else f"{names[0]} – {names[-1]}"


def confusion_matrix(series: Series) -> Matrix | None:
    """Return the percentage of each true class (row) that was taken for each class (column).

    The finished runs are added up; None is returned if no run has a matrix.
    """
    found = [cell.result.confusion for cell in series.done if cell.result]
    matrices = [np.asarray(rows, np.float64) for rows in found if rows]
    if not matrices:
        return None
    total = np.sum([one for one in matrices if one.shape == matrices[0].shape], axis=0)
    percentages: Matrix = 100 * total / np.maximum(total.sum(1, keepdims=True), 1)
    return percentages


def draw_confusion(
    series: Series, name: str, width: float | None = None, *, page: float = WIDTHS["page"]
) -> Picture | None:
    """Draw the confusion matrix in shades of one colour, from 0 to 100%.

    Without a width it is as wide as a column, or as a page if it has many names.
    """
    matrix = confusion_matrix(series)
    if matrix is None:
        return None
    names = class_names(series.done[0])
    texts, places, edges = _row_names(*names, len(matrix))
    width = width or (page if len(texts) > MOST_ACROSS else WIDTHS["column"])
    is_named = NAME_GAP * len(texts) < width - 1.2
    with drawing_style():
        figure = new_figure(width, max(0.9 * min(width, 5.0), NAME_GAP * len(texts) + 1))
        axes = figure.add_subplot()
        _draw_matrix(figure, axes, matrix, "% of the true class", 0.5)
        _name_rows(axes, texts, places, edges)
        for edge in edges:
            axes.axvline(edge - 0.5, color=FAINT, linewidth=0.4, alpha=0.7)
        order = "" if is_named or not texts else ", in the order of the rows"
        axes.set_xticks(places if is_named else [], texts if is_named else [], rotation=90)
        axes.set_ylabel("true class", labelpad=2)
        tested = f"\n({series.test_frames} test frames)" if series.test_frames else ""
        axes.set_xlabel(f"predicted class{order}{tested}", labelpad=2)
        axes.set_title(series.name, loc="left", fontweight="bold", pad=4)
    diagonal = float(np.diag(matrix).mean())
    title = f"Confusion matrix of {series.name}, {series.panel.title}"
    return Picture(name, f"{title}: mean of the diagonal {diagonal:.1f}%", figure)


def draw_class_accuracy(series: Series, name: str, width: float | None = None) -> Picture | None:
    """Draw the accuracy of each class after each tested batch, in the first run that has it."""
    cell = next((cell for cell in series.cells if has_classes(cell)), None)
    if cell is None:
        return None
    curves = class_curves(cell)
    batches = sorted({batch for curve in curves.values() for batch in curve})
    rows = [[curve.get(batch, np.nan) for batch in batches] for curve in curves.values()]
    matrix = np.array(rows, dtype=np.float64).reshape(len(curves), len(batches))
    texts, places, edges = _row_names(*class_names(cell, len(curves)), len(matrix))
    width = width or WIDTHS["column"]
    with drawing_style():
        figure = new_figure(width, max(2.4, NAME_GAP * len(texts) + 0.7))
        axes = figure.add_subplot()
        extent = (batches[0] - 0.5, batches[-1] + 0.5, len(matrix) - 0.5, -0.5)
        _draw_matrix(figure, axes, matrix, "accuracy (%)", extent=extent)
        _name_rows(axes, texts, places, edges)
        axes.locator_params(axis="x", nbins=5, integer=True)
        tested = f", {series.test_frames} test frames" if series.test_frames else ""
        axes.set_xlabel(f"training batch\n(run {cell.run}{tested})", labelpad=2)
        axes.set_title(series.name, loc="left", fontweight="bold", pad=4)
    title = f"Accuracy of every class over the batches, {series.name}, {series.panel.title}"
    return Picture(name, title, figure)


def _row_names(
    names: Sequence[str], categories: Sequence[str], count: int
) -> tuple[list[str], list[float], list[int]]:
    """Return what is written beside the rows of a matrix, where, and the rows that end a category.

    These are the categories of the rows, or else the classes, unless there are too many.
    """
    edges = []
    if len(categories) >= max(count, 1):
        edges = [i for i in range(1, count) if categories[i] != categories[i - 1]]
    if edges:
        middles = [(a + b - 1) / 2 for a, b in zip([0, *edges], [*edges, count], strict=True)]
        titles = [categories[edge] for edge in (0, *edges)]
        return shorten_names(titles, NAME_LETTERS), middles, edges
    if count > len(names) or count * NAME_GAP > MOST_INCHES:
        return [], [], []
    return shorten_names(names[:count], NAME_LETTERS), [float(row) for row in range(count)], []


def _name_rows(
    axes: Axes, texts: Sequence[str], places: Sequence[float], edges: Sequence[int]
) -> None:
    axes.set_yticks(places, texts)
    for edge in edges:
        axes.axhline(edge - 0.5, color=FAINT, linewidth=0.4, alpha=0.7)


def _draw_matrix(
    figure: Figure, axes: Axes, matrix: Matrix, label: str, gamma: float = 1.0, **settings: Any
) -> None:
    """Draw percentages as shades of blue, with a key.

    The opacity is (percentage / 100)^gamma; with gamma below 1, small values are easier to see.
    """
    colors = require_extra("matplotlib.colors", "plots")
    shades = colors.LinearSegmentedColormap.from_list("shades", [(*BLUE, 0.0), (*BLUE, 1.0)])
    norm = colors.PowerNorm(gamma, 0, 100)
    image = axes.imshow(
        matrix, cmap=shades, norm=norm, interpolation="nearest", aspect="auto", **settings
    )
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(True)
    key = figure.colorbar(image, ax=axes, ticks=[0, 50, 100], fraction=0.04, pad=0.02)
    if key.solids is not None:
        key.solids.set_rasterized(True)
    key.ax.tick_params(length=0, pad=2)
    key.ax.grid(False)
    key.set_label(label, fontsize=SMALL, labelpad=0)
