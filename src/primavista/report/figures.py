"""Everything that all figures share: sizes, style, colours and files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primavista.errors import CHOOSE_FOLDER, InputError, file_errors, require_extra
from primavista.storage.disk import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
# How the files of each kind are saved: without a date, so that the same figure gives the same file.
FILES: Mapping[str, Mapping[str, Any]] = {
    ".pdf": {
        "metadata": dict.fromkeys(("Creator", "Producer", "CreationDate")),
        "transparent": True,
    },
    ".svg": {
        "metadata": dict.fromkeys(("Creator", "Date", "Format", "Type")),
        "transparent": True,
    },
    ".png": {"metadata": {"Software": None}, "dpi": 300, "facecolor": "white"},
}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure at its printed size, as SVG, PNG and PDF; notebooks show it as it is.

    Args:
        name: The stem of its files.
        title: A description for readers who cannot see it.
        figure: The drawn matplotlib figure; what is changed before the first rendering is kept.
    """

    name: str
    title: str
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, with text as text, on a transparent ground."""
        return self.content(".svg").decode()

    @property
    def width(self) -> float:
        """The width in inches."""
        return float(self.figure.get_figwidth())

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
        suffix = path.suffix.lower()
        if suffix not in FILES:
            raise InputError(f"cannot write {path.name}: choose one of {', '.join(FILES)}")
        content = self.content(suffix)
        with file_errors("write", f"the figure {path}", CHOOSE_FOLDER), replacing(path) as part:
            part.write_bytes(content)
        return path

    def content(self, suffix: str) -> bytes:
        """Return the content of a file of the figure, by its suffix."""
        out = io.BytesIO()
        with drawing_style():
            if self.figure.get_layout_engine() is not None:
                self.figure.draw_without_rendering()
                self.figure.set_layout_engine("none")  # so that all kinds of files are the same
            self.figure.savefig(out, format=suffix.removeprefix("."), **FILES[suffix])
        return out.getvalue()

    def _repr_png_(self) -> bytes:
        return self.content(".png")


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


def drawing_style(grid: bool = True) -> AbstractContextManager[None]:
    """Return the context in which figures are drawn and saved."""
    context: AbstractContextManager[None]
    own = Path(__file__).with_name("figures.mplstyle")
    context = require_extra("matplotlib.style", "plots").context([own, {"axes.grid": grid}])
    return context
