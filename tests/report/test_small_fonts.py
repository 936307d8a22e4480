"""PDFs are written from small copies of the fonts, and look the same."""

from __future__ import annotations

import io
import re

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from primavista.report.figures import Picture, drawing_style, new_figure
from primavista.report.small_fonts import FAMILY, small_fonts


def figure_of(text: str) -> Figure:
    with drawing_style():
        figure = new_figure(3.0, 2.0)
        axes = figure.add_subplot()
        axes.set_title(text, fontweight="bold")
        axes.set_xlabel(text)
    return figure


def extents(figure: Figure, changes: dict[str, object]) -> list[tuple[float, ...]]:
    """Return the boxes of all texts as a PDF has them."""
    axes = figure.axes[0]
    with drawing_style(changes):
        figure.savefig(io.BytesIO(), format="pdf")
        return [text.get_window_extent().bounds for text in (axes.title, axes.xaxis.label)]


def test_texts_are_as_wide_as_with_the_whole_font() -> None:
    figure = figure_of("AVAST fi ± 5 – DER++ 36_straight…right, Größe, Ω")
    small = small_fonts(figure)
    assert small["font.sans-serif"][0] == FAMILY
    for one, other in zip(extents(figure, small), extents(figure, {}), strict=True):
        assert one == pytest.approx(other, abs=0.02)


def test_a_pdf_names_the_font_that_it_shows() -> None:
    content = Picture("x", "X", figure_of("AR1*")).pdf
    names = set(re.findall(rb"/FontName /[A-Z]{6}\+([\w-]+)", content))
    assert names == {b"DejaVuSans", b"DejaVuSans-Bold"}


@pytest.mark.parametrize("text", ["кружка", "杯子"])
def test_other_letters_come_from_the_whole_font(text: str) -> None:
    assert small_fonts(figure_of(text)) == {}


def test_fonts_that_the_user_chose_stay() -> None:
    with rc_context({"font.sans-serif": ["DejaVu Serif"]}):
        assert small_fonts(figure_of("AR1*")) == {}
