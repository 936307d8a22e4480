"""Accuracy against batches: one protocol, or several protocols side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

from primavista.report.figures import (
    LINE_STYLES,
    MARKER,
    LineStyle,
    Picture,
    drawing_style,
    new_figure,
)
from primavista.report.published import PublishedResults
from primavista.report.series import MeanStd, Panel, Points, Series, by_panel, mean_curve
from primavista.report.titles import DATA_TITLES, protocol_title
from primavista.strategies.info import Look
from primavista.strategies.registry import look_of, strategy_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AUTHORS = "the authors, CORe50"
# The looks of further variants in figures of a single strategy.
VARIANTS = (Look("#0072b2", "s"), Look("#009e73", "D"), Look("#cc79a7", "^"))
BOLD_LETTERS, LETTERS = 12.5, 15.5  # per inch, of titles and of legends
HANDLE = 0.5  # inches of a legend's entry beside its text
LEGEND_LINE, TITLE_LINE = 0.135, 0.15  # inches


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
        measure: `accuracy`, or `seen_accuracy` on the classes seen so far.
    """

    name: str
    look: Look
    line_style: LineStyle
    points: Points
    published: Points = field(default_factory=list)
    test_frames: str | None = None
    finished: bool = True
    measure: str = "accuracy"

    @property
    def label(self) -> str:
        """The name and the accuracy at the end, or at the last test of runs without an end."""
        batch, last = self.points[-1]
        return f"{self.name} {last.mean:.1f}{'' if self.finished else f' at batch {batch}'}"

    @property
    def all_points(self) -> Points:
        """Our points and the authors'."""
        return [*self.points, *self.published]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of matplotlib for the line and its markers."""
        marks = {"marker": self.look.marker, "markersize": MARKER}
        return {"color": self.look.colour, "linestyle": self.line_style, **marks}


def _series_lines(
    series: Sequence[Series], published: PublishedResults, is_alone: bool, measure: str
) -> list[Line]:
    """Return the curves of one panel.

    The first curve of each strategy is solid, and the next ones are dashed. If the figure has no
    other strategy, they have colours of their own instead.
    """
    lines = []
    seen: Counter[str] = Counter()
    for one in series:
        info, number = strategy_info(one.strategy), seen[one.strategy]
        seen[one.strategy] += 1
        look, style = look_of(info), LINE_STYLES[number % len(LINE_STYLES)]
        if is_alone and 0 < number <= len(VARIANTS):
            look, style = VARIANTS[number - 1], "-"
        is_variant = one.name != info.title and one.norm != "bn"
        theirs = () if is_variant else published.get(one.published_key, ())
        over = mean_curve([dict(enumerate(run, 1)) for run in theirs])
        facts = one.test_frames, bool(one.done), measure
        lines.append(Line(one.name, look, style, one.curve(measure), over, *facts))
    return [line for line in lines if line.points]


def panel_lines(
    series: Sequence[Series], published: PublishedResults, measure: str = "accuracy"
) -> dict[Panel, Sequence[Line]]:
    """Return the curves of a measure in each panel.

    The authors' curves are drawn over ours if both are on CORe50; for panels on other data they
    follow in panels of their own.
    """
    ours: dict[Panel, Sequence[Line]] = {}
    theirs: dict[Panel, Sequence[Line]] = {}
    is_alone = len({one.strategy for one in series}) == 1
    for panel, own in by_panel(series).items():
        lines = _series_lines(own, published, is_alone, measure)
        if panel.why_not_comparable:
            found = [one for one in lines if one.published]
            if found:
                title = f"{protocol_title(panel.protocol)}, {AUTHORS}"
                theirs[replace(panel, data_name="core50", title=title)] = [
                    Line(one.name, one.look, one.line_style, one.published) for one in found
                ]
            lines = [replace(one, published=[]) for one in lines]
        if lines:
            ours[panel] = lines
    return ours | theirs


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
        _draw_axes(axes, title, lines)
        _from_zero(axes)
        axes.set_xlabel(f"training batch{note}", labelpad=2)
        axes.set_ylabel(accuracy_label(lines), labelpad=2)
        _place_legend(figure, {line.label: line.settings for line in lines}, columns)
    described = f"Accuracy against batches, {panel.title}: {', '.join(labels)}"
    return Picture(name, described, figure)


def draw_all(name: str, panels: Mapping[Panel, Sequence[Line]], width: float) -> Picture:
    """Draw several panels in one figure, with one scale and one legend."""
    across = _across(len(panels), width)
    down = -(-len(panels) // across)
    named = {line.name: line.settings for lines in panels.values() for line in lines}
    columns = legend_columns(list(named), width)
    names = [_title(panel, panels) for panel in panels]
    titles = [fill(title, int(BOLD_LETTERS * (width / across - 0.4))) for title in names]
    row = max(1.8, min(2.5, 0.95 * width / across)) + TITLE_LINE * "".join(titles).count("\n")
    with drawing_style():
        figure = new_figure(width, down * row + LEGEND_LINE * -(-len(named) // columns))
        grid = figure.subplots(down, across, sharey=True, squeeze=False).flatten()
        for unused in grid[len(panels) :]:
            unused.remove()
        for place, (title, lines) in enumerate(zip(titles, panels.values(), strict=True)):
            axes = grid[place]
            _draw_axes(axes, title, lines)
            axes.set_xlabel("training batch", labelpad=2)
            if place % across == 0:
                axes.set_ylabel(accuracy_label(lines).replace(" on ", "\non "), labelpad=2)
        _from_zero(grid[0])  # the scale of all
        _place_legend(figure, named, columns)
    described = f"Accuracy against batches: {', '.join(names)}"
    return Picture(name, described, figure)


def _title(panel: Panel, panels: Iterable[Panel]) -> str:
    """Return the title of a panel; it names the data set if the authors' curves stand beside it."""
    authors = [one for one in panels if one.title.endswith(AUTHORS)]
    if not authors or panel in authors:
        return panel.title
    return f"{panel.title}, {DATA_TITLES.get(panel.data_name, panel.data_name)}"


def _across(panels: int, width: float) -> int:
    """Return the number of panels in a row: three at most, and no row of a single one."""
    most = max(1, int(width / 2))
    return 2 if panels == 4 and most > 2 else min(most, panels)


def accuracy_label(lines: Sequence[Line]) -> str:
    """Name the measure of the curves of a panel, and the number of test frames."""
    if any(line.measure == "seen_accuracy" for line in lines):
        return "accuracy on the classes seen (%)"
    found = list(dict.fromkeys(line.test_frames for line in lines if line.test_frames))
    return f"accuracy on {' or '.join(found)} test frames (%)" if found else "accuracy (%)"


def _draw_axes(axes: Axes, title: str, lines: Sequence[Line]) -> None:
    last = max(batch for line in lines for batch, _ in line.all_points)
    axes.set_xlim(1 if last > 1 else 0.5, max(last, 1.5))
    for line in lines:
        if len(line.points) == 1 and last > 1:  # tested once, such as the upper bound
            level: dict[str, Any] = {"linewidth": 0.7, "linestyle": (0, (1, 2)), "alpha": 0.8}
            axes.axhline(line.points[0][1].mean, color=line.look.colour, zorder=1.5, **level)
        _draw_line(axes, line)
    axes.set_title(title, loc="left", fontweight="bold", pad=4)
    axes.set_xticks(_ticks(last))
    axes.tick_params(length=2.5)


def _from_zero(axes: Axes) -> None:
    """Let the scale begin at 0, after everything has been drawn; it ends at 100 at most."""
    axes.set_ylim(0, min(100, axes.get_ylim()[1]))


def _draw_line(axes: Axes, line: Line) -> None:
    batches, means = _coordinates(line.points)
    if any(mean.std for _, mean in line.points):
        low = [mean.mean - (mean.std or 0.0) for _, mean in line.points]
        high = [mean.mean + (mean.std or 0.0) for _, mean in line.points]
        axes.fill_between(batches, low, high, color=line.look.colour, alpha=0.17, linewidth=0)
    if line.published:
        dots = (0, (1, 1.6 if line.line_style == "-" else 4))
        thin: dict[str, Any] = {"linewidth": 1.0, "linestyle": dots, "zorder": 2.2}
        axes.plot(*_coordinates(line.published), color=line.look.colour, **thin)
    every = max(1, len(batches) // 8)
    axes.plot(
        batches,
        means,
        zorder=2.5,
        markevery=(every // 2, every) if len(batches) > 12 else 1,
        clip_on=False,  # the first and last markers lie on the edges of the axes
        **line.settings,
    )


def _place_legend(figure: Figure, looks: Mapping[str, dict[str, Any]], columns: int) -> None:
    """Put a legend below everything else; its handles have the given looks."""
    from matplotlib.lines import Line2D

    figure.legend(
        [Line2D([], [], **look) for look in looks.values()],
        list(looks),
        loc="outside lower center",
        ncols=columns,
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
