"""The cells, sorted by the figure they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from primavista.report.claims import Claim, claims
from primavista.report.names import FREEZING
from primavista.report.published import Key, Published
from primavista.report.read import Cell
from primavista.report.series import Panel, Series, gather

RESULTS, NI, BN, TIMES = "fig:results", "fig:NI", "fig:bn_vs_brn", "tab:efficiency"


@dataclass(frozen=True)
class Material:
    """What the sections are made of."""

    cells: Sequence[Cell]
    published: Mapping[Key, Published]
    plots: bool
    results: Sequence[Series]
    freezing: Sequence[Series]
    norms: Sequence[Series]
    times: Sequence[Series]
    others: Mapping[str, Sequence[Series]]  # by the plan's own groups
    claims: Sequence[Claim]


def sort_cells(cells: Sequence[Cell], published: Mapping[Key, Published], plots: bool) -> Material:
    """By the groups of the plan; a cell without one is of fig:results, or of fig:NI where it looks so."""
    groups: dict[str, list[Cell]] = {RESULTS: [], NI: [], BN: [], TIMES: []}
    titles: dict[str, str] = {}
    for cell in cells:
        if not cell.groups:
            freezing = (
                cell.protocol == "ni" and cell.strategy == "naive" and "freeze" in cell.options
            )
            groups[NI if freezing else RESULTS].append(cell)
        for group in cell.groups:
            name = next(
                (known for known in (RESULTS, NI, BN, TIMES) if group.name.startswith(known)),
                group.name,
            )
            if not group.claim:
                groups.setdefault(name, []).append(cell)
                titles[name] = group.title or group.name
    shown = {name: gather(own) for name, own in groups.items()}
    pairs = _both_norms(gather([*groups[BN], *groups[RESULTS]]))
    times = gather([*groups[RESULTS], *groups[TIMES]])
    others = {
        titles[name]: series
        for name, series in shown.items()
        if name not in (RESULTS, NI, BN, TIMES)
    }
    return Material(
        cells,
        published,
        plots,
        shown[RESULTS],
        _by_freezing(shown[NI]),
        pairs,
        times,
        others,
        claims(cells),
    )


def _by_freezing(series: Sequence[Series]) -> list[Series]:
    """Named by what is frozen, in the paper's order."""
    ways = list(FREEZING)
    known = sorted(
        series, key=lambda one: ways.index(_frozen(one)) if _frozen(one) in ways else len(ways)
    )
    return [
        replace(
            one,
            name=one.cells[0].label
            or (FREEZING[how].name if (how := _frozen(one)) in ways else one.name),
        )
        for one in known
    ]


def _frozen(series: Series) -> str:
    return str(series.options.get("freeze"))


def _both_norms(series: Sequence[Series]) -> list[Series]:
    """Of the strategies that were run with batch norm and with renormalisation in one panel."""
    norms: dict[tuple[Panel, str], set[str | None]] = {}
    for one in series:
        norms.setdefault((one.panel, one.strategy), set()).add(one.norm)
    return [
        one
        for one in series
        if {"bn", "brn"} <= norms[one.panel, one.strategy] and one.strategy != "cumulative"
    ]


def only_norms(material: Material) -> list[Series]:
    """The series of fig:bn_vs_brn that fig:results does not have."""
    cells = {cell.path for one in material.results for cell in one.cells}
    return [one for one in material.norms if not cells & {cell.path for cell in one.cells}]
