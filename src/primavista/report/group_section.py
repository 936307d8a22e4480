"""The section of a group: every figure and table that its cells have data for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primavista.report.categories import draw_categories
from primavista.report.class_figures import draw_class_accuracy, draw_confusion
from primavista.report.cost_tables import efficiency_table
from primavista.report.curves import Line, freezing_lines, published_lines, strategy_lines
from primavista.report.figures import WIDTHS
from primavista.report.final_tables import accuracy_table, final_table, run_note
from primavista.report.grouping import ReportData, ReportGroup
from primavista.report.methods import retrained_strategies, tested_on
from primavista.report.page import Collapsible, Section
from primavista.report.pairwise import pairwise_table
from primavista.report.panels import authors_panel, draw_all, draw_panel
from primavista.report.read import StoredCell
from primavista.report.series import Panel, Series, by_panel
from primavista.report.table import Table
from primavista.report.titles import slug, unique_slugs

Lines = Mapping[Panel, Sequence[Line]]


def group_section(data: ReportData, group: ReportGroup) -> Section:
    """Return accuracy against batches, the tables of results, and the figures of single classes.

    Args:
        data: the sorted cells.
        group: the group of the plan.
    """
    cells = [cell for one in group.series for cell in one.cells]
    text = (
        f"Accuracy on {tested_on(cells)}, after each batch that was tested: the mean over "
        "runs, in a band of one sample standard deviation. If runs are unfinished, the mean is "
        "over those that got that far.",
        *_new_classes_note(cells),
        *run_note(cells),
        *_order_note(cells),
        *_retraining_note(cells),
        *(_norm_note(group.series) if group.freezing else ()),
    )
    beside = {panel: published_lines(own, data.published) for panel, own in _panels(group).items()}
    drawn = curve_pictures(data, group, beside) if data.plots else Section("")
    return Section(
        group.title,
        text,
        drawn.pictures,
        tuple(group_tables(group)),
        _class_figures(group, data.page_width) if data.plots else (),
        drawn.extra,
        drawn.narrow,
    )


def _group_lines(data: ReportData, group: ReportGroup) -> Lines:
    """Return the curves of each panel of a group.

    Args:
        data: the sorted cells, with the authors' curves.
        group: the group; if it is about freezing, the colours are those of the schemes.
    """

    def make(own: Sequence[Series]) -> list[Line]:
        return freezing_lines(own) if group.freezing else strategy_lines(own, data.published)

    return {panel: make(own) for panel, own in _panels(group).items()}


def _panels(group: ReportGroup) -> dict[Panel, list[Series]]:
    return by_panel(group.series)


def curve_pictures(data: ReportData, group: ReportGroup, published: Lines) -> Section:
    """Draw the curves of every panel at the width of a column and of a page, and all together.

    Args:
        data: the sorted cells, with the authors' curves.
        group: the group.
        published: the authors' curves for panels on other data; they get figures of their own.

    Returns:
        A section with figures alone. A single panel is wide on the page and narrow on a phone.
    """
    above = {panel: own for panel, own in _group_lines(data, group).items() if own}
    below = {panel: own for panel, own in published.items() if own and panel in above}
    every = {**above, **{authors_panel(panel): own for panel, own in below.items()}}
    columns, pages = [], []
    for panel, own in every.items():
        stem = group.file_stem("accuracy", panel.title)
        columns.append(draw_panel(stem, panel, own, WIDTHS["column"]))
        pages.append(draw_panel(f"{stem}-page", panel, own, data.page_width))
    if len(every) == 1:
        return Section("", pictures=tuple(pages), narrow=tuple(columns))
    if not every:
        return Section("")
    pages.append(draw_all(group.file_stem("accuracy", "all"), above, below, data.page_width))
    return Section("", pictures=tuple(columns), extra=tuple(pages))


def group_tables(group: ReportGroup) -> list[Table]:
    """Return the tables of results of a group.

    Args:
        group: the group.
    """
    series = group.series
    tables = (
        accuracy_table(group.file_stem("accuracy"), "Final accuracy", series),
        pairwise_table(group.file_stem("pairwise"), "Strategies compared over runs", series),
        efficiency_table(group.file_stem("efficiency"), "Run time and memory", series),
        final_table(group.file_stem("final"), "All measures", series),
    )
    return [table for table in tables if table is not None]


def _class_figures(group: ReportGroup, page_width: float) -> tuple[Collapsible, ...]:
    panels = _panels(group)
    categories = [
        draw_categories(panel, own, group.file_stem("categories", panel.title), page_width)
        for panel, own in panels.items()
    ]
    parts = [("Accuracy by category", "", categories)]
    for panel, series in panels.items():
        stems = [f"{slug(panel.title)}-{stem}" for stem in unique_slugs([s.name for s in series])]
        named = list(zip(series, stems, strict=True))
        over_time = [draw_class_accuracy(s, group.file_stem("classes", stem)) for s, stem in named]
        matrices = [
            draw_confusion(s, group.file_stem("confusion", stem), page=page_width)
            for s, stem in named
        ]
        parts.append((f"{panel.title}: accuracy of every class", OVER_TIME, over_time))
        parts.append((f"{panel.title}: confusion matrices", MATRICES, matrices))
    return tuple(
        Collapsible(title, tuple(filter(None, pictures)), len(panels) == 1, text)
        for title, text, pictures in parts
        if any(pictures)
    )


OVER_TIME = "One run of each strategy, since each run meets the classes in another order."
MATRICES = (
    "Each row is a true class, each column the class that it was taken for, over all finished runs."
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


def _retraining_note(cells: Sequence[StoredCell]) -> list[str]:
    return [
        f"{one.title}: trained from scratch on {one.on}, and tested, after {one.after}."
        for one in retrained_strategies(cells)
    ]


def _norm_note(series: Sequence[Series]) -> list[str]:
    if {one.norm for one in series} != {"bn"}:
        return []
    return [
        "All runs here have plain batch normalisation: the paper does not name the one it used, "
        "and applies renormalisation only in section 4."
    ]
