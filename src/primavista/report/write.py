"""The report: a folder of results as one self-contained HTML file, with figures and tables."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from primavista import __version__
from primavista.errors import CHOOSE_FOLDER, InputError, file_errors, require_extra
from primavista.progress import Progress
from primavista.report.figures import WIDTHS, printed_width
from primavista.report.published import PAPER, read_published
from primavista.report.read import read_results
from primavista.report.sections import Page, build_page
from primavista.report.table import to_csv, to_latex, to_markdown
from primavista.report.texts import escape_latex, templates
from primavista.storage.disk import check_inside, replacing

FIGURE_KINDS = ("pdf", "svg", "png")
TABLE_KINDS = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def write_report(
    folder: str | Path,
    *,
    against: str | Path | None = None,
    out: str | Path | None = None,
    figures: Sequence[str] = FIGURE_KINDS,
    page_width: float = WIDTHS["page"],
    progress: Progress | None = None,
) -> Path:
    """Write `report.html` with its `figures/`, `tables/` and methods.

    Unfinished and failed cells are shown as such.

    Args:
        folder: The results: one folder per cell, at any depth.
        against: The folder with the authors' result files (`core50_results_nicv2_*.tsv`), whose
            curves are drawn over ours.
        out: The folder to write to; `folder` if None.
        figures: The kinds of files of figures to write, of `pdf`, `svg` and `png`. The
            figures in `report.html` do not depend on it.
        page_width: The width of figures that span the page, in inches: that of the text of your
            document, such as 4.75 for an `article` in one column.
        progress: It is told how many figures are drawn.

    Returns:
        The path of `report.html`.

    Raises:
        InputError: If a kind of figure is none of `pdf`, `svg`, `png`, or no paper has that width.
        FileError: If there are no results in `folder`, the authors' files cannot be read, or the
            report cannot be written.
        MissingExtraError: If matplotlib or Jinja is not installed (extra `plots`).
    """
    for kind in sorted(set(figures) - set(FIGURE_KINDS)):
        choices = ", ".join(FIGURE_KINDS)
        raise InputError(f"{kind!r} is not a kind of figure: choose from {choices}")
    require_extra("matplotlib", "plots")
    require_extra("jinja2", "plots")
    width = printed_width(page_width)
    results = read_results(Path(folder))
    published = read_published(Path(against)) if against is not None else {}
    page = build_page(results, published, width)
    target = Path(out) if out is not None else Path(folder)
    for name in ("tables", "figures"):
        check_inside(target, target / name)
    for section in page.sections:
        for table in section.tables:
            made = {f"{table.name}.{kind}": make(table) for kind, make in TABLE_KINDS.items()}
            _write_files(target / "tables", made)
        if section.methods:
            tex = escape_latex(section.methods)
            made = {"methods.txt": f"{section.methods}\n", "methods.tex": f"{tex}\n"}
            _write_files(target, made)
    pictures = [picture for section in page.sections for picture in section.all_pictures]
    for done, picture in enumerate(pictures):
        if progress is not None:
            progress(done, len(pictures))
        for kind in figures:
            drawn = picture.content(f".{kind}")
            _write_files(target / "figures", {f"{picture.name}.{kind}": drawn})
    _write_files(target, {"report.html": _render_page(page)})
    return target / "report.html"


def _write_files(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    for name, content in contents.items():
        path = folder / name
        with file_errors("write", f"the report's file {path}", CHOOSE_FOLDER):
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                part.write_bytes(content if isinstance(content, bytes) else content.encode())


def _render_page(page: Page) -> str:
    """Return the whole HTML file; every text that comes from results is escaped."""
    safe = require_extra("markupsafe", "plots").Markup
    style = files("primavista.report").joinpath("style.css").read_text("utf-8")
    html: str = (
        templates()
        .get_template("page.html.jinja")
        .render(
            page=page,
            style=safe(style),
            encode=lambda text: base64.b64encode(text.encode()).decode(),
            version=__version__,
            paper=PAPER,
        )
    )
    return html
