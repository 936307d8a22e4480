"""Names in the scripts of the world, drawn into a video: read, or at least told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFont

from primavista.cli import fonts
from primavista.cli.annotate import draw
from primavista.learner.prediction import Prediction

NAMES = ["кружка", "κούπα", "カップ", "杯子", "كوب", "कप"]


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_find_font", lambda name: None)


def test_what_a_font_lacks() -> None:
    plain = ImageFont.load_default(20)
    assert fonts.missing_letters(plain, "mug 12 %") == set()
    assert fonts.missing_letters(plain, "mug 杯") == {"杯"}


@pytest.mark.parametrize("name", NAMES)
def test_letters_that_no_font_has_are_written_as_numbers(no_fonts: None, name: str) -> None:
    font, written = fonts.font_for(f"my {name}", 20)
    assert written == "my " + name.encode("ascii", "backslashreplace").decode()
    assert fonts.missing_letters(font, written) == set()


def test_a_font_of_the_machine_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DejaVu has Cyrillic and Greek; files that are no fonts are passed over."""
    here = next(
        (path for path in fonts._installed_fonts() if Path(path).name == "DejaVuSans.ttf"), None
    )
    if here is None:
        pytest.skip("DejaVu is not installed: apt-get install fonts-dejavu-core")
    (tmp_path / "NotoSans-broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(
        fonts, "_installed_fonts", lambda: (str(tmp_path / "NotoSans-broken.ttf"), here)
    )
    fonts._find_font.cache_clear()
    for name in ("кружка", "κούπα"):
        font, written = fonts.font_for(name, 20)
        assert (Path(font.path).name, written) == ("DejaVuSans.ttf", name)
    fonts._find_font.cache_clear()


def test_no_two_names_look_alike() -> None:
    seen = {
        np.asarray(draw(Image.new("RGB", (400, 300)), Prediction(name, 0.5, True))).tobytes()
        for name in NAMES
    }
    assert len(seen) == len(NAMES)
