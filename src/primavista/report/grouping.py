"""The cells, sorted by the figure or claim that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from primavista.report.claims import Claim, check_claims
from primavista.report.published import PublishedResults
from primavista.report.read import StoredCell
from primavista.report.series import Panel, Series, build_series
from primavista.report.titles import FREEZING
from primavista.strategies.registry import strategy_info

# The paper's figures and its table, by the names that groups of plans have.
RESULTS, NI, BN, TIMES = "fig:results", "fig:NI", "fig:bn_vs_brn", "tab:efficiency"
FIGURES = (RESULTS, NI, BN, TIMES)


@dataclass(frozen=True)
class ReportData:
    """Everything that the sections of the report are made of.

    Args:
        cells: all cells.
        published: the authors' curves.
        plots: whether figures can be drawn.
        results: the series of fig:results.
        freezing: the series of fig:NI, in the order of the paper and named by what is frozen.
        norms: the series of strategies that were run with batch norm and with renormalisation.
        times: the series of tab:efficiency.
        others: the series of the plan's own groups, by title.
        claims: the claims of the text, checked.
    """

    cells: Sequence[StoredCell]
    published: PublishedResults
    plots: bool
    results: Sequence[Series]
    freezing: Sequence[Series]
    norms: Sequence[Series]
    times: Sequence[Series]
    others: Mapping[str, Sequence[Series]]
    claims: Sequence[Claim]

    def norms_only(self) -> list[Series]:
        """Return the series of fig:bn_vs_brn that are not in fig:results."""
        shown = {cell.path for one in self.results for cell in one.cells}
        return [one for one in self.norms if not shown & {cell.path for cell in one.cells}]


def group_cells(
    cells: Sequence[StoredCell], published: PublishedResults, plots: bool
) -> ReportData:
    """Sort cells by the groups of their plan.

    Args:
        cells: all cells; one without a group belongs to fig:results, or to fig:NI if it is a run
            of Naive on NI that says what is frozen.
        published: the authors' curves.
        plots: whether figures can be drawn.
    """
    cells_of: dict[str, list[StoredCell]] = {figure: [] for figure in FIGURES}
    titles: dict[str, str] = {}
    for cell in cells:
        for name, title in _figures_of(cell):
            cells_of.setdefault(name, []).append(cell)
            titles[name] = title
    others = [name for name in cells_of if name not in FIGURES]
    return ReportData(
        cells=cells,
        published=published,
        plots=plots,
        results=build_series(cells_of[RESULTS]),
        freezing=_by_freezing(build_series(cells_of[NI])),
        norms=_with_both_norms(build_series([*cells_of[BN], *cells_of[RESULTS]])),
        times=build_series([*cells_of[RESULTS], *cells_of[TIMES]]),
        others={titles[name]: build_series(cells_of[name]) for name in others},
        claims=check_claims(cells),
    )


def _figures_of(cell: StoredCell) -> list[tuple[str, str]]:
    """Return name and title of each figure or group that a cell belongs to, claims aside."""
    if not cell.groups:
        figure = NI if _shows_freezing(cell) else RESULTS
        return [(figure, figure)]
    found = []
    for group in cell.groups:
        if not group.claim:
            figures = (figure for figure in FIGURES if group.name.startswith(figure))
            found.append((next(figures, group.name), group.title or group.name))
    return found


def _shows_freezing(cell: StoredCell) -> bool:
    return cell.protocol == "ni" and cell.strategy == "naive" and "freeze" in cell.options


def _by_freezing(series: Iterable[Series]) -> list[Series]:
    """Name the series by what is frozen and sort them in the paper's order."""
    order = list(FREEZING)

    def place(one: Series) -> int:
        return order.index(_frozen(one)) if _frozen(one) in order else len(order)

    return [replace(one, name=_freezing_name(one)) for one in sorted(series, key=place)]


def _freezing_name(series: Series) -> str:
    label = series.cells[0].label
    if label:
        return label
    scheme = FREEZING.get(_frozen(series))
    return scheme.title if scheme else series.name


def _frozen(series: Series) -> str:
    return str(series.options.get("freeze"))


def _with_both_norms(series: Sequence[Series]) -> list[Series]:
    """Keep strategies that one panel has with batch norm and with renormalisation.

    Strategies that train on all data at once are not part of the paper's figure.
    """
    norms: dict[tuple[Panel, str], set[str | None]] = {}
    for one in series:
        norms.setdefault((one.panel, one.strategy), set()).add(one.norm)
    both = {key for key, found in norms.items() if {"bn", "brn"} <= found}
    return [
        one
        for one in series
        if (one.panel, one.strategy) in both and not strategy_info(one.strategy).joint
    ]
