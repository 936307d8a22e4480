"""The report: a folder of results as one self-contained HTML file, with figures and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, file_errors
from primavista.report.page import Page, render_page
from primavista.report.published import read_published
from primavista.report.read import read_results
from primavista.report.sections import build_page
from primavista.report.table import to_csv, to_latex, to_markdown, to_records
from primavista.storage.atomic import replacing


def write_report(folder: Path, *, against: Path | None = None, out: Path | None = None) -> Path:
    """Write `report.html` with its `figures/` and `tables/`, and all tables in `tables.json`.

    Unfinished and failed cells are shown as such. If matplotlib is not installed, the report has
    its tables and says what to install.

    Args:
        folder: the results: one folder per cell, at any depth.
        against: the folder with the authors' result files (`core50_results_nicv2_*.tsv`), whose
            curves are drawn over ours.
        out: the folder to write to; `folder` if None.

    Returns:
        The path of `report.html`.

    Raises:
        FileError: there are no results in `folder`, the authors' files cannot be read, or the
            report cannot be written.
    """
    results = read_results(Path(folder))
    published = read_published(Path(against)) if against is not None else {}
    page = build_page(results, published)
    target = Path(out) if out is not None else Path(folder)
    for path, content in _files(page):
        _write_file(target / path, content)
    tables = {table.name: to_records(table) for one in page.sections for table in one.tables}
    _write_file(target / "tables.json", json.dumps(tables, indent=1).encode())
    _write_file(target / "report.html", render_page(page).encode())
    return target / "report.html"


def _files(page: Page) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every table and figure."""
    for section in page.sections:
        for table in section.tables:
            yield f"tables/{table.name}.csv", to_csv(table).encode()
            yield f"tables/{table.name}.tex", to_latex(table).encode()
            yield f"tables/{table.name}.md", to_markdown(table).encode()
        for picture in section.all_pictures:
            yield f"figures/{picture.name}.svg", picture.svg.encode()
            yield f"figures/{picture.name}.png", picture.png


def _write_file(path: Path, content: bytes) -> None:
    with file_errors("write", f"the report's file {path}", CHOOSE_FOLDER):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_bytes(content)
