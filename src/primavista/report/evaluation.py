"""The confusion matrix of a learner as a picture: what was shown, and what it was taken for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from primavista.errors import InputError, file_errors
from primavista.report.figures import SUFFIXES, drawing_style, new_figure
from primavista.storage.disk import replacing

CELL = 0.42  # inches per row and column
TYPE = 7.0  # points
LETTER = 0.06  # inches
SHOWN_PIXELS = 200  # per inch, in a PNG
MOST_NUMBERS = 40  # columns; numbers would not fit into more
DARK = 0.6  # the share from which on a cell has white numbers


def draw_answers(
    path: Path, rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]
) -> None:
    """Write a picture of a confusion matrix, shaded by the share of each row.

    Args:
        path: The file; its suffix is one of `.png`, `.svg`, `.pdf`.
        rows: The name of each row: what was shown.
        columns: The name of each column: the answers.
        counts: The numbers of frames, row by row.

    Raises:
        InputError: If the suffix is another one, or if there is nothing to draw.
        FileError: If the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: the name of a picture ends in {', '.join(SUFFIXES)}")
    numbers = np.asarray(counts, float)
    if not numbers.size:
        raise InputError("there is nothing to draw: no video could be read")
    shares = numbers / np.maximum(numbers.sum(1, keepdims=True), 1)
    with drawing_style():
        across, down = CELL * len(columns), CELL * len(rows)
        longest = max(map(len, (*rows, *columns))) * LETTER + 0.5
        figure = new_figure(across + longest, down + longest)
        axes = figure.add_subplot()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.grid(False)
        axes.tick_params(length=0, labelsize=TYPE, top=True, labeltop=True, labelbottom=False)
        axes.set_xticks(range(len(columns)), list(columns), rotation=90)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylabel("shown", fontsize=TYPE)
        axes.set_xlabel("answer (frames)", fontsize=TYPE)
        axes.xaxis.set_label_position("top")
        if len(columns) <= MOST_NUMBERS:
            for (i, j), count in np.ndenumerate(numbers):
                if count:
                    look = {"fontsize": TYPE, "color": "white" if shares[i, j] > DARK else "black"}
                    axes.text(j, i, f"{count:.0f}", look, ha="center", va="center")
        with file_errors("write", path), replacing(path, keep_suffix=True) as part:
            figure.savefig(part, dpi=SHOWN_PIXELS)
