"""Class by class: confusion matrices, and the accuracy of every class over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from primavista.report.class_names import class_curves, class_names, has_classes
from primavista.report.figures import (
    FAINT,
    SMALL,
    WIDTHS,
    Picture,
    drawing_style,
    fit_text,
    new_figure,
    text_width,
)
from primavista.report.series import Series
from primavista.report.titles import shorten_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, np.dtype[np.float64]]
# A value is the opacity of this blue, which can be read on white and on a dark page.
BLUE = (47 / 255, 128 / 255, 202 / 255)
NAME_GAP = 1.12 * SMALL / 72  # inches per name
TIGHT = 0.92  # names may be that much closer before a matrix spans the page
MOST_INCHES = 8.0  # the height of a page; with more names than fit, classes are not named
NAME_LETTERS = 20  # longer names are shortened
KEY, MARGIN = 0.5, 0.24  # inches: the colour key to the right, the label of the axis to the left
TOP, BOTTOM, LINE = 0.25, 0.34, 0.14  # inches: above, below, and for a second line below


@dataclass(frozen=True)
class RowNames:
    """The names beside the rows of a matrix: of classes, or of categories.

    Args:
        texts: the names, shortened so that they stay distinct.
        places: the row of each name.
        edges: rows at which a category ends, where categories are named.
    """

    texts: tuple[str, ...] = ()
    places: tuple[float, ...] = ()
    edges: tuple[int, ...] = ()

    @property
    def width(self) -> float:
        """The width of the longest name, in inches."""
        return 0.06 + max((text_width(text, SMALL) for text in self.texts), default=0.0)

    @property
    def thickness(self) -> float:
        """The height that the names take below each other, in inches."""
        return NAME_GAP * len(self.texts)

    def put_on(self, axes: Axes, side: Literal["x", "y"]) -> None:
        """Write the names beside an axis, with lines between categories.

        Args:
            axes: the axes.
            side: `x` or `y`.
        """
        for edge in self.edges:
            line = axes.axhline if side == "y" else axes.axvline
            line(edge - 0.5, color=FAINT, linewidth=0.4, alpha=0.7)
        if side == "y":
            axes.set_yticks(self.places, self.texts, fontsize=SMALL)
        else:
            axes.set_xticks(self.places, self.texts, fontsize=SMALL, rotation=90)


NO_NAMES = RowNames()


def row_names(names: Sequence[str], categories: Sequence[str], count: int) -> RowNames:
    """Return the categories of the rows of a matrix, or else the names of the classes.

    Args:
        names: the name of each class.
        categories: the category of each class, or none.
        count: the number of rows. There are no names if they would not fit a page.
    """
    edges = _category_edges(categories, count)
    if edges:
        middles = tuple((a + b - 1) / 2 for a, b in zip([0, *edges], [*edges, count], strict=True))
        titles = [categories[edge] for edge in (0, *edges)]
        return RowNames(tuple(shorten_names(titles, NAME_LETTERS)), middles, tuple(edges))
    if count > len(names) or count * NAME_GAP > MOST_INCHES:
        return NO_NAMES
    texts = shorten_names(names[:count], NAME_LETTERS)
    return RowNames(tuple(texts), tuple(map(float, range(count))))


def _category_edges(categories: Sequence[str], count: int) -> list[int]:
    """Return the classes at which another category begins; nothing without categories."""
    if len(categories) < max(count, 1):
        return []
    return [i for i in range(1, count) if categories[i] != categories[i - 1]]


@dataclass(frozen=True)
class Frame:
    """The place of a matrix in its figure, in inches.

    Args:
        width: the width of the figure.
        across: the width of the matrix.
        down: the height of the matrix.
        left: the width of what stands to the left.
        below: the height of what stands below.
    """

    width: float
    across: float
    down: float
    left: float
    below: float

    @property
    def height(self) -> float:
        """The height of the figure."""
        return TOP + self.down + self.below

    def draw(self) -> tuple[Figure, Axes]:
        """Return a new figure and the axes of the matrix."""
        figure = new_figure(self.width, self.height)
        return figure, figure.add_axes(self._box(self.left, self.across))

    def key(self, figure: Figure) -> Axes:
        """Add the axes of the colour key.

        Args:
            figure: the figure that `draw` returned.
        """
        return figure.add_axes(self._box(self.left + self.across + 0.06, 0.09))

    def _box(self, left: float, wide: float) -> tuple[float, float, float, float]:
        bottom = self.below / self.height
        return left / self.width, bottom, wide / self.width, self.down / self.height


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


def draw_confusion(
    series: Series, name: str, width: float | None = None, *, page: float = WIDTHS["page"]
) -> Picture | None:
    """Draw the confusion matrix in shades of one colour, from 0 to 100%.

    Args:
        series: the runs of one strategy.
        name: the name of the picture.
        width: the width in inches; None is a column, or a page if the names need it.
        page: the width of a page in inches.
    """
    matrix = confusion_matrix(series)
    if matrix is None:
        return None
    names = row_names(*class_names(series.done[0]), len(matrix))
    wide = TIGHT * names.thickness > WIDTHS["column"] - names.width - KEY - MARGIN
    width = width or (page if wide and names.texts else WIDTHS["column"])
    across = width - names.width - KEY - MARGIN
    named = TIGHT * names.thickness <= across and matrix.shape[0] == matrix.shape[1]
    order = "" if named or not names.texts else ", in the order of the rows"
    label = fit_text(f"predicted class{order}{frames_note(series)}", across + KEY, 8)
    below = (names.width if named else 0.0) + BOTTOM - 0.1 + LINE * label.count("\n")
    down = max(0.9 * min(across, 5.0), names.thickness)
    frame = Frame(width, across, down, MARGIN + names.width, below)
    with drawing_style():
        figure, axes = frame.draw()
        axes.imshow(_shades(matrix, 0.5), interpolation="nearest", aspect="auto")
        names.put_on(axes, "y")
        (names if named else NO_NAMES).put_on(axes, "x")
        axes.set_ylabel("true class", labelpad=2)
        axes.set_xlabel(label, labelpad=2)
        _finish_matrix(axes, series.name)
        _draw_key(frame.key(figure), "% of the true class", 0.5)
    diagonal = float(np.diag(matrix).mean())
    title = f"Confusion matrix of {series.name}, {series.panel.title}"
    return Picture(name, f"{title}: mean of the diagonal {diagonal:.1f}%", figure)


def draw_class_accuracy(series: Series, name: str, width: float | None = None) -> Picture | None:
    """Draw the accuracy of each class after each tested batch, in the first run that has it.

    Args:
        series: the runs of one strategy.
        name: the name of the picture.
        width: the width in inches; None is a column.
    """
    cell = next((cell for cell in series.cells if has_classes(cell)), None)
    if cell is None:
        return None
    curves = class_curves(cell)
    batches = sorted({batch for curve in curves.values() for batch in curve})
    rows = [[curve.get(batch, np.nan) for batch in batches] for curve in curves.values()]
    matrix = np.array(rows, dtype=np.float64).reshape(len(curves), len(batches))
    names = row_names(*class_names(cell, len(curves)), len(matrix))
    width = width or WIDTHS["column"]
    left = 0.05 + names.width
    across = width - left - KEY
    label = f"training batch (run {cell.run}{frames_note(series, ', ', '')})"
    label = fit_text(label, across + KEY, 8)
    below = BOTTOM + LINE * label.count("\n")
    frame = Frame(width, across, max(1.9, names.thickness), left, below)
    with drawing_style():
        figure, axes = frame.draw()
        extent = (batches[0] - 0.5, batches[-1] + 0.5, len(matrix) - 0.5, -0.5)
        axes.imshow(_shades(matrix), interpolation="nearest", aspect="auto", extent=extent)
        names.put_on(axes, "y")
        axes.locator_params(axis="x", nbins=5, integer=True)
        axes.set_xlabel(label, labelpad=2)
        _finish_matrix(axes, series.name)
        _draw_key(frame.key(figure), "accuracy (%)")
    title = f"Accuracy of every class over the batches, {series.name}, {series.panel.title}"
    return Picture(name, title, figure)


def frames_note(series: Series, before: str = " (", after: str = ")") -> str:
    """Return the number of test frames as part of a label, if it is known.

    Args:
        series: the runs.
        before: the text before it.
        after: the text after it.
    """
    found = series.test_frames
    return f"{before}{found} test frames{after}" if found else ""


def _shades(matrix: Matrix, gamma: float = 1.0) -> Matrix:
    """Return RGBA values: the opacity is (percentage / 100)^gamma.

    With gamma below 1, small percentages are easier to see.
    """
    shades = np.zeros((*matrix.shape, 4))
    shades[..., :3] = BLUE
    shades[..., 3] = np.nan_to_num(np.clip(matrix / 100, 0, 1)) ** gamma
    return shades


def _finish_matrix(axes: Axes, title: str) -> None:
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontweight="bold", pad=4)
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
    axes.tick_params(length=0, labelsize=SMALL, pad=2)
    axes.set_ylabel(text, fontsize=SMALL, labelpad=0)
    for spine in axes.spines.values():
        spine.set_visible(True)
