"""Tables for LaTeX documents, with the rules of booktabs, that fit a column or a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from primavista.report.table import Table, Value, Verdict, format_value

# Points of LaTeX: the column of an `article` in two columns on A4, and the page of one in one.
COLUMN, PAGE = 221.0, 345.0
LETTER, GAP = 4.35, 8.0  # points per letter of \small type, and between two columns
MOST_LINES = 50  # of a table that fits a page, rules included
LONG_TEXT = 30  # letters; longer texts are set in a paragraph
HEAD = 12  # letters of a line of a column's title, unless its values are wider


@dataclass(frozen=True)
class _Column:
    """A column of a LaTeX table, with everything escaped.

    Args:
        head: the lines of the title.
        texts: the values, one per row.
        letters: the width in letters.
        align: `l`, `r`, or `p` for a paragraph.
    """

    head: tuple[str, ...]
    texts: tuple[str, ...]
    letters: int
    align: str

    @property
    def points(self) -> float:
        return self.letters * LETTER + GAP


@dataclass(frozen=True)
class _RowBlock:
    """Rows under a heading.

    Args:
        title: the heading; none if it is empty.
        first: the index of the first row.
        rows: the number of rows.
    """

    title: str
    first: int
    rows: int


def to_latex(table: Table) -> str:
    """Return a LaTeX `table` with booktabs rules; it needs `\\usepackage{booktabs}`.

    Values that are the same in all rows move into the note, and a first column whose values repeat
    becomes headings between the rows. A table that is wider than a column of text is a `table*`,
    which spans the page. Columns that do not fit the page follow in another part below, and rows
    that do not fit it in another table, with the same number.

    Args:
        table: the table.
    """
    shown, blocks, facts = _simplify(table)
    columns = [_column(shown, place) for place in range(len(shown.columns))]
    pieces = [(part, some) for part in _parts(columns) for some in _pages(blocks)]
    floats: list[list[list[str]]] = [[]]
    for part, some in pieces:
        lines = _tabular(part, some)
        if floats[-1] and sum(map(len, floats[-1])) + len(lines) > MOST_LINES:
            floats.append([])
        floats[-1].append(lines)
    wide = max(sum(column.points for column in part) for part, _ in pieces) > COLUMN
    notes = " ".join([*map(_sentence, facts), *table.notes])
    texts = [_float(table, wide, number, tabulars) for number, tabulars in enumerate(floats)]
    return "".join([*texts[:-1], _float(table, wide, len(floats) - 1, floats[-1], notes)])


def _float(
    table: Table, wide: bool, number: int, tabulars: Sequence[Sequence[str]], notes: str = ""
) -> str:
    """Return one `table` environment; those after the first are continued."""
    environment = "table*" if wide else "table"
    caption = _sentence(table.caption or table.title)
    lines = [rf"\begin{{{environment}}}", r"\centering\small", r"\setlength{\tabcolsep}{4pt}"]
    if number:
        lines += [r"\addtocounter{table}{-1}", rf"\caption{{{escape_latex(caption)} (continued)}}"]
    else:
        lines += [rf"\caption{{{escape_latex(caption)}}}", rf"\label{{tab:{table.name}}}"]
    lines.append(r"\par\vspace{4pt}")
    for place, tabular in enumerate(tabulars):
        lines += [r"\par\medskip"] if place else []
        lines += tabular
    if notes:
        safe = escape_latex(notes)
        lines += [r"\par\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {safe}}}"]
    return "\n".join([*lines, rf"\end{{{environment}}}"]) + "\n"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _simplify(table: Table) -> tuple[Table, list[_RowBlock], list[str]]:
    """Return the table without columns that say the same in all rows.

    With it come the blocks of rows, and the facts that the columns stated.
    """
    table, blocks, facts = _without_first(table)
    same = [place for place in range(1, len(table.columns)) if _is_constant(table, place)]
    if len(table.columns) - len(same) < 2:
        same = []
    for place in same:
        title = table.columns[place]
        value = format_value(table.rows[0][place], table.digits)
        facts.append(f"{title[0].upper()}{title[1:]}: {value}")
    kept = [place for place in range(len(table.columns)) if place not in same]
    return _keep(table, kept), blocks, facts


def _without_first(table: Table) -> tuple[Table, list[_RowBlock], list[str]]:
    """Make headings of a first column whose values repeat, or a fact if it has one value."""
    facts: list[str] = []
    blocks = [_RowBlock("", 0, len(table.rows))]
    groups = [list(own) for _, own in groupby(range(len(table.rows)), lambda i: table.rows[i][0])]
    if len(groups) < len(table.rows) and len(table.columns) > 2:
        titles = [format_value(table.rows[own[0]][0], table.digits) for own in groups]
        if len(groups) == 1:
            facts.append(f"{table.columns[0].capitalize()}: {titles[0]}")
        else:
            pairs = zip(titles, groups, strict=True)
            blocks = [_RowBlock(title, own[0], len(own)) for title, own in pairs]
        table = _keep(table, list(range(1, len(table.columns))))
    return table, blocks, facts


def _is_constant(table: Table, place: int) -> bool:
    """Return whether several rows have one and the same text or count in a column."""
    values = {row[place] for row in table.rows}
    first = table.rows[0][place] if table.rows else None
    return len(table.rows) > 1 and len(values) == 1 and isinstance(first, str | int)


def _keep(table: Table, kept: Sequence[int]) -> Table:
    bold = {(row, kept.index(column)) for row, column in table.bold if column in kept}
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        bold=frozenset(bold),
    )


def _column(table: Table, place: int) -> _Column:
    plain = [_text(row[place], table.digits) for row in table.rows]
    longest = max(map(len, plain), default=0)
    texts = []
    for row, text in enumerate(plain):
        safe = escape_latex(text)
        texts.append(rf"\textbf{{{safe}}}" if (row, place) in table.bold else safe)
    is_number = table.is_numeric(place)
    head = _head_lines(table.columns[place], max(longest, HEAD))
    letters = max(longest, *map(len, head))
    escaped = tuple(map(escape_latex, head))
    if longest > LONG_TEXT and not is_number:
        ragged = tuple(rf"\raggedright {text}" for text in texts)
        return _Column(escaped, ragged, LONG_TEXT, "p")
    return _Column(escaped, tuple(texts), letters, "r" if is_number else "l")


def _text(value: Value, digits: int) -> str:
    return value.text if isinstance(value, Verdict) else format_value(value, digits)


def _head_lines(title: str, letters: int) -> list[str]:
    """Divide a title into lines with a limited number of letters, if its words allow it."""
    lines: list[str] = [""]
    for word in title.split():
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= letters or word == "(%)":
            lines[-1] = joined
        else:
            lines.append(word)
    return [line for line in lines if line] or [""]


def _parts(columns: Sequence[_Column]) -> list[list[_Column]]:
    """Divide the columns into tables that fit a page; each begins with those that name its rows."""
    lead = _naming_columns(columns)
    parts = [[*columns[:lead]]]
    for column in columns[lead:]:
        if len(parts[-1]) > lead and sum(one.points for one in parts[-1]) + column.points > PAGE:
            parts.append([*columns[:lead]])
        parts[-1].append(column)
    last = parts[-1][-1]
    if last.align == "p":  # a paragraph may take what is left
        room = PAGE - sum(one.points for one in parts[-1][:-1]) - GAP
        widest = max(len(text) for text in last.texts)
        letters = min(widest, max(LONG_TEXT, int(room / LETTER)))
        parts[-1][-1] = replace(last, letters=letters)
    return parts


def _naming_columns(columns: Sequence[_Column]) -> int:
    """Return how many columns name a row: two, such as a pair, if the first has a name twice."""
    if len(columns) < 3 or columns[1].align != "l":
        return 1
    return 1 if len(set(columns[0].texts)) == len(columns[0].texts) else 2


def _pages(blocks: Sequence[_RowBlock]) -> list[list[_RowBlock]]:
    """Divide blocks of rows into lists that fit a page."""
    pages: list[list[_RowBlock]] = [[]]
    room = MOST_LINES - 8  # the rules and the heads of the table
    for block in blocks:
        first, left = block.first, block.rows
        while left:
            used = sum(one.rows + 2 for one in pages[-1])
            if pages[-1] and used + min(left, 4) > room:
                pages.append([])
                used = 0
            rows = min(left, room - used)
            pages[-1].append(_RowBlock(block.title, first, rows))
            first, left = first + rows, left - rows
    return pages


def _tabular(columns: Sequence[_Column], blocks: Sequence[_RowBlock]) -> list[str]:
    alignment = "".join(_alignment(column) for column in columns)
    head = " & ".join(_head(column) for column in columns)
    return [
        rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
        r"\toprule",
        rf"{head} \\",
        *_rows(columns, blocks),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _alignment(column: _Column) -> str:
    return column.align if column.align != "p" else f"p{{{column.letters * LETTER:.0f}pt}}"


def _head(column: _Column) -> str:
    if len(column.head) == 1:
        return column.head[0]
    align = "r" if column.align == "r" else "l"
    lines = r"\\".join(column.head)
    return rf"\begin{{tabular}}[b]{{@{{}}{align}@{{}}}}{lines}\end{{tabular}}"


def _rows(columns: Sequence[_Column], blocks: Sequence[_RowBlock]) -> Iterator[str]:
    for block in blocks:
        yield r"\midrule"
        if block.title:
            heading = rf"\textit{{{escape_latex(block.title)}}}"
            yield rf"\multicolumn{{{len(columns)}}}{{@{{}}l@{{}}}}{{{heading}}} \\"
        for row in range(block.first, block.first + block.rows):
            yield " & ".join(column.texts[row] for column in columns) + r" \tabularnewline"


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

    Args:
        text: any text.

    >>> print(escape_latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)
