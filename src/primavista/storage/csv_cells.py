"""Cells of CSV files that no spreadsheet runs as a formula."""

from __future__ import annotations

# A spreadsheet takes a text that begins with one of these for a formula; the last four are the
# full-width forms of the first four.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def safe_text(text: str) -> str:
    """Put an apostrophe before a text that would be a formula.

    The names of objects, files and data sets come from others; a spreadsheet would run
    `=HYPERLINK(...)`.

    >>> safe_text("mug"), safe_text("=1+1")
    ('mug', "'=1+1")
    """
    return f"'{text}" if text.startswith(FORMULA) else text
