"""Accuracy against batches: fig:results, fig:bn_vs_brn and fig:NI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from primavista.report.titles import FREEZING, slug
from primavista.strategies.registry import Look, strategy_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = 2.45, 2.45  # inches
LEFT, TOP, BOTTOM = 0.55, 0.35, 0.62  # inches around the axes
LETTER_WIDTH = 0.078  # inches per letter of a label
LABEL_LENGTH = 26  # letters of a label at most


@dataclass(frozen=True)
class Line:
    """One curve of a figure.

    Args:
        name: the name in its label.
        look: how it is drawn.
        line_style: its dashes.
        points: the mean over our runs.
        published: the mean over the authors' runs, if there are any.
    """

    name: str
    look: Look
    line_style: LineStyle
    points: Points
    published: Points

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
        published: the authors' curves, drawn over ours.
    """
    lines = []
    for one, line_style in zip(series, line_styles(series), strict=True):
        theirs = published.get((one.panel.protocol, one.strategy, one.norm or "brn"))
        published_points = theirs.curve() if theirs else []
        look = strategy_info(one.strategy).drawn
        lines.append(Line(one.name, look, line_style, one.curve(), published_points))
    return [line for line in lines if line.points]


def freezing_lines(series: Sequence[Series]) -> list[Line]:
    """Return the curves of fig:NI, in one colour per freezing scheme.

    Args:
        series: runs that differ in the option `freeze` alone.
    """
    lines = []
    for one in series:
        scheme = FREEZING.get(str(one.options.get("freeze")))
        look = scheme.look if scheme else strategy_info(one.strategy).drawn
        lines.append(Line(one.name, look, "-", one.curve(), []))
    return [line for line in lines if line.points]


def draw_panels(figure: str, panels: Mapping[Panel, Sequence[Line]]) -> list[Picture]:
    """Draw one picture per panel and, if there are several, one with all of them side by side.

    Args:
        figure: the beginning of the pictures' names.
        panels: the curves of each panel; empty panels are left out. A single panel is drawn wide.
    """
    panels = {panel: lines for panel, lines in panels.items() if lines}
    width = AXES[0] * (2 if len(panels) == 1 else 1)
    pictures = [_draw_panel(figure, panel, lines, width) for panel, lines in panels.items()]
    if len(panels) > 1:
        pictures.append(_draw_all(figure, panels, width))
    return pictures


def _draw_panel(figure: str, panel: Panel, lines: Sequence[Line], width: float) -> Picture:
    labels = ", ".join(line.label for line in lines)
    with drawing_style():
        sheet = new_figure(*_figure_size([lines], width))
        _draw_axes(sheet.add_axes(_axes_box(0, [lines], width)), panel, lines)
    title = f"Accuracy against batches, {panel.title}: {labels}"
    return save_picture(sheet, slug(figure, panel.title), title)


def _draw_all(figure: str, panels: Mapping[Panel, Sequence[Line]], width: float) -> Picture:
    all_lines = list(panels.values())
    with drawing_style():
        sheet = new_figure(*_figure_size(all_lines, width))
        for place, (panel, lines) in enumerate(panels.items()):
            _draw_axes(sheet.add_axes(_axes_box(place, all_lines, width)), panel, lines)
    return save_picture(sheet, slug(figure), f"{figure}, all protocols")


def _panel_width(lines: Sequence[Line], width: float) -> float:
    """Return the width in inches of axes of some width with the labels beside them."""
    return LEFT + width + 0.4 + LETTER_WIDTH * max(len(line.label) for line in lines)


def _figure_size(panels: Sequence[Sequence[Line]], width: float) -> tuple[float, float]:
    return sum(_panel_width(lines, width) for lines in panels), TOP + AXES[1] + BOTTOM


def _axes_box(
    place: int, panels: Sequence[Sequence[Line]], width: float
) -> tuple[float, float, float, float]:
    """Return left, bottom, width and height of the axes at a place, in parts of the figure."""
    figure_width, figure_height = _figure_size(panels, width)
    left = sum(_panel_width(lines, width) for lines in panels[:place]) + LEFT
    across = left / figure_width, width / figure_width
    along = BOTTOM / figure_height, AXES[1] / figure_height
    return across[0], along[0], across[1], along[1]


def _draw_axes(axes: Axes, panel: Panel, lines: Sequence[Line]) -> None:
    points = [point for line in lines for point in line.all_points]
    last = max(batch for batch, _ in points)
    _set_limits(axes, last, max(mean.mean + (mean.std or 0) for _, mean in points))
    for line in lines:
        _draw_line(axes, line)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_ylabel("accuracy on the test set (%)")
    axes.set_xlabel("training batch" + _published_note(panel, lines))
    axes.set_xticks(_ticks(last))
    axes.tick_params(length=3)
    label_ends(axes, [_curve_end(line) for line in lines], float(last))


def _set_limits(axes: Axes, last: int, top: float) -> None:
    axes.set_xlim(1 if last > 1 else 0.5, max(last, 1.5))
    high = min(100, 10 * (int(top / 10) + 1))
    axes.set_ylim(0, high)
    axes.set_yticks(range(0, high + 1, 10 if high > 40 else 5))


def _curve_end(line: Line) -> CurveEnd:
    batch, mean = line.points[-1]
    return CurveEnd(batch, mean.mean, line.label, line.look, line.line_style)


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


def _published_note(panel: Panel, lines: Sequence[Line]) -> str:
    """Explain the dotted curves."""
    published = [line for line in lines if line.published]
    if not published:
        return ""
    where = "" if panel.comparison.comparable else ", on CORe50"
    if any(line.line_style != "-" for line in published):
        return f"\ndotted, spaced for dashed: published{where}"
    return f"\ndotted: the authors' published mean{where}"


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
