"""HTML for notebooks: small tables and bars with every text escaped, for `_repr_html_` methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

CELL = "text-align:left;padding:1px 12px 1px 0"
BAR = "background:#0072b2;height:0.7em"


def html_table(
    rows: Sequence[Sequence[object]], *, header: Sequence[str] = (), caption: str = ""
) -> str:
    """Return an HTML table whose texts are escaped, so that a name cannot inject markup.

    Args:
        rows: The cells, row by row; each is shown as `str(cell)`. Floats get four significant
            digits.
        header: The titles of the columns; none leaves the header out.
        caption: A line above the table.

    Returns:
        One `<table>` element with inline styles.

    >>> html_table([["mug", 3]]).count("<td")
    2
    >>> "<b>" in html_table([["<b>"]])
    False
    """
    title = f"<caption style='{CELL}'><b>{escape(caption)}</b></caption>" if caption else ""
    head = "".join(f"<th style='{CELL}'>{escape(name)}</th>" for name in header)
    lines = [f"<tr>{head}</tr>"] if header else []
    for row in rows:
        cells = "".join(f"<td style='{CELL}'>{escape(_text(cell))}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{title}{''.join(lines)}</table>"


def html_bars(shares: Mapping[str, float], *, caption: str = "") -> str:
    """Return an HTML table with one bar per name, the largest share first; all names are escaped.

    Args:
        shares: A number from 0 to 1 for each name.
        caption: A line above the bars.

    Returns:
        One `<table>` element with inline styles.

    >>> "70 %" in html_bars({"cup": 0.3, "mug": 0.7})
    True
    """
    title = f"<caption style='{CELL}'><b>{escape(caption)}</b></caption>" if caption else ""
    lines = []
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        width = 10 * min(max(share, 0.0), 1.0)
        bar = f"<div style='{BAR};width:{width:.2f}em'></div>"
        cells = (escape(name), f"{100 * share:.0f} %", bar)
        lines.append(
            "<tr>" + "".join(f"<td style='{CELL}'>{cell}</td>" for cell in cells) + "</tr>"
        )
    return f"<table>{title}{''.join(lines)}</table>"


def _text(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
