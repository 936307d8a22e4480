"""Small copies of matplotlib's own fonts, from which PDFs are written many times faster.

A PDF has the letters of its fonts that it uses. Cutting them out of DejaVu Sans takes most of the
time of a figure, since that font has six thousand letters and the rules of many scripts. So the
letters of Latin and Greek and common signs are cut out once per process, and each figure takes its
own from the copy: the same outlines, widths and kerning.
"""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from primavista.errors import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILY = "primavista PDF Sans"
WHOLE = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")
BLOCKS = (
    range(0x20, 0x7F),  # ASCII
    range(0xA0, 0x180),  # the other letters of Latin scripts
    range(0x391, 0x3CA),  # Greek
    range(0x2010, 0x2040),  # dashes, quotation marks, dots
    range(0x2190, 0x2194),  # arrows
    (0x2212, 0x221A, 0x221E, 0x2248, 0x2260, 0x2264, 0x2265),  # minus, root, comparisons
)
LETTERS = frozenset(chr(code) for block in BLOCKS for code in block)


def small_fonts(figure: Figure) -> dict[str, Any]:
    """Return the settings of matplotlib that let a figure be written with the small fonts.

    Args:
        figure: a figure.

    Returns:
        The settings; none if the figure has other letters, or if the user chose other fonts.
    """
    fonts = require_extra("matplotlib.font_manager", "plots")
    usual = Path(fonts.findfont(fonts.FontProperties(family=["sans-serif"])))
    if usual.name != WHOLE[0] or not _letters_of(figure) <= LETTERS:
        return {}
    families = require_extra("matplotlib", "plots").rcParams["font.sans-serif"]
    return {"font.sans-serif": [_register(usual.parent), *families]}


def _letters_of(figure: Figure) -> set[str]:
    text = require_extra("matplotlib.text", "plots").Text
    return {letter for one in figure.findobj(text) for letter in one.get_text()} - {"\n"}


@cache
def _register(folder: Path) -> str:
    """Make the small fonts known to matplotlib, once per process, and return their family."""
    fonts = require_extra("matplotlib.font_manager", "plots")
    place = Path(mkdtemp(prefix="primavista-fonts-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name in WHOLE:
        _cut(folder / name, place / name)
        fonts.fontManager.addfont(place / name)
    return FAMILY


def _cut(whole: Path, small: Path) -> None:
    """Write a font with `LETTERS` alone, and the name of the family changed."""
    subset = require_extra("fontTools.subset", "plots")
    options = subset.Options(glyph_names=True, recommended_glyphs=True)
    options.drop_tables += ["FFTM"]  # times of the font's editor
    with subset.load_font(str(whole), options) as font:
        cutter = subset.Subsetter(options=options)
        cutter.populate(text="".join(sorted(LETTERS)))
        cutter.subset(font)
        for record in font["name"].names:
            if record.nameID == 1:  # the family; the name that a PDF shows is another one
                record.string = FAMILY
        font.save(str(small))
