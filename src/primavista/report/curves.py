"""Accuracy against batches: one protocol, several protocols, and category by category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from primavista.report.class_figures import class_curves, class_names, has_classes
from primavista.report.figures import (
    LINE_STYLES,
    MARKER,
    SMALL,
    LineStyle,
    Picture,
    drawing_style,
    new_figure,
)
from primavista.report.published import PublishedResults
from primavista.report.series import MeanStd, Panel, Points, Series, mean_curve
from primavista.report.titles import DATA_TITLES, FREEZING, protocol_title, shorten_names
from primavista.strategies.info import Look
from primavista.strategies.registry import look_of, strategy_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AUTHORS = "the authors, CORe50"
BOLD_LETTERS, LETTERS = 12.5, 15.5  # per inch, of titles and of legends
HANDLE = 0.5  # inches of a legend's entry beside its text
LEGEND_LINE, TITLE_LINE = 0.135, 0.15  # inches
MOST_CATEGORIES = 24


@dataclass(frozen=True)
class Line:
    """One curve of a figure.

    Args:
        name: The name in its label.
        look: Its colour and marker.
        line_style: Its dashes.
        points: The mean over our runs.
        published: The mean over the authors' runs, if there are any.
        test_frames: The number of test frames of our runs, if it is known.
        finished: True if a run has come to its end.
    """

    name: str
    look: Look
    line_style: LineStyle
    points: Points
    published: Points
    test_frames: str | None = None
    finished: bool = True

    @property
    def label(self) -> str:
        """The name and the accuracy at the end, or at the last test of runs without an end."""
        batch, last = self.points[-1]
        return f"{self.name} {last.mean:.1f}{'' if self.finished else f' at batch {batch}'}"

    @property
    def all_points(self) -> Points:
        """Our points and the authors'."""
        return [*self.points, *self.published]


def line_styles(series: Sequence[Series]) -> list[LineStyle]:
    """Return dashes for each series: the first of each strategy is solid, the next are dashed."""
    seen: dict[str, int] = {}
    styles = []
    for one in series:
        place = seen.get(one.strategy, 0)
        seen[one.strategy] = place + 1
        styles.append(LINE_STYLES[place % len(LINE_STYLES)])
    return styles


def strategy_lines(series: Sequence[Series], published: PublishedResults) -> list[Line]:
    """Return the curves of one panel; the authors' are drawn over ours if both are on CORe50."""
    lines = []
    for one, line_style in zip(series, line_styles(series), strict=True):
        over = _published_points(one, published) if one.panel.comparison.comparable else []
        lines.append(_line(one, look_of(strategy_info(one.strategy)), line_style, over))
    return [line for line in lines if line.points]


def published_lines(series: Sequence[Series], published: PublishedResults) -> list[Line]:
    """Return the authors' curves for a panel on other data, which stand beside it, not over it."""
    lines = []
    for one, line_style in zip(series, line_styles(series), strict=True):
        if not one.panel.comparison.comparable:
            theirs = _published_points(one, published)
            look = look_of(strategy_info(one.strategy))
            lines.append(Line(one.name, look, line_style, theirs, []))
    return [line for line in lines if line.points]


def freezing_lines(series: Sequence[Series]) -> list[Line]:
    """Return the curves of fig:NI, in one colour per freezing scheme."""
    lines = []
    for one in series:
        scheme = FREEZING.get(str(one.options.get("freeze")))
        look = scheme.look if scheme else look_of(strategy_info(one.strategy))
        lines.append(_line(one, look, "-", []))
    return [line for line in lines if line.points]


def _line(series: Series, look: Look, line_style: LineStyle, published: Points) -> Line:
    ours, finished = series.curve(), bool(series.done)
    return Line(series.name, look, line_style, ours, published, series.test_frames, finished)


def _published_points(series: Series, published: PublishedResults) -> Points:
    theirs = published.get(series.published_key)
    is_variant = series.name != strategy_info(series.strategy).title and series.norm != "bn"
    return [] if theirs is None or is_variant else theirs.curve()


def authors_panel(panel: Panel) -> Panel:
    """Return the panel of the authors' curves beside one of ours on other data."""
    return replace(panel, data_name="core50", title=f"{protocol_title(panel.protocol)}, {AUTHORS}")


def draw_panel(name: str, panel: Panel, lines: Sequence[Line], width: float) -> Picture:
    """Draw the curves of one panel above a legend with the final accuracies, the best first."""
    lines = sorted(lines, key=lambda line: -line.points[-1][1].mean)
    labels = [line.label for line in lines]
    columns = legend_columns(labels, width)
    note = _published_note(lines)
    title = fill(panel.title, int(BOLD_LETTERS * (width - 0.5)))
    extra = LEGEND_LINE * -(-len(labels) // columns) + TITLE_LINE * (title + note).count("\n")
    with drawing_style():
        figure = new_figure(width, (2.5 if width < 5 else 3.1) + extra)
        axes = figure.add_subplot()
        _draw_axes(axes, title, lines, _highest(lines))
        axes.set_xlabel(f"training batch{note}", labelpad=2)
        axes.set_ylabel(accuracy_label(line.test_frames for line in lines), labelpad=2)
        _place_legend(figure, dict(zip(labels, map(_handle, lines), strict=True)), columns)
    described = f"Accuracy against batches, {panel.title}: {', '.join(labels)}"
    return Picture(name, described, figure)


def draw_all(name: str, panels: Mapping[Panel, Sequence[Line]], width: float) -> Picture:
    """Draw several panels in one figure, with one scale and one legend."""
    across = _across(len(panels), width)
    down = -(-len(panels) // across)
    named = {line.name: _handle(line) for lines in panels.values() for line in lines}
    columns = legend_columns(list(named), width)
    titles = [fill(panel.title, int(BOLD_LETTERS * (width / across - 0.4))) for panel in panels]
    row = max(1.8, min(2.5, 0.95 * width / across)) + TITLE_LINE * "".join(titles).count("\n")
    high = max(map(_highest, panels.values()))
    with drawing_style():
        figure = new_figure(width, down * row + LEGEND_LINE * -(-len(named) // columns))
        for place, (title, lines) in enumerate(zip(titles, panels.values(), strict=True)):
            axes = figure.add_subplot(down, across, place + 1)
            _draw_axes(axes, title, lines, high)
            axes.set_xlabel("training batch", labelpad=2)
            if place % across == 0:
                label = accuracy_label(line.test_frames for line in lines)
                axes.set_ylabel(label.replace(" on ", "\non "), labelpad=2)
        _place_legend(figure, named, columns)
    described = ", ".join(panel.title for panel in panels)
    return Picture(name, f"Accuracy against batches: {described}", figure)


def with_authors(
    ours: Mapping[Panel, Sequence[Line]], theirs: Mapping[Panel, Sequence[Line]]
) -> dict[Panel, Sequence[Line]]:
    """Return our panels followed by the authors' on CORe50; titles then name the data set."""
    if not theirs:
        return dict(ours)
    named = {}
    for panel, lines in ours.items():
        data = DATA_TITLES.get(panel.data_name, panel.data_name)
        named[replace(panel, title=f"{panel.title}, {data}")] = lines
    return {**named, **{authors_panel(panel): lines for panel, lines in theirs.items()}}


def _across(panels: int, width: float) -> int:
    """Return the number of panels in a row: three at most, and no row of a single one."""
    most = max(1, int(width / 2))
    return 2 if panels == 4 and most > 2 else min(most, panels)


def accuracy_label(test_frames: Iterable[str | None]) -> str:
    """Name the measure and the number of test frames."""
    found = list(dict.fromkeys(number for number in test_frames if number))
    return f"accuracy on {' or '.join(found)} test frames (%)" if found else "accuracy (%)"


def _highest(lines: Sequence[Line]) -> float:
    return max(mean.mean + (mean.std or 0) for line in lines for _, mean in line.all_points)


def _draw_axes(axes: Axes, title: str, lines: Sequence[Line], highest: float) -> None:
    last = max(batch for line in lines for batch, _ in line.all_points)
    axes.set_xlim(1 if last > 1 else 0.5, max(last, 1.5))
    high = min(100, 10 * (int(highest / 10) + 1))
    axes.set_ylim(0, high)
    step = next(step for top, step in ((40, 5), (60, 10), (100, 20)) if high <= top)
    axes.set_yticks(range(0, high + 1, step))
    for line in lines:
        if len(line.points) == 1 and last > 1:  # tested once, such as the upper bound
            level: dict[str, Any] = {"linewidth": 0.7, "linestyle": (0, (1, 2)), "alpha": 0.8}
            axes.axhline(line.points[0][1].mean, color=line.look.light, zorder=1.5, **level)
        _draw_line(axes, line)
    axes.set_title(title, loc="left", fontweight="bold", pad=4)
    axes.set_xticks(_ticks(last))
    axes.tick_params(length=2.5)


def _draw_line(axes: Axes, line: Line) -> None:
    batches, means = _coordinates(line.points)
    if any(mean.std for _, mean in line.points):
        low = [mean.mean - (mean.std or 0.0) for _, mean in line.points]
        high = [mean.mean + (mean.std or 0.0) for _, mean in line.points]
        axes.fill_between(batches, low, high, color=line.look.light, alpha=0.17, linewidth=0)
    if line.published:
        dots = (0, (1, 1.6 if line.line_style == "-" else 4))
        thin: dict[str, Any] = {"linewidth": 1.0, "linestyle": dots, "zorder": 2.2}
        axes.plot(*_coordinates(line.published), color=line.look.light, **thin)
    every = max(1, len(batches) // 8)
    axes.plot(
        batches,
        means,
        zorder=2.5,
        markevery=(every // 2, every) if len(batches) > 12 else 1,
        clip_on=False,  # the first and last markers lie on the edges of the axes
        **_line_look(line.look, line.line_style),
    )


def _line_look(look: Look, line_style: LineStyle, size: float = 1.0) -> dict[str, Any]:
    return {
        "color": look.light,
        "linestyle": line_style,
        "marker": look.marker,
        "markersize": size * MARKER,
    }


def _handle(line: Line) -> dict[str, Any]:
    return _line_look(line.look, line.line_style)


def _place_legend(figure: Figure, looks: Mapping[str, dict[str, Any]], columns: int) -> None:
    """Put a legend below everything else; its handles have the given looks."""
    from matplotlib.lines import Line2D

    figure.legend(
        [Line2D([], [], **look) for look in looks.values()],
        list(looks),
        loc="outside lower center",
        ncols=columns,
        columnspacing=1.2,
        handlelength=2.2,
        handletextpad=0.5,
        borderaxespad=0.2,
        borderpad=0.1,
        labelspacing=0.35,
    )


def legend_columns(texts: Sequence[str], width: float) -> int:
    """Return the number of columns of a legend that fits a figure, by the longest text."""
    longest = max(map(len, texts))
    most = max(1, int((width - 0.1) / (HANDLE + longest / LETTERS)))
    rows = -(-len(texts) // most)
    return -(-len(texts) // rows)


def _coordinates(points: Sequence[tuple[int, MeanStd]]) -> tuple[list[int], list[float]]:
    return [batch for batch, _ in points], [mean.mean for _, mean in points]


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


def draw_categories(
    panel: Panel, series: Sequence[Series], name: str, width: float
) -> Picture | None:
    """Draw the mean accuracy of the classes of each category, one small figure per category."""
    labels_of = _labels_by_category(series)
    if not 1 < len(labels_of) <= MOST_CATEGORIES:
        return None
    across = min(len(labels_of), max(2, round(width / 1.35)))
    down = -(-len(labels_of) // across)
    titles = shorten_names(list(labels_of), int(LETTERS * (width - 0.5) / across) - 2)
    looks = {
        one.name: _line_look(look_of(strategy_info(one.strategy)), style, 0.7)
        for one, style in zip(series, line_styles(series), strict=True)
    }
    columns = legend_columns(list(looks), width)
    what = f"{panel.title}: {accuracy_label([one.test_frames for one in series])} over the batches"
    title = fill(what, int(BOLD_LETTERS * width))
    height = 1.1 * down + TITLE_LINE * (2 + title.count("\n"))
    with drawing_style():
        figure = new_figure(width, height + LEGEND_LINE * -(-len(looks) // columns))
        figure.suptitle(title, x=0.01, ha="left", fontsize=8.5, fontweight="bold")
        for place, labels in enumerate(labels_of.values()):
            axes = figure.add_subplot(down, across, place + 1)
            last = _draw_category(axes, labels, series, looks)
            axes.set_title(titles[place], fontsize=SMALL, loc="left", pad=3)
            axes.set_ylim(0, 100)
            axes.set_xticks(sorted({1, last}))
            axes.set_yticks([0, 50, 100])
            is_lowest = place + across >= len(labels_of)
            axes.tick_params(length=2, labelleft=place % across == 0, labelbottom=is_lowest)
        _place_legend(figure, looks, columns)
    return Picture(name, f"Accuracy by category, {panel.title}: {', '.join(labels_of)}", figure)


def _draw_category(
    axes: Axes, labels: Sequence[str], series: Sequence[Series], looks: Mapping[str, dict[str, Any]]
) -> int:
    """Draw the curves of one category, and return the last batch that was tested."""
    last = 1
    for one in series:
        curves = [item for cell in one.cells for item in class_curves(cell).items()]
        points = mean_curve([curve for label, curve in curves if label in labels])
        if points:
            last = max(last, points[-1][0])
            every = max(1, len(points) // 4)
            axes.plot(*_coordinates(points), markevery=every, clip_on=False, **looks[one.name])
    return last


def _labels_by_category(series: Sequence[Series]) -> dict[str, list[str]]:
    """Return the labels of each category, from the first finished cell that knows its classes."""
    done = [cell for one in series for cell in one.done if has_classes(cell)]
    if not done:
        return {}
    names, categories = class_names(done[0])
    labels_of: dict[str, list[str]] = {}
    for label, category in zip(class_curves(done[0]), categories or names, strict=False):
        labels_of.setdefault(category, []).append(label)
    return labels_of
