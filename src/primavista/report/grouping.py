"""The cells, sorted by the groups of their plan; a name of a group changes nothing but names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from primavista.report.claims import Claim, check_claims
from primavista.report.published import PublishedResults
from primavista.report.read import FigureGroup, StoredCell
from primavista.report.series import Panel, Series, build_series, differing_keys
from primavista.report.titles import FREEZING, slug, unique_slugs
from primavista.strategies.registry import strategy_info

RESULTS, BN = "results", "bn_vs_brn"  # figures of the paper that its plans divide into groups
TITLES = {RESULTS: "Accuracy against batches", "NI": "What to freeze"}


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
    def freezing(self) -> bool:
        """True if the series differ in what is frozen and in nothing else."""
        settings = [one.cells[0].settings for one in self.series]
        strategies = {one.strategy for one in self.series}
        return len(strategies) == 1 and differing_keys(settings) == {"freeze"}

    @property
    def cells(self) -> list[StoredCell]:
        """The cells of all series."""
        return [cell for one in self.series for cell in one.cells]

    def file_stem(self, *parts: str) -> str:
        """Return the name of a file of the group; the kind of figure or table comes first."""
        kind, *others = parts
        return slug(*filter(None, (kind, self.stem, *others)))


@dataclass(frozen=True)
class ReportData:
    """Everything that the sections of the report are made of.

    Args:
        cells: All cells.
        published: The authors' curves.
        page_width: The width of figures that span the page, in inches.
        groups: The groups of the plan, in its order.
        norms: The series of strategies that were run with batch norm and with renormalisation.
        claims: The claims of the text, checked.
    """

    cells: Sequence[StoredCell]
    published: PublishedResults
    page_width: float
    groups: Sequence[ReportGroup]
    norms: Sequence[Series]
    claims: Sequence[Claim]

    @property
    def series(self) -> list[Series]:
        """The series of all groups and of `norms`; one that is in several counts once."""
        found: dict[tuple[str, ...], Series] = {}
        for one in (*(one for group in self.groups for one in group.series), *self.norms):
            found.setdefault(tuple(cell.path for cell in one.cells), one)
        return list(found.values())


def group_cells(
    cells: Sequence[StoredCell], published: PublishedResults, page_width: float
) -> ReportData:
    """Sort cells by the groups of their plan.

    Those without a group are one group, runs of Naive on NI that say what is frozen another.
    """
    cells_of: dict[str, list[StoredCell]] = {}
    origins: dict[str, dict[str, FigureGroup]] = {}
    for cell in cells:
        for origin in _groups_of(cell):
            figure = _figure(origin.name)
            cells_of.setdefault(figure, []).append(cell)
            origins.setdefault(figure, {})[origin.name] = origin

    def order(figure: str) -> tuple[int, bool]:
        """The order of the plan; without one, the results come first."""
        return min(one.number for one in origins[figure].values()), figure != RESULTS

    norms = _with_both_norms(build_series(cell for own in cells_of.values() for cell in own))
    shown = [one for one in sorted(cells_of, key=order) if one != BN or not norms]
    groups = []
    for figure, stem in zip(shown, ["", *unique_slugs(shown)[1:]], strict=False):
        title = _title(figure, origins[figure].values())
        group = ReportGroup(title, stem, build_series(cells_of[figure]))
        groups.append(_by_freezing(group) if group.freezing else group)
    return ReportData(cells, published, page_width, groups, norms, check_claims(cells))


def _groups_of(cell: StoredCell) -> list[FigureGroup]:
    """Return the groups that a cell belongs to, claims aside."""
    if cell.groups:
        return [group for group in cell.groups if not group.claim]
    shows_freezing = (cell.protocol, cell.strategy) == ("ni", "naive") and "freeze" in cell.options
    return [FigureGroup("fig:NI" if shows_freezing else f"fig:{RESULTS}")]


def _figure(name: str) -> str:
    """Return the figure of a group: its name, or the first word after `fig:` or `tab:`."""
    kind, _, rest = name.partition(":")
    return rest.split()[0] if kind in ("fig", "tab") and rest.strip() else name


def _title(figure: str, groups: Iterable[FigureGroup]) -> str:
    in_order = sorted(groups, key=lambda group: group.number)
    joined = "; ".join(dict.fromkeys(group.title for group in in_order if group.title))
    return joined if joined and len(in_order) == 1 else TITLES.get(figure, joined or figure)


def _by_freezing(group: ReportGroup) -> ReportGroup:
    """Name the series by what is frozen and sort them in the paper's order."""
    order = [*FREEZING]
    order += [one.freeze for one in group.series if one.freeze not in FREEZING]
    in_order = sorted(group.series, key=lambda one: order.index(one.freeze))
    named = [replace(one, name=FREEZING.get(one.freeze, (one.name,))[0]) for one in in_order]
    return replace(group, series=named)


def _with_both_norms(series: Sequence[Series]) -> list[Series]:
    """Keep strategies that one panel has with batch norm and with renormalisation.

    Strategies that train on all data at once are not part of the paper's figure.
    """
    norms: dict[tuple[Panel, str], set[str | None]] = {}
    for one in series:
        norms.setdefault((one.panel, one.strategy), set()).add(one.norm)
    return [
        one
        for one in series
        if norms[one.panel, one.strategy] >= {"bn", "brn"} and not strategy_info(one.strategy).joint
    ]
