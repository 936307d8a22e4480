"""The work of a batch, counted in forward passes, operations and elements, never in seconds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.heads.dslda import lda_update
from primavista.media.frames import Frames
from primavista.networks.base import build
from primavista.strategies.base import Batch, Strategy
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import CountOperations, tiny_backbone, toy_batch
from primavista.strategies.creation import create

FRAMES, SIDE = 30, 32


def frames() -> Tensor:
    return torch.randint(
        0,
        256,
        (FRAMES, SIDE, SIDE, 3),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )


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


# the third batch of 24 frames: frames through the backbone, operations (launches on a GPU), tensors
# newly allocated, kB of them; the sums of batch renormalisation are many small operations, which
# take a fraction of the time of one large one
WORK = {
    "naive": (48, 312, 264, 2676),
    "lwf": (72, 373, 307, 3687),
    "ewc": (72, 465, 373, 3786),
    "cwr+": (96, 502, 338, 3162),
    "cwr*": (96, 513, 347, 3163),
    "ar1": (96, 636, 518, 5348),
    "ar1*": (96, 643, 522, 5346),
    "latent-replay": (28, 500, 360, 9299),
    "latent-replay-2020": (32, 877, 664, 30515),
    "rehearsal": (1024, 1238, 1044, 56644),
    "er": (54, 255, 258, 3268),
    "der++": (352, 466, 419, 20398),
    "gdumb": (144, 742, 813, 8827),
    "icarl": (324, 759, 613, 16182),
    "dslda": (24, 148, 72, 988),
    "ncm": (24, 48, 31, 767),
    "lda": (24, 92, 39, 765),
    "ridge": (24, 92, 39, 765),
    "ranpac": (24, 236, 157, 829),
    "fecam": (24, 241, 85, 797),
    "klda": (24, 98, 44, 806),
    "acil": (24, 96, 42, 791),
    "fsa": (24, 109, 51, 962),
    "prima": (24, 551, 208, 1394),
    "cumulative": (720, 755, 752, 41290),
}
# fewer steps beside the passes, among which another pass would not be seen
SMALLER = {"gdumb": {"epochs_1": 2}, "icarl": {"memory": 30}} | {
    name: {"expand": 40} for name in ("ranpac", "acil", "klda")
}
BATCH_BYTES = 24 * 16 * 16 * 3


class CountAllocations(CountOperations):
    """Counts the tensors with their own memory too, and their bytes."""

    def __init__(self):
        super().__init__()
        self.allocations = self.allocated = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        given = {memory_of(value) for value in tensors((args, kwargs))}
        for value in tensors(result):
            if value.numel() and memory_of(value) not in given:
                self.allocations += 1
                self.allocated += value.untyped_storage().nbytes()
        return result


def tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def memory_of(tensor):
    return tensor.untyped_storage().data_ptr()


def third_batch(name, monkeypatch, spoil=None):
    """What it takes; `spoil` is done beside it."""
    strategy = create(name, tiny_backbone(), **SMALLER.get(name, {}))
    batches = [toy_batch([0, 1, 2] * 8, seed=k) for k in range(3)]
    for images, labels in batches[:2]:
        strategy.learn(images, labels)
    passes, images = Passes(monkeypatch, strategy), batches[2][0]
    with CountAllocations() as counter:
        if spoil is not None:
            spoil(strategy, images)
        strategy.learn(images, batches[2][1])
    return passes.frames, counter.operations, counter.allocations, counter.allocated


def too_much(found, name):
    """The rows that did a fiftieth more than the table, or allocated half a batch more."""
    frames, operations, allocations, kilobytes = WORK[name]
    bounds = frames, 1.02 * operations, 1.02 * allocations, 1000 * kilobytes + BATCH_BYTES / 2
    return [
        what
        for what, own, most in zip(
            ("pass", "operations", "tensors", "bytes"), found, bounds, strict=True
        )
        if own > most
    ]


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_batch_takes_more_work_than_it_did(name, monkeypatch):
    found = third_batch(name, monkeypatch)
    if name not in WORK:
        row = (*found[:3], math.ceil(found[3] / 1000))
        pytest.fail(f'a new strategy needs a row in WORK in {__file__}: "{name}": {row},')
    assert not too_much(found, name), f"{found}, and not {WORK[name]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_copy_of_the_frames_or_another_pass_would_show(name, monkeypatch):
    assert "bytes" in too_much(
        third_batch(name, monkeypatch, lambda strategy, images: images.clone()), name
    )
    again = third_batch(name, monkeypatch, lambda strategy, images: strategy.backbone(images))
    assert {"pass", "operations", "bytes"} <= set(too_much(again, name))


def test_what_is_counted_as_allocated():
    a, b = torch.zeros(4, 4), torch.ones(4, 4)
    with CountAllocations() as counter:
        a.t()[:2].add_(1)  # views, and in place
        torch._foreach_mul_([a, b], 2.0)
        a + b  # 64 bytes
        torch._foreach_add([a, b], 1.0)  # twice that
    assert (counter.allocations, counter.allocated) == (3, 3 * 64)


@pytest.mark.parametrize(
    "engine",
    ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not onnx_installed(), reason="extra"))],
)
@pytest.mark.parametrize("name", ["cwr*", "cwr+", "dslda"])
def test_each_frame_of_a_frozen_representation_is_computed_once(name, engine, monkeypatch):
    options = {} if name == "dslda" else {"features": "fixed"}
    backbone = build("mobilenet_v1", "random", width=0.25, size=SIDE)
    strategy = create(name, backbone, first_batch=False, **options)
    assert strategy.representation.use_engine(engine) == engine
    passes = Passes(monkeypatch, strategy)
    strategy.learn(frames(), torch.arange(FRAMES) % 3)
    assert passes.frames == FRAMES
    strategy.scores(frames())
    assert passes.frames == 2 * FRAMES


@pytest.mark.parametrize(("name", "epochs"), [("naive", 2), ("ar1*", 4), ("lwf", 2), ("cwr*", 4)])
def test_a_representation_that_learns_sees_a_frame_once_an_epoch(name, epochs, monkeypatch):
    strategy = create(
        name, build("mobilenet_v1", "random", width=0.25, size=SIDE), first_batch=False
    )
    strategy.learn(frames()[:6], torch.arange(6) % 3)
    passes = Passes(monkeypatch, strategy)
    strategy.learn(frames(), torch.arange(FRAMES) % 3)
    targets = FRAMES if name == "lwf" else 0  # of the model before the batch
    assert passes.frames == epochs * FRAMES + targets


def test_learning_on_features_is_little_beside_computing_them():
    backbone = build("mobilenet_v1", "random", size=SIDE)
    costs = {}
    for name, options in (("cwr*", {"features": "fixed"}), ("dslda", {})):
        strategy = create(name, backbone, first_batch=False, **options)
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
        strategy = create(
            name, build("mobilenet_v1", "random", size=SIDE), first_batch=False, epochs=2
        )
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
        mu, n, scatter = (
            torch.zeros(2, 16).double(),
            torch.zeros(2).double(),
            torch.zeros(16, 16).double(),
        )
        with CountOperations() as counter:
            lda_update(mu, n, scatter, 0, z[:count], torch.arange(count) % 2)
        counts.append(counter.operations)
    assert counts[0] == counts[1]


def test_predicting_does_not_copy_the_frame_it_is_given(monkeypatch):
    """A copy is made by several threads, and one that waits for a busy core holds up all."""
    strategy = create("cwr*", tiny_backbone(), first_batch=False, features="fixed")
    strategy.learn(frames(), torch.zeros(len(frames()), dtype=torch.int64))
    seen: list[Frames] = []
    monkeypatch.setitem(
        strategy.representation._captured,
        "float32",
        lambda images: seen.append(images) or torch.zeros(1, strategy.backbone.dim),
    )
    one = frames()[:1]
    strategy.scores(one)
    assert seen[0] is one


@pytest.mark.parametrize("name", ["ewc", "dslda", "lda"])
def test_counters_are_read_without_waiting_for_the_device(name):
    """They are asked for in every epoch.

    On a GPU each time would wait until all that was asked of it is done.
    """
    strategy = create(name, tiny_backbone(), seed=5)
    strategy.learn(*toy_batch([0, 1]))
    before = strategy.i, int(strategy.seed), int(strategy.embedding_version)
    strategy.to("meta")  # a device whose numbers cannot be read at all
    assert strategy.device.type == "meta"
    assert (strategy.i, int(strategy.seed), int(strategy.embedding_version)) == before
    assert list(strategy.shuffled(batch_of(2), 0)) if name == "ewc" else strategy.embeds


def batch_of(count):
    columns = torch.zeros(count, dtype=torch.int64)
    return Batch(2, torch.zeros(count, 0), columns, torch.zeros(1), torch.ones(1))
