"""Convolutions in bf16.

Every strategy takes it, its statistics and scores stay as they are, and learn nearly the same.
"""

from __future__ import annotations

import pytest
import torch

from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_bf16_gives_nearly_the_same_scores_in_float32(name):
    scores = {}
    for precision in ("float32", "bf16"):
        strategy = create(name, tiny_backbone())
        strategy.backbone.precision = precision
        for seed in range(3):
            frames, labels = toy_batch([0, 1, 2] * 6, seed)
            strategy.learn(frames, labels)
        scores[precision] = strategy.scores(toy_batch([0, 1, 2] * 6, 9)[0])
        assert scores[precision].dtype in (torch.float32, torch.float64)
        assert all(tensor.dtype != torch.bfloat16 for tensor in strategy.state_dict().values())
    spread = float(scores["float32"].std())
    assert not torch.equal(scores["bf16"], scores["float32"])
    assert float((scores["bf16"] - scores["float32"]).abs().mean()) < 0.25 * spread
