"""The content of the report: which cells go into which section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from primavista.bench.old_cells import old_rules_note
from primavista.errors import MissingExtraError, require_extra
from primavista.report.claims import CLAIMS, Claim, claims_table, comparisons_table
from primavista.report.class_figures import draw_categories, draw_class_accuracy, draw_confusion
from primavista.report.curves import (
    Line,
    draw_panels,
    freezing_lines,
    published_lines,
    strategy_lines,
)
from primavista.report.figures import EXTRA, Picture, palette_of
from primavista.report.grouping import BN, NI, RESULTS, ReportData, group_cells
from primavista.report.hyperparameters import (
    changed_table,
    machine_table,
    preset_table,
    renorm_table,
)
from primavista.report.page import Card, Collapsible, Page, Section
from primavista.report.published import PublishedResults, target_accuracies
from primavista.report.read import FolderResults, StoredCell
from primavista.report.series import Panel, Series, by_panel
from primavista.report.stream_figures import (
    composition_table,
    draw_streams,
    nic_of_2017,
    panel_streams,
)
from primavista.report.table import Table, format_value
from primavista.report.tables import (
    efficiency_table,
    failed_table,
    final_table,
    parity_table,
    progress_table,
    saturation_table,
    tuned_note,
)
from primavista.report.titles import DATA_TITLES, slug, unique_slugs
from primavista.strategies.registry import strategy_info

MOST_CARDS = 6
Pictures = tuple[Picture, ...]
MakeLines = Callable[[Sequence[Series]], list[Line]]


def build_page(results: FolderResults, published: PublishedResults) -> Page:
    """Return the whole report, section by section.

    Sections with nothing to show are left out and named at the end.

    Args:
        results: the cells of a folder.
        published: the authors' curves.
    """
    missing = _missing_plots()
    data = group_cells(results.cells, published, plots=missing is None)
    count = _count_status(results.cells)
    return Page(
        "Continual learning benchmark",
        _lead(results.cells, count),
        palette_of(cell.strategy for cell in results.cells),
        _notes(results, count),
        _warnings(results.cells, count, missing),
        _cards(data),
        _sections(data),
    )


def _missing_plots() -> str | None:
    """Return what to install if figures cannot be drawn."""
    try:
        require_extra(*EXTRA)
    except MissingExtraError as error:
        return f"There are no figures here: {error}, then write the report again."
    return None


def _sections(data: ReportData) -> tuple[Section, ...]:
    sections = []
    absent = []
    for title, make_section in SECTIONS:
        section = make_section(data)
        if section is not None:
            sections.append(section)
        elif title:
            absent.append(title)
    if absent:
        text = f"There is nothing here for: {'; '.join(absent)}."
        sections.append(Section("Not in this folder", text=(text,)))
    return tuple(sections)


def _count_status(cells: Sequence[StoredCell]) -> dict[str, int]:
    statuses = [cell.status for cell in cells]
    return {status: statuses.count(status) for status in ("done", "in progress", "failed")}


def _lead(cells: Sequence[StoredCell], count: Mapping[str, int]) -> str:
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


def _notes(results: FolderResults, count: Mapping[str, int]) -> tuple[str, ...]:
    cells = results.cells
    notes = [*tuned_note([cell for cell in cells if cell.readable])]
    old = old_rules_note((cell.strategy, cell.stored_options) for cell in cells)
    if old:
        notes.append(old)
    if results.waiting:
        have = "has" if results.waiting == 1 else "have"
        notes.append(f"{_number_of(results.waiting, 'cell')} of the plan {have} not started yet.")
    if count["in progress"]:
        are = "is" if count["in progress"] == 1 else "are"
        part = f"{count['in progress']} of {_number_of(len(cells), 'cell')} {are} in progress"
        notes.append(f"{part} and shown up to the last batch so far.")
    return tuple(notes)


def _warnings(
    cells: Sequence[StoredCell], count: Mapping[str, int], missing: str | None
) -> tuple[str, ...]:
    warnings = [missing] if missing else []
    if count["failed"]:
        part = f"{count['failed']} of {_number_of(len(cells), 'cell')}"
        warnings.append(f"{part} failed; the reasons are listed below.")
    if any(cell.limited for cell in cells):
        warnings.append(
            "Some cells learned only the first batches of their streams: a trial, not a result."
        )
    return tuple(warnings)


def _cards(data: ReportData) -> tuple[Card, ...]:
    cards = [_best_card(panel, series) for panel, series in by_panel(data.results).items()]
    if data.claims:
        cards.append(_claims_card(data.claims))
    return tuple(card for card in cards if card is not None)[:MOST_CARDS]


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


def _draw_curves(
    data: ReportData,
    figure: str,
    series: Sequence[Series],
    make_lines: MakeLines,
    make_published: MakeLines | None = None,
) -> tuple[Pictures, Pictures]:
    """Return the pictures of the single panels, and the one of all panels, which is a file only."""
    if not data.plots:
        return (), ()
    own = by_panel(series)
    panels = {panel: make_lines(some) for panel, some in own.items()}
    published = {panel: make_published(some) for panel, some in own.items() if make_published}
    pictures = draw_panels(figure, panels, published)
    single = tuple(picture for picture in pictures if picture.name != slug(figure))
    joint = tuple(picture for picture in pictures if picture.name == slug(figure))
    return single, joint


def _draw_strategies(
    data: ReportData, figure: str, series: Sequence[Series], beside: bool = True
) -> tuple[Pictures, Pictures]:
    """Draw strategies with the authors' curves over them, or beside them if the data differs."""

    def lines(own: Sequence[Series]) -> list[Line]:
        return strategy_lines(own, data.published)

    def theirs(own: Sequence[Series]) -> list[Line]:
        return published_lines(own, data.published) if beside else []

    return _draw_curves(data, figure, series, lines, theirs)


def _results(data: ReportData) -> Section | None:
    if not data.results:
        return None
    pictures, extra = _draw_strategies(data, RESULTS, data.results)
    text = (
        "Accuracy over the whole test set after each batch: the mean over runs, in a band of one "
        "standard deviation. The test set includes classes that have not been taught yet, so "
        "curves start low. If runs are unfinished, the mean is over those that got that far.",
        *_order_note([cell for one in data.results for cell in one.cells]),
        *_retraining_note([cell for one in data.results for cell in one.cells]),
    )
    return Section("Accuracy against batches", RESULTS, text, pictures, extra=extra)


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


def _retraining_note(cells: Sequence[StoredCell]) -> list[str]:
    times = sorted({cell.retrain for cell in cells if cell.retrain is not None})
    if not times:
        return []
    often = " or ".join("once, at the end" if n == 1 else f"at {n} evenly spaced" for n in times)
    batches = "" if times == [1] else " batches"
    return [f"Cumulative, the upper bound, is trained from scratch {often}{batches}."]


def _final(data: ReportData) -> Section | None:
    if not data.results:
        return None
    title = "Final accuracy"
    return Section(title, tables=(final_table("final", title, data.results),))


def _parity(data: ReportData) -> Section | None:
    panels = by_panel([*data.results, *data.norms_only()])
    series = [one for own in panels.values() for one in own]
    table = parity_table(series, target_accuracies(data.published))
    return Section(table.title, tables=(table,)) if table.rows else None


def _norms(data: ReportData) -> Section | None:
    if not data.norms:
        return None
    pictures, extra = _draw_strategies(data, BN, data.norms)
    text = ("The same strategy with batch normalisation and with batch renormalisation.",)
    title = "Final accuracy with batch norm and with renormalisation"
    tables = (final_table("final-bn-vs-brn", title, data.norms),)
    return Section("Batch norm against renormalisation", BN, text, pictures, tables, extra=extra)


def _freezing(data: ReportData) -> Section | None:
    if not data.freezing:
        return None
    pictures, extra = _draw_curves(data, NI, data.freezing, freezing_lines)
    text = (
        "Naive on the NI protocol with different layers frozen; the output layer is never frozen. "
        "The paper trains one epoch per batch.",
        *_norm_note(data.freezing),
    )
    tables = (final_table("final-ni", "Final accuracy by what is frozen", data.freezing),)
    return Section("What to freeze", NI, text, pictures, tables, extra=extra)


def _norm_note(series: Sequence[Series]) -> list[str]:
    if {one.norm for one in series} != {"bn"}:
        return []
    return [
        "All runs here have plain batch normalisation: the paper does not name the one it used, "
        "and shows this experiment before it brings in renormalisation for NICv2."
    ]


def _guard(data: ReportData) -> Section | None:
    others = [one for own in data.others.values() for one in own]
    table = saturation_table([*data.results, *data.norms_only(), *others])
    return Section(table.title, tables=(table,)) if table else None


def _own_groups(data: ReportData) -> Section | None:
    if not data.others:
        return None
    pictures: list[Picture] = []
    tables: list[Table] = []
    stems = unique_slugs(list(data.others))
    for stem, (title, series) in zip(stems, data.others.items(), strict=True):
        single, _ = _draw_strategies(data, f"group-{stem}", series, beside=False)
        pictures += single
        tables.append(final_table(f"final-{stem}", f"Final accuracy: {title}", series))
    return Section("Other groups of the plan", pictures=tuple(pictures), tables=tuple(tables))


def _claims(data: ReportData) -> Section | None:
    tables = tuple(filter(None, (claims_table(data.claims), comparisons_table(data.claims))))
    if not tables:
        return None
    measured = {claim.title for claim in data.claims}
    missing = [title for title, *_ in CLAIMS if title not in measured]
    text = (f"There are no results here for: {'; '.join(missing)}.",) if missing else ()
    return Section("The claims of the text", text=text, tables=tables)


def _efficiency(data: ReportData) -> Section | None:
    table = efficiency_table(data.times)
    return Section("Run time and memory", "tab:efficiency", tables=(table,)) if table else None


def _streams(data: ReportData) -> Section | None:
    panels = by_panel([*data.results, *data.freezing])
    if not panels:
        return None
    streams = {**panel_streams(panels), **nic_of_2017(panels)}
    pictures = tuple(draw_streams(streams)) if data.plots else ()
    tables = (composition_table(panels, streams),)
    return Section("The streams", "fig:nicv2, tab:nic", (), pictures, tables)


def _settings(data: ReportData) -> Section:
    changed = changed_table([*data.results, *data.freezing, *data.norms_only()])
    presets = preset_table(cell.strategy for cell in data.cells)
    tables = (presets, renorm_table(), *([changed] if changed else []))
    text = tuned_note([cell for cell in data.cells if cell.readable])
    return Section("Hyperparameters", "tab:hyper_core50, table:renormpar", text, tables=tables)


def _machines(data: ReportData) -> Section:
    return Section("The machines", "table:hardware", tables=(machine_table(data.cells),))


def _by_class(data: ReportData) -> Section | None:
    panels = by_panel(data.results) if data.plots else {}
    parts = [("Accuracy by category", _category_pictures(panels))]
    for panel, series in panels.items():
        stems = unique_slugs([one.name for one in series])
        named = [
            (one, f"{slug(panel.title)}-{stem}") for one, stem in zip(series, stems, strict=True)
        ]
        over_time = [draw_class_accuracy(one, f"classes-{stem}") for one, stem in named]
        confusions = [draw_confusion(one, f"confusion-{stem}") for one, stem in named]
        parts.append((f"{panel.title}: accuracy of every class", over_time))
        parts.append((f"{panel.title}: confusion matrices", confusions))
    collapsibles = tuple(
        Collapsible(title, tuple(filter(None, pictures)), is_open=len(panels) == 1)
        for title, pictures in parts
        if any(pictures)
    )
    if not collapsibles:
        return None
    text = (
        "Each row of a matrix is a true class, each column the class that it was taken for, over "
        "all finished runs. The accuracy of every class over time is that of one run, since each "
        "run meets the classes in another order.",
    )
    return Section("Class by class", text=text, collapsibles=collapsibles)


def _category_pictures(panels: Mapping[Panel, Sequence[Series]]) -> list[Picture | None]:
    return [
        draw_categories(panel, series, slug("categories", panel.title))
        for panel, series in panels.items()
    ]


def _unfinished_cells(data: ReportData) -> Section | None:
    tables = tuple(filter(None, (failed_table(data.cells), progress_table(data.cells))))
    return Section("Failed and unfinished cells", tables=tables) if tables else None


# In the order of the page; those with a name are reported as missing if they have nothing to show.
SECTIONS: tuple[tuple[str, Callable[[ReportData], Section | None]], ...] = (
    ("accuracy against batches (fig:results)", _results),
    ("", _final),
    ("parity with the authors", _parity),
    ("claims of the text", _claims),
    ("batch norm against renormalisation (fig:bn_vs_brn)", _norms),
    ("what to freeze (fig:NI)", _freezing),
    ("", _own_groups),
    ("run time and memory (tab:efficiency)", _efficiency),
    ("", _guard),
    ("", _streams),
    ("class by class", _by_class),
    ("", _settings),
    ("", _machines),
    ("", _unfinished_cells),
)
