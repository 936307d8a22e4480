"""The content of the report: what stands at its top, and which cells go into which section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from primavista.report.claims import CLAIMS, check_claims, claims_table, comparisons_table
from primavista.report.confusion import draw_confusion
from primavista.report.curves import draw_all, draw_panel, panel_lines
from primavista.report.figures import WIDTHS, Picture
from primavista.report.methods import (
    cell_table,
    methods_paragraph,
    option_table,
    retrained_note,
    run_table,
    tested_on,
)
from primavista.report.published import PublishedResults, target_accuracies
from primavista.report.read import FigureGroup, FolderResults, StoredCell
from primavista.report.result_tables import (
    accuracy_table,
    efficiency_table,
    final_table,
    pairwise_table,
    parity_table,
)
from primavista.report.series import Series, build_series, by_panel, little_learners
from primavista.report.table import Table
from primavista.report.texts import write_texts
from primavista.report.titles import DATA_TITLES, slug, unique_slugs

RESULTS = "results"  # the figure of cells without a group; it comes first
TITLE = "Accuracy against batches"  # of that figure, unless one group gives it a title


@dataclass(frozen=True)
class ReportGroup:
    """A group of a plan, or several whose names have the same first word after `fig:` or `tab:`.

    Args:
        title: The heading.
        stem: A part of the names of its files; empty for the first group of the report.
        series: Its series.
    """

    title: str
    stem: str
    series: Sequence[Series]

    @property
    def cells(self) -> list[StoredCell]:
        """The cells of all series."""
        return [cell for one in self.series for cell in one.cells]

    def file_stem(self, *parts: str) -> str:
        """Return the name of a file of the group; the kind of figure or table comes first."""
        kind, *others = parts
        return slug(*filter(None, (kind, self.stem, *others)))


@dataclass(frozen=True)
class Section:
    """A part of the page: text, figures, tables and figures on demand, in this order.

    Args:
        title: The heading.
        text: Paragraphs of plain text.
        pictures: The figures.
        tables: The tables.
        folded: Figures that are shown on demand, by the title above them.
        extra: Figures that are files only, not on the page.
        methods: A paragraph to paste into a document.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: Mapping[str, Sequence[Picture]] = field(default_factory=dict)
    extra: tuple[Picture, ...] = ()
    methods: str = ""

    @property
    def anchor(self) -> str:
        """The target of links to the section."""
        return slug(self.title)

    @property
    def all_pictures(self) -> list[Picture]:
        """Every figure of the section, on the page or not."""
        folded = [picture for own in self.folded.values() for picture in own]
        return [*self.pictures, *self.extra, *folded]


@dataclass(frozen=True)
class Page:
    """The content of the report.

    Args:
        title: The heading.
        lead: The first sentences.
        notes: Remarks at the top.
        warnings: Warnings at the top.
        sections: The parts of the page.
    """

    title: str
    lead: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def build_page(
    results: FolderResults, published: PublishedResults, page_width: float = WIDTHS["page"]
) -> Page:
    """Return the whole report, section by section; those with nothing to show are left out.

    Args:
        results: The cells.
        published: The authors' curves.
        page_width: The width of figures that span the page, in inches.
    """
    groups = group_cells(results.cells)
    found: dict[tuple[str, ...], Series] = {}  # a series of several groups counts once
    for one in (one for group in groups for one in group.series):
        found.setdefault(tuple(cell.path for cell in one.cells), one)
    series = list(found.values())
    sections = [
        *(_group_section(group, published, page_width) for group in groups),
        _methods(results.cells),
        _table_section(parity_table(series, target_accuracies(published))),
        _claims(results.cells),
        _table_section(option_table(series), text=write_texts("tuned", cells=results.cells)),
        _table_section(cell_table(results)),
    ]
    titles = ", ".join(sorted({_data_title(cell) for cell in results.cells})) or "unknown data"
    return Page(
        results.title or "Continual learning benchmark",
        " ".join(write_texts("lead", results=results, data=titles)),
        write_texts("notes", results=results),
        write_texts("warnings", results=results, idle=little_learners(series)),
        tuple(section for section in sections if section is not None),
    )


def group_cells(cells: Sequence[StoredCell]) -> list[ReportGroup]:
    """Sort cells by the groups of their plan, claims aside, in its order."""
    cells_of: dict[str, list[StoredCell]] = {}
    origins: dict[str, dict[str, FigureGroup]] = {}
    for cell in cells:
        for origin in cell.groups or (FigureGroup(RESULTS),):
            if not origin.claim:
                figure = _figure(origin.name)
                cells_of.setdefault(figure, []).append(cell)
                origins.setdefault(figure, {})[origin.name] = origin

    def order(figure: str) -> tuple[int, bool]:
        """The order of the plan; without one, the results come first."""
        return min(one.number for one in origins[figure].values()), figure != RESULTS

    shown = sorted(cells_of, key=order)
    stems = ["", *unique_slugs(shown)[1:]]
    return [
        ReportGroup(_title(figure, origins[figure]), stem, build_series(cells_of[figure]))
        for figure, stem in zip(shown, stems, strict=False)
    ]


def _figure(name: str) -> str:
    """Return the figure of a group: its name, or the first word after `fig:` or `tab:`."""
    kind, _, rest = name.partition(":")
    return rest.split()[0] if kind in ("fig", "tab") and rest.strip() else name


def _title(figure: str, groups: dict[str, FigureGroup]) -> str:
    in_order = sorted(groups.values(), key=lambda group: group.number)
    titles = list(dict.fromkeys(group.title for group in in_order if group.title))
    if figure == RESULTS and len(titles) != 1:
        return TITLE
    return "; ".join(titles) or figure


def _data_title(cell: StoredCell) -> str:
    if cell.is_core50:
        core50 = cell.facts.core50 if cell.facts else None
        return "a part of CORe50" if core50 and not core50.complete else "CORe50"
    return DATA_TITLES.get(cell.data_name, cell.data_name)


def _group_section(group: ReportGroup, published: PublishedResults, page_width: float) -> Section:
    """Return accuracy against batches, the tables of results, and the confusion matrices."""
    cells, series = group.cells, group.series
    text = write_texts(
        "group",
        cells=cells,
        tested=tested_on(cells),
        later=any(step.new_classes for cell in cells for step in cell.steps if step.batch > 1),
        retrained=retrained_note(cells),
    )
    tables = (
        accuracy_table(group.file_stem("accuracy"), series),
        pairwise_table(group.file_stem("pairwise"), series),
        efficiency_table(group.file_stem("efficiency"), series),
        final_table(group.file_stem("final"), series),
    )
    shown = tuple(table for table in tables if table.rows)
    pictures, extra = _curves(group, published, page_width)
    return Section(group.title, text, pictures, shown, _confusion(group, page_width), extra)


def _curves(
    group: ReportGroup, published: PublishedResults, page_width: float
) -> tuple[tuple[Picture, ...], tuple[Picture, ...]]:
    """Draw the curves of every panel at the width of a column and of a page, and all together.

    Where each batch brings new classes, there are also the curves on the classes seen so far.

    Returns:
        The pictures of the page, and those that are files only: a single panel is wide on the page.
    """
    growing = [one for one in group.series if one.brings_new_classes]
    kinds = {
        "accuracy": panel_lines(group.series, published),
        "seen": panel_lines(growing, {}, "seen_accuracy"),
    }
    shown: list[Picture] = []
    extra: list[Picture] = []
    for kind, panels in kinds.items():
        columns, pages = [], []
        for panel, lines in panels.items():
            stem = group.file_stem(kind, panel.title)
            columns.append(draw_panel(stem, panel, lines, WIDTHS["column"]))
            pages.append(draw_panel(f"{stem}-page", panel, lines, page_width))
        if len(panels) > 1:
            pages.append(draw_all(group.file_stem(kind, "all"), panels, page_width))
        shown += columns if len(panels) > 1 else pages
        extra += pages if len(panels) > 1 else columns
    return tuple(shown), tuple(extra)


def _confusion(group: ReportGroup, page_width: float) -> dict[str, Sequence[Picture]]:
    """Return the confusion matrices, panel by panel."""
    parts: dict[str, Sequence[Picture]] = {}
    for panel, series in by_panel(group.series).items():
        stems = [f"{slug(panel.title)}-{stem}" for stem in unique_slugs([s.name for s in series])]
        drawn = [
            draw_confusion(one, group.file_stem("confusion", stem), page=page_width)
            for one, stem in zip(series, stems, strict=True)
        ]
        if matrices := [picture for picture in drawn if picture is not None]:
            parts[f"{panel.title}: confusion matrices"] = matrices
    return parts


def _table_section(*tables: Table, title: str = "", text: tuple[str, ...] = ()) -> Section | None:
    """Return a section with those of some tables that have rows; the first one is its title."""
    shown = tuple(table for table in tables if table.rows)
    return Section(title or tables[0].title, text, tables=shown) if shown else None


def _methods(cells: Sequence[StoredCell]) -> Section | None:
    section = _table_section(run_table(cells))
    return replace(section, methods=methods_paragraph(cells)) if section else None


def _claims(cells: Sequence[StoredCell]) -> Section | None:
    claims, tested = check_claims(cells), f"Accuracy on {tested_on(cells)}."
    measured = {claim.title for claim in claims}
    missing = [claim["title"] for claim in CLAIMS if claim["title"] not in measured]
    tables = claims_table(claims, tested), comparisons_table(claims, tested)
    text = write_texts("claims", missing=missing)
    return _table_section(*tables, title="The claims of the text", text=text)
