"""What notebooks and prompts show of learners, predictions and results; every text is escaped."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import primavista as pv
from primavista.notebook import html_bars, html_table

EVIL = "<script>alert('mug')</script>"
FRAMES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)


class Reader(HTMLParser):
    """The tags and the texts of some HTML; it fails if a tag is closed that is not open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def learner() -> pv.Learner:
    made = pv.Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")
    made.learn(FRAMES, EVIL)
    made.learn(255 - FRAMES, "cup")
    return made


def test_tables_and_bars_escape_what_they_show():
    table = Reader(html_table([[EVIL, 1.23456]], header=[EVIL], caption=EVIL))
    assert table.texts.count(EVIL) == 3
    assert "1.235" in table.texts
    bars = Reader(html_bars({EVIL: 0.25, "cup": 0.75}, caption=EVIL))
    assert bars.texts == [EVIL, "cup", "75 %", EVIL, "25 %"]
    assert (table.tags | bars.tags).isdisjoint({"script"})


def test_a_learner_in_a_notebook_names_its_objects_with_counts(learner):
    shown = Reader(learner._repr_html_())
    assert "script" not in shown.tags
    assert {"ncm", EVIL, "cup", "4", "frames"} <= set(shown.texts)


def test_a_prediction_in_a_notebook_has_one_bar_per_name(learner):
    shown = Reader(learner.predict(255 - FRAMES[0])._repr_html_())
    assert "script" not in shown.tags
    assert shown.texts[1] == "cup"
    found = learner.predict(FRAMES[0])
    stranger = replace(found, label=EVIL, answer="unknown", familiarity=None)
    assert Reader(stranger._repr_html_()).texts[0] == f"unknown (most like {EVIL})"
    assert "nothing has been taught yet" in pv.Prediction(None, 0.0, "unknown")._repr_html_()


def test_reprs_are_short_and_say_what_matters(learner):
    assert repr(learner) == (
        f"Learner('ncm', backbone='mobilenet_v1', size=32, objects={{{EVIL!r}: 4, 'cup': 4}})"
    )
    many = learner.copy()
    many.learn(np.zeros((9, 32, 32, 3), np.uint8), [f"object {k}" for k in range(9)])
    assert repr(many).endswith("'object 5': 1, ... (11 in all)})")
    prediction = pv.Prediction("mug", 0.93456, "known", {"mug": 0.93456, "cup": 0.06544}, 0.61)
    expected = "Prediction(label='mug', confidence=0.935, answer='known', familiarity=0.61)"
    assert repr(prediction) == expected
