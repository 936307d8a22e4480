"""Accuracy against batches: fig:results, fig:bn_vs_brn and fig:NI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from primavista.report.figures import (
    LINE_STYLES,
    CurveEnd,
    LineStyle,
    Picture,
    drawing_style,
    label_ends,
    new_figure,
    save_picture,
)
from primavista.report.published import PublishedResults
from primavista.report.series import MeanStd, Panel, Points, Series
from primavista.report.titles import DATA_TITLES, FREEZING, protocol_title, slug
from primavista.strategies.registry import Look, strategy_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = 2.45, 2.45  # inches
LEFT, TOP, BOTTOM = 0.62, 0.35, 0.62  # inches around the axes
LETTER_WIDTH = 0.078  # inches per letter of a label
LABEL_LENGTH = 26  # letters of a label at most
AUTHORS = "the authors, CORe50"


@dataclass(frozen=True)
class Line:
    """One curve of a figure.

    Args:
        name: the name in its label.
        look: how it is drawn.
        line_style: its dashes.
        points: the mean over our runs.
        published: the mean over the authors' runs, if there are any.
        test_frames: the number of test frames of our runs, if it is known.
    """

    name: str
    look: Look
    line_style: LineStyle
    points: Points
    published: Points
    test_frames: str | None = None

    @property
    def label(self) -> str:
        """The name, shortened if it is long, and the accuracy at the end."""
        name = self.name
        if len(name) > LABEL_LENGTH:
            name = name[: LABEL_LENGTH - 1] + "…"
        return f"{name} {self.points[-1][1].mean:.1f}"

    @property
    def all_points(self) -> Points:
        """Our points and the authors'."""
        return [*self.points, *self.published]


def line_styles(series: Sequence[Series]) -> list[LineStyle]:
    """Return the dashes of each series: the first of each strategy is solid, the next are dashed.

    Args:
        series: the series of one panel.
    """
    seen: dict[str, int] = {}
    styles = []
    for one in series:
        place = seen.get(one.strategy, 0)
        seen[one.strategy] = place + 1
        styles.append(LINE_STYLES[place % len(LINE_STYLES)])
    return styles


def strategy_lines(series: Sequence[Series], published: PublishedResults) -> list[Line]:
    """Return the curves of one panel, in the colours of the strategies.

    Args:
        series: the series of the panel.
        published: the authors' curves, which are drawn over ours if both are on CORe50.
    """
    lines = []
    for one, line_style in zip(series, line_styles(series), strict=True):
        over = _published_points(one, published) if one.panel.comparison.comparable else []
        look = strategy_info(one.strategy).drawn
        lines.append(Line(one.name, look, line_style, one.curve(), over, one.test_frames))
    return [line for line in lines if line.points]


def published_lines(series: Sequence[Series], published: PublishedResults) -> list[Line]:
    """Return the authors' curves for a panel on other data, which stand beside it, not over it.

    Args:
        series: the series of the panel; only what they have too is returned, in the same look.
        published: the authors' curves, on CORe50.
    """
    lines = []
    for one, line_style in zip(series, line_styles(series), strict=True):
        if not one.panel.comparison.comparable:
            theirs = _published_points(one, published)
            look = strategy_info(one.strategy).drawn
            lines.append(Line(one.name, look, line_style, theirs, []))
    return [line for line in lines if line.points]


def _published_points(series: Series, published: PublishedResults) -> Points:
    norm = series.norm or strategy_info(series.strategy).norm or "brn"
    theirs = published.get((series.panel.protocol, series.strategy, norm))
    is_variant = series.name != strategy_info(series.strategy).title and norm != "bn"
    return [] if theirs is None or is_variant else theirs.curve()


def freezing_lines(series: Sequence[Series]) -> list[Line]:
    """Return the curves of fig:NI, in one colour per freezing scheme.

    Args:
        series: runs that differ in the option `freeze` alone.
    """
    lines = []
    for one in series:
        scheme = FREEZING.get(str(one.options.get("freeze")))
        look = scheme.look if scheme else strategy_info(one.strategy).drawn
        lines.append(Line(one.name, look, "-", one.curve(), [], one.test_frames))
    return [line for line in lines if line.points]


def draw_panels(
    figure: str,
    panels: Mapping[Panel, Sequence[Line]],
    published: Mapping[Panel, Sequence[Line]] | None = None,
) -> list[Picture]:
    """Draw one picture per panel and one with all of them.

    Args:
        figure: the beginning of the pictures' names.
        panels: the curves of each panel; empty panels are left out. A single panel is drawn wide.
        published: the authors' curves on CORe50 for panels on other data; they get pictures of
            their own, and a second row in the picture of all panels.
    """
    published = published or {}
    above = {panel: lines for panel, lines in panels.items() if lines}
    below = {_authors(panel): published[panel] for panel in above if published.get(panel)}
    width = AXES[0] * (2 if len(above) == 1 and not below else 1)
    drawn = {**above, **below}
    pictures = [_draw_panel(figure, panel, lines, width) for panel, lines in drawn.items()]
    if len(pictures) > 1:
        rows = [above] if not below else [_named(above), {p: published[p] for p in above}]
        pictures.append(_draw_all(figure, rows, width))
    return pictures


def _authors(panel: Panel) -> Panel:
    return replace(panel, data_name="core50", title=f"{protocol_title(panel.protocol)}, {AUTHORS}")


def _draw_panel(figure: str, panel: Panel, lines: Sequence[Line], width: float) -> Picture:
    labels = ", ".join(line.label for line in lines)
    grid = Grid([[lines]], width)
    with drawing_style():
        sheet = new_figure(*grid.size)
        _draw_axes(sheet.add_axes(grid.box(0, 0)), panel, lines, _highest(lines))
    title = f"Accuracy against batches, {panel.title}: {labels}"
    return save_picture(sheet, slug(figure, panel.title), title)


def _draw_all(figure: str, rows: Sequence[Mapping[Panel, Sequence[Line]]], width: float) -> Picture:
    """Draw all panels, with one scale for all accuracies."""
    grid = Grid([list(row.values()) for row in rows], width)
    high = max(_highest(lines) for row in rows for lines in row.values() if lines)
    with drawing_style():
        sheet = new_figure(*grid.size)
        for down, row in enumerate(rows):
            for across, (panel, lines) in enumerate(row.items()):
                if lines:
                    own = _authors(panel) if down else panel
                    _draw_axes(sheet.add_axes(grid.box(down, across)), own, lines, high)
    return save_picture(sheet, slug(figure), f"{figure}, all protocols")


def _named(panels: Mapping[Panel, Sequence[Line]]) -> dict[Panel, Sequence[Line]]:
    """Name the data set in the titles of our panels, as the authors' panels name theirs."""
    return {
        replace(
            panel, title=f"{panel.title}, {DATA_TITLES.get(panel.data_name, panel.data_name)}"
        ): lines
        for panel, lines in panels.items()
    }


def _highest(lines: Sequence[Line]) -> float:
    return max(mean.mean + (mean.std or 0) for line in lines for _, mean in line.all_points)


@dataclass(frozen=True)
class Grid:
    """Axes in rows and columns with the labels of their curves to the right, in inches.

    Args:
        rows: the curves of each panel, row by row.
        width: the width of the axes.
    """

    rows: Sequence[Sequence[Sequence[Line]]]
    width: float

    @property
    def size(self) -> tuple[float, float]:
        """The width and the height of the figure."""
        return sum(self._widths()), len(self.rows) * (TOP + AXES[1] + BOTTOM)

    def box(self, down: int, across: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of axes, in parts of the figure.

        Args:
            down: the row, from the top.
            across: the column.
        """
        width, height = self.size
        left = sum(self._widths()[:across]) + LEFT
        bottom = (len(self.rows) - 1 - down) * (TOP + AXES[1] + BOTTOM) + BOTTOM
        return left / width, bottom / height, self.width / width, AXES[1] / height

    def _widths(self) -> list[float]:
        """Return the width of each column: axes and labels."""
        columns = zip(*self.rows, strict=True)
        return [self._column_width([line for own in column for line in own]) for column in columns]

    def _column_width(self, lines: Sequence[Line]) -> float:
        return LEFT + self.width + 0.4 + LETTER_WIDTH * max(len(line.label) for line in lines)


def _draw_axes(axes: Axes, panel: Panel, lines: Sequence[Line], high: float) -> None:
    last = max(batch for line in lines for batch, _ in line.all_points)
    _set_limits(axes, last, high)
    for line in lines:
        if len(line.points) == 1 and last > 1:
            _draw_level(axes, line)
        _draw_line(axes, line)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_ylabel(f"accuracy on {_tested_on(lines)} (%)")
    axes.set_xlabel("training batch" + _published_note(lines))
    axes.set_xticks(_ticks(last))
    axes.tick_params(length=3)
    label_ends(axes, [_curve_end(line) for line in lines], float(last))


def _tested_on(lines: Sequence[Line]) -> str:
    """Name the number of test frames, if it is known."""
    found = list(dict.fromkeys(line.test_frames for line in lines if line.test_frames))
    return f"{' or '.join(found)} test frames" if found else "the test set"


def _set_limits(axes: Axes, last: int, top: float) -> None:
    axes.set_xlim(1 if last > 1 else 0.5, max(last, 1.5))
    high = min(100, 10 * (int(top / 10) + 1))
    axes.set_ylim(0, high)
    axes.set_yticks(range(0, high + 1, 10 if high > 40 else 5))


def _curve_end(line: Line) -> CurveEnd:
    batch, mean = line.points[-1]
    return CurveEnd(batch, mean.mean, line.label, line.look, line.line_style)


def _draw_level(axes: Axes, line: Line) -> None:
    """Draw a thin level for a strategy that was tested once, such as the upper bound."""
    thin: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (1, 2)), "alpha": 0.8}
    axes.axhline(line.points[0][1].mean, color=line.look.light, zorder=1.5, **thin)


def _draw_line(axes: Axes, line: Line) -> None:
    colour = line.look.light
    batches, means = _coordinates(line.points)
    _draw_band(axes, line.points, colour)
    if line.published:
        solid = line.line_style == "-"
        dots = (0, (1, 1.6 if solid else 4))
        thin: dict[str, Any] = {"linewidth": 1.3, "linestyle": dots, "zorder": 2.2}
        axes.plot(*_coordinates(line.published), color=colour, **thin)
    every = max(1, len(batches) // 8)
    axes.plot(
        batches,
        means,
        color=colour,
        linestyle=line.line_style,
        marker=line.look.marker,
        markersize=4.2,
        zorder=2.5,
        markevery=(every // 2, every) if len(batches) > 12 else 1,
        clip_on=False,  # the first and last markers lie on the edges of the axes
    )


def _coordinates(points: Sequence[tuple[int, MeanStd]]) -> tuple[list[int], list[float]]:
    return [batch for batch, _ in points], [mean.mean for _, mean in points]


def _draw_band(axes: Axes, points: Points, colour: str) -> None:
    """Draw a band of one standard deviation, if there are several runs."""
    if not any(mean.std for _, mean in points):
        return
    batches, _ = _coordinates(points)
    low = [mean.mean - (mean.std or 0.0) for _, mean in points]
    high = [mean.mean + (mean.std or 0.0) for _, mean in points]
    axes.fill_between(batches, low, high, color=colour, alpha=0.17, linewidth=0)


def _published_note(lines: Sequence[Line]) -> str:
    """Explain the dotted curves."""
    published = [line for line in lines if line.published]
    if not published:
        return ""
    if any(line.line_style != "-" for line in published):
        return "\ndotted, spaced for dashed: published"
    return "\ndotted: the authors' published mean"


def _ticks(last: int) -> list[int]:
    """Return 1, round numbers, and the last batch; none is too close to the last.

    >>> _ticks(391), _ticks(8)
    ([1, 100, 200, 300, 391], [1, 2, 3, 4, 5, 6, 7, 8])
    """
    if last <= 10:
        return list(range(1, last + 1))
    steps = (5, 10, 20, 25, 50, 100, 200, 500, 1000, 10**9)
    step = next(step for step in steps if last / step <= 5)
    return [1, *(tick for tick in range(step, last, step) if last - tick > 0.4 * step), last]
