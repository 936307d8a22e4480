"""Names in the scripts of the world, drawn into a video: read, or at least told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont

from primavista.cli.annotate import draw, font_for
from primavista.learner.prediction import Prediction

NAMES = ["кружка", "κούπα", "カップ", "杯子", "كوب", "कप"]


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ImageFont.truetype

    def truetype(font: Any, *arguments: Any, **options: Any) -> Any:
        if font == "DejaVuSans.ttf":
            raise OSError("cannot open resource")
        return real(font, *arguments, **options)  # Pillow's own

    monkeypatch.setattr(ImageFont, "truetype", truetype)


@pytest.mark.parametrize("name", NAMES)
def test_letters_that_no_font_has_are_written_as_numbers(no_fonts: None, name: str) -> None:
    _, written = font_for(f"my {name}", 20)
    assert written == "my " + name.encode("ascii", "backslashreplace").decode()


def test_a_font_of_the_machine_is_found() -> None:
    """DejaVu has Latin, Cyrillic and Greek."""
    try:
        ImageFont.truetype("DejaVuSans.ttf", 20)
    except OSError:
        pytest.skip("DejaVu is not installed: apt-get install fonts-dejavu-core")
    for name in ("Käse", "кружка", "κούπα"):
        font, written = font_for(name, 20)
        assert (Path(font.path).name, written) == ("DejaVuSans.ttf", name)
        blank = bytes(font.getmask("\uffff"))  # every font draws its box for missing letters
        assert blank not in [bytes(font.getmask(letter)) for letter in name]
    assert font_for("my 杯", 20)[1] == "my \\u676f"


def test_no_two_names_look_alike() -> None:
    seen = {
        np.asarray(draw(Image.new("RGB", (400, 300)), Prediction(name, 0.5, "known"))).tobytes()
        for name in NAMES
    }
    assert len(seen) == len(NAMES)
