"""The content of the report: what stands at its top, and which cells go into which section."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from primavista.report.claims import CLAIMS, claims_table, comparisons_table
from primavista.report.confusion import draw_confusion
from primavista.report.curves import draw_all, draw_panel, panel_lines
from primavista.report.figures import WIDTHS, Picture
from primavista.report.grouping import BN, ReportData, ReportGroup, group_cells
from primavista.report.methods import methods_paragraph, retrained_note, run_table, tested_on
from primavista.report.published import PublishedResults, target_accuracies
from primavista.report.read import FolderResults, StoredCell
from primavista.report.result_tables import (
    accuracy_table,
    efficiency_table,
    final_table,
    pairwise_table,
    parity_table,
    saturation_table,
)
from primavista.report.series import by_panel
from primavista.report.setting_tables import (
    cell_table,
    changed_table,
    machine_table,
    preset_table,
)
from primavista.report.table import Table, format_value
from primavista.report.texts import write_texts
from primavista.report.titles import DATA_TITLES, slug, unique_slugs
from primavista.strategies.registry import strategy_info

Cards = tuple[tuple[str, str, str], ...]  # a number with a line above it and a line below it
MOST_CARDS = 6
NORMS = "Batch norm against renormalisation"


@dataclass(frozen=True)
class Section:
    """A part of the page: text, figures, tables and parts that open and close, in this order.

    Args:
        title: The heading.
        text: Paragraphs of plain text.
        pictures: The figures.
        tables: The tables.
        parts: What is shown on demand.
        extra: Figures that are files only, not on the page.
        methods: A paragraph to paste into a document.
        is_open: True for a part that is shown from the beginning.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    parts: tuple[Section, ...] = ()
    extra: tuple[Picture, ...] = ()
    methods: str = ""
    is_open: bool = False

    @property
    def anchor(self) -> str:
        """The target of links to the section."""
        return slug(self.title)

    @property
    def all_pictures(self) -> list[Picture]:
        """Every figure of the section, on the page or not."""
        hidden = [picture for part in self.parts for picture in part.pictures]
        return [*self.pictures, *self.extra, *hidden]


@dataclass(frozen=True)
class Page:
    """The content of the report.

    Args:
        title: The heading.
        lead: The first sentences.
        notes: Remarks at the top.
        warnings: Warnings at the top.
        cards: Numbers at the top.
        sections: The parts of the page.
    """

    title: str
    lead: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    cards: Cards
    sections: tuple[Section, ...]


def build_page(
    results: FolderResults, published: PublishedResults, page_width: float = WIDTHS["page"]
) -> Page:
    """Return the whole report, section by section; those with nothing to show are left out."""
    data = group_cells(results.cells, published, page_width)
    sections = [
        *(_group_section(data, group) for group in data.groups),
        _methods(data),
        _norms(data),
        _table_section(parity_table(data.series, target_accuracies(published))),
        _claims(data),
        _table_section(saturation_table(data.series)),
        _settings(data),
        _table_section(machine_table(data.cells)),
        _table_section(cell_table(results)),
    ]
    titles = ", ".join(sorted({_data_title(cell) for cell in results.cells})) or "unknown data"
    return Page(
        results.title or "Continual learning benchmark",
        " ".join(write_texts("lead", results=results, data=titles)),
        write_texts("notes", results=results),
        write_texts("warnings", results=results),
        _cards(data),
        tuple(section for section in sections if section is not None),
    )


def _data_title(cell: StoredCell) -> str:
    if cell.is_core50:
        core50 = cell.facts.core50 if cell.facts else None
        return "a part of CORe50" if core50 and not core50.complete else "CORe50"
    return DATA_TITLES.get(cell.data_name, cell.data_name)


def _cards(data: ReportData) -> Cards:
    """Return the numbers at the top: the best strategy of each panel, and the claims.

    Strategies that train on all data at once are a bound, and not the best.
    """
    cards = []
    series = [one for group in data.groups if not group.freezing for one in group.series]
    for panel, own in by_panel(series).items():
        rivals = [(one.name, one.final()) for one in own if not strategy_info(one.strategy).joint]
        finals = [(name, final) for name, final in rivals if final is not None]
        if finals:
            name, best = max(finals, key=lambda item: item[1].mean)
            text = f"{name}, the best here, {best.runs} run{'s' if best.runs > 1 else ''}"
            cards.append((panel.title, format_value(best, 1) + "%", text))
    if data.claims:
        tones = Counter(claim.verdict.tone for claim in data.claims)
        text = f"do not hold: {tones['bad']}, open: {tones['open']}"
        cards.append(("Claims that hold", f"{tones['good']} of {len(data.claims)}", text))
    return tuple(cards[:MOST_CARDS])


def _group_section(data: ReportData, group: ReportGroup) -> Section:
    """Return accuracy against batches, the tables of results, and the confusion matrices."""
    cells, series = group.cells, group.series
    text = write_texts(
        "group",
        cells=cells,
        tested=tested_on(cells),
        later=any(step.new_classes for cell in cells for step in cell.steps if step.batch > 1),
        retrained=retrained_note(cells),
        plain_norm=group.freezing and {one.norm for one in series} == {"bn"},
    )
    tables = (
        accuracy_table(group.file_stem("accuracy"), series),
        pairwise_table(group.file_stem("pairwise"), series),
        efficiency_table(group.file_stem("efficiency"), series),
        final_table(group.file_stem("final"), "All measures", series),
    )
    shown = tuple(table for table in tables if table.rows)
    curves = _curve_pictures(data, group, beside=True)
    return Section(group.title, text, tables=shown, parts=_confusion_parts(data, group), **curves)


def _curve_pictures(data: ReportData, group: ReportGroup, beside: bool = False) -> dict[str, Any]:
    """Draw the curves of every panel at the width of a column and of a page, and all together.

    Returns:
        The pictures of the page, and as `extra` those that are files only: a single panel is wide
        on the page.
    """
    panels = panel_lines(group.series, data.published, freezing=group.freezing, beside=beside)
    columns, pages = [], []
    for panel, lines in panels.items():
        stem = group.file_stem("accuracy", panel.title)
        columns.append(draw_panel(stem, panel, lines, WIDTHS["column"]))
        pages.append(draw_panel(f"{stem}-page", panel, lines, data.page_width))
    if len(panels) < 2:
        return {"pictures": tuple(pages), "extra": tuple(columns)}
    pages.append(draw_all(group.file_stem("accuracy", "all"), panels, data.page_width))
    return {"pictures": tuple(columns), "extra": tuple(pages)}


def _confusion_parts(data: ReportData, group: ReportGroup) -> tuple[Section, ...]:
    """Return the confusion matrices, panel by panel."""
    panels = by_panel(group.series)
    parts = []
    for panel, series in panels.items():
        stems = [f"{slug(panel.title)}-{stem}" for stem in unique_slugs([s.name for s in series])]
        drawn = [
            draw_confusion(one, group.file_stem("confusion", stem), page=data.page_width)
            for one, stem in zip(series, stems, strict=True)
        ]
        matrices = tuple(picture for picture in drawn if picture is not None)
        if matrices:
            title, text = f"{panel.title}: confusion matrices", write_texts("matrices")
            parts.append(Section(title, text, matrices, is_open=len(panels) == 1))
    return tuple(parts)


def _table_section(*tables: Table, title: str = "", text: tuple[str, ...] = ()) -> Section | None:
    """Return a section with those of some tables that have rows; the first one is its title."""
    shown = tuple(table for table in tables if table.rows)
    return Section(title or tables[0].title, text, tables=shown) if shown else None


def _methods(data: ReportData) -> Section | None:
    section = _table_section(run_table(data.cells))
    return replace(section, methods=methods_paragraph(data.cells)) if section else None


def _norms(data: ReportData) -> Section | None:
    if not data.norms:
        return None
    group = ReportGroup(NORMS, BN, data.norms)
    title = "Final accuracy with batch norm and with renormalisation"
    table = final_table(group.file_stem("final"), title, data.norms)
    curves = _curve_pictures(data, group)
    return Section(group.title, write_texts("norms"), tables=(table,), **curves)


def _claims(data: ReportData) -> Section | None:
    tested = f"Accuracy on {tested_on(data.cells)}."
    measured = {claim.title for claim in data.claims}
    missing = [claim["title"] for claim in CLAIMS if claim["title"] not in measured]
    tables = claims_table(data.claims, tested), comparisons_table(data.claims, tested)
    text = write_texts("claims", missing=missing)
    return _table_section(*tables, title="The claims of the text", text=text)


def _settings(data: ReportData) -> Section | None:
    tables = preset_table(data.cells), changed_table(data.series)
    text = write_texts("tuned", cells=data.cells)
    return _table_section(*tables, title="Hyperparameters", text=text)
