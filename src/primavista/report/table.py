"""A table, written once and shown as HTML (by the page), CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, log10
from typing import Literal

from primavista.errors import require_extra
from primavista.report.series import MeanStd

Tone = Literal["good", "bad", "open"]
SIGNS = {"good": "✓", "bad": "✗", "open": "?"}  # colour alone must not carry a verdict
ONE_LINE = 24  # texts up to this length are not wrapped
LONG_TEXT = 40  # letters; columns with longer texts are paragraphs in LaTeX
COLUMNS_OF_A_COLUMN = 4  # LaTeX tables with more span the page


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


@dataclass(frozen=True)
class Size:
    """A size that is shown with two significant digits at least, so that little is not nothing.

    Args:
        value: The size, in the unit of the column.
    """

    value: float


Value = str | int | float | MeanStd | Verdict | Difference | Size | None
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

    def with_bold(self, places: Collection[tuple[int, int]]) -> Table:
        """Return the table with some values in bold."""
        return replace(self, bold=frozenset(places))

    def is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers only, apart from empty places."""
        values = [row[column] for row in self.rows if row[column] is not None]
        numbers = int | float | MeanStd | Difference | Size
        return bool(values) and all(isinstance(value, numbers) for value in values)

    def numeric_columns(self) -> list[bool]:
        """Return, for each column, whether it holds numbers only."""
        return [self.is_numeric(column) for column in range(len(self.columns))]

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

    def blocks(self) -> list[list[int]]:
        """Return the successive rows that share their first value."""
        rows = range(len(self.rows))
        return [list(own) for _, own in groupby(rows, key=lambda row: self.rows[row][0])]


def without_empty(
    columns: Sequence[str], rows: Sequence[Row], first: int
) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Leave out columns in which no row has a value.

    The first columns, as many as `first` says, always stay.
    """
    kept = [i for i in range(len(columns)) if i < first or any(row[i] is not None for row in rows)]
    return tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)


def format_value(value: Value, digits: int = 2) -> str:
    """Return a value as readers see it.

    >>> format_value(MeanStd(56.321, 1.0, 10)), format_value(1234), format_value(None)
    ('56.32 ± 1.00', '1,234', '–')
    >>> format_value(Difference(-0.5), 1), format_value(Size(0.0312), 1)
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
        case Size():
            needed = 1 - floor(log10(value.value)) if value.value > 0 else 0
            return _decimal(value.value, max(digits, needed))
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return _decimal(value, digits)


def _decimal(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "−")


def to_csv(table: Table) -> str:
    """Return the table as CSV with all digits; a mean takes three columns: mean, std and runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = range(len(table.columns))
    has_means = [any(isinstance(row[i], MeanStd) for row in table.rows) for i in columns]
    head: list[str] = []
    for title, has_mean in zip(table.columns, has_means, strict=True):
        head += [title, f"{title}, std", f"{title}, runs"] if has_mean else [title]
    writer.writerow(head)
    for row in table.rows:
        line: list[CsvValue] = []
        for value, has_mean in zip(row, has_means, strict=True):
            line += _csv_values(value, has_mean)
        writer.writerow(line)
    return out.getvalue()


def _csv_values(value: Value, has_mean: bool) -> list[CsvValue]:
    match value:
        case MeanStd():
            return [value.mean, value.std, value.runs]
        case Verdict():
            single: CsvValue = value.text
        case Difference() | Size():
            single = value.value
        case _:
            single = value
    return [single, None, None] if has_mean else [single]


def to_markdown(table: Table) -> str:
    """Return the table as Markdown, for a page of documentation; notes are paragraphs below it."""
    rule = ["---:" if is_number else "---" for is_number in table.numeric_columns()]
    lines = [_markdown_row(map(escape_markdown, table.columns)), _markdown_row(rule)]
    for place in range(len(table.rows)):
        columns = range(len(table.columns))
        lines.append(_markdown_row(_markdown_text(table, place, column) for column in columns))
    lines += [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _markdown_text(table: Table, row: int, column: int) -> str:
    text = escape_markdown(table.text(row, column))
    return f"**{text}**" if (row, column) in table.bold else text


def _markdown_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def escape_markdown(text: str) -> str:
    """Return any text in a form that Markdown shows as it is.

    >>> print(escape_markdown("AR1* | <b>"))
    AR1\\* \\| &lt;b>
    """
    safe = re.sub(r"([\\`*_|\[\]~])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
    return " ".join(safe.split())


def to_latex(table: Table) -> str:
    """Return a `table` with booktabs rules; it needs pandas and `\\usepackage{booktabs}`.

    Values that are the same in all rows move into the note below it.

    Raises:
        MissingExtraError: If pandas is not installed.
    """
    pandas = require_extra("pandas", "pandas")
    kept, facts = _varying_columns(table)
    texts = [[_latex_text(table, row, column) for column in kept] for row in range(len(table.rows))]
    for _, *repeated in table.blocks() if kept[0] == 0 else ():
        for row in repeated:
            texts[row][0] = ""
    titles = [escape_latex(table.columns[column]) for column in kept]
    frame = pandas.DataFrame(texts, columns=titles)
    alignment = "".join(_latex_alignment(table, column) for column in kept)
    tabular = frame.style.hide(axis="index").to_latex(hrules=True, column_format=alignment)
    environment = "table" if len(kept) <= COLUMNS_OF_A_COLUMN else "table*"
    notes = escape_latex(" ".join([*facts, *table.notes]))
    return "\n".join(
        [
            rf"\begin{{{environment}}}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape_latex(table.caption or table.title + '.')}}}",
            rf"\label{{tab:{table.name}}}",
            tabular.strip(),
            *([rf"\par\smallskip\parbox{{\linewidth}}{{{notes}}}"] if notes else []),
            rf"\end{{{environment}}}",
            "",
        ]
    )


def _varying_columns(table: Table) -> tuple[list[int], list[str]]:
    """Return the columns whose texts or counts differ, and sentences with the others' values."""
    kept, facts = [], []
    for column, title in enumerate(table.columns):
        values = {row[column] for row in table.rows}
        is_constant = len(table.rows) > 1 and len(values) == 1
        if is_constant and isinstance(table.rows[0][column], str | int):
            facts.append(f"{title[:1].upper()}{title[1:]}: {table.text(0, column)}.")
        else:
            kept.append(column)
    return kept or [0], facts


def _latex_text(table: Table, row: int, column: int) -> str:
    value = table.rows[row][column]
    text = escape_latex(value.text if isinstance(value, Verdict) else table.text(row, column))
    if (row, column) in table.bold:
        return rf"\textbf{{{text}}}"
    return f"{{}}{text}" if text.startswith("*") else text  # a star after \\ would be its option


def _latex_alignment(table: Table, column: int) -> str:
    if table.is_numeric(column):
        return "r"
    longest = max((len(table.text(row, column)) for row in range(len(table.rows))), default=0)
    return r"p{0.3\linewidth}" if longest > LONG_TEXT else "l"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "×": r"$\times$",
    "→": r"$\to$",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "’": "'",
    "[": "{[}",
    "]": "{]}",
    "\n": " ",
    "\r": " ",
}


def escape_latex(text: str) -> str:
    """Return any text in a form that is safe in LaTeX.

    Letters of other scripts stay as they are; they need XeLaTeX or LuaLaTeX.

    >>> print(escape_latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)
