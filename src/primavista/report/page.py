"""The page: one HTML file with everything inside, light and dark, for large and small screens."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from primavista import __version__
from primavista.report.figures import WIDTHS, Palette, Picture
from primavista.report.latex import escape_latex, to_latex
from primavista.report.published import PAPER
from primavista.report.table import Table, to_csv, to_html
from primavista.report.titles import slug


@dataclass(frozen=True)
class Collapsible:
    """Figures under a heading that opens and closes.

    Args:
        title: the heading.
        pictures: the figures.
        is_open: whether they are shown at first.
        text: a sentence above the figures.
    """

    title: str
    pictures: tuple[Picture, ...]
    is_open: bool = False
    text: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page: text, figures, tables and collapsible figures, in this order.

    Args:
        title: the heading.
        text: paragraphs of plain text.
        pictures: the figures.
        tables: the tables.
        collapsibles: figures that are shown on demand.
        extra: figures that are files only, not on the page.
        narrow: figures that take the place of `pictures` on a small screen.
        methods: a paragraph to paste into a document.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    collapsibles: tuple[Collapsible, ...] = ()
    extra: tuple[Picture, ...] = ()
    narrow: tuple[Picture, ...] = ()
    methods: str = ""

    @property
    def anchor(self) -> str:
        """The target of links to the section."""
        return slug(self.title)

    @property
    def all_pictures(self) -> list[Picture]:
        """Every figure of the section, on the page or not."""
        hidden = [picture for part in self.collapsibles for picture in part.pictures]
        return [*self.pictures, *self.narrow, *self.extra, *hidden]


@dataclass(frozen=True)
class Card:
    """One number at the top of the page.

    Args:
        title: the line above the number.
        value: the number.
        text: the line below the number.
    """

    title: str
    value: str
    text: str


@dataclass(frozen=True)
class Page:
    """The content of the report.

    Args:
        title: the heading.
        lead: the first sentence.
        palette: the colours of the figures.
        notes: remarks at the top.
        warnings: warnings at the top.
        cards: numbers at the top.
        sections: the parts of the page.
    """

    title: str
    lead: str
    palette: Palette
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    sections: tuple[Section, ...] = ()


def render_page(page: Page) -> str:
    """Return the whole HTML file; every text that comes from results is escaped.

    Args:
        page: the content.
    """
    css = files("primavista.report").joinpath("style.css").read_text("utf-8")
    contents = "\n".join(map(_contents_line, page.sections))
    sections = "".join(_section(section, page.palette) for section in page.sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="primavista {__version__}">
<title>{escape(page.title)}</title>
<style>
{css}{page.palette.css()}
</style>
</head>
<body>
<div class="layout">
<header>
<h1>{escape(page.title)}</h1>
<p class="lead">{escape(page.lead)}</p>
{_message_box("mark", page.notes)}{_message_box("mark warn", page.warnings)}
<div class="cards">{"".join(map(_card, page.cards))}</div>
</header>
<div class="side"><nav aria-label="Contents"><details open><summary>Contents</summary><ol>
{contents}
</ol></details></nav></div>
<main>
{sections}
</main>
<footer>
<p>Written by primavista {__version__}. The paper: Lomonaco, Maltoni, Pellegrini,
<a href="{PAPER}">Rehearsal-Free Continual Learning over Small Non-I.I.D. Batches</a>.
Next to this file, <code>figures/</code> has every figure as PDF, SVG and PNG, at the width of a
column or a page, and <code>tables/</code> has every table as CSV, LaTeX and Markdown.</p>
</footer>
</div>
</body>
</html>
"""


def _contents_line(section: Section) -> str:
    return f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>'


def _card(card: Card) -> str:
    return (
        f'<div class="card"><div class="top">{escape(card.title)}</div>'
        f"<b>{escape(card.value)}</b><span>{escape(card.text)}</span></div>"
    )


def _message_box(names: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    return f'<div class="{names}">{_paragraphs(texts)}</div>\n'


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _section(section: Section, palette: Palette) -> str:
    alone = len(section.tables) == 1 and not section.pictures
    names = "figures only-wide" if section.narrow else "figures"
    parts = [
        f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>',
        _paragraphs(section.text),
        _methods(section.methods),
        _figures(section.pictures, palette, names),
        _figures(section.narrow, palette, "figures only-narrow"),
        *(_table(table, heading=not alone) for table in section.tables),
        *(_collapsible(part, palette) for part in section.collapsibles),
    ]
    return "\n".join(filter(None, parts)) + "\n</section>\n"


def _figures(pictures: Sequence[Picture], palette: Palette, names: str = "figures") -> str:
    if not pictures:
        return ""
    on_white = [
        f'<figure class="paper">\n{picture.inline(palette)}\n</figure>'
        for picture in pictures
        if picture.on_white
    ]
    themed = [
        f"<figure{_page_class(picture)}>\n{picture.inline(palette)}\n</figure>"
        for picture in pictures
        if not picture.on_white
    ]
    grid = f'<div class="{names}">\n{"".join(themed)}\n</div>' if themed else ""
    return grid + "\n".join(on_white)


def _page_class(picture: Picture) -> str:
    return ' class="page"' if picture.width > WIDTHS["column"] else ""


def _methods(text: str) -> str:
    if not text:
        return ""
    link = _download_link("LaTeX", "methods.tex", "application/x-tex", escape_latex(text) + "\n")
    return (
        f'<h3>A paragraph to paste</h3>\n<blockquote class="methods">{escape(text)}</blockquote>\n'
        f'<p class="files">{link}</p>'
    )


def _collapsible(part: Collapsible, palette: Palette) -> str:
    state = " open" if part.is_open else ""
    figures = _figures(part.pictures, palette, "figures small")
    text = f"<p>{escape(part.text)}</p>\n" if part.text else ""
    summary = f"<summary>{escape(part.title)}</summary>"
    return f'<details class="more"{state}>{summary}\n{text}{figures}</details>'


def _table(table: Table, heading: bool) -> str:
    title = f"<h3>{escape(table.title)}</h3>\n" if heading else ""
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in table.notes)
    return f"{title}{to_html(table)}\n{notes}{_download_links(table)}"


def _download_links(table: Table) -> str:
    links = (
        _download_link("CSV", f"{table.name}.csv", "text/csv", to_csv(table)),
        _download_link("LaTeX", f"{table.name}.tex", "application/x-tex", to_latex(table)),
    )
    return f'<p class="files">{" · ".join(links)}</p>'


def _download_link(title: str, file: str, kind: str, content: str) -> str:
    data = base64.b64encode(content.encode()).decode()
    return f'<a download="{file}" href="data:{kind};base64,{data}">{title}</a>'
