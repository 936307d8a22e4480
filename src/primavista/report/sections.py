"""The content of the report: which cells go into which section."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from primavista.errors import MissingExtraError, require_extra
from primavista.report.cell_tables import failed_table, progress_table, stale_table
from primavista.report.claims import CLAIMS, claims_table, comparisons_table
from primavista.report.cost_tables import saturation_table
from primavista.report.figures import EXTRA, WIDTHS, palette_of
from primavista.report.final_tables import final_table, tuned_note
from primavista.report.group_section import curve_pictures, group_section
from primavista.report.grouping import BN, ReportData, ReportGroup, group_cells
from primavista.report.hyperparameters import (
    changed_table,
    machine_table,
    own_options_table,
    preset_table,
    renorm_table,
)
from primavista.report.methods import run_table, tested_on
from primavista.report.overview import cards, count_status, lead, notes, warnings
from primavista.report.page import Collapsible, Page, Section
from primavista.report.parity import parity_table
from primavista.report.prose import methods_paragraph
from primavista.report.published import PublishedResults, target_accuracies
from primavista.report.read import FolderResults, StoredCell
from primavista.report.series import by_panel
from primavista.report.stream_figures import (
    composition_table,
    draw_streams,
    nic_of_2017,
    panel_streams,
)
from primavista.strategies.registry import strategy_info


def build_page(
    results: FolderResults, published: PublishedResults, page_width: float = WIDTHS["page"]
) -> Page:
    """Return the whole report, section by section; those with nothing to show are left out.

    Args:
        results: the cells of a folder.
        published: the authors' curves.
        page_width: the width of figures that span the page, in inches.
    """
    missing = _missing_plots()
    data = group_cells(results.cells, published, missing is None, page_width)
    count = count_status(results.cells)
    stale = stale_table(results.cells, results.superseded)
    sections = [*(group_section(data, group) for group in data.groups), *_sections(data)]
    if stale is not None:
        sections.append(Section(stale.title, tables=(stale,)))
    return Page(
        results.title or "Continual learning benchmark",
        lead(results.cells, count),
        palette_of(cell.strategy for cell in results.cells),
        notes(results, count),
        warnings(results.cells, count, missing),
        cards(data),
        tuple(sections),
    )


def _missing_plots() -> str | None:
    """Return what to install if figures cannot be drawn."""
    try:
        require_extra(*EXTRA)
    except MissingExtraError as error:
        return f"There are no figures here: {error}, then write the report again."
    return None


def _sections(data: ReportData) -> Iterator[Section]:
    for make_section in SECTIONS:
        section = make_section(data)
        if section is not None:
            yield section


def _parity(data: ReportData) -> Section | None:
    panels = by_panel(data.series)
    series = [one for own in panels.values() for one in own]
    table = parity_table(series, target_accuracies(data.published))
    return Section(table.title, tables=(table,)) if table.rows else None


def _norms(data: ReportData) -> Section | None:
    if not data.norms:
        return None
    group = ReportGroup("Batch norm against renormalisation", BN, data.norms)
    drawn = curve_pictures(data, group, {}) if data.plots else Section("")
    text = ("The same strategy with batch normalisation and with batch renormalisation.",)
    title = "Final accuracy with batch norm and with renormalisation"
    tables = (final_table(group.file_stem("final"), title, data.norms),)
    pictures = drawn.pictures
    return Section(group.title, text, pictures, tables, (), drawn.extra, drawn.narrow)


def _guard(data: ReportData) -> Section | None:
    table = saturation_table(data.series)
    return Section(table.title, tables=(table,)) if table else None


def _claims(data: ReportData) -> Section | None:
    tested = f"Accuracy on {tested_on(data.cells)}."
    made = (claims_table(data.claims, tested), comparisons_table(data.claims, tested))
    tables = tuple(filter(None, made))
    if not tables:
        return None
    measured = {claim.title for claim in data.claims}
    missing = [title for title, *_ in CLAIMS if title not in measured]
    text = (f"There are no results here for: {'; '.join(missing)}.",) if missing else ()
    return Section("The claims of the text", text, tables=tables)


def _behind_claims(data: ReportData) -> Section | None:
    """Show the cells that were planned for a claim alone, as any other group."""
    if not data.behind_claims:
        return None
    group = ReportGroup("The cells behind the claims", "claims", data.behind_claims)
    drawn = curve_pictures(data, group, {}) if data.plots else Section("")
    tables = (final_table(group.file_stem("final"), "All measures", group.series),)
    parts = (Collapsible("Accuracy against batches", drawn.pictures),) if drawn.pictures else ()
    hidden = (*drawn.extra, *drawn.narrow)
    return Section(group.title, tables=tables, collapsibles=parts, extra=hidden)


def _streams(data: ReportData) -> Section | None:
    panels = by_panel(data.series)
    if not panels:
        return None
    streams = {**panel_streams(panels), **nic_of_2017(panels)}
    pictures = tuple(draw_streams(streams, data.page_width)) if data.plots else ()
    return Section("The streams", (), pictures, (composition_table(panels, streams),))


def _settings(data: ReportData) -> Section | None:
    changed = changed_table(data.series)
    tables = (
        *filter(None, (preset_table(data.cells), own_options_table(data.cells))),
        *([renorm_table()] if _uses_renorm(data.cells) else []),
        *([changed] if changed else []),
    )
    text = tuned_note([cell for cell in data.cells if cell.readable])
    return Section("Hyperparameters", text, tables=tables) if tables else None


def _uses_renorm(cells: Sequence[StoredCell]) -> bool:
    return any(strategy_info(cell.strategy).training_options for cell in cells if cell.readable)


def _methods(data: ReportData) -> Section | None:
    text = methods_paragraph(data.cells)
    table = run_table(data.cells)
    if table is None:
        return None
    return Section("What was run", tables=(table,), methods=text)


def _machines(data: ReportData) -> Section:
    return Section("The machines", tables=(machine_table(data.cells),))


def _unfinished_cells(data: ReportData) -> Section | None:
    tables = tuple(filter(None, (failed_table(data.cells), progress_table(data.cells))))
    return Section("Failed and unfinished cells", tables=tables) if tables else None


# In the order of the page, after the groups of the plan.
SECTIONS: tuple[Callable[[ReportData], Section | None], ...] = (
    _methods,
    _norms,
    _parity,
    _claims,
    _behind_claims,
    _guard,
    _streams,
    _settings,
    _machines,
    _unfinished_cells,
)
