"""Pictures of streams and data sets.

They are the class-by-batch matrix of the paper, its table of protocols, and contact sheets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from primavista.errors import InputError, require_extra
from primavista.media.frames import Frames, frame_at
from primavista.media.images import centre_square
from primavista.streams.dataset import DataSet, Stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Any two are at least 23 apart in CIELAB, also to the eye without red, green or blue cones, and all
# are far from the red that marks first introductions; dark and light take turns.
PALETTE = (
    "#333399",
    "#EECC33",
    "#660033",
    "#66EE99",
    "#3366EE",
    "#CC99EE",
    "#333300",
    "#669900",
    "#996666",
    "#CC3399",
)
RED = "#E00000"
BAND = "#DADADA"
SHEET_ROWS, SHEET_COLUMNS = 20, 11
MOST_NAMES = 60  # classes; the names of more would overlap


def protocol_row(stream: Stream) -> dict[str, str]:
    """Compute the row of the paper's table of protocols, `tab:nic`, for any stream.

    The paper counts sessions as classes; here two sessions of one class count once.

    Args:
        stream: A stream with at least one batch.

    Returns:
        The values as text, by the titles of their columns.

    Raises:
        InputError: If the stream has no batches.
    """
    if not len(stream):
        raise InputError("the stream has no batches")
    classes = [len({session.label for session in batch}) for batch in stream.batches]
    images = [sum(map(len, batch)) for batch in stream.batches]
    later = sorted(set(classes[1:] or [0]))
    mean = sum(images[1:]) / max(1, len(images) - 1)
    return {
        "protocol": stream.name,
        "batches": str(len(classes)),
        "initial classes": str(classes[0]),
        "initial images": str(images[0]),
        "incremental classes": " to ".join(map(str, later[:1] + later[1:][-1:])),
        "incremental images (mean)": f"{mean:.0f}",
    }


def order_matrix(stream: Stream) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Count the sessions of each class (row) in each batch (column).

    Args:
        stream: Any stream.

    Returns:
        int64, classes x batches.
    """
    matrix = np.zeros((len(stream.data.classes), len(stream)), np.int64)
    for column, batch in enumerate(stream.batches):
        for session in batch:
            matrix[session.label, column] += 1
    return matrix


def first_batches(matrix: np.ndarray[Any, Any]) -> dict[int, int]:
    """Find the batch in which each class is first seen.

    Args:
        matrix: What `order_matrix` returns.

    Returns:
        The index of the first batch, counted from 0, for each class that occurs.
    """
    return {int(row): int((matrix[row] > 0).argmax()) for row in np.flatnonzero(matrix.any(1))}


ONE_LINE_KEY = 5.8  # inches of a figure whose explanation has room in one line


def draw_stream(stream: Stream, width: float) -> Figure:
    """Draw the class-by-batch matrix of the paper's `fig:nicv2`; needs the extra `plots`.

    A coloured cell means that the class has a session in the batch; colours are categories. A red
    frame marks the first session of a class, and a grey band a batch that introduces a class.

    Args:
        stream: Any stream.
        width: The width of the figure in inches.

    Returns:
        The matplotlib figure.
    """
    figures = require_extra("matplotlib.figure", "plots")
    matrix = order_matrix(stream)
    high = min(24.0, max(2.2, 1.2 + 0.115 * len(matrix)))
    figure: Figure = figures.Figure(figsize=(width, high), layout="constrained")
    axes = figure.add_subplot()
    _draw_cells(axes, matrix, stream.data.categories)
    _label_axes(axes, stream, matrix)
    title = f"{stream.name}, run {stream.run}"
    axes.set_title(title, fontsize=8.5, fontweight="bold", loc="left")
    return figure


def _draw_cells(axes: Any, matrix: np.ndarray[Any, Any], categories: Sequence[int]) -> None:
    collections = require_extra("matplotlib.collections", "plots")
    rows, columns = matrix.shape
    firsts = first_batches(matrix)
    for column in sorted(set(firsts.values())):
        axes.axvspan(column + 0.5, column + 1.5, color=BAND, linewidth=0, zorder=0)
    cells = np.argwhere(matrix > 0)
    boxes = [_box(column, row) for row, column in cells]
    colours = [PALETTE[categories[row] % len(PALETTE)] for row, _ in cells]
    axes.add_collection(
        collections.PolyCollection(boxes, facecolors=colours, edgecolors="none", zorder=2)
    )
    wider = max(0.0, (columns - 120) / 500)  # so that a narrow cell still shows inside its frame
    frames = [_box(column, row, wider) for row, column in firsts.items()]
    line = 1.3 if columns < 120 else 0.9
    axes.add_collection(
        collections.PolyCollection(
            frames, facecolors="none", edgecolors=RED, linewidths=line, zorder=3
        )
    )
    axes.set_xlim(0.5, columns + 0.5)
    axes.set_ylim(rows + 0.5, 0.5)


def _box(column: int, row: int, wider: float = 0.0) -> list[tuple[float, float]]:
    left, right, top = column + 0.5 - wider, column + 1.5 + wider, row + 0.5
    return [(left, top), (right, top), (right, top + 1), (left, top + 1)]


def _label_axes(axes: Any, stream: Stream, matrix: np.ndarray[Any, Any]) -> None:
    names = stream.data.classes[: len(matrix)]
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(1, len(names) + 1), names, fontsize=7)
    else:
        axes.set_yticks([])
    axes.tick_params(length=0, axis="y")
    key = ("red frame: first session of a class;", "grey band: batch with a new class")
    between = "\n" if axes.figure.get_figwidth() < ONE_LINE_KEY else " "
    axes.set_xlabel(f"training batch\n({between.join(key)})", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def contact_sheet(data: DataSet, tile: int = 64) -> Image.Image:
    """Make a sheet of small pictures: the middle frame of each session, in one row per class.

    There are at most 20 rows and 11 columns; of more classes, every second or third is shown. The
    numbers of test sessions are blue. One frame is read at a time.

    Args:
        data: The data set, with at least one class.
        tile: The side of a picture in pixels.

    Returns:
        The sheet as a PIL image.
    """
    labels = range(0, len(data.classes), -(-len(data.classes) // SHEET_ROWS))
    sessions = (*data.train, *data.test)
    numbers = sorted({session.number for session in sessions})[:SHEET_COLUMNS]
    middles = {(s.label, s.number): (s.start + s.stop) // 2 for s in reversed(sessions)}
    tested = {session.number for session in data.test}
    font = ImageFont.load_default(max(9, tile // 5))
    step, head = tile + 2, max(14, tile // 3)
    left = int(max(font.getlength(data.classes[label]) for label in labels)) + 10
    size = (left + len(numbers) * step, head + len(labels) * step)
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for column, number in enumerate(numbers):
        at = (left + column * step + tile // 2, head // 2)
        colour = "#0050C8" if number in tested else "#222222"
        pen.text(at, str(number), fill=colour, font=font, anchor="mm")
    for row, label in enumerate(labels):
        top = head + row * step
        name = data.classes[label]
        pen.text((left - 6, top + tile // 2), name, fill="#222222", font=font, anchor="rm")
        for column, number in enumerate(numbers):
            at = (left + column * step, top)
            if (label, number) in middles:
                sheet.paste(_tile(data.frames, middles[label, number], tile), at)
            else:
                pen.rectangle((*at, at[0] + tile - 1, top + tile - 1), outline="#DDDDDD")
    return sheet


def _tile(frames: Frames, index: int, tile: int) -> Image.Image:
    return Image.fromarray(centre_square(frame_at(frames, index), tile))
