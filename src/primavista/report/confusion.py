"""Confusion matrices: what each class was taken for."""

from __future__ import annotations

from typing import Any

import numpy as np

from primavista.errors import require_extra
from primavista.report.figures import SMALL, WIDTHS, Picture, drawing_style, new_figure
from primavista.report.read import StoredCell
from primavista.report.series import Series
from primavista.report.titles import shorten_names

Matrix = np.ndarray[Any, np.dtype[np.float64]]
NAME_GAP = 0.115  # inches per name
MOST_INCHES = 8.0  # the height of a page; with more names than fit, classes are not named
NAME_LETTERS = 20  # longer names are shortened
MOST_ACROSS = 16  # names below a matrix as wide as a column; with more it spans the page


def class_names(cell: StoredCell, count: int) -> list[str]:
    """Return the names of the first classes; none if there are too many to write them.

    If the result does not name the classes, they are named by their numbers.
    """
    names = cell.result.classes if cell.result else []
    if count * NAME_GAP > MOST_INCHES:
        return []
    return shorten_names(names[:count] or [str(label) for label in range(count)], NAME_LETTERS)


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
    names = class_names(series.done[0], len(matrix))
    width = width or (page if len(names) > MOST_ACROSS else WIDTHS["column"])
    height = max(0.9 * min(width, 5.0), NAME_GAP * len(names) + 1)
    across = names if NAME_GAP * len(names) < width - 1.2 else []
    colors = require_extra("matplotlib.colors", "plots")
    norm = colors.PowerNorm(0.5, 0, 100)  # the root makes small values easier to see
    with drawing_style(grid=False):
        figure = new_figure(width, height)
        axes = figure.add_subplot()
        image = axes.imshow(matrix, aspect="auto", cmap="Blues", interpolation="nearest", norm=norm)
        axes.tick_params(length=0)
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(len(across)), across, rotation=90)
        for spine in axes.spines.values():
            spine.set_visible(True)
        key = figure.colorbar(image, ax=axes, ticks=[0, 50, 100], fraction=0.04, pad=0.02)
        if key.solids is not None:
            key.solids.set_rasterized(True)
        key.ax.tick_params(length=0, pad=2)
        key.set_label("% of the true class", fontsize=SMALL, labelpad=0)
        order = ", in the order of the rows" if names and not across else ""
        axes.set_ylabel("true class", labelpad=2)
        tested = f"\n({series.test_frames} test frames)" if series.test_frames else ""
        axes.set_xlabel(f"predicted class{order}{tested}", labelpad=2)
        axes.set_title(series.name, loc="left", fontweight="bold", pad=4)
    diagonal = float(np.diag(matrix).mean())
    title = f"Confusion matrix of {series.name}, {series.panel.title}"
    return Picture(name, f"{title}: mean of the diagonal {diagonal:.1f}%", figure)
