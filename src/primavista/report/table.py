"""A table, written once and rendered three times: HTML, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal

from primavista.report.series import Spread

Tone = Literal["good", "bad", "open"]
SIGNS = {"good": "✓", "bad": "✗", "open": "?"}


@dataclass(frozen=True)
class Mark:
    """A verdict: never by colour alone."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Signed:
    """A difference: always with its sign."""

    value: float


Value = str | int | float | Spread | Mark | Signed | None


@dataclass(frozen=True)
class Table:
    """Rows of values under columns; `name` is the stem of its files, `digits` those after the point of every float."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    digits: int = 2

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), (self.name, row)


def text(value: Value, digits: int = 2) -> str:
    """As a reader sees it.

    >>> text(Spread(56.321, 1.0, 10)), text(1234), text(None), text(Signed(-0.5), 1)
    ('56.32 ± 1.00', '1,234', '–', '−0.5')
    """
    match value:
        case None:
            return "–"
        case Mark():
            return f"{SIGNS[value.tone]} {value.text}"
        case Spread():
            mean = f"{value.mean:,.{digits}f}".replace("-", "−")
            return mean if value.std is None else f"{mean} ± {value.std:,.{digits}f}"
        case Signed():
            rounded = round(value.value, digits) or 0.0  # no minus nought
            return f"{rounded:+,.{digits}f}".replace("-", "−")
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.{digits}f}".replace("-", "−")


def to_html(table: Table) -> str:
    """The `<table>` alone, all escaped; wide ones scroll in their own box. Rows that begin alike share their first cell."""
    numeric = [_numeric(table, i) for i in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{_class("n" if n else "")}>{escape(c)}</th>'
        for c, n in zip(table.columns, numeric, strict=True)
    )
    body = []
    for first, group in groupby(table.rows, key=lambda row: row[0]):
        rows = list(group)
        span = f' rowspan="{len(rows)}" scope="rowgroup"' if len(rows) > 1 else ' scope="row"'
        opening = f"<th{span}{_class('k' if _short(first) else '')}>{escape(text(first, table.digits))}</th>"
        for place, row in enumerate(rows):
            cells = "".join(
                _cell(value, n, table.digits) for value, n in zip(row[1:], numeric[1:], strict=True)
            )
            body.append(
                f"<tr{_class('' if place else 'block')}>{'' if place else opening}{cells}</tr>"
            )
    name = escape(table.title)
    body_text = "\n".join(body)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body_text}\n</tbody></table></div>"
    )


def _cell(value: Value, is_number: bool, digits: int) -> str:
    names = " ".join(
        filter(
            None,
            [
                "n" if is_number else "k" if _short(value) else "",
                value.tone if isinstance(value, Mark) else "",
            ],
        )
    )
    return f"<td{_class(names)}>{escape(text(value, digits))}</td>"


def to_csv(table: Table) -> str:
    """Numbers in full; a mean and its standard deviation are two columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    spreads = [
        any(isinstance(row[i], Spread) for row in table.rows) for i in range(len(table.columns))
    ]
    head: list[str] = []
    for column, wide in zip(table.columns, spreads, strict=True):
        head += [column, f"{column}, std", f"{column}, runs"] if wide else [column]
    writer.writerow(head)
    for row in table.rows:
        line: list[str | int | float | None] = []
        for value, wide in zip(row, spreads, strict=True):
            line += _plain(value, wide)
        writer.writerow(line)
    return out.getvalue()


def to_latex(table: Table) -> str:
    """A `table` with booktabs rules; needs `\\usepackage{booktabs}`."""
    numeric = [_numeric(table, i) for i in range(len(table.columns))]
    lines = [
        r"\begin{table}",
        rf"\caption{{{latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\centering",
        rf"\begin{{tabular}}{{{''.join('r' if n else 'l' for n in numeric)}}}",
        r"\toprule",
        " & ".join(map(latex, table.columns)) + r" \\",
        r"\midrule",
        *(
            " & ".join(latex(_latex_text(value, table.digits)) for value in row) + r" \\"
            for row in table.rows
        ),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {latex(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


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


def latex(raw: str) -> str:
    """Any text, safe in LaTeX.

    >>> print(latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    return "".join(_LATEX.get(letter, letter) for letter in raw)


def _latex_text(value: Value, digits: int) -> str:
    return value.text if isinstance(value, Mark) else text(value, digits)


def _plain(value: Value, wide: bool) -> list[str | int | float | None]:
    match value:
        case Spread():
            return [value.mean, value.std, value.runs]
        case Mark():
            plain: list[str | int | float | None] = [value.text]
        case Signed():
            plain = [value.value]
        case _:
            plain = [value]
    return [*plain, None, None] if wide else plain


def _numeric(table: Table, column: int) -> bool:
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(
        isinstance(value, int | float | Spread | Signed) for value in values
    )


def _short(value: Value) -> bool:
    """Whether it is worth a line of its own."""
    return isinstance(value, str) and len(value) <= 24


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
