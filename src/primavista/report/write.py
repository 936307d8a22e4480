"""The report: a folder of results as one self-contained HTML file, with figures and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, InputError, file_errors
from primavista.progress import Progress
from primavista.report.figures import WIDTHS, printed_width
from primavista.report.latex import escape_latex, to_latex
from primavista.report.page import Page, render_page
from primavista.report.published import read_published
from primavista.report.read import read_results
from primavista.report.sections import build_page
from primavista.report.table import Table, to_csv, to_markdown, to_records
from primavista.storage.disk import replacing

FIGURE_KINDS = ("pdf", "svg", "png")
TABLE_FORMATS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "tex": to_latex,
    "md": to_markdown,
}


def write_report(
    folder: str | Path,
    *,
    against: str | Path | None = None,
    out: str | Path | None = None,
    figures: Sequence[str] = FIGURE_KINDS,
    page_width: float = WIDTHS["page"],
    progress: Progress | None = None,
) -> Path:
    """Write `report.html` with its `figures/`, `tables/` and methods, and all tables in one JSON.

    Unfinished and failed cells are shown as such. If matplotlib is not installed, the report has
    its tables and says what to install.

    Args:
        folder: the results: one folder per cell, at any depth.
        against: the folder with the authors' result files (`core50_results_nicv2_*.tsv`), whose
            curves are drawn over ours.
        out: the folder to write to; `folder` if None.
        figures: the kinds of files of figures to write, of `pdf`, `svg` and `png`. The
            figures in `report.html` do not depend on it.
        page_width: the width of figures that span the page, in inches: that of the text of your
            document, such as 4.75 for an `article` in one column.
        progress: it is told how many files are written.

    Returns:
        The path of `report.html`.

    Raises:
        InputError: a kind of figure is none of `pdf`, `svg`, `png`, or no paper has that width.
        FileError: there are no results in `folder`, the authors' files cannot be read, or the
            report cannot be written.
    """
    for kind in sorted(set(figures) - set(FIGURE_KINDS)):
        choices = ", ".join(FIGURE_KINDS)
        raise InputError(f"{kind!r} is not a kind of figure: choose from {choices}")
    width = printed_width(page_width)
    results = read_results(Path(folder))
    published = read_published(Path(against)) if against is not None else {}
    page = build_page(results, published, width)
    target = Path(out) if out is not None else Path(folder)
    writers = list(_files(page, figures))
    for done, (path, make) in enumerate(writers):
        if progress is not None:
            progress(done, len(writers))
        _write_file(target / path, make())
    tables = {table.name: to_records(table) for one in page.sections for table in one.tables}
    _write_file(target / "tables.json", json.dumps(tables, indent=1).encode())
    _write_file(target / "report.html", render_page(page).encode())
    return target / "report.html"


def _files(page: Page, figures: Sequence[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name of every table and figure, and what makes its content."""
    for section in page.sections:
        for table in section.tables:
            for suffix, make in TABLE_FORMATS.items():
                yield f"tables/{table.name}.{suffix}", partial(_table_bytes, make, table)
        for picture in section.all_pictures:
            for kind in figures:
                yield f"figures/{picture.name}.{kind}", partial(picture.content, f".{kind}")
        if section.methods:
            yield "methods.txt", partial(str.encode, f"{section.methods}\n")
            yield "methods.tex", partial(str.encode, f"{escape_latex(section.methods)}\n")


def _table_bytes(make: Callable[[Table], str], table: Table) -> bytes:
    return make(table).encode()


def _write_file(path: Path, content: bytes) -> None:
    with file_errors("write", f"the report's file {path}", CHOOSE_FOLDER):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_bytes(content)
