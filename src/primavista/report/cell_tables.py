"""Lists of cells that are stale, failed or unfinished."""

from __future__ import annotations

from collections.abc import Sequence

from primavista.report.read import StoredCell
from primavista.report.table import Row, Table
from primavista.report.titles import protocol_title
from primavista.strategies.registry import strategy_info


def stale_table(cells: Sequence[StoredCell], superseded: Sequence[StoredCell]) -> Table | None:
    """Return the cells whose code or data has changed since, or None if there is none.

    Args:
        cells: all cells of the report.
        superseded: stale cells that were run again, which the report leaves out.
    """
    rows: list[Row] = []
    for shown, group in ((True, cells), (False, superseded)):
        for cell in group:
            if cell.stale:
                rows.append((*_cell_columns(cell), cell.stale, "yes" if shown else "no"))
    if not rows:
        return None
    columns = ("cell", "strategy", "protocol", "run", "batches done", "reason", "in this report")
    notes = (
        "Run the plan again to compute stale cells anew; the old ones stay beside the new ones.",
        "Cells that are not in this report were run again since.",
    )
    return Table("stale", "Stale cells", columns, tuple(rows), notes)


def failed_table(cells: Sequence[StoredCell]) -> Table | None:
    """Return every failed or damaged cell with its reason, or None if there is none.

    Args:
        cells: all cells.
    """
    rows = [(*_cell_columns(cell), cell.failure) for cell in cells if cell.status == "failed"]
    if not rows:
        return None
    columns = ("cell", "strategy", "protocol", "run", "batches done", "reason")
    return Table("failed", "Cells that failed", columns, tuple(rows))


def progress_table(cells: Sequence[StoredCell]) -> Table | None:
    """Return the cells that are neither done nor failed, or None if there is none.

    Args:
        cells: all cells.
    """
    rows: list[Row] = []
    for cell in cells:
        if cell.status == "in progress":
            accuracies = list(cell.curve.values())
            last = accuracies[-1] if accuracies else None
            rows.append((*_cell_columns(cell), cell.batches, last))
    if not rows:
        return None
    columns = ("cell", "strategy", "protocol", "run", "batches done", "of", "accuracy so far (%)")
    return Table("unfinished", "Cells in progress", columns, tuple(rows))


def _cell_columns(cell: StoredCell) -> Row:
    strategy, protocol = strategy_info(cell.strategy).title, protocol_title(cell.protocol)
    return cell.path, strategy, protocol, str(cell.run), cell.reached
