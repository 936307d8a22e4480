"""The choice of a font that has the letters of a name; Pillow's own font has only Latin ones."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
FOLDERS = (
    "~/.fonts",
    "~/.local/share/fonts",
    "/usr/local/share/fonts",
    "/usr/share/fonts",
    "~/Library/Fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
    "C:/Windows/Fonts",
)
PREFERRED = ("DejaVuSans.", "NotoSans-", "NotoSansCJK-", "NotoSans")  # they have many scripts
STYLED = re.compile("bold|italic|oblique|mono|thin|light|black|condensed|serif", re.IGNORECASE)
MAX_FONTS = 400  # that are searched for the letters of one name
NOT_A_LETTER = "\uffff"  # every font draws its box for missing letters instead


def font_for(name: str, size: int) -> tuple[Font, str]:
    """Find a font in which a name can be read.

    >>> font_for("mug", 12)[1]
    'mug'

    Args:
        name: The name to draw.
        size: The size of the font in pixels.

    Returns:
        The font, and the name as it should be drawn. If no font on this machine has all letters,
        the missing ones are written as escape sequences such as `\\u676f`.
    """
    default = ImageFont.load_default(size)
    missing = missing_letters(default, name)
    if not missing:
        return default, name
    path = _find_font(name)
    if path is not None:
        return ImageFont.truetype(path, size), name
    drawn = [_escaped(letter) if letter in missing else letter for letter in name]
    return default, "".join(drawn)


def missing_letters(font: Font, name: str) -> set[str]:
    """Return the letters of a name that a font does not have.

    Args:
        font: The font.
        name: The name.

    Returns:
        The letters that the font draws as its box for missing letters, or not at all.
    """
    letters = {letter for letter in name if not letter.isspace()}
    blank = (_bitmap(font, NOT_A_LETTER), b"")
    return {letter for letter in letters if _bitmap(font, letter) in blank}


@cache
def _find_font(name: str) -> str | None:
    """Return the first installed font that has all letters of a name."""
    for path in _installed_fonts()[:MAX_FONTS]:
        try:
            if not missing_letters(ImageFont.truetype(path, 24), name):
                return path
        except (OSError, ValueError):
            continue  # not a scalable font, or a damaged one
    return None


@cache
def _installed_fonts() -> tuple[str, ...]:
    """Return the font files of this machine, the most useful ones first."""
    found = [
        Path(folder, file)
        for root in FOLDERS
        for folder, _, files in os.walk(os.path.expanduser(root))
        for file in files
        if file.lower().endswith((".ttf", ".otf", ".ttc"))
    ]
    return tuple(str(path) for path in sorted(found, key=_rank))


def _rank(path: Path) -> tuple[int, bool, str]:
    matches = (k for k, start in enumerate(PREFERRED) if path.name.startswith(start))
    return next(matches, len(PREFERRED)), bool(STYLED.search(path.name)), path.name


def _bitmap(font: Font, letter: str) -> bytes:
    return bytes(font.getmask(letter))


def _escaped(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode()
