"""The curves of accuracy against batches, from series of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primavista.report.figures import LINE_STYLES, LineStyle
from primavista.report.published import PublishedResults
from primavista.report.series import Points, Series
from primavista.report.titles import FREEZING
from primavista.strategies.info import Look
from primavista.strategies.registry import look_of, strategy_info


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
        finished: whether a run has come to its end.
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
        look = look_of(strategy_info(one.strategy))
        ours = one.curve(), over, one.test_frames, bool(one.done)
        lines.append(Line(one.name, look, line_style, *ours))
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
            look = look_of(strategy_info(one.strategy))
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
        look = scheme.look if scheme else look_of(strategy_info(one.strategy))
        lines.append(Line(one.name, look, "-", one.curve(), [], one.test_frames, bool(one.done)))
    return [line for line in lines if line.points]
