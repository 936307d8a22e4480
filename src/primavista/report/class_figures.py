"""Class by class: confusion matrices, and the accuracy of every class over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primavista.errors import require_extra
from primavista.report.figures import FAINT, SMALL, WIDTHS, Picture, drawing_style, new_figure
from primavista.report.read import StoredCell
from primavista.report.series import Series
from primavista.report.titles import shorten_names

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


def class_names(cell: StoredCell, count: int) -> tuple[list[str], list[str]]:
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
    rows = _named_rows(series.done[0], len(matrix))
    width = width or (page if len(rows.texts) > MOST_ACROSS else WIDTHS["column"])
    height = max(0.9 * min(width, 5.0), NAME_GAP * len(rows.texts) + 1)
    is_named = NAME_GAP * len(rows.texts) < width - 1.2
    with drawing_style():
        figure, axes = _draw_matrix(matrix, rows, (width, height), "% of the true class", 0.5)
        for edge in rows.edges:
            axes.axvline(edge - 0.5, color=FAINT, linewidth=0.4, alpha=0.7)
        order = "" if is_named or not rows.texts else ", in the order of the rows"
        ticks = (rows.places, rows.texts) if is_named else ([], [])
        axes.set_xticks(*ticks, rotation=90)
        axes.set_ylabel("true class", labelpad=2)
        tested = f"\n({series.test_frames} test frames)" if series.test_frames else ""
        axes.set_xlabel(f"predicted class{order}{tested}", labelpad=2)
        axes.set_title(series.name, loc="left", fontweight="bold", pad=4)
    diagonal = float(np.diag(matrix).mean())
    title = f"Confusion matrix of {series.name}, {series.panel.title}"
    return Picture(name, f"{title}: mean of the diagonal {diagonal:.1f}%", figure)


def draw_class_accuracy(series: Series, name: str, width: float | None = None) -> Picture | None:
    """Draw the accuracy of each class after each tested batch, in the first run that has it."""
    tested = {cell: [step for step in cell.steps if step.class_accuracy] for cell in series.cells}
    cell = next((cell for cell in series.cells if tested[cell]), None)
    if cell is None:
        return None
    steps = tested[cell]
    labels = sorted({label for step in steps for label in step.class_accuracy})
    values = [[step.class_accuracy.get(label, np.nan) for step in steps] for label in labels]
    rows = _named_rows(cell, len(labels))
    size = width or WIDTHS["column"], max(2.4, NAME_GAP * len(rows.texts) + 0.7)
    extent = (steps[0].batch - 0.5, steps[-1].batch + 0.5, len(labels) - 0.5, -0.5)
    with drawing_style():
        matrix = np.array(values, np.float64)
        figure, axes = _draw_matrix(matrix, rows, size, "accuracy (%)", extent=extent)
        axes.locator_params(axis="x", nbins=5, integer=True)
        frames = f", {series.test_frames} test frames" if series.test_frames else ""
        axes.set_xlabel(f"training batch\n(run {cell.run}{frames})", labelpad=2)
        axes.set_title(series.name, loc="left", fontweight="bold", pad=4)
    title = f"Accuracy of every class over the batches, {series.name}, {series.panel.title}"
    return Picture(name, title, figure)


class Rows(NamedTuple):
    """What is written beside the rows of a matrix.

    Args:
        texts: The categories of the rows, or else the classes, unless there are too many.
        places: The row of each text.
        edges: The rows that begin another category.
    """

    texts: list[str]
    places: list[float]
    edges: list[int]


def _named_rows(cell: StoredCell, count: int) -> Rows:
    names, categories = class_names(cell, count)
    edges = []
    if len(categories) >= max(count, 1):
        edges = [i for i in range(1, count) if categories[i] != categories[i - 1]]
    if edges:
        middles = [(a + b - 1) / 2 for a, b in pairwise([0, *edges, count])]
        titles = [categories[edge] for edge in (0, *edges)]
        return Rows(shorten_names(titles, NAME_LETTERS), middles, edges)
    if count > len(names) or count * NAME_GAP > MOST_INCHES:
        return Rows([], [], [])
    return Rows(shorten_names(names[:count], NAME_LETTERS), [float(i) for i in range(count)], [])


def _draw_matrix(
    matrix: Matrix,
    rows: Rows,
    size: tuple[float, float],
    label: str,
    gamma: float = 1.0,
    extent: tuple[float, float, float, float] | None = None,
) -> tuple[Figure, Axes]:
    """Draw percentages as shades of blue, with a key.

    The opacity is (percentage / 100)^gamma; with gamma below 1, small values are easier to see.
    """
    colors = require_extra("matplotlib.colors", "plots")
    shades = colors.LinearSegmentedColormap.from_list("shades", [(*BLUE, 0.0), (*BLUE, 1.0)])
    look = {"cmap": shades, "norm": colors.PowerNorm(gamma, 0, 100), "interpolation": "nearest"}
    figure = new_figure(*size)
    axes = figure.add_subplot()
    image = axes.imshow(matrix, aspect="auto", extent=extent, **look)
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
    axes.set_yticks(rows.places, rows.texts)
    for edge in rows.edges:
        axes.axhline(edge - 0.5, color=FAINT, linewidth=0.4, alpha=0.7)
    return figure, axes
