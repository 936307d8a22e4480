"""CSV files for spreadsheets: written whole, and with nothing in them that is run as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, file_errors
from primavista.storage.disk import write_atomically

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


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as CSV, in UTF-8, whole or not at all.

    None is an empty cell, truth values are `true` and `false`, numbers have at most four decimals.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([safe_cell(cell) for cell in row] for row in rows)
    with file_errors("write", path, CHOOSE_FOLDER):
        write_atomically(path.expanduser(), text.getvalue().encode("utf-8", "replace"))


def safe_cell(value: object) -> str:
    """Return the text of a cell; one that would be a formula gets an apostrophe.

    >>> safe_cell("mug"), safe_cell("=1+1"), safe_cell(-0.25), safe_cell(True), safe_cell(None)
    ('mug', "'=1+1", '-0.25', 'true', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, int):
        return str(value)
    return safe_text(str(value))
