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
from primavista.report.table import Table, templates
from primavista.report.titles import slug

MEDIA = {"csv": "text/csv", "tex": "application/x-tex"}  # of the files that the page offers
Files = Mapping[str, str]  # the name of each file of a table or paragraph, and its content


@dataclass(frozen=True)
class Collapsible:
    """Figures under a heading that opens and closes, with a sentence above them."""

    title: str
    pictures: tuple[Picture, ...]
    is_open: bool = False
    text: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page: text, figures, tables and collapsible figures, in this order.

    Args:
        title: The heading.
        text: Paragraphs of plain text.
        pictures: The figures.
        tables: The tables.
        collapsibles: Figures that are shown on demand.
        extra: Figures that are files only, not on the page.
        methods: A paragraph to paste into a document.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    collapsibles: tuple[Collapsible, ...] = ()
    extra: tuple[Picture, ...] = ()
    methods: str = ""

    @property
    def anchor(self) -> str:
        """The target of links to the section."""
        return slug(self.title)

    @property
    def all_pictures(self) -> list[Picture]:
        """Every figure of the section, on the page or not."""
        hidden = [picture for part in self.collapsibles for picture in part.pictures]
        return [*self.pictures, *self.extra, *hidden]


@dataclass(frozen=True)
class Card:
    """One number at the top of the page, with a line above and a line below it."""

    title: str
    value: str
    text: str


@dataclass(frozen=True)
class Page:
    """The content of the report.

    Args:
        title: The heading.
        lead: The first sentence.
        palette: The colours of the figures.
        notes: Remarks at the top.
        warnings: Warnings at the top.
        cards: Numbers at the top.
        sections: The parts of the page.
    """

    title: str
    lead: str
    palette: Palette
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    sections: tuple[Section, ...] = ()

    @property
    def tables(self) -> list[Table]:
        """The tables of all sections."""
        return [table for section in self.sections for table in section.tables]


def render_page(page: Page, downloads: Mapping[str, Files]) -> str:
    """Return the whole HTML file; every text that comes from results is escaped.

    Args:
        page: The content.
        downloads: The files that the page offers below each table, by the name of the table, and
            below the paragraph on methods, by `methods`.
    """
    safe = require_extra("markupsafe", "plots").Markup
    style = files("primavista.report").joinpath("style.css").read_text("utf-8")
    html: str = (
        templates()
        .get_template("page.html.jinja")
        .render(
            page=page,
            style=safe(style + page.palette.css()),
            draw=lambda picture: safe(picture.inline(page.palette)),
            downloads=downloads,
            encode=lambda text: base64.b64encode(text.encode()).decode(),
            media=MEDIA,
            version=__version__,
            paper=PAPER,
        )
    )
    return html
