"""A table, written once and shown as HTML, Markdown and LaTeX by Jinja templates, and as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, log10
from typing import Literal, SupportsFloat

from primavista.report.series import MeanStd
from primavista.report.texts import templates
from primavista.storage.csv_file import safe_text

Tone = Literal["good", "bad", "open"]
SIGNS = {"good": "✓", "bad": "✗", "open": "?"}  # colour alone must not carry a verdict
ONE_LINE = 24  # texts up to this length are not wrapped
LONG_TEXT = 40  # letters; columns with longer texts are paragraphs in LaTeX


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Args:
        text: A few words.
        tone: One of `good`, `bad` and `open`; it sets the colour and the sign.
    """

    text: str
    tone: Tone


@dataclass(frozen=True)
class Difference:
    """A number that is always shown with its sign.

    Args:
        value: The difference.
    """

    value: float

    def __float__(self) -> float:
        return self.value


Value = str | int | float | MeanStd | Verdict | Difference | None
CsvValue = str | int | float | None
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """Rows of values under columns.

    Args:
        name: The stem of its files.
        title: The heading.
        columns: The titles of the columns.
        rows: As many values per row as there are columns.
        notes: Remarks below the table.
        digits: Digits after the decimal point of every float.
        caption: The caption in a document, in sentences; the title if it is empty.
        bold: The places, row and column, of the values that are printed in bold.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    digits: int = 2
    caption: str = ""
    bold: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), (self.name, row)

    def without_empty_columns(self, first: int) -> Table:
        """Return the table without columns in which no row has a value.

        The first columns, as many as `first` says, always stay.
        """
        kept = [
            column
            for column in range(len(self.columns))
            if column < first or any(row[column] is not None for row in self.rows)
        ]
        columns = tuple(self.columns[column] for column in kept)
        rows = tuple(tuple(row[column] for column in kept) for row in self.rows)
        return replace(self, columns=columns, rows=rows)

    def is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers only, apart from empty places."""
        values = [row[column] for row in self.rows if row[column] is not None]
        return bool(values) and all(isinstance(value, SupportsFloat) for value in values)

    def text(self, row: int, column: int) -> str:
        """Return a value as readers see it."""
        return format_value(self.rows[row][column], self.digits)

    def kinds(self, row: int, column: int) -> list[str]:
        """Return the classes of a value on the page: a number, a short text, a verdict, lines."""
        value = self.rows[row][column]
        found = ["n"] if self.is_numeric(column) else []
        if isinstance(value, str) and len(value) <= ONE_LINE:
            found.append("k")
        if isinstance(value, Verdict):
            found.append(value.tone)
        if isinstance(value, str) and "\n" in value:
            found.append("lines")
        return found

    def shared_values(self) -> dict[int, str]:
        """Return the columns whose texts or counts are the same in all rows, with their text."""
        found = {}
        for column in range(len(self.columns)) if len(self.rows) > 1 else ():
            values = {row[column] for row in self.rows}
            if len(values) == 1 and isinstance(self.rows[0][column], str | int):
                found[column] = self.text(0, column)
        return found if len(found) < len(self.columns) else {}

    def alignment(self, column: int) -> str:
        """Return the letter of a column in LaTeX; long texts are paragraphs."""
        if self.is_numeric(column):
            return "r"
        longest = max((len(self.text(row, column)) for row in range(len(self.rows))), default=0)
        return r"p{0.3\linewidth}" if longest > LONG_TEXT else "l"

    def blocks(self) -> list[list[int]]:
        """Return the successive rows that share their first value."""
        rows = range(len(self.rows))
        return [list(own) for _, own in groupby(rows, key=lambda row: self.rows[row][0])]


def format_value(value: Value, digits: int = 2) -> str:
    """Return a value as readers see it; a small number has two significant digits at least.

    >>> format_value(MeanStd(56.321, 1.0, 10)), format_value(1234), format_value(None)
    ('56.32 ± 1.00', '1,234', '–')
    >>> format_value(Difference(-0.5), 1), format_value(0.0312, 1)
    ('−0.5', '0.031')
    """
    match value:
        case None:
            return "–"
        case Verdict():
            return f"{SIGNS[value.tone]} {value.text}"
        case MeanStd():
            mean = _decimal(value.mean, digits)
            return mean if value.std is None else f"{mean} ± {value.std:,.{digits}f}"
        case Difference():
            rounded = round(value.value, digits) or 0.0  # not -0.0
            return f"{rounded:+,.{digits}f}".replace("-", "−")
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            needed = 1 - floor(log10(abs(value))) if value else 0
            return _decimal(value, max(digits, needed))


def _decimal(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "−")


def to_csv(table: Table) -> str:
    """Return the table as CSV with all digits; a mean takes three columns: mean, std and runs.

    No text is run as a formula: names and messages of a folder of results come from others.
    """
    head: list[str] = []
    lines: list[list[CsvValue]] = [[] for _ in table.rows]
    for column, title in enumerate(table.columns):
        values = [row[column] for row in table.rows]
        has_means = any(isinstance(value, MeanStd) for value in values)
        head += [title, f"{title}, std", f"{title}, runs"] if has_means else [title]
        for line, value in zip(lines, values, strict=True):
            line += _csv_values(value)[: 3 if has_means else 1]
    out = io.StringIO()
    rows = [[safe_text(x) if isinstance(x, str) else x for x in line] for line in lines]
    csv.writer(out, lineterminator="\n").writerows([[*map(safe_text, head)], *rows])
    return out.getvalue()


def _csv_values(value: Value) -> list[CsvValue]:
    """Return a value, its deviation and its runs."""
    match value:
        case MeanStd():
            return [value.mean, value.std, value.runs]
        case Verdict():
            return [value.text, None, None]
        case Difference():
            return [float(value), None, None]
    return [value, None, None]


def to_markdown(table: Table) -> str:
    """Return the table as Markdown, for a page of documentation; notes are paragraphs below it."""
    return str(templates().get_template("table.md.jinja").render(table=table))


def to_latex(table: Table) -> str:
    """Return a `table` for documents with `\\usepackage{booktabs,graphicx}`, at most a page wide.

    Values that are the same in all rows move into the note below it.
    """
    return f"{templates().get_template('table.tex.jinja').render(table=table)}\n"
