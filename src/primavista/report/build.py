"""The report: a folder of results as one self-contained HTML file, with every figure and table beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from primavista.errors import FileError
from primavista.report.contents import build_page
from primavista.report.page import Page, render
from primavista.report.published import read_published
from primavista.report.read import read_results
from primavista.report.table import to_csv, to_latex

__all__ = ["write_report"]


def write_report(folder: Path, *, against: Path | None = None, out: Path | None = None) -> Path:
    """Write `report.html`, `figures/` and `tables/` into `out` (default: `folder`), and give the path of the first.

    `folder` holds one folder a cell, at any depth; unfinished and failed cells are shown as what they are. `against` is the
    folder with the authors' result files (`core50_results_nicv2_*.tsv`): their curves are drawn over ours. Without matplotlib
    the report has its tables and says what to install.
    """
    results = read_results(Path(folder))
    published = read_published(Path(against)) if against is not None else {}
    page = build_page(results, published)
    target = Path(out) if out is not None else Path(folder)
    for path, content in _files(page):
        _write(target / path, content)
    return _write(target / "report.html", render(page).encode())


def _files(page: Page) -> Iterable[tuple[str, bytes]]:
    for section in page.sections:
        for table in section.tables:
            yield f"tables/{table.name}.csv", to_csv(table).encode()
            yield f"tables/{table.name}.tex", to_latex(table).encode()
        for picture in [
            *section.pictures,
            *section.extra,
            *(p for fold in section.folds for p in fold.pictures),
        ]:
            yield f"figures/{picture.name}.svg", picture.svg.encode()
            yield f"figures/{picture.name}.png", picture.png


def _write(path: Path, content: bytes) -> Path:
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True) if path.parent.is_dir() else None
        raise FileError(f"cannot write the report's file {path}: {error}") from error
    return path
