"""The streams behind the cells: classes over batches, and what batches are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from primavista.bench.cell import cell_stream
from primavista.bench.data import RenderedData, open_cell_data, split_of
from primavista.bench.plan import Cell
from primavista.errors import PrimavistaError
from primavista.report.figures import Picture, drawing_style
from primavista.report.published import COMPOSITION
from primavista.report.read import StoredCell
from primavista.report.series import Panel, Series
from primavista.report.table import Row, Table, Value
from primavista.report.texts import write_texts
from primavista.report.titles import slug
from primavista.streams.dataset import Stream
from primavista.streams.pictures import draw_stream, protocol_row
from primavista.streams.rendered.dataset import rendered


def _try_stream(cell: Cell) -> Stream | None:
    """Return the stream of a cell, if its data can be described or found again."""
    split = split_of(cell.data, cell.run)
    try:
        if isinstance(cell.data, RenderedData):
            return cell_stream(cell, rendered(cell.data.scene))
        return cell_stream(cell, open_cell_data(cell.data, Path(), split=split))
    except (PrimavistaError, OSError, TypeError, ValueError):
        return None


def _lowest_run(series: Sequence[Series]) -> StoredCell:
    return min((cell for one in series for cell in one.cells), key=lambda cell: cell.run)


def panel_streams(panels: Mapping[Panel, Sequence[Series]]) -> dict[Panel, Stream]:
    """Return the stream of the lowest run of each panel.

    Panels whose stream cannot be rebuilt are left out, and those whose batches do not have the
    numbers of patterns that the cell recorded.
    """
    streams = {}
    for panel, series in panels.items():
        cell = _lowest_run(series)
        stream = _try_stream(cell.cell)
        pairs = zip(stream.batches if stream else (), cell.steps, strict=False)
        if stream and all(step.patterns in (None, sum(map(len, own))) for own, step in pairs):
            streams[panel] = stream
    return streams


def draw_streams(streams: Mapping[Panel, Stream], width: float) -> list[Picture]:
    """Draw the classes of each batch, one picture per stream that has several classes to show."""
    pictures = []
    for panel, stream in streams.items():
        if panel.protocol != "ni":
            heading = f"{panel.title}, run {stream.run}"
            described = f"{heading}, {stream_order(stream)} order"
            name = slug("stream", panel.title)
            pictures.append(stream_picture(stream, width, name, described, heading))
    return pictures


def stream_picture(
    stream: Stream, width: float, name: str, described: str, heading: str = ""
) -> Picture:
    """Draw the classes of each batch of a stream."""
    with drawing_style(grid=False):
        figure = draw_stream(stream, width, heading)
    return Picture(name, f"Classes encountered over time, {described}", figure)


def composition_table(streams: Mapping[Panel, Stream]) -> Table:
    """Return the number of batches and what they are made of."""
    rows: list[Row] = [
        (panel.title, *_stream_composition(stream), COMPOSITION.get(panel.protocol))
        for panel, stream in streams.items()
    ]
    columns = (
        "protocol",
        "batches",
        "initial classes",
        "initial images",
        "incremental classes",
        "incremental images",
        "order",
        "the paper, on CORe50",
    )
    title, notes = "Number and composition of batches", write_texts("streams")
    return Table("streams", title, columns, tuple(rows), notes).without_empty_columns(6)


def _stream_composition(stream: Stream) -> tuple[Value, ...]:
    row = protocol_row(stream)
    low, high = row.incremental_classes
    classes = str(low) if low == high else f"{low} to {high}"
    later = classes, round(row.incremental_images), stream_order(stream)
    return row.batches, row.initial_classes, row.initial_images, *later


def stream_order(stream: Stream) -> str:
    """Return `official` if the batches are in the authors' order, else `generated`."""
    return "generated" if stream.source == "generated" else "official"
