"""Pictures of streams and data sets: the class-by-batch matrix of the paper, its table of protocols, and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from primavista.errors import FileError, InputError, require_extra
from primavista.frames import Frames, crop_and_resize
from primavista.streams.dataset import DataSet, Session, Stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Any two are at least 23 apart in CIELAB, to the eye without red, green or blue cones too, and all are far from the red that
# marks first introductions; dark and light take turns.
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
MAX_TILES = 20_000


@dataclass(frozen=True)
class ProtocolRow:
    """A row of the paper's `tab:nic`; of the incremental batches the fewest and most classes, and the mean number of images."""

    protocol: str
    batches: int
    initial_classes: int
    initial_images: int
    incremental_classes: tuple[int, int]
    incremental_images: float


def protocol_row(stream: Stream) -> ProtocolRow:
    """The row of `tab:nic` for any stream. The paper counts sessions as classes; here two sessions of one class are one."""
    if not len(stream):
        raise InputError("the stream has no batches")
    classes = [len({session.label for session in batch}) for batch in stream.batches]
    images = [sum(map(len, batch)) for batch in stream.batches]
    later = classes[1:] or [0]
    mean = sum(images[1:]) / max(1, len(images) - 1)
    return ProtocolRow(
        stream.name, len(classes), classes[0], images[0], (min(later), max(later)), mean
    )


def order_matrix(stream: Stream) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Sessions of each class (row) in each batch (column)."""
    matrix = np.zeros((len(stream.data.classes), len(stream)), np.int64)
    for column, batch in enumerate(stream.batches):
        for session in batch:
            matrix[session.label, column] += 1
    return matrix


def first_batches(matrix: np.ndarray[Any, Any]) -> dict[int, int]:
    """The batch in which each class that occurs is first seen."""
    return {int(row): int((matrix[row] > 0).argmax()) for row in np.flatnonzero(matrix.any(1))}


def draw_order(stream: Stream, width: float | None = None) -> Figure:
    """The class-by-batch matrix of the paper's `fig:nicv2`, as a matplotlib figure.

    A coloured cell: the class has a session in the batch; colours are categories. A red frame: the first of the class. A grey
    band: a batch that introduces a class. Needs the extra `plots`.
    """
    figures = require_extra("matplotlib.figure", "plots")
    matrix = order_matrix(stream)
    rows, columns = matrix.shape
    wide = width or min(24.0, max(7.0, 2.6 + 0.034 * columns + 2.6 * min(1.0, columns / 79)))
    high = min(24.0, max(2.2, 1.2 + 0.115 * rows))
    figure: Figure = figures.Figure(figsize=(wide, high), layout="constrained")
    axes = figure.add_subplot()
    _draw_cells(axes, matrix, stream.data.categories)
    _label_axes(axes, stream, matrix)
    return figure


def save_order(stream: Stream, path: str | Path, dpi: int = 160) -> Path:
    """Write `draw_order` to a file and return its path; its ending says how (.png, .svg, .pdf; without one, .png is added)."""
    figure, path = draw_order(stream), Path(path)
    path = path if path.suffix else path.with_name(path.name + ".png")
    try:
        figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write the picture {path}: {error}") from error
    return path


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
    categories = stream.data.categories[: len(matrix)]
    edges = [row for row in range(1, len(categories)) if categories[row] != categories[row - 1]]
    if (
        len(edges) < len(categories) - 1
    ):  # categories of several classes: name the groups, else each class
        for edge in edges:
            axes.axhline(edge + 0.5, color="#999999", linewidth=0.4, zorder=1)
        starts = [0, *edges]
        stops = [*edges, len(categories)]
        axes.set_yticks([(a + b + 1) / 2 for a, b in zip(starts, stops, strict=True)])
        axes.set_yticklabels([_group(stream.data.classes[a]) for a in starts], fontsize=8)
    elif len(categories) <= 60:
        axes.set_yticks(range(1, len(categories) + 1))
        axes.set_yticklabels(stream.data.classes[: len(categories)], fontsize=6)
    for tick, colour in zip(axes.get_yticklabels(), _tick_colours(categories, edges), strict=False):
        tick.set_bbox(
            {
                "facecolor": "none",
                "edgecolor": colour,
                "boxstyle": "round,pad=0.15",
                "linewidth": 1.2,
            }
        )
    axes.tick_params(length=0, axis="y")
    axes.set_xlabel(
        "training batch\n(red frame: first session of a class; grey band: batch with a new class)",
        fontsize=8,
    )
    run = f", run {stream.run}" if stream.run is not None else ""
    axes.set_title(f"{stream.name}{run}", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _tick_colours(categories: Sequence[int], edges: Sequence[int]) -> list[str]:
    rows = [0, *edges] if len(edges) < len(categories) - 1 else range(len(categories))
    return [PALETTE[categories[row] % len(PALETTE)] for row in rows]


def _group(name: str) -> str:
    head, _, last = name.rpartition(" ")
    return head if head and last.isdigit() else name


def contact_sheet(
    data: DataSet,
    by: Literal["sessions", "frames"] = "sessions",
    *,
    classes: Sequence[int] | None = None,
    columns: int | None = None,
    tile: int = 64,
) -> Image.Image:
    """A sheet of small pictures: a row for each class; columns are its sessions (the middle frame of each), or frames.

    `by="frames"` shows `columns` frames (default 12) spread over the first training session of each class. Test sessions have
    a blue number. One frame is read at a time.
    """
    labels = list(range(len(data.classes))) if classes is None else list(classes)
    if bad := [label for label in labels if not 0 <= label < len(data.classes)]:
        raise InputError(
            f"no classes {bad}: the data set '{data.name}' has classes 0 to {len(data.classes) - 1}"
        )
    if by not in ("sessions", "frames"):
        raise InputError(f"by must be 'sessions' or 'frames'; got {by!r}")
    wide = columns or (12 if by == "frames" else len({s.number for s in (*data.train, *data.test)}))
    if not 1 <= len(labels) * wide <= MAX_TILES or not 8 <= tile <= 1024:
        raise InputError(
            f"a sheet of {len(labels)} x {wide} pictures of {tile} pixels: choose 1 to {MAX_TILES:,}, of 8 to 1024"
        )
    heads, cells = (
        _session_cells(data, labels) if by == "sessions" else _frame_cells(data, labels, wide)
    )
    return _paste(data, labels, heads[:wide], cells, tile)


Cells = dict[tuple[int, int], int]  # (row, column): frame
Heads = list[tuple[str, bool]]  # text, whether of the test set


def _session_cells(data: DataSet, labels: Sequence[int]) -> tuple[Heads, Cells]:
    tests = {session.number for session in data.test}
    numbers = sorted({session.number for session in (*data.train, *data.test)})
    cells: Cells = {}
    for session in (*data.train, *data.test):
        if session.label in labels:
            cells.setdefault(
                (labels.index(session.label), numbers.index(session.number)), _middle(session)
            )
    return [(str(number), number in tests) for number in numbers], cells


def _frame_cells(data: DataSet, labels: Sequence[int], columns: int) -> tuple[Heads, Cells]:
    cells: Cells = {}
    for row, label in enumerate(labels):
        own = [session for session in (*data.train, *data.test) if session.label == label]
        if own:
            places = np.linspace(own[0].start, own[0].stop - 1, columns).round().astype(int)
            cells |= {(row, column): int(place) for column, place in enumerate(places)}
    return [(str(column + 1), False) for column in range(columns)], cells


def _middle(session: Session) -> int:
    return (session.start + session.stop) // 2


def _paste(
    data: DataSet, labels: Sequence[int], heads: Heads, cells: Cells, tile: int
) -> Image.Image:
    font = ImageFont.load_default(max(9, tile // 5))
    gap, head = 2, max(14, tile // 3)
    names = [data.classes[label] for label in labels]
    left = int(max(font.getlength(name) for name in names)) + 10
    sheet = Image.new(
        "RGB", (left + len(heads) * (tile + gap), head + len(labels) * (tile + gap)), "white"
    )
    pen = ImageDraw.Draw(sheet)
    for column, (text, tested) in enumerate(heads):
        place = (left + column * (tile + gap) + tile // 2, head // 2)
        pen.text(place, text, fill="#0050C8" if tested else "#222222", font=font, anchor="mm")
    for row, name in enumerate(names):
        top = head + row * (tile + gap)
        pen.text((left - 6, top + tile // 2), name, fill="#222222", font=font, anchor="rm")
        for column in range(len(heads)):
            place = (left + column * (tile + gap), top)
            if (row, column) in cells:
                sheet.paste(_tile(data.frames, cells[row, column], tile), place)
            else:
                pen.rectangle((*place, place[0] + tile - 1, top + tile - 1), outline="#DDDDDD")
    return sheet


def _tile(frames: Frames, index: int, tile: int) -> Image.Image:
    return Image.fromarray(crop_and_resize(frames[torch.tensor([index])][0], tile))
