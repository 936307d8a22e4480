"""The page: one HTML file with everything inside, light and dark, for desk and phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

from primavista import __version__
from primavista.report.drawing import Picture, colour_variables, data_uri
from primavista.report.names import slug
from primavista.report.published import PAPER
from primavista.report.table import Mark, Table, text, to_csv, to_html, to_latex


@dataclass(frozen=True)
class Fold:
    """Figures that are shown when asked for."""

    title: str
    pictures: tuple[Picture, ...]
    open: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page: plain text (escaped here), figures, then tables, then folds."""

    title: str
    label: str = ""  # the paper's, such as fig:results
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    folds: tuple[Fold, ...] = ()
    verdicts: tuple[
        tuple[Mark, str, str], ...
    ] = ()  # each with what it is about, and the paper's words
    extra: tuple[Picture, ...] = ()  # files only, not on the page

    @property
    def anchor(self) -> str:
        """Where the contents link to."""
        return slug(self.title)


@dataclass(frozen=True)
class Card:
    """One number at the top of the page."""

    top: str
    value: str
    below: str


@dataclass(frozen=True)
class Page:
    """What the report says."""

    title: str
    lead: str
    marks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    sections: tuple[Section, ...] = field(default=())


def render(page: Page) -> str:
    """The whole file; every word that comes from results is escaped."""
    css = files("primavista.report").joinpath("style.css").read_text("utf-8")
    colours = f":root{{{colour_variables(False)}}}@media(prefers-color-scheme:dark){{:root{{{colour_variables(True)}}}}}"
    contents = "\n".join(
        f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in page.sections
    )
    cards = "".join(
        f'<div class="card"><div class="top">{escape(card.top)}</div><b>{escape(card.value)}</b>'
        f"<span>{escape(card.below)}</span></div>"
        for card in page.cards
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="primavista {__version__}">
<title>{escape(page.title)}</title>
<style>
{css}{colours}
</style>
</head>
<body>
<div class="layout">
<header>
<h1>{escape(page.title)}</h1>
<p class="lead">{escape(page.lead)}</p>
{_box("mark", page.marks)}{_box("mark warn", page.warnings)}
<div class="cards">{cards}</div>
</header>
<div class="side"><nav aria-label="Contents"><details open><summary>Contents</summary><ol>
{contents}
</ol></details></nav></div>
<main>
{"".join(map(_section, page.sections))}
</main>
<footer>
<p>Written by primavista {__version__}. The paper: Lomonaco, Maltoni, Pellegrini,
<a href="{PAPER}">Rehearsal-Free Continual Learning over Small Non-I.I.D. Batches</a>.
Every figure lies beside this file as SVG and PNG in <code>figures/</code>, every table as CSV and LaTeX
in <code>tables/</code>.</p>
</footer>
</div>
</body>
</html>
"""


def _box(names: str, texts: Sequence[str]) -> str:
    return (
        f'<div class="{names}">{"".join(f"<p>{escape(words)}</p>" for words in texts)}</div>\n'
        if texts
        else ""
    )


def _section(section: Section) -> str:
    label = f" <code>{escape(section.label)}</code>" if section.label else ""
    parts = [f'<section id="{section.anchor}">\n<h2>{escape(section.title)}{label}</h2>']
    parts += [f"<p>{escape(words)}</p>" for words in section.text]
    if section.verdicts:
        parts.append(
            f'<ul class="verdicts">{"".join(_verdict(*verdict) for verdict in section.verdicts)}</ul>'
        )
    parts.append(_figures(section.pictures))
    alone = len(section.tables) == 1 and not section.pictures
    parts += [_table(table, heading=not alone) for table in section.tables]
    for fold in section.folds:
        state = " open" if fold.open else ""
        inside = _figures(fold.pictures, "figures small")
        parts.append(
            f'<details class="more"{state}><summary>{escape(fold.title)}</summary>\n{inside}</details>'
        )
    return "\n".join(filter(None, parts)) + "\n</section>\n"


def _figures(pictures: Sequence[Picture], names: str = "figures") -> str:
    if not pictures:
        return ""
    paper = [f'<figure class="paper">\n{one.inline}\n</figure>' for one in pictures if one.paper]
    plain = [f"<figure>\n{one.inline}\n</figure>" for one in pictures if not one.paper]
    grid = f'<div class="{names}">\n{"".join(plain)}\n</div>' if plain else ""
    return grid + "\n".join(paper)


def _verdict(mark: Mark, about: str, paper: str) -> str:
    said = escape(text(mark))
    return f'<li><span class="{mark.tone}">{said}</span> – {escape(about)}<small>The paper: {escape(paper)}</small></li>'


def _table(table: Table, heading: bool) -> str:
    title = f"<h3>{escape(table.title)}</h3>\n" if heading else ""
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in table.notes)
    return f"{title}{to_html(table)}\n{notes}{_links(table)}"


def _links(table: Table) -> str:
    kinds = (
        ("csv", "text/csv", to_csv(table), "CSV"),
        ("tex", "application/x-tex", to_latex(table), "LaTeX"),
    )
    links = [
        f'<a download="{table.name}.{ending}" href="{data_uri(content.encode(), kind)}">{word}</a>'
        for ending, kind, content, word in kinds
    ]
    return f'<p class="files">{" · ".join(links)}</p>'
