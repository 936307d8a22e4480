"""Labels at the ends of curves, moved apart so that none overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primavista.report.figures import INK, MARKER, SMALL, LineStyle
from primavista.strategies.info import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class CurveEnd:
    """The last point of a curve, with its label.

    Args:
        x: the last batch.
        y: the accuracy there.
        text: the label.
        look: how the curve is drawn.
        line_style: the dashes of the curve.
    """

    x: float
    y: float
    text: str
    look: Look
    line_style: LineStyle = "-"


def label_ends(axes: Axes, ends: Sequence[CurveEnd], right: float, size: float = SMALL) -> None:
    """Write the label of each curve to the right of the axes.

    Labels are moved so that none overlap, and a thin line leads from each curve to its label.

    Args:
        axes: the axes, with their limits set.
        ends: the ends of the curves.
        right: the x coordinate at which the axes end.
        size: the size of the text, in points.
    """
    if not ends:
        return
    low, high = axes.get_ylim()
    left, last = axes.get_xlim()
    figure = axes.get_figure(root=True)
    assert figure is not None
    inches = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    gap = 1.25 * size / (inches.height * 72) * (high - low)
    one_point = (last - left) / (inches.width * 72)  # in batches
    places = separate([end.y for end in ends], gap, low, high)
    for end, place in zip(ends, places, strict=True):
        _label_end(axes, end, place, right, one_point, size)
    axes.set_xlim(left, last)
    axes.set_ylim(low, high)


def _label_end(
    axes: Axes, end: CurveEnd, place: float, right: float, one_point: float, size: float
) -> None:
    elbow, stop = right + 4 * one_point, right + 11 * one_point
    colour = end.look.light
    axes.plot(
        [right, elbow, stop],
        [end.y, place, place],
        color=colour,
        linewidth=0.7,
        linestyle=end.line_style,
        clip_on=False,
        solid_capstyle="round",
        zorder=1,
    )
    if end.x < right:  # an unfinished run: a fainter line, so that it does not look like its curve
        faint: dict[str, Any] = {"linewidth": 0.6, "alpha": 0.3, "zorder": 1}
        axes.plot([end.x, right], [end.y, end.y], color=colour, **faint)
    symbol: dict[str, Any] = {"marker": end.look.marker, "markersize": MARKER, "linestyle": "none"}
    axes.plot([stop], [place], color=colour, clip_on=False, **symbol)
    beside: dict[str, Any] = {"fontsize": size, "va": "center", "ha": "left", "clip_on": False}
    axes.text(stop + 4 * one_point, place, end.text, color=INK, **beside)


def separate(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move values apart, as little as possible and without changing their order.

    Of equal values the first comes out highest.

    Args:
        values: the wished places.
        gap: the smallest distance between any two of the result.
        low: the lower bound.
        high: the upper bound; it is exceeded if there is not enough room.

    >>> separate([5.0, 5.0, 9.0], 2.0, 0.0, 10.0)
    [6.0, 4.0, 9.0]
    """
    order = sorted(range(len(values)), key=lambda i: (values[i], -i))
    blocks: list[_Block] = []
    for i in order:
        blocks.append(_Block(values[i], 1))
        while len(blocks) > 1 and blocks[-2].overlaps(blocks[-1], gap, low, high):
            upper = blocks.pop()
            blocks[-1] = blocks[-1].joined(upper, gap)
    starts = [
        block.start(gap, low, high) + member * gap
        for block in blocks
        for member in range(block.members)
    ]
    places = [0.0] * len(values)
    for i, place in zip(order, starts, strict=True):
        places[i] = place
    return places


@dataclass(frozen=True)
class _Block:
    """Neighbouring labels that touch.

    Args:
        total: the sum, over its members, of the place that each wishes for the first.
        members: the number of labels.
    """

    total: float
    members: int

    def start(self, gap: float, low: float, high: float) -> float:
        """Return the place of the first member: the mean wish, within the bounds."""
        wish = self.total / self.members
        return max(low, min(wish, high - (self.members - 1) * gap))

    def overlaps(self, upper: _Block, gap: float, low: float, high: float) -> bool:
        """Return whether the block above begins before this one ends."""
        end = self.start(gap, low, high) + self.members * gap
        return end > upper.start(gap, low, high)

    def joined(self, upper: _Block, gap: float) -> _Block:
        """Return one block with the members of both."""
        shift = upper.members * self.members * gap
        return _Block(self.total + (upper.total - shift), self.members + upper.members)
