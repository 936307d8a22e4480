"""The page: one HTML file with everything inside, light and dark, for large and small screens."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from primavista import __version__
from primavista.errors import require_extra
from primavista.report.figures import Palette, Picture
from primavista.report.published import PAPER
from primavista.report.table import Table
from primavista.report.texts import templates
from primavista.report.titles import slug

MEDIA = {"csv": "text/csv", "tex": "application/x-tex"}  # of the files that the page offers
Files = Mapping[str, str]  # the name of each file of a table or paragraph, and its content
Cards = tuple[tuple[str, str, str], ...]  # a number with a line above it and a line below it


@dataclass(frozen=True)
class Section:
    """A part of the page: text, figures, tables and parts that open and close, in this order.

    Args:
        title: The heading.
        text: Paragraphs of plain text.
        pictures: The figures.
        tables: The tables.
        parts: What is shown on demand.
        extra: Figures that are files only, not on the page.
        methods: A paragraph to paste into a document.
        is_open: True for a part that is shown from the beginning.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    parts: tuple[Section, ...] = ()
    extra: tuple[Picture, ...] = ()
    methods: str = ""
    is_open: bool = False

    @property
    def anchor(self) -> str:
        """The target of links to the section."""
        return slug(self.title)

    @property
    def all_pictures(self) -> list[Picture]:
        """Every figure of the section, on the page or not."""
        hidden = [picture for part in self.parts for picture in part.pictures]
        return [*self.pictures, *self.extra, *hidden]


@dataclass(frozen=True)
class Page:
    """The content of the report.

    Args:
        title: The heading.
        lead: The first sentences.
        palette: The colours of the figures.
        notes: Remarks at the top.
        warnings: Warnings at the top.
        cards: Numbers at the top.
        sections: The parts of the page.
    """

    title: str
    lead: str
    palette: Palette
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    cards: Cards
    sections: tuple[Section, ...]


def render_page(page: Page, downloads: Mapping[str, Files]) -> str:
    """Return the whole HTML file; every text that comes from results is escaped.

    Args:
        page: The content.
        downloads: The files that the page offers below each table, by the name of the table, and
            below the paragraph on methods, by `methods`.
    """
    safe = require_extra("markupsafe", "plots").Markup
    style = files("primavista.report").joinpath("style.css").read_text("utf-8")
    template = templates().get_template("page.html.jinja")
    html: str = template.render(
        page=page,
        style=safe(style + page.palette.css()),
        draw=lambda picture: safe(picture.inline(page.palette)),
        downloads=downloads,
        encode=lambda text: base64.b64encode(text.encode()).decode(),
        media=MEDIA,
        version=__version__,
        paper=PAPER,
    )
    return html
