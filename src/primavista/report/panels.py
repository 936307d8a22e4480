"""Accuracy against batches, drawn at the width of a column or of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from primavista.errors import require_extra
from primavista.report.curves import Line
from primavista.report.figures import (
    MARKER,
    SMALL,
    Picture,
    drawing_style,
    fit_text,
    new_figure,
    text_width,
)
from primavista.report.labels import CurveEnd, label_ends
from primavista.report.series import MeanStd, Panel, Points
from primavista.report.titles import DATA_TITLES, protocol_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT, BOTTOM = 0.42, 0.12, 0.36  # inches around the axes
TITLE_LINE, LEGEND_LINE = 0.15, 0.133  # inches per line
LEADER = 0.25  # inches from the axes to the text of a label
LABEL_GAP = 1.25 * SMALL / 72  # inches per label at the end of a curve
LABEL_SHARE = 0.42  # of the width; longer labels become a legend below the axes
HANDLE = 0.45  # inches of a legend's entry beside its text
AUTHORS = "the authors, CORe50"


@dataclass(frozen=True)
class _Cell:
    """Axes of a figure: the curves of one panel under a title.

    Args:
        title: the title, broken into lines.
        lines: the curves.
    """

    title: str
    lines: Sequence[Line]


def draw_panel(name: str, panel: Panel, lines: Sequence[Line], width: float) -> Picture:
    """Draw the curves of one panel, with labels at their ends or in a legend below.

    Args:
        name: the name of the picture.
        panel: the protocol and the data set.
        lines: the curves, at least one.
        width: the width of the figure in inches.
    """
    labels = [line.label for line in lines]
    beside = LEADER + max(text_width(label, SMALL) for label in labels)
    at_ends = beside <= LABEL_SHARE * width
    title = fit_text(panel.title, width - LEFT - RIGHT, 8.5, bold=True)
    axes_height = max(1.95 if width < 5 else 2.5, len(labels) * LABEL_GAP if at_ends else 0)
    left = _left(lines, axes_height)
    axes_width = width - left - (beside if at_ends else RIGHT)
    columns = legend_columns(labels, width)
    legend = 0.0 if at_ends else legend_height(len(labels), columns)
    high, note = _highest(lines), _published_note(lines)
    bottom = BOTTOM + TITLE_LINE * note.count("\n")
    height = _title_height(title) + axes_height + bottom + legend
    with drawing_style():
        figure = new_figure(width, height)
        box = left / width, (bottom + legend) / height, axes_width / width, axes_height / height
        axes = figure.add_axes(box)
        _draw_axes(axes, _Cell(title, lines), high, axes_height)
        axes.set_xlabel(f"training batch{note}", labelpad=2)
        if at_ends:
            last = _last_batch(lines)
            label_ends(axes, [_curve_end(line) for line in lines], float(last))
        else:
            _draw_legend(figure, axes, labels, columns)
    described = f"Accuracy against batches, {panel.title}: {', '.join(labels)}"
    return Picture(name, described, figure)


def draw_all(
    name: str,
    panels: Mapping[Panel, Sequence[Line]],
    published: Mapping[Panel, Sequence[Line]],
    width: float,
) -> Picture:
    """Draw all panels in one figure, with one scale and one legend.

    Args:
        name: the name of the picture.
        panels: the curves of each panel, none of them empty.
        published: the authors' curves on CORe50 for panels on other data, which follow ours.
        width: the width of the figure in inches.
    """
    theirs = {authors_panel(panel): own for panel, own in published.items() if own}
    shown = {**(_named(panels) if theirs else panels), **theirs}
    sheet = _Sheet(list(shown.values()), list(shown), width, _across(len(panels), width))
    named = {line.name: line for lines in shown.values() for line in lines}
    columns = legend_columns(list(named), width)
    legend = legend_height(len(named), columns)
    high = max(map(_highest, shown.values()))
    height = sheet.rows * sheet.row_height + legend
    with drawing_style():
        figure = new_figure(width, height)
        for number, cell in enumerate(sheet.cells):
            axes = figure.add_axes(sheet.box(number, legend, height))
            first = number % sheet.across == 0
            _draw_axes(axes, cell, high, sheet.axes_height, first=first)
            axes.set_xlabel("training batch", labelpad=2)
        place_legend(figure, list(map(_handle, named.values())), list(named), columns)
    titles = ", ".join(panel.title for panel in shown)
    return Picture(name, f"Accuracy against batches: {titles}", figure)


@dataclass(frozen=True)
class _Sheet:
    """Axes in rows and columns, in inches.

    Args:
        lines: the curves of each panel.
        panels: the panels.
        width: the width of the figure.
        across: the number of panels in a row.
    """

    lines: Sequence[Sequence[Line]]
    panels: Sequence[Panel]
    width: float
    across: int

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.across)

    @cached_property
    def axes_height(self) -> float:
        return max(1.35, min(2.2, 0.85 * (self.width / self.across - LEFT - RIGHT)))

    @cached_property
    def left(self) -> float:
        """The room to the left of each row."""
        return max(_left(lines, self.axes_height) for lines in self.lines)

    @cached_property
    def axes_width(self) -> float:
        used = self.left + (self.across - 1) * LEFT + self.across * RIGHT
        return (self.width - used) / self.across

    @cached_property
    def cells(self) -> list[_Cell]:
        room = self.axes_width + RIGHT
        titles = [fit_text(panel.title, room, 8.5, bold=True) for panel in self.panels]
        return [_Cell(title, lines) for title, lines in zip(titles, self.lines, strict=True)]

    @cached_property
    def row_height(self) -> float:
        titles = max(_title_height(cell.title) for cell in self.cells)
        return titles + self.axes_height + BOTTOM

    def box(self, number: int, legend: float, height: float) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of axes, in parts of the figure."""
        down, place = divmod(number, self.across)
        left = self.left + place * (LEFT + self.axes_width + RIGHT)
        bottom = legend + (self.rows - 1 - down) * self.row_height + BOTTOM
        wide, high = self.axes_width / self.width, self.axes_height / height
        return left / self.width, bottom / height, wide, high


def authors_panel(panel: Panel) -> Panel:
    """Return the panel of the authors' curves beside one on other data.

    Args:
        panel: our panel.
    """
    return replace(panel, data_name="core50", title=f"{protocol_title(panel.protocol)}, {AUTHORS}")


def _named(panels: Mapping[Panel, Sequence[Line]]) -> dict[Panel, Sequence[Line]]:
    """Name the data set in the titles of our panels, as the authors' panels name theirs."""
    return {
        replace(
            panel, title=f"{panel.title}, {DATA_TITLES.get(panel.data_name, panel.data_name)}"
        ): lines
        for panel, lines in panels.items()
    }


def _across(panels: int, width: float) -> int:
    """Return the number of panels in a row: three at most, and no row of a single one."""
    most = max(1, int(width / 2))
    return 2 if panels == 4 and most > 2 else min(most, panels)


def _left(lines: Sequence[Line], height: float) -> float:
    """Return the room for the label of the accuracies, which may take two lines."""
    label = accuracy_label([line.test_frames for line in lines], height)
    return LEFT + TITLE_LINE * label.count("\n")


def _title_height(title: str) -> float:
    return 0.08 + TITLE_LINE * (1 + title.count("\n"))


def _highest(lines: Sequence[Line]) -> float:
    return max(mean.mean + (mean.std or 0) for line in lines for _, mean in line.all_points)


def _last_batch(lines: Sequence[Line]) -> int:
    return max(batch for line in lines for batch, _ in line.all_points)


def _draw_axes(axes: Axes, cell: _Cell, high: float, height: float, *, first: bool = True) -> None:
    last = _last_batch(cell.lines)
    _set_limits(axes, last, high)
    for line in cell.lines:
        if len(line.points) == 1 and last > 1:
            _draw_level(axes, line)
        _draw_line(axes, line)
    axes.set_title(cell.title, loc="left", fontweight="bold", pad=4)
    if first:
        axes.set_ylabel(
            accuracy_label([line.test_frames for line in cell.lines], height), labelpad=2
        )
    axes.set_xticks(_ticks(last))
    axes.tick_params(length=2.5)


def accuracy_label(test_frames: Sequence[str | None], height: float) -> str:
    """Name the measure and the number of test frames, on a second line if there is no room.

    Args:
        test_frames: the number of test frames of each curve.
        height: the height of the axes in inches.
    """
    found = list(dict.fromkeys(number for number in test_frames if number))
    if not found:
        return "accuracy (%)"
    frames = f"on {' or '.join(found)} test frames"
    text = f"accuracy {frames} (%)"
    return text if text_width(text, 8) < height + 0.4 else f"accuracy (%)\n{frames}"


def _set_limits(axes: Axes, last: int, top: float) -> None:
    axes.set_xlim(1 if last > 1 else 0.5, max(last, 1.5))
    high = min(100, 10 * (int(top / 10) + 1))
    axes.set_ylim(0, high)
    step = next(step for top, step in ((40, 5), (60, 10), (100, 20)) if high <= top)
    axes.set_yticks(range(0, high + 1, step))


def _curve_end(line: Line) -> CurveEnd:
    batch, mean = line.points[-1]
    return CurveEnd(batch, mean.mean, line.label, line.look, line.line_style)


def _draw_level(axes: Axes, line: Line) -> None:
    """Draw a thin level for a strategy that was tested once, such as the upper bound."""
    thin: dict[str, Any] = {"linewidth": 0.7, "linestyle": (0, (1, 2)), "alpha": 0.8}
    axes.axhline(line.points[0][1].mean, color=line.look.light, zorder=1.5, **thin)


def _draw_line(axes: Axes, line: Line) -> None:
    _draw_band(axes, line.points, line.look.light)
    if line.published:
        solid = line.line_style == "-"
        dots = (0, (1, 1.6 if solid else 4))
        thin: dict[str, Any] = {"linewidth": 1.0, "linestyle": dots, "zorder": 2.2}
        axes.plot(*_coordinates(line.published), color=line.look.light, **thin)
    batches, means = _coordinates(line.points)
    every = max(1, len(batches) // 8)
    axes.plot(
        batches,
        means,
        zorder=2.5,
        markevery=(every // 2, every) if len(batches) > 12 else 1,
        clip_on=False,  # the first and last markers lie on the edges of the axes
        label=line.label,
        **_line_look(line),
    )


def _line_look(line: Line) -> dict[str, Any]:
    return {
        "color": line.look.light,
        "linestyle": line.line_style,
        "marker": line.look.marker,
        "markersize": MARKER,
    }


def _handle(line: Line) -> Any:
    """Return an empty line that stands for a curve in the legend of all panels."""
    return require_extra("matplotlib.lines", "plots").Line2D([], [], **_line_look(line))


def _draw_legend(figure: Figure, axes: Axes, labels: Sequence[str], columns: int) -> None:
    handles = {handle.get_label(): handle for handle in axes.lines}
    place_legend(figure, [handles[label] for label in labels], labels, columns)


def place_legend(
    figure: Figure, handles: Sequence[Any], texts: Sequence[str], columns: int
) -> None:
    """Put a legend at the bottom of a figure.

    Args:
        figure: the figure, with `legend_height` of room at the bottom.
        handles: the lines.
        texts: their names.
        columns: the number of columns, from `legend_columns`.
    """
    figure.legend(
        list(handles),
        list(texts),
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=columns,
        columnspacing=1.2,
        handlelength=2.0,
        handletextpad=0.5,
        borderaxespad=0.1,
        borderpad=0.1,
        labelspacing=0.35,
    )


def legend_columns(texts: Sequence[str], width: float) -> int:
    """Return the number of columns of a legend that fits a figure, as many as there is room for.

    Args:
        texts: the names in the legend.
        width: the width of the figure in inches.
    """
    widths = [HANDLE + text_width(text, SMALL) for text in texts]
    for columns in range(len(texts), 1, -1):
        rows = -(-len(texts) // columns)
        parts = [widths[i : i + rows] for i in range(0, len(texts), rows)]
        if len(parts) == columns and sum(map(max, parts)) <= width - 0.1:
            return columns
    return 1


def legend_height(texts: int, columns: int) -> float:
    """Return the height of a legend in inches.

    Args:
        texts: the number of names.
        columns: the number of columns.
    """
    return 0.08 + LEGEND_LINE * -(-texts // columns)


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
