"""What all figures share: their style, the labels at the ends of curves, and the way to a file and into the page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primavista.errors import require_extra
from primavista.report.names import FAINT, FREEZING, GRID, INK, LOOKS, OTHERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXTRA = ("matplotlib", "plots")
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


@dataclass(frozen=True)
class Picture:
    """A drawn figure: `svg` and `png` for files, `title` for those who cannot see it; `paper`: it needs a white ground."""

    name: str
    title: str
    svg: str
    png: bytes
    paper: bool = False

    @property
    def inline(self) -> str:
        """The SVG for the page: its colours follow the page's, its ids are its own, its size is the page's."""
        text = re.sub(r"^.*?(?=<svg)", "", self.svg, flags=re.DOTALL)
        text = re.sub(
            r"<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", self._opening, text, count=1, flags=re.DOTALL
        )
        text = re.sub(r"\bxlink:href=", "href=", text)
        text = re.sub(r'\bid="', f'id="{self.name}-', text)
        text = re.sub(r'href="#', f'href="#{self.name}-', text)
        text = re.sub(r"url\(#", f"url(#{self.name}-", text)
        if not self.paper:
            for colour, variable in VARIABLES.items():
                text = text.replace(colour, f"var({variable})")
        return text.strip()

    def _opening(self, match: re.Match[str]) -> str:
        _, _, width, height = (float(value) for value in match[1].split())
        label = self.title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return (
            f'<svg viewBox="{match[1]}" role="img" aria-label="{label}" '
            f'style="--wide:{width * 4 / 3:.0f}px;aspect-ratio:{width:.0f}/{height:.0f}">'
        )


def _variables() -> dict[str, str]:
    looks = {**LOOKS, **{f"other-{place}": other for place, other in enumerate(OTHERS)}, **FREEZING}
    found = {INK: "--ink", FAINT: "--faint", GRID: "--grid"}
    for one in looks.values():
        found.setdefault(one.light, f"--c{one.light[1:]}")
    return found


VARIABLES = _variables()


def colour_variables(dark: bool) -> str:
    """The CSS variables of the strategies' colours."""
    looks = [*LOOKS.values(), *OTHERS, *FREEZING.values()]
    return "".join(f"{VARIABLES[one.light]}:{one.dark if dark else one.light};" for one in looks)


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches, in our style where drawn and saved inside `style()`."""
    figure: Figure = require_extra("matplotlib.figure", "plots").Figure(figsize=(width, height))
    return figure


def style(changes: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """The context in which figures are drawn and saved; nothing outside it changes."""
    context: AbstractContextManager[None] = require_extra(*EXTRA).rc_context(
        {**STYLE, **(changes or {})}
    )
    return context


def picture(figure: Figure, name: str, title: str, *, paper: bool = False) -> Picture:
    """Render a figure; equal figures give equal bytes."""
    svg, png = io.BytesIO(), io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with style():
        figure.savefig(svg, format="svg", metadata=nothing, transparent=not paper)
        figure.savefig(png, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return Picture(name, title, svg.getvalue().decode(), png.getvalue(), paper)


def data_uri(content: bytes, kind: str) -> str:
    """A file inside a link."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@dataclass(frozen=True)
class End:
    """Where a curve ends, and what to write there."""

    x: float
    y: float
    text: str
    colour: str
    marker: str
    dashes: Any = "-"


def label_ends(axes: Axes, ends: Sequence[End], right: float, size: float = 9.0) -> None:
    """Write each curve's name beside its end, moved apart so that no two overlap, with a line from the curve to its name."""
    if not ends:
        return
    low, high = axes.get_ylim()
    left, last = axes.get_xlim()
    figure = axes.get_figure(root=True)
    assert figure is not None
    inches = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    points = inches.height * 72
    unit = (last - left) / (inches.width * 72)  # one point, in batches
    places = apart([end.y for end in ends], 1.25 * size / points * (high - low), low, high)
    for end, place in zip(ends, places, strict=True):
        elbow, stop = right + 6 * unit, right + 18 * unit
        axes.plot(
            [right, elbow, stop],
            [end.y, place, place],
            color=end.colour,
            linewidth=0.9,
            linestyle=end.dashes,
            clip_on=False,
            solid_capstyle="round",
            zorder=1,
        )
        if end.x < right:  # a run that is not at its end: plainly no part of its curve
            axes.plot(
                [end.x, right], [end.y, end.y], color=end.colour, linewidth=0.6, alpha=0.3, zorder=1
            )
        axes.plot(
            [stop],
            [place],
            marker=end.marker,
            markersize=4.2,
            color=end.colour,
            clip_on=False,
            linestyle="none",
        )
        axes.text(
            stop + 5 * unit,
            place,
            end.text,
            fontsize=size,
            va="center",
            ha="left",
            color=INK,
            clip_on=False,
        )
    axes.set_xlim(left, last)
    axes.set_ylim(low, high)


def apart(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The values moved as little as their order allows, so that any two differ by `gap`, within [low, high] if there is room.

    Of equal ones the first comes out highest.

    >>> apart([5.0, 5.0, 9.0], 2.0, 0.0, 10.0)
    [6.0, 4.0, 9.0]
    """
    order = sorted(range(len(values)), key=lambda i: (values[i], -i))
    blocks: list[list[float]] = []  # [sum of wished places of the block's first member, members]
    for i in order:
        blocks.append([values[i], 1])
        while len(blocks) > 1 and _start(blocks[-2], gap, low, high) + blocks[-2][1] * gap > _start(
            blocks[-1], gap, low, high
        ):
            total, count = blocks.pop()
            blocks[-1][0] += total - count * blocks[-1][1] * gap
            blocks[-1][1] += count
    places = [0.0] * len(values)
    position = iter(order)
    for block in blocks:
        start = _start(block, gap, low, high)
        for member in range(int(block[1])):
            places[next(position)] = start + member * gap
    return places


def _start(block: Sequence[float], gap: float, low: float, high: float) -> float:
    wish = block[0] / block[1]
    return max(low, min(wish, high - (block[1] - 1) * gap))
