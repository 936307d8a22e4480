"""The content of the report: what stands at its top, and which cells go into which section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from primavista.report.claims import CLAIMS, Claim, claims_table, comparisons_table
from primavista.report.class_figures import draw_class_accuracy, draw_confusion
from primavista.report.curves import (
    Line,
    authors_panel,
    draw_all,
    draw_categories,
    draw_panel,
    freezing_lines,
    published_lines,
    strategy_lines,
    with_authors,
)
from primavista.report.figures import WIDTHS, Picture, palette_of
from primavista.report.grouping import BN, ReportData, ReportGroup, group_cells
from primavista.report.methods import methods_paragraph, retrained_note, run_table, tested_on
from primavista.report.page import Card, Collapsible, Page, Section
from primavista.report.published import PublishedResults, target_accuracies
from primavista.report.read import FolderResults, StoredCell
from primavista.report.result_tables import (
    accuracy_table,
    efficiency_table,
    final_table,
    pairwise_table,
    parity_table,
    run_note,
    saturation_table,
    tuned_note,
)
from primavista.report.series import Panel, Series, by_panel
from primavista.report.setting_tables import (
    cell_table,
    changed_table,
    machine_table,
    preset_table,
    renorm_table,
)
from primavista.report.stream_figures import (
    composition_table,
    draw_streams,
    nic_of_2017,
    panel_streams,
)
from primavista.report.table import Table, format_value
from primavista.report.titles import DATA_TITLES, slug, unique_slugs
from primavista.strategies.registry import strategy_info

MOST_CARDS = 6
OVER_TIME = "One run of each strategy, since each run meets the classes in another order."
MATRICES = (
    "Each row is a true class, each column the class that it was taken for, over all finished runs."
)
Lines = Mapping[Panel, Sequence[Line]]
CurvePictures = tuple[tuple[Picture, ...], tuple[Picture, ...]]


def build_page(
    results: FolderResults, published: PublishedResults, page_width: float = WIDTHS["page"]
) -> Page:
    """Return the whole report, section by section; those with nothing to show are left out."""
    data = group_cells(results.cells, published, page_width)
    made = [make(data) for make in SECTIONS]
    unfinished = cell_table(results)
    made.append(_tables_section(unfinished.title, unfinished))
    sections = [
        *(_group_section(data, group) for group in data.groups),
        *(section for section in made if section is not None),
    ]
    return Page(
        results.title or "Continual learning benchmark",
        _lead(results),
        palette_of(cell.strategy for cell in results.cells),
        _notes(results),
        _warnings(results),
        _cards(data),
        tuple(sections),
    )


def _lead(results: FolderResults) -> str:
    """Return the first sentences of the page: what was run, and how far it is."""
    cells = results.cells
    strategies = _number_of(len({cell.strategy for cell in cells}), "strategy", "strategies")
    protocols = _number_of(len({cell.protocol for cell in cells}), "protocol")
    runs = _number_of(len({cell.run for cell in cells}), "run")
    data = ", ".join(sorted({_data_title(cell) for cell in cells})) or "unknown data"
    return (
        f"{strategies} over {protocols} in {runs}, on {data}. "
        f"{_count(results, 'done')} of {_number_of(_total(results), 'cell')} are done."
    )


def _data_title(cell: StoredCell) -> str:
    if cell.is_core50:
        core50 = cell.facts.core50 if cell.facts else None
        return "a part of CORe50" if core50 and not core50.complete else "CORe50"
    return DATA_TITLES.get(cell.data_name, cell.data_name)


def _number_of(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _total(results: FolderResults) -> int:
    return len(results.cells) + len(results.damaged)


def _count(results: FolderResults, status: str) -> int:
    return sum(cell.status == status for cell in results.cells)


def _notes(results: FolderResults) -> tuple[str, ...]:
    """Return the remarks at the top of the page."""
    found = [*tuned_note(results.cells)]
    if results.superseded:
        found.append(f"Cells that were run again and left out: {len(results.superseded)}.")
    if results.waiting:
        found.append(f"Cells of the plan that have not started yet: {results.waiting}.")
    begun = _count(results, "in progress")
    if begun:
        found.append(
            f"Cells in progress: {begun} of {_total(results)}; "
            "they are shown up to the last batch so far."
        )
    return tuple(found)


def _warnings(results: FolderResults) -> tuple[str, ...]:
    """Return the warnings at the top of the page."""
    found = []
    stale = sum(cell.stale is not None for cell in results.cells)
    if stale:
        found.append(
            f"Stale cells: {stale} of {_total(results)}. The code or the data has changed since. "
            "They are listed below; run the plan again to compute them anew."
        )
    failed = _count(results, "failed") + len(results.damaged)
    if failed:
        found.append(f"Failed cells: {failed} of {_total(results)}; the reasons are listed below.")
    if any(cell.cell.limit is not None for cell in results.cells):
        found.append(
            "Some cells learned only the first batches of their streams: a trial, not a result."
        )
    return tuple(found)


def _cards(data: ReportData) -> tuple[Card, ...]:
    """Return the numbers at the top: the best strategy of each panel, and the claims."""
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
    text = f"do not hold: {tones.count('bad')}, open: {tones.count('open')}"
    return Card("Claims that hold", f"{tones.count('good')} of {len(tones)}", text)


def _group_section(data: ReportData, group: ReportGroup) -> Section:
    """Return accuracy against batches, the tables of results, and the figures of single classes."""
    cells = [cell for one in group.series for cell in one.cells]
    text = (
        f"Accuracy on {tested_on(cells)}, after each batch that was tested: the mean over "
        "runs, in a band of one sample standard deviation. If runs are unfinished, the mean is "
        "over those that got that far.",
        *_new_classes_note(cells),
        *run_note(cells),
        *_order_note(cells),
        *retrained_note(cells),
        *(_norm_note(group.series) if group.freezing else ()),
    )
    panels = by_panel(group.series)
    theirs = {panel: published_lines(own, data.published) for panel, own in panels.items()}
    pictures, extra = _curve_pictures(data, group, theirs)
    tables = (
        accuracy_table(group.file_stem("accuracy"), "Final accuracy", group.series),
        pairwise_table(group.file_stem("pairwise"), "Strategies compared over runs", group.series),
        efficiency_table(group.file_stem("efficiency"), "Run time and memory", group.series),
        final_table(group.file_stem("final"), "All measures", group.series),
    )
    shown = tuple(table for table in tables if table.rows)
    return Section(group.title, text, pictures, shown, _class_figures(data, group), extra)


def _curve_pictures(data: ReportData, group: ReportGroup, theirs: Lines) -> CurvePictures:
    """Draw the curves of every panel at the width of a column and of a page, and all together.

    The authors' curves for panels on other data get figures of their own. The pictures of the page
    are returned, and those that are files only: a single panel is wide on the page.
    """
    ours: dict[Panel, Sequence[Line]] = {}
    for panel, own in by_panel(group.series).items():
        lines = freezing_lines(own) if group.freezing else strategy_lines(own, data.published)
        if lines:
            ours[panel] = lines
    theirs = {panel: own for panel, own in theirs.items() if own and panel in ours}
    every = {**ours, **{authors_panel(panel): own for panel, own in theirs.items()}}
    columns, pages = [], []
    for panel, curves in every.items():
        stem = group.file_stem("accuracy", panel.title)
        columns.append(draw_panel(stem, panel, curves, WIDTHS["column"]))
        pages.append(draw_panel(f"{stem}-page", panel, curves, data.page_width))
    if len(every) < 2:
        return tuple(pages), tuple(columns)
    together = with_authors(ours, theirs)
    pages.append(draw_all(group.file_stem("accuracy", "all"), together, data.page_width))
    return tuple(columns), tuple(pages)


def _class_figures(data: ReportData, group: ReportGroup) -> tuple[Collapsible, ...]:
    panels = by_panel(group.series)
    categories = [
        draw_categories(panel, own, group.file_stem("categories", panel.title), data.page_width)
        for panel, own in panels.items()
    ]
    parts = [("Accuracy by category", "", categories)]
    for panel, series in panels.items():
        stems = [f"{slug(panel.title)}-{stem}" for stem in unique_slugs([s.name for s in series])]
        named = list(zip(series, stems, strict=True))
        over_time = [draw_class_accuracy(s, group.file_stem("classes", stem)) for s, stem in named]
        matrices = [
            draw_confusion(s, group.file_stem("confusion", stem), page=data.page_width)
            for s, stem in named
        ]
        parts.append((f"{panel.title}: accuracy of every class", OVER_TIME, over_time))
        parts.append((f"{panel.title}: confusion matrices", MATRICES, matrices))
    return tuple(
        Collapsible(title, tuple(filter(None, pictures)), len(panels) == 1, text)
        for title, text, pictures in parts
        if any(pictures)
    )


def _new_classes_note(cells: Sequence[StoredCell]) -> list[str]:
    """Say that the test set has classes that come later, if batches show new classes."""
    later = any(step.new_classes for cell in cells for step in cell.steps if step.batch > 1)
    if not later:
        return []
    return ["The test set includes classes that have not been taught yet, so curves start low."]


def _order_note(cells: Sequence[StoredCell]) -> list[str]:
    """Say where the orders of CORe50's batches come from; other data has no official ones."""
    orders = [cell.order for cell in cells if cell.is_core50 and cell.order]
    if not orders:
        return []
    official, generated = orders.count("official"), orders.count("generated")
    if not generated:
        return ["All orders of batches are the authors' official ones."]
    return [
        f"Orders of batches on CORe50: {official} official, {generated} generated by this package, "
        "since the authors' files were not there."
    ]


def _norm_note(series: Sequence[Series]) -> list[str]:
    if {one.norm for one in series} != {"bn"}:
        return []
    return [
        "All runs here have plain batch normalisation: the paper does not name the one it used, "
        "and applies renormalisation only in section 4."
    ]


def _tables_section(title: str, *tables: Table, text: Sequence[str] = ()) -> Section | None:
    shown = tuple(table for table in tables if table.rows)
    return Section(title, tuple(text), tables=shown) if shown else None


def _methods(data: ReportData) -> Section | None:
    table = run_table(data.cells)
    if not table.rows:
        return None
    return Section("What was run", tables=(table,), methods=methods_paragraph(data.cells))


def _norms(data: ReportData) -> Section | None:
    if not data.norms:
        return None
    group = ReportGroup("Batch norm against renormalisation", BN, data.norms)
    pictures, extra = _curve_pictures(data, group, {})
    text = ("The same strategy with batch normalisation and with batch renormalisation.",)
    title = "Final accuracy with batch norm and with renormalisation"
    tables = (final_table(group.file_stem("final"), title, data.norms),)
    return Section(group.title, text, pictures, tables, extra=extra)


def _parity(data: ReportData) -> Section | None:
    series = [one for own in by_panel(data.series).values() for one in own]
    table = parity_table(series, target_accuracies(data.published))
    return _tables_section(table.title, table)


def _claims(data: ReportData) -> Section | None:
    tested = f"Accuracy on {tested_on(data.cells)}."
    measured = {claim.title for claim in data.claims}
    missing = [title for title, *_ in CLAIMS if title not in measured]
    text = (f"There are no results here for: {'; '.join(missing)}.",) if missing else ()
    tables = claims_table(data.claims, tested), comparisons_table(data.claims, tested)
    return _tables_section("The claims of the text", *tables, text=text)


def _behind_claims(data: ReportData) -> Section | None:
    """Show the cells that were planned for a claim alone, as any other group."""
    if not data.behind_claims:
        return None
    group = ReportGroup("The cells behind the claims", "claims", data.behind_claims)
    pictures, extra = _curve_pictures(data, group, {})
    tables = (final_table(group.file_stem("final"), "All measures", group.series),)
    parts = (Collapsible("Accuracy against batches", pictures),) if pictures else ()
    return Section(group.title, tables=tables, collapsibles=parts, extra=extra)


def _guard(data: ReportData) -> Section | None:
    return _tables_section("Saturation of the guard", saturation_table(data.series))


def _streams(data: ReportData) -> Section | None:
    panels = by_panel(data.series)
    if not panels:
        return None
    streams = {**panel_streams(panels), **nic_of_2017(panels)}
    pictures = tuple(draw_streams(streams, data.page_width))
    return Section("The streams", (), pictures, (composition_table(panels, streams),))


def _settings(data: ReportData) -> Section | None:
    used = [strategy_info(cell.strategy) for cell in data.cells]
    return _tables_section(
        "Hyperparameters",
        preset_table(data.cells),
        *([renorm_table()] if any(info.training_options for info in used) else []),
        changed_table(data.series),
        text=tuned_note(data.cells),
    )


def _machines(data: ReportData) -> Section | None:
    return _tables_section("The machines", machine_table(data.cells))


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
)
