"""The cells, sorted by the groups of their plan; a name of a group changes nothing but names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primavista.report.read import FigureGroup, StoredCell
from primavista.report.series import Series, build_series
from primavista.report.titles import slug, unique_slugs

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
