"""The top of the report: what was run, how far it is, what is wrong, and the best results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primavista.report.claims import Claim
from primavista.report.final_tables import tuned_note
from primavista.report.grouping import ReportData
from primavista.report.page import Card
from primavista.report.read import FolderResults, StoredCell
from primavista.report.series import Panel, Series, by_panel
from primavista.report.table import format_value
from primavista.report.titles import DATA_TITLES
from primavista.strategies.registry import strategy_info

MOST_CARDS = 6


def count_status(cells: Sequence[StoredCell]) -> dict[str, int]:
    """Count the cells that are done, in progress and failed.

    Args:
        cells: all cells.
    """
    statuses = [cell.status for cell in cells]
    return {status: statuses.count(status) for status in ("done", "in progress", "failed")}


def lead(cells: Sequence[StoredCell], count: Mapping[str, int]) -> str:
    """Return the first sentences of the page: what was run, and how far it is.

    Args:
        cells: all cells.
        count: what `count_status` returned.
    """
    known = [cell for cell in cells if cell.readable]
    data = ", ".join(sorted({_data_title(cell) for cell in known})) or "unknown data"
    strategies = _number_of(len({cell.strategy for cell in known}), "strategy", "strategies")
    protocols = _number_of(len({cell.protocol for cell in known}), "protocol")
    runs = _number_of(len({cell.run for cell in known}), "run")
    return (
        f"{strategies} over {protocols} in {runs}, on {data}. "
        f"Of {_number_of(len(cells), 'cell')}, {count['done']} are done, "
        f"{count['in progress']} in progress, {count['failed']} failed."
    )


def _data_title(cell: StoredCell) -> str:
    if cell.is_core50:
        facts = cell.result.data if cell.result else None
        partial = facts is not None and facts.core50 is not None and not facts.core50.complete
        return "a part of CORe50" if partial else "CORe50"
    return DATA_TITLES.get(cell.data_name, cell.data_name)


def _number_of(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def notes(results: FolderResults, count: Mapping[str, int]) -> tuple[str, ...]:
    """Return the remarks at the top of the page.

    Args:
        results: the cells of the folder.
        count: what `count_status` returned.
    """
    cells = results.cells
    found = [*tuned_note([cell for cell in cells if cell.readable])]
    found += _identity_notes(results)
    if results.waiting:
        have = "has" if results.waiting == 1 else "have"
        found.append(f"{_number_of(results.waiting, 'cell')} of the plan {have} not started yet.")
    if count["in progress"]:
        are = "is" if count["in progress"] == 1 else "are"
        part = f"{count['in progress']} of {_number_of(len(cells), 'cell')} {are} in progress"
        found.append(f"{part} and shown up to the last batch so far.")
    return tuple(found)


def _identity_notes(results: FolderResults) -> list[str]:
    """Say what cannot be told of old cells, and which stale ones were left out."""
    notes = []
    unrecorded = sum(cell.readable and not cell.records_identity for cell in results.cells)
    if unrecorded:
        have = "does" if unrecorded == 1 else "do"
        notes.append(
            f"{_number_of(unrecorded, 'cell')} {have} not record the code and data of the result "
            "(format 1): whether they have changed since cannot be told."
        )
    if results.superseded:
        were = "was" if len(results.superseded) == 1 else "were"
        notes.append(
            f"{_number_of(len(results.superseded), 'stale cell')} {were} run again and left out."
        )
    return notes


def warnings(
    cells: Sequence[StoredCell], count: Mapping[str, int], missing: str | None
) -> tuple[str, ...]:
    """Return the warnings at the top of the page.

    Args:
        cells: all cells.
        count: what `count_status` returned.
        missing: what to install for figures, if they cannot be drawn.
    """
    found = [missing] if missing else []
    stale = sum(cell.stale is not None for cell in cells)
    if stale:
        are = "is" if stale == 1 else "are"
        found.append(
            f"{stale} of {_number_of(len(cells), 'cell')} {are} stale: the code or the data has "
            "changed since. They are listed below; run the plan again to compute them anew."
        )
    if count["failed"]:
        part = f"{count['failed']} of {_number_of(len(cells), 'cell')}"
        found.append(f"{part} failed; the reasons are listed below.")
    if any(cell.limited for cell in cells):
        found.append(
            "Some cells learned only the first batches of their streams: a trial, not a result."
        )
    return tuple(found)


def cards(data: ReportData) -> tuple[Card, ...]:
    """Return the numbers at the top: the best strategy of each panel, and the claims.

    Args:
        data: the sorted cells.
    """
    series = [one for group in data.groups if not group.freezing for one in group.series]
    found = [_best_card(panel, own) for panel, own in by_panel(series).items()]
    if data.claims:
        found.append(_claims_card(data.claims))
    return tuple(card for card in found if card is not None)[:MOST_CARDS]


def _best_card(panel: Panel, series: Sequence[Series]) -> Card | None:
    """Return the strategy with the best final accuracy, those trained on all data aside."""
    finals = [(one, one.final()) for one in series if not strategy_info(one.strategy).joint]
    known = [(one.name, final) for one, final in finals if final is not None]
    if not known:
        return None
    name, best = max(known, key=lambda item: item[1].mean)
    text = f"{name}, the best here, {_number_of(best.runs, 'run')}"
    return Card(panel.title, format_value(best, 1) + "%", text)


def _claims_card(claims: Sequence[Claim]) -> Card:
    tones = [claim.verdict.tone for claim in claims]
    good, bad, unclear = tones.count("good"), tones.count("bad"), tones.count("open")
    value = f"{good} of {len(tones)} {'holds' if good == 1 else 'hold'}"
    does_not = f"{bad} {'does' if bad == 1 else 'do'} not"
    is_open = f"{unclear} {'is' if unclear == 1 else 'are'} open"
    return Card("Claims of the paper", value, f"{does_not}, {is_open}")
