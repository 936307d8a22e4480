"""What notebooks and prompts show of learners and predictions."""

from __future__ import annotations

import numpy as np

import primavista as pv

FRAMES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)


def test_reprs_are_short_and_say_what_matters():
    learner = pv.Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")
    learner.learn(FRAMES, "mug")
    learner.learn(255 - FRAMES, "cup")
    expected = "Learner('ncm', backbone='mobilenet_v1', size=32, objects={'mug': 4, 'cup': 4})"
    assert repr(learner) == expected
    many = learner.copy()
    many.learn(np.zeros((9, 32, 32, 3), np.uint8), [f"object {k}" for k in range(9)])
    assert repr(many).endswith("'object 5': 1, ... (11 in all)})")
    prediction = pv.Prediction("mug", 0.93456, "known", {"mug": 0.93456, "cup": 0.06544}, 0.61)
    expected = "Prediction(label='mug', confidence=0.935, answer='known', familiarity=0.61)"
    assert repr(prediction) == expected
