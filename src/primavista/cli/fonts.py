"""A font that has the letters of a name: Pillow's own has Latin ones only."""

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
FIRST = ("DejaVuSans.", "NotoSans-", "NotoSansCJK-", "NotoSans")  # made to hold many letters
FANCY = re.compile("bold|italic|oblique|mono|thin|light|black|condensed|serif", re.IGNORECASE)
TRIED = 400  # fonts looked into for one name
NOTHING = "\uffff"  # no letter: every font shows the box of one that it lacks


def font_for(name: str, size: int) -> tuple[Font, str]:
    """A font in which `name` can be read, and the name; letters that no font here has are written as their numbers.

    >>> font_for("mug", 12)[1]
    'mug'
    """
    plain = ImageFont.load_default(size)
    if not (lacking := missing(plain, name)):
        return plain, name
    if path := _found(name):
        return ImageFont.truetype(path, size), name
    escaped = (
        letter.encode("ascii", "backslashreplace").decode() if letter in lacking else letter
        for letter in name
    )
    return plain, "".join(escaped)


def missing(font: Font, name: str) -> set[str]:
    """The letters that a font shows as its empty box, or as nothing."""
    box = _drawn(font, NOTHING)
    return {
        letter
        for letter in set(name)
        if not letter.isspace() and _drawn(font, letter) in (box, b"")
    }


@cache
def _found(name: str) -> str | None:
    """The first font of this machine that has them all."""
    for path in _listed()[:TRIED]:
        try:
            if not missing(ImageFont.truetype(path, 24), name):
                return path
        except (OSError, ValueError):
            continue  # no font that can be scaled, or a damaged one
    return None


@cache
def _listed() -> tuple[str, ...]:
    found = [
        Path(folder, file)
        for root in FOLDERS
        for folder, _, files in os.walk(os.path.expanduser(root))
        for file in files
        if file.lower().endswith((".ttf", ".otf", ".ttc"))
    ]
    return tuple(map(str, sorted(found, key=_rank)))


def _rank(path: Path) -> tuple[int, bool, str]:
    first = next((k for k, start in enumerate(FIRST) if path.name.startswith(start)), len(FIRST))
    return first, bool(FANCY.search(path.name)), path.name


def _drawn(font: Font, letter: str) -> bytes:
    return bytes(font.getmask(letter))
