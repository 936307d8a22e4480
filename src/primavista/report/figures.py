"""Everything that all figures share: style, colours, labels at the ends of curves, and files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from primavista.errors import require_extra
from primavista.report.titles import FREEZING
from primavista.strategies.registry import Look, strategy_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXTRA = ("matplotlib", "plots")  # the package that draws, and our extra that installs it
INK, FAINT, GRID = "#1f2329", "#5b636d", "#dfe3e8"
LineStyle = str | tuple[int, tuple[float, ...]]
LINE_STYLES: tuple[LineStyle, ...] = (
    "-",
    (0, (5, 2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (2, 1.2)),
)
STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 11,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "primavista",
    "text.parse_math": False,
}
DPI = 180
_HEX = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True)
class Palette:
    """The colours that figures may contain, as CSS variables that follow the page's theme.

    Colours that are not written as `#rrggbb` stay the same in both themes.

    Args:
        looks: the looks of everything drawn.
    """

    looks: tuple[Look, ...]

    @cached_property
    def variables(self) -> dict[str, str]:
        """The CSS variable for each colour of a figure."""
        found = {INK: "--ink", FAINT: "--faint", GRID: "--grid"}
        for light in self._themed:
            found.setdefault(light, f"--c{light[1:]}")
        return found

    @cached_property
    def _themed(self) -> dict[str, str]:
        """The colour on a dark page for each colour on white paper."""
        found: dict[str, str] = {}
        for look in self.looks:
            light, dark = look.light.lower(), look.dark.lower()
            if _HEX.fullmatch(light) and _HEX.fullmatch(dark):
                found.setdefault(light, dark)
        return found

    def css(self) -> str:
        """Return the style rules that define the variables for both themes."""
        light = "".join(f"{self.variables[colour]}:{colour};" for colour in self._themed)
        dark = "".join(f"{self.variables[one]}:{other};" for one, other in self._themed.items())
        return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def palette_of(strategies: Iterable[str]) -> Palette:
    """Return the palette of figures that draw some strategies or the freezing schemes.

    Args:
        strategies: the names of the strategies.
    """
    looks = [strategy_info(name).drawn for name in dict.fromkeys(strategies)]
    return Palette((*looks, *(scheme.look for scheme in FREEZING.values())))


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Args:
        name: the stem of its files.
        title: a description for readers who cannot see it.
        svg: the figure as SVG, with text as text.
        png: the figure as PNG, on white.
        on_white: whether the page must show it on a white ground.
    """

    name: str
    title: str
    svg: str
    png: bytes
    on_white: bool = False

    def inline(self, palette: Palette) -> str:
        """Return the SVG for the page.

        Its colours and its size follow the page, and its identifiers begin with its name, so that
        no two figures share one.

        Args:
            palette: the colours to replace by CSS variables.
        """
        text = re.sub(r"^.*?(?=<svg)", "", self.svg, flags=re.DOTALL)
        tag = re.compile(r"<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
        text = tag.sub(self._opening_tag, text, count=1)
        text = re.sub(r"\bxlink:href=", "href=", text)
        text = re.sub(r'\bid="', f'id="{self.name}-', text)
        text = re.sub(r'href="#', f'href="#{self.name}-', text)
        text = re.sub(r"url\(#", f"url(#{self.name}-", text)
        if not self.on_white:
            for colour, variable in palette.variables.items():
                text = text.replace(colour, f"var({variable})")
        return text.strip()

    def _opening_tag(self, match: re.Match[str]) -> str:
        _, _, width, height = (float(value) for value in match[1].split())
        return (
            f'<svg viewBox="{match[1]}" role="img" aria-label="{escape(self.title)}" '
            f'style="--wide:{width * 4 / 3:.0f}px;aspect-ratio:{width:.0f}/{height:.0f}">'
        )


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; draw on it inside `drawing_style`.

    Args:
        width: the width in inches.
        height: the height in inches.
    """
    figure: Figure = require_extra("matplotlib.figure", "plots").Figure(figsize=(width, height))
    return figure


def drawing_style(changes: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and saved; nothing changes outside it.

    Args:
        changes: settings of matplotlib that replace those of `STYLE`.
    """
    context: AbstractContextManager[None]
    context = require_extra(*EXTRA).rc_context({**STYLE, **(changes or {})})
    return context


def save_picture(figure: Figure, name: str, title: str, *, on_white: bool = False) -> Picture:
    """Render a figure; equal figures give equal bytes.

    Args:
        figure: the drawn figure.
        name: the stem of its files.
        title: a description for readers who cannot see it.
        on_white: whether it needs a white ground; else the ground is transparent.
    """
    svg, png = io.BytesIO(), io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with drawing_style():
        figure.savefig(svg, format="svg", metadata=nothing, transparent=not on_white)
        figure.savefig(png, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return Picture(name, title, svg.getvalue().decode(), png.getvalue(), on_white)


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


def label_ends(axes: Axes, ends: Sequence[CurveEnd], right: float, size: float = 9.0) -> None:
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
    elbow, stop = right + 6 * one_point, right + 18 * one_point
    colour = end.look.light
    axes.plot(
        [right, elbow, stop],
        [end.y, place, place],
        color=colour,
        linewidth=0.9,
        linestyle=end.line_style,
        clip_on=False,
        solid_capstyle="round",
        zorder=1,
    )
    if end.x < right:  # an unfinished run: a fainter line, so that it does not look like its curve
        faint: dict[str, Any] = {"linewidth": 0.6, "alpha": 0.3, "zorder": 1}
        axes.plot([end.x, right], [end.y, end.y], color=colour, **faint)
    symbol: dict[str, Any] = {"marker": end.look.marker, "markersize": 4.2, "linestyle": "none"}
    axes.plot([stop], [place], color=colour, clip_on=False, **symbol)
    beside: dict[str, Any] = {"fontsize": size, "va": "center", "ha": "left", "clip_on": False}
    axes.text(stop + 5 * one_point, place, end.text, color=INK, **beside)


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
