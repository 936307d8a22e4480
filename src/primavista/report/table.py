"""A table, written once and rendered as HTML, CSV and Markdown; `latex` has the fourth form."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import groupby
from math import ceil, floor, log10
from typing import Any, Literal

from primavista.report.series import MeanStd

Tone = Literal["good", "bad", "open"]
SIGNS = {"good": "✓", "bad": "✗", "open": "?"}  # colour alone must not carry a verdict
ONE_LINE = 24  # texts up to this length are not wrapped
# For the least width of a table on the page: a letter, the padding of a column, the widest class.
LETTER_REM, PADDING_REM, WIDEST_REM = 0.46, 1.2, 140


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Args:
        text: a few words.
        tone: `good`, `bad` or `open`; it sets the colour and the sign.
    """

    text: str
    tone: Tone


@dataclass(frozen=True)
class Difference:
    """A number that is always shown with its sign.

    Args:
        value: the difference.
    """

    value: float


@dataclass(frozen=True)
class Size:
    """A size that is shown with two significant digits at least, so that little is not nothing.

    Args:
        value: the size, in the unit of the column.
    """

    value: float


Value = str | int | float | MeanStd | Verdict | Difference | Size | None
CsvValue = str | int | float | None
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """Rows of values under columns.

    Args:
        name: the stem of its files.
        title: the heading.
        columns: the titles of the columns.
        rows: as many values per row as there are columns.
        notes: remarks below the table.
        digits: digits after the decimal point of every float.
        caption: the caption in a document, in sentences; the title if it is empty.
        bold: the places, row and column, of the values that are printed in bold.
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

    def is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers only, apart from empty places.

        Args:
            column: the index of the column.
        """
        values = [row[column] for row in self.rows if row[column] is not None]
        numbers = int | float | MeanStd | Difference | Size
        return bool(values) and all(isinstance(value, numbers) for value in values)

    def numeric_columns(self) -> list[bool]:
        """Return, for each column, whether it holds numbers only."""
        return [self.is_numeric(column) for column in range(len(self.columns))]


def without_empty(
    columns: Sequence[str], rows: Sequence[Row], first: int
) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Leave out columns in which no row has a value.

    Args:
        columns: the titles of the columns.
        rows: the rows.
        first: the number of columns, from the left, that always stay.
    """
    kept = [i for i in range(len(columns)) if i < first or any(row[i] is not None for row in rows)]
    return tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)


def format_value(value: Value, digits: int = 2) -> str:
    """Return a value as readers see it.

    Args:
        value: the value; None is a dash.
        digits: digits after the decimal point of a float.

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


def to_html(table: Table) -> str:
    """Return the `<table>` in a box that scrolls if it is wide; all texts are escaped.

    Successive rows with the same first value share one first cell. If the box is narrower than the
    table, a line above it says that it scrolls.

    Args:
        table: the table.
    """
    numeric = table.numeric_columns()
    titles = zip(table.columns, numeric, strict=True)
    head = "".join(_header_html(title, is_number) for title, is_number in titles)
    body: list[str] = []
    for _, block in groupby(range(len(table.rows)), key=lambda place: table.rows[place][0]):
        body += _block_html(table, list(block), numeric)
    lines = "\n".join(body)
    return (
        f'<div class="wide w{_least_width(table)}">'
        '<p class="hint">This table scrolls sideways \u2192</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div></div>"
    )


def _least_width(table: Table) -> int:
    """Estimate the least width of a table, in steps of 5 rem; `style.css` has a rule per step."""
    numeric = table.numeric_columns()
    letters = 0
    for column, title in enumerate(table.columns):
        texts = [_longest_word(title)]
        for row in table.rows:
            text = format_value(row[column], table.digits)
            whole = numeric[column] or _fits_one_line(row[column])
            texts.append(len(text) if whole else _longest_word(text))
        letters += max(texts)
    rems = LETTER_REM * letters + PADDING_REM * len(table.columns)
    return max(15, min(WIDEST_REM, 5 * ceil(rems / 5)))


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _header_html(title: str, is_number: bool) -> str:
    names = "n" if is_number else ""
    return f'<th scope="col"{_class_attribute(names)}>{escape(title)}</th>'


def _block_html(table: Table, places: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    """Return the lines of rows that share their first value."""
    first = table.rows[places[0]][0]
    span = f' rowspan="{len(places)}" scope="rowgroup"' if len(places) > 1 else ' scope="row"'
    names = "k" if _fits_one_line(first) else ""
    text = escape(format_value(first, table.digits))
    opening = f"<th{span}{_class_attribute(names)}>{text}</th>"
    lines = []
    for place in places:
        columns = range(1, len(table.columns))
        cells = "".join(_cell_html(table, place, column, numeric[column]) for column in columns)
        is_first = place == places[0]
        lines.append(
            f'<tr class="block">{opening}{cells}</tr>' if is_first else f"<tr>{cells}</tr>"
        )
    return lines


def _cell_html(table: Table, row: int, column: int, is_number: bool) -> str:
    value = table.rows[row][column]
    text = escape(format_value(value, table.digits))
    if (row, column) in table.bold:
        text = f"<b>{text}</b>"
    return f"<td{_class_attribute(_class_names(value, is_number))}>{text}</td>"


def _class_names(value: Value, is_number: bool) -> str:
    names = []
    if is_number:
        names.append("n")
    elif _fits_one_line(value):
        names.append("k")
    if isinstance(value, Verdict):
        names.append(value.tone)
    if isinstance(value, str) and "\n" in value:
        names.append("lines")
    return " ".join(names)


def _fits_one_line(value: Value) -> bool:
    return isinstance(value, str) and len(value) <= ONE_LINE


def _class_attribute(names: str) -> str:
    return f' class="{names}"' if names else ""


def to_csv(table: Table) -> str:
    """Return the table as CSV with all digits; a mean takes three columns: mean, std and runs.

    Args:
        table: the table.
    """
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


def to_records(table: Table) -> list[dict[str, Any]]:
    """Return one JSON object per row, by the titles of the columns, with all digits.

    Args:
        table: the table. A mean is an object with `mean`, `std` and `runs`.
    """
    return [
        {title: _json_value(value) for title, value in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def _json_value(value: Value) -> Any:
    match value:
        case MeanStd():
            return asdict(value)
        case Verdict():
            return value.text
        case Difference() | Size():
            return value.value
    return value


def to_markdown(table: Table) -> str:
    """Return the table as Markdown, for a page of documentation; notes are paragraphs below it.

    Args:
        table: the table.
    """
    rule = ["---:" if is_number else "---" for is_number in table.numeric_columns()]
    lines = [_markdown_row(map(escape_markdown, table.columns)), _markdown_row(rule)]
    for place in range(len(table.rows)):
        columns = range(len(table.columns))
        lines.append(_markdown_row(_markdown_text(table, place, column) for column in columns))
    lines += [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _markdown_text(table: Table, row: int, column: int) -> str:
    text = escape_markdown(format_value(table.rows[row][column], table.digits))
    return f"**{text}**" if (row, column) in table.bold else text


def _markdown_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def escape_markdown(text: str) -> str:
    """Return any text in a form that Markdown shows as it is.

    Args:
        text: any text.

    >>> print(escape_markdown("AR1* | <b>"))
    AR1\\* \\| &lt;b>
    """
    safe = re.sub(r"([\\`*_|\[\]~])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
    return " ".join(safe.split())
