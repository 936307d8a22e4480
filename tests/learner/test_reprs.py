"""What prompts and notebooks show of learners, predictions and results."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import primavista as pv
from primavista.learner.evaluation import Evaluation, VideoOutcome

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


def test_the_tables_of_an_evaluation_escape_what_they_show():
    answers = {"known": {EVIL: 3}, "likely": {}, "unknown": {}}
    video = VideoOutcome(EVIL, EVIL, True, answers, pv.Prediction(EVIL, 0.9, "known"))
    shown = Reader(Evaluation((EVIL,), (video,))._repr_html_())
    assert "script" not in shown.tags
    assert shown.texts.count(EVIL) == 3  # in the table of objects, and twice in that of confusions
    assert {"1 of 1", "3 (3 right)", "100.0 %"} <= set(shown.texts)


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
