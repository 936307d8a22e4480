"""The streams behind the cells: classes over batches, and what batches are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from primavista.report.titles import protocol_title, slug
from primavista.streams.dataset import Stream
from primavista.streams.pictures import draw_stream, protocol_row
from primavista.streams.rendered.dataset import rendered


def rebuild_stream(cell: StoredCell) -> Stream | None:
    """Rebuild the stream that a cell learned, if its data can be described or found again.

    Returns:
        The stream; None if it cannot be rebuilt, or if its batches do not have the numbers of
        patterns that the cell recorded.
    """
    stream = _try_stream(cell.cell)
    if stream is None:
        return None
    for batch, step in zip(stream.batches, cell.steps, strict=False):
        if step.patterns is not None and step.patterns != sum(map(len, batch)):
            return None
    return stream


def _try_stream(cell: Cell) -> Stream | None:
    split = split_of(cell.data, cell.run)
    try:
        if isinstance(cell.data, RenderedData):
            return cell_stream(cell, rendered(cell.data.scene))
        return cell_stream(cell, open_cell_data(cell.data, Path(), split=split))
    except (PrimavistaError, OSError, TypeError, ValueError):
        return None


def panel_streams(panels: Mapping[Panel, Sequence[Series]]) -> dict[Panel, Stream]:
    """Return the stream of the lowest run of each panel, if it can be rebuilt."""
    streams = {}
    for panel, series in panels.items():
        cells = [cell for one in series for cell in one.cells]
        stream = rebuild_stream(min(cells, key=lambda cell: cell.run))
        if stream:
            streams[panel] = stream
    return streams


def nic_of_2017(panels: Mapping[Panel, Sequence[Series]]) -> dict[Panel, Stream]:
    """Return the stream of the older protocol NIC for each data set with a NICv2 panel.

    It is made from the data alone: no strategy has to learn it. If NIC is a panel already, or if
    the data cannot be found again, there is none; nor is there for other data than the paper's and
    rendered objects, since the paper's table compares the two protocols.
    """
    present = {panel.key for panel in panels if panel.protocol == "nic"}
    streams: dict[Panel, Stream] = {}
    for panel, series in panels.items():
        if not panel.protocol.startswith("nicv2") or panel.key in present:
            continue
        cell = min((cell for one in series for cell in one.cells), key=lambda cell: cell.run)
        if cell.cell.limit is not None or not _is_of_paper(cell):
            continue
        stream = _try_stream(cell.cell.model_copy(update={"protocol": "nic"}))
        if stream:
            present.add(panel.key)
            title = panel.title.replace(protocol_title(panel.protocol), "NIC", 1)
            streams[replace(panel, protocol="nic", title=title)] = stream
    return streams


def _is_of_paper(cell: StoredCell) -> bool:
    """Return whether the data is the paper's, or the rendered objects that stand in for it."""
    return cell.is_core50 or cell.data.get("kind") == "rendered"


def draw_streams(streams: Mapping[Panel, Stream], width: float) -> list[Picture]:
    """Draw the classes of each batch, one picture per stream."""
    pictures = []
    for panel, stream in streams.items():
        if panel.protocol == "ni":
            continue
        with drawing_style({"axes.grid": False}):
            figure = draw_stream(stream, width, f"{panel.title}, run {stream.run}")
        order = f"{stream_order(stream)} order"
        title = f"Classes encountered over time, {panel.title}, run {stream.run}, {order}"
        name = slug("stream", panel.title)
        pictures.append(Picture(name, title, figure, on_white=True))
    return pictures


def composition_table(
    panels: Mapping[Panel, Sequence[Series]], streams: Mapping[Panel, Stream]
) -> Table:
    """Return the number of batches and what they are made of."""
    rows: list[Row] = []
    for panel, series in panels.items():
        if panel in streams:
            values = _stream_composition(streams[panel])
        else:
            values = _recorded_composition([cell for one in series for cell in one.cells])
        rows.append((panel.title, *values, _published_composition(panel.protocol)))
    for panel, stream in streams.items():
        if panel not in panels:
            published = _published_composition(panel.protocol)
            rows.append((panel.title, *_stream_composition(stream), published))
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
    note = (
        "Incremental: the batches after the first; the number of images is their mean. "
        "Two sessions of one class count as one class. Order: official if it comes from the "
        "authors' files, else generated."
    )
    title = "Number and composition of batches"
    return Table("streams", title, columns, tuple(rows), (note,)).without_empty_columns(6)


def _published_composition(protocol: str) -> str | None:
    paper = COMPOSITION.get(protocol)
    if paper is None:
        return None
    first = f"{paper.initial_classes} classes, {paper.initial_images:,} images"
    later = f"{paper.later_classes}, {paper.later_images:,}"
    return f"{paper.batches} batches; {first}; then {later}"


def _stream_composition(stream: Stream) -> tuple[Value, ...]:
    row = protocol_row(stream)
    low, high = row.incremental_classes
    classes = str(low) if low == high else f"{low} to {high}"
    first = row.batches, row.initial_classes, row.initial_images
    images = round(row.incremental_images)
    return *first, classes, images, stream_order(stream)


def stream_order(stream: Stream) -> str:
    """Return `official` if the batches are in the authors' order, else `generated`."""
    return "generated" if stream.source == "generated" else "official"


def _recorded_composition(cells: Sequence[StoredCell]) -> tuple[Value, ...]:
    """Return what the cell that got furthest recorded of its batches."""
    cell = max(cells, key=lambda cell: len(cell.steps))
    images = [step.patterns for step in cell.steps]
    later = [count for count in images[1:] if count is not None]
    mean = round(sum(later) / len(later)) if later else None
    classes = len(cell.steps[0].new_classes) if cell.steps else None
    initial = images[0] if images else None
    return cell.batches or cell.reached, classes, initial, None, mean, cell.order
