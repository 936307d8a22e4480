"""The streams behind the cells: fig:nicv2 and tab:nic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from primavista.errors import PrimavistaError
from primavista.report.drawing import Picture, picture, style
from primavista.report.names import slug
from primavista.report.published import NIC
from primavista.report.read import Cell, number, whole
from primavista.report.series import Panel, Series
from primavista.report.table import Table, Value

if TYPE_CHECKING:
    from primavista.streams.dataset import Stream


def rebuild(cell: Cell) -> Stream | None:
    """The stream that a cell learned, where its data can be described or found again; else None.

    A stream that does not fit the batches and patterns that the cell recorded is not the one.
    """
    try:
        stream = _rebuild(cell)
    except (PrimavistaError, OSError, TypeError, ValueError):
        return None
    sizes = [sum(map(len, batch)) for batch in stream.batches[: len(cell.steps)]]
    seen = [whole(step.get("patterns")) for step in cell.steps]
    return stream if all(b is None or a == b for a, b in zip(sizes, seen, strict=False)) else None


def _rebuild(cell: Cell) -> Stream:
    from primavista.bench.cell import make_stream
    from primavista.bench.data import open_data
    from primavista.bench.plan import Cell as Planned
    from primavista.streams.rendered.dataset import rendered

    known = {key: value for key, value in cell.plan.items() if key in Planned.model_fields}
    planned = Planned.model_validate(known)
    data = (
        rendered(planned.data.scene)
        if planned.data.kind == "rendered"
        else open_data(planned.data, Path())
    )
    return make_stream(planned, data)


def streams_of(panels: dict[Panel, list[Series]]) -> dict[Panel, Stream]:
    """The lowest run's stream of each panel that can be rebuilt."""
    found = {}
    for panel, series in panels.items():
        cell = min((cell for one in series for cell in one.cells), key=lambda cell: cell.run)
        if stream := rebuild(cell):
            found[panel] = stream
    return found


def draw_orders(streams: dict[Panel, Stream]) -> list[Picture]:
    """fig:nicv2, a picture a stream."""
    from primavista.streams.pictures import draw_order

    pictures = []
    for panel, stream in streams.items():
        if panel.protocol == "ni":  # every class in every batch: nothing to see
            continue
        with style({"axes.grid": False}):
            figure = draw_order(stream)
        title = f"Classes encountered over time, {panel.title}, run {stream.run}"
        pictures.append(picture(figure, slug("fig:nicv2", panel.title), title, paper=True))
    return pictures


def nic_table(panels: dict[Panel, list[Series]], streams: dict[Panel, Stream]) -> Table:
    """tab:nic: from the streams where they can be rebuilt, else from what the cells recorded."""
    from primavista.streams.pictures import protocol_row

    rows: list[tuple[Value, ...]] = []
    for panel, series in panels.items():
        paper = NIC.get(panel.protocol)
        theirs = (
            f"{paper[0]} batches; {paper[1]} classes, {paper[2]:,} images; then {paper[3]}, {paper[4]:,}"
            if paper
            else None
        )
        if stream := streams.get(panel):
            row = protocol_row(stream)
            low, high = row.incremental_classes
            classes = str(low) if low == high else f"{low} to {high}"
            later = round(row.incremental_images)
            rows.append(
                (
                    panel.title,
                    row.batches,
                    row.initial_classes,
                    row.initial_images,
                    classes,
                    later,
                    theirs,
                )
            )
        else:
            rows.append(
                (panel.title, *_recorded([cell for one in series for cell in one.cells]), theirs)
            )
    columns = (
        "protocol",
        "batches",
        "initial classes",
        "initial images",
        "incremental classes",
        "incremental images",
        "the paper, on CORe50",
    )
    notes = (
        "Incremental: the batches after the first; images are their mean. Two sessions of one class count as one class.",
    )
    return Table("nic", "tab:nic: batch number and composition", columns, tuple(rows), notes)


def _recorded(cells: Sequence[Cell]) -> tuple[Value, Value, Value, Value, Value]:
    cell = max(cells, key=lambda cell: len(cell.steps))
    images = [number(step.get("patterns")) for step in cell.steps]
    later = [count for count in images[1:] if count is not None]
    first = cell.steps[0].get("new_classes") if cell.steps else None
    classes = len(first) if isinstance(first, list) else whole(first)
    initial = round(images[0]) if images and images[0] is not None else None
    return (
        cell.batches or cell.reached,
        classes,
        initial,
        None,
        round(sum(later) / len(later)) if later else None,
    )
