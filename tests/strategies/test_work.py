"""How much work a batch is, counted in forward passes, operations and elements, never in seconds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from primavista.backbones import build
from primavista.backbones.onnx import OnnxFeatures, installed
from primavista.checks import CountOperations
from primavista.frames import Frames
from primavista.learner import Learner
from primavista.parts.statistics import lda_update
from primavista.strategies import create
from primavista.strategies.base import Strategy

FRAMES, SIDE = 30, 32


def frames() -> Tensor:
    return torch.randint(0, 256, (FRAMES, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Passes:
    """Counts the frames that go through the backbone, whoever computes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, strategy: Strategy) -> None:
        self.frames = 0
        strategy.backbone.register_forward_pre_hook(lambda module, args: self._add(len(args[0])))
        original = OnnxFeatures.__call__

        def counted(features: OnnxFeatures, backbone: object, images: Tensor) -> Tensor:
            self._add(len(images))
            return original(features, backbone, images)

        monkeypatch.setattr(OnnxFeatures, "__call__", counted)

    def _add(self, count: int) -> None:
        self.frames += count


@pytest.mark.parametrize("engine", ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not installed(), reason="extra"))])
@pytest.mark.parametrize("name", ["cwr*", "cwr+", "dslda"])
def test_each_frame_of_a_frozen_representation_is_computed_once(name, engine, monkeypatch):
    strategy = create(name, build("mobilenet_v1", "random", width=0.25, size=SIDE), first_batch=False)
    assert strategy.use_engine(engine) == engine
    passes = Passes(monkeypatch, strategy)
    strategy.learn(frames(), torch.arange(FRAMES) % 3)
    assert passes.frames == FRAMES
    strategy.scores(frames())
    assert passes.frames == 2 * FRAMES


@pytest.mark.parametrize(("name", "epochs"), [("naive", 2), ("ar1*", 4), ("lwf", 2)])
def test_a_representation_that_learns_sees_a_frame_once_an_epoch(name, epochs, monkeypatch):
    strategy = create(name, build("mobilenet_v1", "random", width=0.25, size=SIDE), first_batch=False)
    strategy.learn(frames()[:6], torch.arange(6) % 3)
    passes = Passes(monkeypatch, strategy)
    strategy.learn(frames(), torch.arange(FRAMES) % 3)
    targets = FRAMES if name == "lwf" else 0  # of the model before the batch
    assert passes.frames == epochs * FRAMES + targets


def test_learning_on_features_is_little_beside_computing_them():
    backbone = build("mobilenet_v1", "random", size=SIDE)
    costs = {}
    for name in ("cwr*", "dslda"):
        strategy = create(name, backbone, first_batch=False)
        with CountOperations() as computing:
            z = strategy.embed(frames())
        strategy.learn_embedded(z, torch.arange(FRAMES) % 3)
        with CountOperations() as learning:
            strategy.learn_embedded(z, torch.arange(FRAMES) % 3)
        costs[name] = learning.elements / computing.elements
    assert costs["cwr*"] < 1 / 4
    assert costs["dslda"] < 5  # D x D is large beside such small frames


def test_ar1_star_adds_a_few_passes_over_the_weights_to_naive():
    cost = {}
    for name in ("naive", "ar1*"):
        strategy = create(name, build("mobilenet_v1", "random", size=SIDE), first_batch=False, epochs=2)
        strategy.learn(frames()[:4], torch.arange(4) % 2)
        weights = sum(p.numel() for p in strategy.backbone.parameters())
        with CountOperations() as counter:
            strategy.learn(frames(), torch.arange(FRAMES) % 3)
        cost[name] = counter.elements
    assert cost["ar1*"] - cost["naive"] < 24 * weights


def test_streaming_lda_is_one_product_a_batch():
    z = torch.randn(200, 16, dtype=torch.float64)
    counts = []
    for count in (20, 200):
        mu, n, scatter = torch.zeros(2, 16).double(), torch.zeros(2).double(), torch.zeros(16, 16).double()
        with CountOperations() as counter:
            lda_update(mu, n, scatter, 0, z[:count], torch.arange(count) % 2)
        counts.append(counter.operations)
    assert counts[0] == counts[1]


def test_predicting_does_not_copy_the_frame_it_is_given(monkeypatch):
    """A copy is made by several threads, and one that waits for a busy core holds up all."""
    learner = Learner("cwr*", weights="random", width=0.25, size=SIDE, engine="torch")
    learner.learn(frames().numpy(), "mug")
    seen: list[Frames] = []
    monkeypatch.setattr(learner.strategy, "_evaluated", {"float32": lambda images: seen.append(images) or torch.zeros(1, 256)})
    one = frames()[:1]
    learner.strategy.scores(one)
    assert seen[0] is one
