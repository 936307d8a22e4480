"""Accuracy against batches: fig:results, fig:bn_vs_brn and fig:NI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primavista.report.drawing import End, Picture, label_ends, new_figure, picture, style
from primavista.report.names import DASHES, FREEZING, Look, look, slug
from primavista.report.published import Key, Published
from primavista.report.series import Panel, Series, Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = 2.45, 2.45  # inches
LEFT, TOP, BOTTOM = 0.55, 0.35, 0.62  # inches round the axes
LETTER, MOST = 0.078, 26  # inches a letter of a label, and the most letters that one has


@dataclass(frozen=True)
class Line:
    """One curve: the mean over runs, its band, and the authors' mean where there is one."""

    name: str
    look: Look
    dashes: Any
    points: list[tuple[int, Spread]]
    theirs: list[tuple[int, Spread]]


def lines_of(series: Sequence[Series], published: Mapping[Key, Published]) -> list[Line]:
    """Curves of one panel; a strategy's second set of options is dashed."""
    seen: dict[str, int] = {}
    lines = []
    for one in series:
        points = one.curve()
        place = seen[one.strategy] = seen.get(one.strategy, -1) + 1
        known = published.get((one.panel.protocol, one.strategy, one.norm or "brn"))
        lines.append(
            Line(
                one.name,
                look(one.strategy),
                DASHES[place % len(DASHES)],
                points,
                known.curve() if known else [],
            )
        )
    return [line for line in lines if line.points]


def freezing_lines(series: Sequence[Series]) -> list[Line]:
    """fig:NI: one colour a freezing, where the runs differ in nothing else."""
    lines = []
    for one in series:
        how = FREEZING.get(str(one.options.get("freeze")), look(one.strategy))
        lines.append(Line(one.name, how, "-", one.curve(), []))
    return [line for line in lines if line.points]


def draw_panels(figure: str, panels: Mapping[Panel, Sequence[Line]]) -> list[Picture]:
    """A picture a panel, and where there are several one with all of them side by side; a lone one is wide."""
    panels = {panel: lines for panel, lines in panels.items() if lines}
    across = AXES[0] * (2 if len(panels) == 1 else 1)
    pictures = []
    for panel, lines in panels.items():
        with style():
            sheet = new_figure(*_size([lines], across))
            _draw(sheet.add_axes(_box(0, [lines], across)), panel, lines)
        title = f"Accuracy against batches, {panel.title}: " + ", ".join(
            _end_text(line) for line in lines
        )
        pictures.append(picture(sheet, slug(figure, panel.title), title))
    if len(panels) > 1:
        with style():
            sheet = new_figure(*_size(list(panels.values()), across))
            for place, (panel, lines) in enumerate(panels.items()):
                _draw(sheet.add_axes(_box(place, list(panels.values()), across)), panel, lines)
        pictures.append(picture(sheet, slug(figure), f"{figure}, all protocols"))
    return pictures


def _width(lines: Sequence[Line], across: float) -> float:
    """Of a panel, in inches: the axes, `across`, and room for the longest label beside them."""
    return LEFT + across + 0.4 + LETTER * max(len(_end_text(line)) for line in lines)


def _size(panels: Sequence[Sequence[Line]], across: float) -> tuple[float, float]:
    return sum(_width(lines, across) for lines in panels), TOP + AXES[1] + BOTTOM


def _box(
    place: int, panels: Sequence[Sequence[Line]], across: float
) -> tuple[float, float, float, float]:
    wide, high = _size(panels, across)
    left = sum(_width(lines, across) for lines in panels[:place]) + LEFT
    return left / wide, BOTTOM / high, across / wide, AXES[1] / high


def _draw(axes: Axes, panel: Panel, lines: Sequence[Line]) -> None:
    last = max(max(batch for batch, _ in [*line.points, *line.theirs]) for line in lines)
    top = max(
        spread.mean + (spread.std or 0)
        for line in lines
        for _, spread in [*line.points, *line.theirs]
    )
    axes.set_xlim(1 if last > 1 else 0.5, max(last, 1.5))
    high = min(100, 10 * (int(top / 10) + 1))
    axes.set_ylim(0, high)
    axes.set_yticks(range(0, high + 1, 10 if high > 40 else 5))
    for line in lines:
        _draw_line(axes, line, last)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_ylabel("accuracy on the test set (%)")
    axes.set_xlabel("training batch" + _dotted(panel, lines))
    axes.set_xticks(_ticks(last))
    axes.tick_params(length=3)
    ends = [
        End(
            line.points[-1][0],
            line.points[-1][1].mean,
            _end_text(line),
            line.look.light,
            line.look.marker,
            line.dashes,
        )
        for line in lines
    ]
    label_ends(axes, ends, float(last))


def _draw_line(axes: Axes, line: Line, last: int) -> None:
    batches = [batch for batch, _ in line.points]
    means = [spread.mean for _, spread in line.points]
    stds = [spread.std or 0.0 for _, spread in line.points]
    colour = line.look.light
    if any(stds):
        low = [mean - std for mean, std in zip(means, stds, strict=True)]
        high = [mean + std for mean, std in zip(means, stds, strict=True)]
        axes.fill_between(batches, low, high, color=colour, alpha=0.17, linewidth=0)
    if line.theirs:
        axes.plot(
            [batch for batch, _ in line.theirs],
            [spread.mean for _, spread in line.theirs],
            color=colour,
            linewidth=1.3,
            linestyle=(0, (1, 1.6 if line.dashes == "-" else 4)),
            zorder=2.2,
        )
    every = max(1, len(batches) // 8)
    axes.plot(
        batches,
        means,
        color=colour,
        linestyle=line.dashes,
        marker=line.look.marker,
        markersize=4.2,
        zorder=2.5,
        markevery=(every // 2, every) if len(batches) > 12 else 1,
    )


def _end_text(line: Line) -> str:
    name = line.name if len(line.name) <= MOST else line.name[: MOST - 1] + "…"
    return f"{name} {line.points[-1][1].mean:.1f}"


def _dotted(panel: Panel, lines: Sequence[Line]) -> str:
    if not any(line.theirs for line in lines):
        return ""
    where = "" if panel.core50 else ", on CORe50"
    if any(line.theirs and line.dashes != "-" for line in lines):
        return f"\ndotted, spaced for dashed: published{where}"
    return f"\ndotted: the authors' published mean{where}"


def _ticks(last: int) -> list[int]:
    """1, round numbers, and the last batch, none too close to it.

    >>> _ticks(391), _ticks(8)
    ([1, 100, 200, 300, 391], [1, 2, 3, 4, 5, 6, 7, 8])
    """
    if last <= 10:
        return list(range(1, last + 1))
    step = next(
        step for step in (5, 10, 20, 25, 50, 100, 200, 500, 1000, 10**9) if last / step <= 5
    )
    return [1, *(tick for tick in range(step, last, step) if last - tick > 0.4 * step), last]
