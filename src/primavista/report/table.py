"""A table, written once and rendered four times: as HTML, LaTeX, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import groupby
from typing import Any, Literal

from primavista.report.series import MeanStd

Tone = Literal["good", "bad", "open"]
SIGNS = {"good": "✓", "bad": "✗", "open": "?"}  # colour alone must not carry a verdict
ONE_LINE = 24  # texts up to this length are not wrapped


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


Value = str | int | float | MeanStd | Verdict | Difference | None
CsvValue = str | int | float | None
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """Rows of values under columns.

    Args:
        name: the stem of its files.
        title: the heading and caption.
        columns: the titles of the columns.
        rows: as many values per row as there are columns.
        notes: remarks below the table.
        digits: digits after the decimal point of every float.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    digits: int = 2

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), (self.name, row)

    def is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers only, apart from empty places.

        Args:
            column: the index of the column.
        """
        values = [row[column] for row in self.rows if row[column] is not None]
        numbers = int | float | MeanStd | Difference
        return bool(values) and all(isinstance(value, numbers) for value in values)

    def numeric_columns(self) -> list[bool]:
        """Return, for each column, whether it holds numbers only."""
        return [self.is_numeric(column) for column in range(len(self.columns))]


def format_value(value: Value, digits: int = 2) -> str:
    """Return a value as readers see it.

    Args:
        value: the value; None is a dash.
        digits: digits after the decimal point of a float.

    >>> format_value(MeanStd(56.321, 1.0, 10)), format_value(1234), format_value(None)
    ('56.32 ± 1.00', '1,234', '–')
    >>> format_value(Difference(-0.5), 1)
    '−0.5'
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
            return _decimal(value, digits)


def _decimal(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "−")


def to_html(table: Table) -> str:
    """Return the `<table>` in a box that scrolls if it is wide; all texts are escaped.

    Successive rows with the same first value share one first cell.

    Args:
        table: the table.
    """
    numeric = table.numeric_columns()
    titles = zip(table.columns, numeric, strict=True)
    head = "".join(_header_html(title, is_number) for title, is_number in titles)
    body: list[str] = []
    for first, group in groupby(table.rows, key=lambda row: row[0]):
        body += _block_html(first, list(group), numeric, table.digits)
    lines = "\n".join(body)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _header_html(title: str, is_number: bool) -> str:
    names = "n" if is_number else ""
    return f'<th scope="col"{_class_attribute(names)}>{escape(title)}</th>'


def _block_html(
    first: Value, rows: Sequence[Row], numeric: Sequence[bool], digits: int
) -> list[str]:
    """Return the lines of rows that share their first value."""
    span = f' rowspan="{len(rows)}" scope="rowgroup"' if len(rows) > 1 else ' scope="row"'
    names = "k" if _fits_one_line(first) else ""
    opening = f"<th{span}{_class_attribute(names)}>{escape(format_value(first, digits))}</th>"
    lines = []
    for place, row in enumerate(rows):
        pairs = zip(row[1:], numeric[1:], strict=True)
        cells = "".join(_value_html(value, is_number, digits) for value, is_number in pairs)
        lines.append(f"<tr>{cells}</tr>" if place else f'<tr class="block">{opening}{cells}</tr>')
    return lines


def _value_html(value: Value, is_number: bool, digits: int) -> str:
    names = []
    if is_number:
        names.append("n")
    elif _fits_one_line(value):
        names.append("k")
    if isinstance(value, Verdict):
        names.append(value.tone)
    if isinstance(value, str) and "\n" in value:
        names.append("lines")
    return f"<td{_class_attribute(' '.join(names))}>{escape(format_value(value, digits))}</td>"


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
        case Difference():
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
        case Difference():
            return value.value
    return value


def to_latex(table: Table) -> str:
    """Return a LaTeX `table` with booktabs rules; it needs `\\usepackage{booktabs}`.

    Args:
        table: the table.
    """
    alignment = "".join("r" if is_number else "l" for is_number in table.numeric_columns())
    lines = [
        r"\begin{table}",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\centering",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(map(escape_latex, table.columns)) + r" \\",
        r"\midrule",
        *(_latex_row(row, table.digits) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {escape_latex(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(row: Row, digits: int) -> str:
    texts = (
        value.text if isinstance(value, Verdict) else format_value(value, digits) for value in row
    )
    return " & ".join(map(escape_latex, texts)) + r" \\"


def to_markdown(table: Table) -> str:
    """Return the table as Markdown, for a page of documentation; notes are paragraphs below it.

    Args:
        table: the table.
    """
    rule = ["---:" if is_number else "---" for is_number in table.numeric_columns()]
    rows = [[format_value(value, table.digits) for value in row] for row in table.rows]
    lines = [_markdown_row(map(escape_markdown, table.columns)), _markdown_row(rule)]
    lines += [_markdown_row(map(escape_markdown, row)) for row in rows]
    lines += [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


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
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "×": r"$\times$",
    "[": "{[}",
    "]": "{]}",
    "\n": " ",
    "\r": " ",
}


def escape_latex(text: str) -> str:
    """Return any text in a form that is safe in LaTeX.

    Args:
        text: any text.

    >>> print(escape_latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)
