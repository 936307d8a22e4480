"""What the report holds: which cells go into which section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from primavista.errors import MissingExtraError, require_extra
from primavista.report import classes, orders
from primavista.report.claims import claims_table
from primavista.report.curves import draw_panels, freezing_lines, lines_of
from primavista.report.drawing import EXTRA, Picture
from primavista.report.material import BN, NI, RESULTS, Material, only_norms, sort_cells
from primavista.report.names import slug, unique_slugs
from primavista.report.page import Card, Fold, Page, Section
from primavista.report.published import Key, Published, targets
from primavista.report.read import Cell, Results
from primavista.report.results import (
    efficiency_table,
    failed_table,
    final_table,
    parity_table,
    progress_table,
    tuned_note,
)
from primavista.report.series import Series, by_panel
from primavista.report.settings import changed_table, machine_table, preset_table, renorm_table
from primavista.report.table import Table, text


def build_page(results: Results, published: Mapping[Key, Published]) -> Page:
    """The whole report, section by section; those with nothing to show are left out and named at the end."""
    cells = results.cells
    try:
        require_extra(*EXTRA)
        missing = None
    except MissingExtraError as error:
        missing = f"There are no figures here: {error}, then write the report again."
    material = sort_cells(cells, published, missing is None)
    made = [(title, make(material)) for title, make in SECTIONS]
    sections = [section for _, section in made if section is not None]
    absent = [title for title, section in made if section is None and title]
    if absent:
        sections.append(
            Section(
                "Not in this folder", text=(f"There is nothing here for: {'; '.join(absent)}.",)
            )
        )
    warnings = [missing] if missing else []
    count = {
        status: sum(cell.status == status for cell in cells)
        for status in ("done", "in progress", "failed")
    }
    if count["failed"]:
        warnings.append(
            f"{count['failed']} of {len(cells)} cells failed; they are listed with their reasons below."
        )
    marks = [*tuned_note([cell for cell in cells if cell.plan])]
    if results.waiting:
        marks.append(f"{_count(results.waiting, 'cell')} of the plan not begun yet.")
    if any(cell.plan.get("limit") for cell in cells):
        warnings.append(
            "Some cells learned only the first batches of their streams: a trial, not a result."
        )
    if count["in progress"]:
        marks.append(
            f"{count['in progress']} of {len(cells)} cells are in progress and shown as far as they are."
        )
    return Page(
        "Continual learning benchmark",
        _lead(cells, count),
        tuple(marks),
        tuple(warnings),
        _cards(material),
        tuple(sections),
    )


def _lead(cells: Sequence[Cell], count: Mapping[str, int]) -> str:
    known = [cell for cell in cells if cell.plan]
    data = ", ".join(sorted({_data(cell) for cell in known})) or "unknown data"
    runs = len({cell.run for cell in known})
    strategies = len({cell.strategy for cell in known})
    protocols = len({cell.protocol for cell in known})
    return (
        f"{_count(strategies, 'strategy', 'strategies')} over {_count(protocols, 'protocol')} in {_count(runs, 'run')}, on "
        f"{data}. Of {_count(len(cells), 'cell')}, {count['done']} are done, {count['in progress']} in progress, "
        f"{count['failed']} failed."
    )


def _data(cell: Cell) -> str:
    return (
        "CORe50"
        if cell.on_core50
        else "rendered objects"
        if cell.data_name == "rendered"
        else cell.data_name
    )


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _cards(material: Material) -> tuple[Card, ...]:
    cards = []
    for panel, series in by_panel(material.results).items():
        finals = [
            (final.mean, one, final)
            for one in series
            if one.strategy != "cumulative" and (final := one.final())
        ]
        if finals:
            _, best, final = max(finals, key=lambda item: item[0])
            cards.append(
                Card(
                    panel.title,
                    text(final, 1) + "%",
                    f"{best.name}, the best here, {_count(final.runs, 'run')}",
                )
            )
    marks = [claim.verdict.tone for claim in material.claims]
    if marks:
        good, bad, unclear = (marks.count(tone) for tone in ("good", "bad", "open"))
        cards.append(
            Card(
                "Claims of the paper",
                f"{good} of {len(marks)} hold",
                f"{bad} do not, {unclear} are open",
            )
        )
    return tuple(cards[:6])


def _drawn(material: Material, draw: Callable[[], Sequence[Picture | None]]) -> tuple[Picture, ...]:
    return tuple(one for one in draw() if one is not None) if material.plots else ()


def _curves(
    material: Material, figure: str, series: Sequence[Series], overlay: bool = True
) -> tuple[Picture, ...]:
    published = material.published if overlay else {}
    return _drawn(
        material,
        lambda: draw_panels(
            figure, {p: lines_of(own, published) for p, own in by_panel(series).items()}
        ),
    )


def _split(
    pictures: Sequence[Picture], figure: str
) -> tuple[tuple[Picture, ...], tuple[Picture, ...]]:
    """Those of the page, and the one with all panels, which is a file only."""
    return tuple(p for p in pictures if p.name != slug(figure)), tuple(
        p for p in pictures if p.name == slug(figure)
    )


def _results(material: Material) -> Section | None:
    if not material.results:
        return None
    shown, extra = _split(_curves(material, RESULTS, material.results), RESULTS)
    words: tuple[str, ...] = (
        "Accuracy over the whole test set after each batch: the mean over runs, in a band of one standard deviation. Classes "
        "not taught yet are in the test set, so curves start low. Where runs are unfinished, the mean is over those that got "
        "there.",
    )
    retrained = {cell.plan.get("retrain") for one in material.results for cell in one.cells} - {
        None
    }
    if retrained:
        often = ", ".join(map(str, sorted(retrained, key=str)))
        words += (
            f"Cumulative, the upper bound, is retrained from scratch at {often} evenly spaced batches.",
        )
    return Section("Accuracy against batches", RESULTS, words, shown, extra=extra)


def _final(material: Material) -> Section | None:
    if not material.results:
        return None
    return Section(
        "Final accuracy", tables=(final_table("final", "Final accuracy", material.results),)
    )


def _parity(material: Material) -> Section | None:
    panels = by_panel([*material.results, *only_norms(material)])
    table = parity_table(
        [one for own in panels.values() for one in own], targets(material.published)
    )
    return Section(table.title, tables=(table,)) if table.rows else None


def _norms(material: Material) -> Section | None:
    if not material.norms:
        return None
    shown, extra = _split(_curves(material, BN, material.norms), BN)
    words = ("The same strategy with batch normalisation and with batch renormalisation.",)
    table = final_table(
        "final-bn-vs-brn", "Final accuracy with batch norm and with renormalisation", material.norms
    )
    return Section("Batch norm against renormalisation", BN, words, shown, (table,), extra=extra)


def _freezing(material: Material) -> Section | None:
    if not material.freezing:
        return None
    panels = by_panel(material.freezing)
    drawn = _drawn(
        material,
        lambda: draw_panels(NI, {panel: freezing_lines(own) for panel, own in panels.items()}),
    )
    shown, extra = _split(drawn, NI)
    words = (
        "Naive over the NI protocol with different layers frozen; the output layer never is. The paper: one epoch a batch.",
    )
    table = final_table("final-ni", "Final accuracy by what is frozen", material.freezing)
    return Section("What to freeze", NI, words, shown, (table,), extra=extra)


def _own_groups(material: Material) -> Section | None:
    if not material.others:
        return None
    pictures: list[Picture] = []
    tables: list[Table] = []
    for stem, (name, series) in zip(
        unique_slugs(list(material.others)), material.others.items(), strict=True
    ):
        shown, _ = _split(_curves(material, f"group-{stem}", series), f"group-{stem}")
        pictures += shown
        tables.append(final_table(f"final-{stem}", f"Final accuracy: {name}", series))
    return Section("Other groups of the plan", pictures=tuple(pictures), tables=tuple(tables))


def _claims(material: Material) -> Section | None:
    table = claims_table(material.claims)
    if table is None:
        return None
    return Section(
        table.title,
        tables=(table,),
        verdicts=tuple((c.verdict, c.name, c.paper) for c in material.claims),
    )


def _efficiency(material: Material) -> Section | None:
    table = efficiency_table(material.times)
    return Section("Run time and memory", "tab:efficiency", tables=(table,)) if table else None


def _streams(material: Material) -> Section | None:
    panels = by_panel([*material.results, *material.freezing])
    if not panels:
        return None
    streams = orders.streams_of(panels)
    pictures = _drawn(material, lambda: orders.draw_orders(streams))
    return Section(
        "The streams", "fig:nicv2, tab:nic", (), pictures, (orders.nic_table(panels, streams),)
    )


def _settings(material: Material) -> Section:
    changed = changed_table([*material.results, *material.freezing, *only_norms(material)])
    tables = [preset_table(), renorm_table(), *([changed] if changed else [])]
    return Section(
        "Hyperparameters",
        "tab:hyper_core50, table:renormpar",
        tuned_note([cell for cell in material.cells if cell.plan]),
        tables=tuple(tables),
    )


def _machine(material: Material) -> Section:
    return Section("The machines", "table:hardware", tables=(machine_table(material.cells),))


def _by_class(material: Material) -> Section | None:
    panels = by_panel(material.results) if material.plots else {}
    folds = [
        (
            "Accuracy by category",
            [
                classes.draw_categories(p, own, slug("categories", p.title))
                for p, own in panels.items()
            ],
        )
    ]
    for panel, series in panels.items():
        named = [
            (one, f"{slug(panel.title)}-{stem}")
            for one, stem in zip(series, unique_slugs([s.name for s in series]), strict=True)
        ]
        histories = [classes.draw_history(one, f"classes-{stem}") for one, stem in named]
        matrices = [classes.draw_confusion(one, f"confusion-{stem}") for one, stem in named]
        folds += [
            (f"{panel.title}: accuracy of every class", histories),
            (f"{panel.title}: confusion matrices", matrices),
        ]
    drawn = [
        Fold(title, tuple(filter(None, pictures)), len(panels) == 1)
        for title, pictures in folds
        if any(pictures)
    ]
    words = (
        "Each row of a matrix is a true class, each column what it was taken for, over all finished runs. The accuracy of "
        "every class over time is that of one run, since each run meets the classes in another order.",
    )
    return Section("Class by class", text=words, folds=tuple(drawn)) if drawn else None


def _troubles(material: Material) -> Section | None:
    tables = [
        table for table in (failed_table(material.cells), progress_table(material.cells)) if table
    ]
    return Section("Failed and unfinished cells", tables=tuple(tables)) if tables else None


# In the order of the page; those with a name are missed where they have nothing to show.
SECTIONS: tuple[tuple[str, Callable[[Material], Section | None]], ...] = (
    ("accuracy against batches (fig:results)", _results),
    ("", _final),
    ("parity with the authors", _parity),
    ("claims of the text", _claims),
    ("batch norm against renormalisation (fig:bn_vs_brn)", _norms),
    ("what to freeze (fig:NI)", _freezing),
    ("", _own_groups),
    ("run time and memory (tab:efficiency)", _efficiency),
    ("", _streams),
    ("class by class", _by_class),
    ("", _settings),
    ("", _machine),
    ("", _troubles),
)
