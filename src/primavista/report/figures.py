"""Everything that all figures share: sizes, style, colours and files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primavista.errors import CHOOSE_FOLDER, InputError, file_errors, require_extra
from primavista.report.titles import FREEZING
from primavista.storage.disk import replacing
from primavista.strategies.registry import look_of, strategy_info

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1f2329", "#5b636d", "#dfe3e8"
# Inches: a column and the page of a two-column paper. They fit the narrowest of the common ones,
# LaTeX's `article` on A4 paper: 221 and 452 points. All sizes are those of the printed figure.
WIDTHS = {"column": 3.05, "page": 6.25}
NARROWEST, WIDEST = 2.0, 30.0  # inches
SMALL = 7.0  # points: the smallest type, as in `figures.mplstyle`
MARKER = 3.0  # points
LineStyle = str | tuple[int, tuple[float, ...]]
LINE_STYLES: tuple[LineStyle, ...] = (
    "-",
    (0, (5, 2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (2, 1.2)),
)
DPI = 300
SUFFIXES = (".pdf", ".svg", ".png")
_HEX = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True)
class Palette:
    """The colours that figures may contain, as CSS variables that follow the page's theme.

    Colours that are not written as `#rrggbb` stay the same in both themes.

    Args:
        themed: The colour on a dark page for each colour on white paper.
    """

    themed: Mapping[str, str]

    @property
    def variables(self) -> dict[str, str]:
        """The CSS variable for each colour of a figure."""
        looks = {light: f"--c{light[1:]}" for light in self.themed}
        return {INK: "--ink", FAINT: "--faint", GRID: "--grid"} | looks

    def css(self) -> str:
        """Return the style rules that define the variables for both themes."""
        light = "".join(f"--c{one[1:]}:{one};" for one in self.themed)
        dark = "".join(f"--c{one[1:]}:{other};" for one, other in self.themed.items())
        return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def palette_of(strategies: Iterable[str]) -> Palette:
    """Return the palette of figures that draw some strategies or the freezing schemes."""
    looks = [look_of(strategy_info(name)) for name in dict.fromkeys(strategies)]
    themed: dict[str, str] = {}
    for look in (*looks, *(scheme.look for scheme in FREEZING.values())):
        light, dark = look.light.lower(), look.dark.lower()
        if _HEX.fullmatch(light) and _HEX.fullmatch(dark):
            themed.setdefault(light, dark)
    return Palette(themed)


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure at its printed size, as SVG, PNG and PDF; notebooks show it as it is.

    Args:
        name: The stem of its files.
        title: A description for readers who cannot see it.
        figure: The drawn matplotlib figure; what is changed before the first rendering is kept.
        on_white: True if the page must show it on a white ground.
    """

    name: str
    title: str
    figure: Figure
    on_white: bool = False

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, with text as text; transparent unless it needs a white ground."""
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        content = self._rendered("svg", metadata=nothing, transparent=not self.on_white)
        return content.decode()

    @property
    def width(self) -> float:
        """The width in inches."""
        return float(self.figure.get_figwidth())

    def _rendered(self, kind: str, **settings: Any) -> bytes:
        out = io.BytesIO()
        with drawing_style():
            if self.figure.get_layout_engine() is not None:
                self.figure.draw_without_rendering()
                self.figure.set_layout_engine("none")  # so that all kinds of files are the same
            self.figure.savefig(out, format=kind, **settings)
        return out.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the figure to a file.

        Args:
            path: The file; its suffix, `.pdf`, `.svg` or `.png`, says how.

        Returns:
            The path of the file.

        Raises:
            InputError: If the suffix is another one.
            FileError: If the file cannot be written.
        """
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise InputError(f"cannot write {path.name}: choose one of {', '.join(SUFFIXES)}")
        content = self.content(path.suffix)
        with file_errors("write", f"the figure {path}", CHOOSE_FOLDER), replacing(path) as part:
            part.write_bytes(content)
        return path

    def content(self, suffix: str) -> bytes:
        """Return the content of a file of the figure, by its suffix."""
        if suffix == ".svg":
            return self.svg.encode()
        if suffix == ".pdf":
            nothing = dict.fromkeys(("Creator", "Producer", "CreationDate"))
            return self._rendered("pdf", metadata=nothing, transparent=True)
        nothing = {"Software": None}
        return self._rendered("png", dpi=DPI, facecolor="white", metadata=nothing)

    def _repr_png_(self) -> bytes:
        return self.content(".png")

    def inline(self, palette: Palette) -> str:
        """Return the SVG for the page.

        Its colours and its size follow the page, and its identifiers begin with its name, so that
        no two figures share one.
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


def printed_width(width: str | float) -> float:
    """Return the width of a figure in inches, from `column`, `page`, or a number of inches."""
    inches = WIDTHS.get(width) if isinstance(width, str) else float(width)
    if inches is None or not NARROWEST <= inches <= WIDEST:
        raise InputError(
            f"width {width!r}: choose 'column', 'page', or {NARROWEST:g} to {WIDEST:g} inches"
        )
    return inches


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; draw on it inside `drawing_style`."""
    make = require_extra("matplotlib.figure", "plots").Figure
    figure: Figure = make(figsize=(width, height), layout="constrained")
    return figure


@cache
def _style() -> dict[str, Any]:
    """Return the style of all figures, without the settings that it leaves to matplotlib."""
    matplotlib = require_extra("matplotlib", "plots")
    path = Path(__file__).with_name("figures.mplstyle")
    return dict(matplotlib.rc_params_from_file(path, use_default_template=False))


def drawing_style(grid: bool = True) -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and saved."""
    context: AbstractContextManager[None]
    settings = _style() | {"axes.grid": grid}
    context = require_extra("matplotlib", "plots").rc_context(settings)
    return context
