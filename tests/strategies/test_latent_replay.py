"""Latent replay: what is kept, how much, in which order, and that it is put back where it was taken
out.
"""

from __future__ import annotations

import pytest
import torch

from primavista.backbones.registry import build
from primavista.errors import InputError
from primavista.nn.latents import Cut, LatentMemory
from primavista.nn.minibatches import generator
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.registry import create


@pytest.mark.parametrize(
    "make", [tiny_backbone, lambda: build("mobilenet_v1", "random", width=0.125, size=32)]
)
@pytest.mark.parametrize("units", [None, 1, 5])
def test_a_network_cut_in_two_is_the_network(make, units):
    backbone = make().eval()
    cut = Cut(backbone.body, units)
    side = backbone.spec.size
    frames = torch.randint(0, 256, (3, side, side, 3), dtype=torch.uint8, generator=generator(0))
    latents = cut.latents(backbone, frames)
    other = torch.zeros(1, side, side, 3, dtype=torch.uint8)
    assert torch.equal(cut.above(backbone, latents, other), backbone(frames))
    assert torch.equal(backbone(frames), backbone(frames))  # no hook is left behind


def test_what_lies_below_is_what_the_activations_depend_on():
    backbone = build("mobilenet_v1", "random", width=0.125, size=32).eval()
    cut = Cut(backbone.body, 4)
    latents = cut.latents(backbone, torch.full((1, 32, 32, 3), 90, dtype=torch.uint8))
    parameters = list(backbone.parameters())
    grads = torch.autograd.grad(latents.sum(), parameters, allow_unused=True)
    assert {
        id(p) for p, g in zip(parameters, grads, strict=True) if g is not None
    } == cut.parameters_below()


@pytest.mark.parametrize("units", [0, 9, -1])
def test_a_cut_that_is_none_is_refused(units):
    with pytest.raises(InputError, match="9 units, so it can be cut after 1 to 8"):
        create("latent-replay", tiny_backbone(), cut=units)


def test_the_memory_holds_h_of_each_batch_and_never_more_than_its_limit():
    """Patterns numbered by their label.

    Batch i gives min(limit / i, its size), and takes the places of others when full.
    """
    memory = LatentMemory(torch.Size([2]))
    expected = [
        12,
        20,
        24,
        24,
        24,
    ]  # limit 24: h = 24 of 12; 12 of 8; 8 of 8 with room for 4; then 6, then 4
    added = [12, 8, 8, 6, 4]
    for i, size in enumerate([12, 8, 8, 8, 8], 1):
        labels = torch.arange(size) + 100 * i
        memory.add(torch.stack([labels, -labels], 1).float(), labels, 24, i, generator(3, i))
        assert len(memory.labels) == len(memory.latents) == expected[i - 1]
        assert int((memory.labels >= 100 * i).sum()) == added[i - 1]
        assert torch.equal(memory.latents, torch.stack([memory.labels, -memory.labels], 1).half())
    assert memory.bytes == 24 * (2 * 2 + 8)
    memory.forget(int(memory.labels[0]))
    assert len(memory.labels) == 23
    assert torch.equal(memory.latents[:, 0], memory.labels.half())


def test_activations_and_labels_stay_together_and_true():
    """What is kept is the activation of a frame of that label, also after later batches have
    trained what lies above.
    """
    strategy = create("latent-replay", tiny_backbone(), memory=10, seed=1)
    batches = [
        toy_batch(labels, seed=k) for k, labels in enumerate(([4, 7] * 4, [7] * 5, [9, 4] * 3))
    ]
    reports = [strategy.learn(images, labels) for images, labels in batches]
    assert [r.patterns for r in reports] == [8, 5, 6]
    assert (
        [r.stored_bytes for r in reports][-1]
        == strategy.memory.bytes
        == 10 * (strategy.memory.latents[0].numel() * 2 + 8)
    )
    shown = {label: [] for label in (4, 7, 9)}
    for images, labels in batches:
        for latent, label in zip(strategy._latents(images).half(), labels.tolist(), strict=True):
            shown[label].append(latent)
    for latent, label in zip(strategy.memory.latents, strategy.memory.labels.tolist(), strict=True):
        assert any(
            torch.allclose(latent.float(), other.float(), atol=2e-3) for other in shown[label]
        )


def test_below_the_cut_nothing_learns_from_batch_2_on():
    strategy = create("latent-replay", tiny_backbone(), memory=10)
    before = {name: tensor.clone() for name, tensor in strategy.backbone.state_dict().items()}
    strategy.learn(*toy_batch([0, 1] * 4))
    first = {name: tensor.clone() for name, tensor in strategy.backbone.state_dict().items()}
    strategy.learn(*toy_batch([1, 2] * 4, seed=1))
    second = strategy.backbone.state_dict()
    below = [
        name for name in before if int(name.split(".")[1]) < 6 and not name.endswith("limits")
    ]  # those are the schedule's
    assert any(not first[name].equal(before[name]) for name in below)
    assert all(second[name].equal(first[name]) for name in below)
    assert any(not second[name].equal(first[name]) for name in before if name not in below)


def test_replay_keeps_what_the_same_strategy_without_it_loses():
    """Two classes, then three batches of a third alone, with a linear head, which forgets.

    The memory is what remembers.
    """
    images, labels = toy_batch([0, 1] * 12, seed=50)
    rates = {"lr_1": 0.1, "lr": 0.1, "lr_head": 0.1, "epochs_1": 30, "epochs": 8, "minibatch": 8}

    def accuracies(memory: int) -> list[float]:
        strategy = create("latent-replay", tiny_backbone(), memory=memory, head="linear", **rates)
        found = []
        for k, classes in enumerate(([0, 1] * 16, [2] * 16, [2] * 16, [2] * 16)):
            strategy.learn(*toy_batch(classes, seed=k))
            found.append(
                float(
                    (strategy.classes[strategy.scores(images).argmax(1)] == labels).float().mean()
                )
            )
        return found

    with_memory, without = accuracies(128), accuracies(1)
    assert with_memory[0] == without[0] == 1
    assert min(with_memory) >= max(without[1:]) + 0.4


def test_frames_of_another_size_are_refused():
    strategy = create("latent-replay", tiny_backbone())
    with pytest.raises(InputError, match="resize the frames to 16 x 16"):
        strategy.learn(torch.zeros(2, 24, 24, 3, dtype=torch.uint8), torch.tensor([0, 1]))
