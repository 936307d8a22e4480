"""Latent replay: what is kept, how much, in which order, and that it is put back where it was taken
out; the published preset, and native rehearsal.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from primavista.backbones.spec import Spec
from primavista.errors import InputError
from primavista.networks.base import Backbone, build
from primavista.nn.minibatches import composed_minibatches, generator
from primavista.strategies.conformance import SIDE, tiny_backbone, toy_batch
from primavista.strategies.creation import all_options, create
from primavista.strategies.registry import strategy_info
from primavista.strategies.rehearsal.latent_replay import Cut, LatentMemory

PRESETS = ["latent-replay", "latent-replay-2020", "rehearsal"]


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


def small_mobilenet():
    return build("mobilenet_v1", "random", width=0.125, size=64).eval()


def test_the_published_cut_is_between_the_halves_of_the_tenth_block():
    """conv5_4 is the tenth of MobileNet v1's thirteen blocks; its depthwise half is below."""
    backbone = small_mobilenet()
    frames = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8, generator=generator(0))
    found: list[torch.Tensor] = []
    body = backbone.body
    handle = body.blocks[9][1].register_forward_pre_hook(lambda module, x: found.append(x[0]))
    whole = backbone(frames)
    handle.remove()
    cut = Cut(body, "conv5_4/dw")
    latents = cut.latents(backbone, frames)
    assert torch.equal(latents, found[0])
    assert latents.shape == (3, 64, 4, 4)  # an eighth of 512 channels, a sixteenth of 64 pixels
    black = torch.zeros(1, 64, 64, 3, dtype=torch.uint8)
    assert torch.equal(cut.above(backbone, latents, black), whole)
    above = {id(p) for p in (*body.blocks[9][1].parameters(), *body.blocks[10:].parameters())}
    assert cut.parameters_below() == {id(p) for p in body.parameters()} - above


def test_a_network_cut_at_its_input_has_nothing_below():
    backbone = small_mobilenet()
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8, generator=generator(0))
    cut = Cut(backbone.body, "input")
    assert cut.latents(backbone, frames) is frames
    assert cut.parameters_below() == set()
    assert torch.equal(cut.above(backbone, frames, frames[:1] * 0), backbone(frames))


def test_a_layer_of_mobilenet_in_another_network_is_two_thirds_of_its_units():
    body = tiny_backbone().body
    assert Cut(body, "conv5_4/dw").last is Cut(body, None).last is body[5]


@pytest.mark.parametrize("cut", ["conv5_7/dw", "blocks.9", ""])
def test_a_layer_that_does_not_exist_is_refused(cut):
    for backbone in (tiny_backbone(), small_mobilenet()):
        with pytest.raises(InputError, match="no such layer in MobileNet v1"):
            create("latent-replay", backbone, cut=cut)


class Shortcut(nn.Module):
    """A body whose input reaches the end by a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return x + self.second(self.first(x))


def test_a_cut_that_a_shortcut_passes_by_is_refused():
    torch.manual_seed(0)
    backbone = Backbone(Shortcut(), Spec("custom", SIDE, (0.5,) * 3, (0.5,) * 3))
    with pytest.raises(InputError, match="more than the activations at the cut"):
        create("latent-replay", backbone, cut=1)
    create("rehearsal", backbone)  # the frames are all that it depends on


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": 2.5}, "cut is a number of blocks, the name of a layer, or None; got 2.5"),
        ({"cut": True}, "got True"),
        ({"new_patterns": 128}, "less than minibatch=128"),
        ({"new_patterns": 0}, "new_patterns must be a whole number from 1"),
        ({"memory": 0}, "memory must be a whole number from 1"),
        ({"memory": 2**20 + 1}, "memory must be"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        create("latent-replay", tiny_backbone(), **options)


@pytest.mark.parametrize("units", [0, 9, -1])
def test_a_cut_that_is_none_is_refused(units):
    with pytest.raises(InputError, match="9 units, so it can be cut after 1 to 8"):
        create("latent-replay", tiny_backbone(), cut=units)


def test_the_memory_holds_h_of_each_batch_and_never_more_than_its_limit():
    """Patterns numbered by their label.

    Batch i gives min(limit / i, its size), and takes the places of others when full.
    """
    memory = LatentMemory(24, torch.Size([2]))
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
        memory.add(torch.stack([labels, -labels], 1).float(), labels, i, generator(3, i))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_replay_keeps_what_the_same_strategy_without_it_loses(name):
    """Two classes, then three batches of a third alone, with a linear head, which forgets.

    The memory is what remembers.
    """
    images, labels = toy_batch([0, 1] * 12, seed=50)
    rates = {"lr_1": 0.1, "lr": 0.05, "lr_head": 0.05, "epochs_1": 30, "epochs": 8, "minibatch": 8}

    if strategy_info(name).options:
        rates["new_patterns"] = 3

    def accuracies(memory: int) -> list[float]:
        options = {"head": "linear", "moments": "pretrained", **rates}
        strategy = create(name, tiny_backbone(), memory=memory, **options)
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
    assert sum(with_memory[1:]) / 3 > sum(without[1:]) / 3 + 0.25


@pytest.mark.parametrize("name", PRESETS)
def test_frames_of_another_size_are_refused(name):
    strategy = create(name, tiny_backbone())
    with pytest.raises(InputError, match="resize the frames to 16 x 16"):
        strategy.learn(torch.zeros(2, 24, 24, 3, dtype=torch.uint8), torch.tensor([0, 1]))


def test_the_published_presets_are_those_of_the_publication():
    """NICv2-391 has other limits of renormalisation in the paper of AR1*: theirs stay theirs."""
    published = {
        "guard": "none",
        "lr_1": 1e-3,
        "lr": 3e-4,
        "lr_head": 3e-3,
        "epochs_1": 4,
        "epochs": 4,
        "minibatch": 128,
        "new_patterns": 21,
        "memory": 1500,
        "r_max": 1.25,
        "d_max": 0.5,
        "head": "cwr*",
        "freeze": "depthwise",
    }
    latent = {**published, "cut": "conv5_4/dw", "moments_decay": 0.99995}
    native = {**published, "cut": "input", "moments_decay": 0.9999}
    for name, expected in (("latent-replay-2020", latent), ("rehearsal", native)):
        options = all_options(name, "nicv2-391", {})
        assert {key: options[key] for key in expected} == expected
        made = create(name, tiny_backbone(), protocol="nicv2-391").options
        assert {key: getattr(made, key) for key in expected} == expected
        assert all_options(name, "nicv2-391", {"r_max": 3.0})["r_max"] == 3.0
        assert not strategy_info(name).rehearsal_free
        assert "rehearses" in strategy_info(name).title
    assert all_options("latent-replay", "nicv2-391", {})["r_max"] == 1.5


def test_minibatches_are_composed_of_so_many_of_either_group():
    """By hand: 5 new patterns, 2 in a minibatch, are 3 minibatches, with one pattern twice.

    4 replayed ones, 3 in a minibatch, are shown 9 times: one of them three times.
    """
    minibatches = list(composed_minibatches((5, 4), (2, 3), generator(7)))
    assert [len(index) for index in minibatches] == [5, 5, 5]
    assert all((index[:2] < 5).all() and (index[2:] >= 5).all() for index in minibatches)
    shown = Counter(torch.cat(minibatches).tolist())
    assert sorted(shown[k] for k in range(5)) == [1, 1, 1, 1, 2]
    assert sorted(shown[k] for k in range(5, 9)) == [2, 2, 2, 3]
    again = list(composed_minibatches((5, 4), (2, 3), generator(7)))
    assert torch.equal(torch.stack(minibatches), torch.stack(again))
    other = list(composed_minibatches((5, 4), (2, 3), generator(8)))
    assert not torch.equal(torch.stack(minibatches), torch.stack(other))


def test_the_composition_of_the_publication():
    """300 new and 1,500 stored patterns: 15 minibatches of 21 and 107, as 1,800 / 128 are 14.06.

    15 x 21 = 315 shows 15 new patterns twice; 15 x 107 = 1605 shows 105 stored ones twice.
    """
    minibatches = list(composed_minibatches((300, 1500), (21, 107), generator(0)))
    assert len(minibatches) == 15
    shown = Counter(torch.cat(minibatches).tolist())
    assert Counter(shown[k] for k in range(300)) == {1: 285, 2: 15}
    assert Counter(shown[k] for k in range(300, 1800)) == {1: 1395, 2: 105}


def test_few_patterns_fill_a_minibatch_of_the_same_size():
    """5 new and 2 stored patterns: one minibatch of 128, each pattern as often as the others."""
    (index,) = composed_minibatches((5, 2), (21, 107), generator(0))
    shown = Counter(index.tolist())
    assert sorted(shown[k] for k in range(5)) == [4, 4, 4, 4, 5]
    assert sorted(shown[k] for k in (5, 6)) == [53, 54]


def watched(strategy, monkeypatch):
    """Collect the (x, y) of every minibatch that the strategy learns."""
    seen = []
    original = strategy.cross_entropy

    def cross_entropy(x, y):
        seen.append((x.clone(), y.clone()))
        return original(x, y)

    monkeypatch.setattr(strategy, "cross_entropy", cross_entropy)
    return seen


@pytest.mark.parametrize("name", ["latent-replay-2020", "rehearsal"])
def test_every_pattern_of_a_minibatch_has_its_own_label(name, monkeypatch):
    """Each pattern is looked up among those that were shown with that label.

    The first batch and the first after it have fewer patterns than a minibatch.
    """
    strategy = create(name, tiny_backbone(), memory=10, minibatch=12, new_patterns=4, seed=3)
    seen = watched(strategy, monkeypatch)
    batches = [([4, 7] * 4), ([7] * 3), ([9, 4] * 5)]
    stored, steps = [0, 8, 10], [1, 1, 3]  # of 8, 3 and 10 new patterns, 4 in a minibatch
    shown: dict[int, list[torch.Tensor]] = {4: [], 7: [], 9: []}
    for k, labels in enumerate(batches):
        images, truth = toy_batch(labels, seed=k)
        assert len(strategy.memory) == stored[k]
        seen.clear()
        strategy.learn(images, truth)
        patterns = images if name == "rehearsal" or not k else strategy._latents(images).half()
        if k == 1 and name != "rehearsal":  # what batch 1 left, in the place of its frames
            first = toy_batch(batches[0], seed=0)[0]
            shown = {4: list(strategy._latents(first).half()[::2])}
            shown[7], shown[9] = list(strategy._latents(first).half()[1::2]), []
        for pattern, label in zip(patterns, labels, strict=True):
            shown[label].append(pattern)
        assert len(seen) == 4 * steps[k]
        for x, y in seen:
            assert len(x) == len(y) == (12 if k else 8)
            for pattern, column in zip(x, y.tolist(), strict=True):
                own = shown[int(strategy.classes[column])]
                assert any(torch.equal(pattern, other.to(pattern.dtype)) for other in own)
            if k:
                new = {tuple(p.flatten().tolist()) for p in patterns.to(x.dtype)}
                assert sum(tuple(p.flatten().tolist()) in new for p in x) == 4


def test_without_a_memory_the_whole_minibatch_is_new(monkeypatch):
    """The first lesson of a learner has no B_1, and no memory yet; later ones have both."""
    strategy = create("latent-replay-2020", tiny_backbone(), first_batch=False, memory=20)
    seen = watched(strategy, monkeypatch)
    strategy.learn(*toy_batch([0, 1] * 3))
    assert [len(x) for x, _ in seen] == [6] * 4
    seen.clear()
    strategy.learn(*toy_batch([2] * 30, seed=1))
    assert [len(x) for x, _ in seen] == [128] * 8  # 30 / 21: two minibatches per epoch
    assert all(int((y == 2).sum()) == 21 for _, y in seen)


def test_one_batch_of_the_published_algorithm_by_an_independent_version():
    """Batch 3, written out with torch.optim.SGD, functional layers and explicit loops.

    The tiny network is cut after its depthwise part, so that a pointwise convolution, a norm and
    the head learn. The rates are a hundred times the published ones, so that all of them move.
    """
    rates = {"lr": 0.03, "lr_head": 0.3, "moments_decay": 0.9}
    strategy = create("latent-replay-2020", tiny_backbone(), memory=30, seed=5, capacity=4, **rates)
    strategy.learn(*toy_batch([0, 1] * 16, seed=0))
    strategy.learn(*toy_batch([2] * 25, seed=1))
    before = copy.deepcopy(strategy)
    images, labels = toy_batch([1, 3] * 15, seed=2)
    report = strategy.learn(images, labels)

    body, memory = before.backbone.body.eval(), before.memory
    x = (images.permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    with torch.no_grad():
        latents = body[:6](x)
    patterns = torch.cat([latents.half(), memory.latents]).float()
    y = torch.cat([labels, memory.labels])  # classes came as 0, 1, 2, 3: label = column
    assert before.classes.tolist() == [0, 1, 2]
    cur = torch.tensor([int((y == j).sum()) for j in range(4)])

    conv, brn = body[6], body[7]
    weight, gamma, beta = (
        nn.Parameter(tensor.detach().clone()) for tensor in (conv.weight, brn.weight, brn.bias)
    )
    mu, sigma = brn.mu.clone(), brn.sigma.clone()
    tw = torch.zeros(4, 16)
    for j in range(4):
        if cur[j] > 0:
            tw[j] = before.head.cw[j]
    tw = nn.Parameter(tw)
    sgd = torch.optim.SGD(
        [
            {"params": [weight], "lr": 0.03, "weight_decay": 5e-4},
            {"params": [gamma, beta], "lr": 0.03},
            {"params": [tw], "lr": 0.3, "weight_decay": 5e-4},
        ],
        lr=0.0,
        momentum=0.9,
    )
    losses = []
    for epoch in range(4):
        random, total = generator(5, 3, epoch), 0.0
        new, old = torch.randperm(30, generator=random), torch.randperm(30, generator=random)
        for t in range(2):
            index = [int(new[(21 * t + k) % 30]) for k in range(21)]
            index += [30 + int(old[(107 * t + k) % 30]) for k in range(107)]
            a = F.conv2d(patterns[index], weight)
            mu_mb = a.mean((0, 2, 3))
            sigma_mb = (a.var((0, 2, 3), correction=0) + brn.eps).sqrt()
            r = (sigma_mb / sigma).clamp(1 / 1.25, 1.25).detach()
            d = ((mu_mb - mu) / sigma).clamp(-0.5, 0.5).detach()
            s = (1, -1, 1, 1)
            z = (a - mu_mb.view(s)) / sigma_mb.view(s) * r.view(s) + d.view(s)
            z = F.relu6(z * gamma.view(s) + beta.view(s)).mean((2, 3))
            loss = F.cross_entropy(z @ tw.T, y[index])
            total += loss.item()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            mu = 0.9 * mu + 0.1 * mu_mb.detach()
            sigma = 0.9 * sigma + 0.1 * sigma_mb.detach()
        losses.append(total / 2)

    cw, past = before.head.cw.clone(), before.head.past.clone()
    mean = tw.detach()[cur > 0].mean()
    for j in range(4):
        if cur[j] > 0:
            wpast = (past[j] / cur[j]) ** 0.5
            cw[j] = (cw[j] * wpast + tw.detach()[j] - mean) / (wpast + 1)
            past[j] += cur[j]

    random = generator(5, 3, -1)  # h = 30 / 3 = 10 patterns replace 10 of the 30
    added = torch.randperm(30, generator=random)[:10]
    kept = sorted(torch.randperm(30, generator=random)[:20].tolist())

    after = strategy.backbone.body
    close = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(after[6].weight.detach(), weight.detach(), **close)
    torch.testing.assert_close(after[7].weight.detach(), gamma.detach(), **close)
    torch.testing.assert_close(after[7].bias.detach(), beta.detach(), **close)
    torch.testing.assert_close(after[7].mu, mu, **close)
    torch.testing.assert_close(after[7].sigma, sigma, **close)
    torch.testing.assert_close(strategy.head.cw, cw, **close)
    torch.testing.assert_close(strategy.head.past, past, **close)
    assert report.losses == pytest.approx(losses, rel=1e-4)
    assert report.saturated is None
    expected = torch.cat([memory.latents[kept], latents[added].half()])
    torch.testing.assert_close(strategy.memory.latents, expected, rtol=2e-3, atol=1e-3)
    assert strategy.memory.labels.tolist() == [
        *memory.labels[kept].tolist(),
        *labels[added].tolist(),
    ]
    for moved, old in ((weight, conv.weight), (gamma, brn.weight), (mu, brn.mu), (cw[1], tw[1])):
        assert (
            float((moved - old).detach().abs().max()) > 0.005
        )  # so that the comparison means something


def test_native_rehearsal_keeps_the_frames_themselves():
    """A frame has 16 x 16 x 3 bytes and its label 8: ten patterns are 7,760 bytes."""
    strategy = create("rehearsal", tiny_backbone(), memory=10, seed=2)
    shown: dict[int, list[torch.Tensor]] = {label: [] for label in (4, 7, 9)}
    for k, labels in enumerate(([4, 7] * 4, [7] * 5, [9, 4] * 3)):
        images, truth = toy_batch(labels, seed=k)
        report = strategy.learn(images, truth)
        for image, label in zip(images, labels, strict=True):
            shown[label].append(image)
    assert report.stored_bytes == strategy.memory.bytes == 10 * (16 * 16 * 3 + 8) == 7760
    memory = strategy.memory
    assert memory.latents.dtype == torch.uint8
    for frame, label in zip(memory.latents, memory.labels.tolist(), strict=True):
        assert any(frame.equal(other) for other in shown[label])
    strategy.forget(4)
    assert 4 not in memory.labels.tolist()
    assert len(memory) == len(memory.latents) < 10


def test_a_full_memory_of_the_publication_has_98_megabytes_and_of_frames_74():
    """512 x 8 x 8 values of two bytes, or 128 x 128 x 3 bytes, and a label, 1,500 times."""
    latent = create("latent-replay-2020", build("mobilenet_v1", "random", size=128)).memory
    assert latent.latents.shape[1:] == (512, 8, 8)
    latent.add(torch.zeros(1500, 512, 8, 8), torch.zeros(1500).long(), 1, generator(0))
    assert latent.bytes == 1500 * (512 * 8 * 8 * 2 + 8) == 98_316_000
    native = create("rehearsal", build("mobilenet_v1", "random", width=0.125, size=128)).memory
    frames = torch.zeros(1500, 128, 128, 3, dtype=torch.uint8)
    native.add(frames, torch.zeros(1500).long(), 1, generator(0))
    assert native.bytes == 1500 * (128 * 128 * 3 + 8) == 73_740_000


def test_native_rehearsal_trains_the_whole_network():
    """From batch 2 on the first and the depthwise convolution are fixed, as in AR1*."""
    strategy = create("rehearsal", tiny_backbone(), memory=10, lr=0.03)
    strategy.learn(*toy_batch([0, 1] * 4))
    first = {name: tensor.clone() for name, tensor in strategy.backbone.state_dict().items()}
    strategy.learn(*toy_batch([1, 2] * 4, seed=1))
    same = {n for n, tensor in strategy.backbone.state_dict().items() if tensor.equal(first[n])}
    assert {"body.0.weight", "body.3.weight"} <= same
    assert not same & {"body.1.bias", "body.1.mu", "body.4.bias", "body.6.weight", "body.7.sigma"}


def test_without_a_guard_ar1_star_is_naive_descent_under_the_head_of_cwr_star():
    """AR1*free: no importance is measured, and nothing of it is kept."""
    free = create("ar1*", tiny_backbone(), guard="none", seed=4)
    plain = create(
        "naive", tiny_backbone(), head="cwr*", epochs_1=4, epochs=4, lr=1e-4, lr_head=1e-3, seed=4
    )
    for k, labels in enumerate(([0, 1] * 4, [2, 1] * 3, [0] * 5)):
        reports = [s.learn(*toy_batch(labels, seed=k)) for s in (free, plain)]
        assert reports[0] == reports[1]
    state = plain.state_dict()
    assert set(free.state_dict()) == set(state)
    assert all(tensor.equal(state[name]) for name, tensor in free.state_dict().items())


@pytest.mark.parametrize("name", PRESETS)
def test_progress_ends_when_all_is_learned(name):
    strategy = create(name, tiny_backbone(), memory=12)
    told: list[tuple[int, int]] = []
    for k, labels in enumerate(([0, 1] * 20, [2] * 25)):
        told.clear()
        images, truth = toy_batch(labels, seed=k)
        strategy.learn(images, truth, progress=lambda done, total: told.append((done, total)))
        assert len({total for _, total in told}) == 1
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("name", PRESETS)
def test_an_interrupted_stream_goes_on_bit_for_bit(name):
    """The memory fills during the first batches, and is replaced in part by the later ones."""
    batches = [([0, 1] * 5), [2] * 6, [1, 3] * 6, [2] * 30, [0, 3] * 4]
    whole = create(name, tiny_backbone(), memory=24, seed=6)
    for k, labels in enumerate(batches):
        whole.learn(*toy_batch(labels, seed=k))
    for stop in range(1, len(batches)):
        first = create(name, tiny_backbone(), memory=24, seed=6)
        for k, labels in enumerate(batches[:stop]):
            first.learn(*toy_batch(labels, seed=k))
        second = create(name, tiny_backbone(), memory=24, seed=6)
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        for k, labels in enumerate(batches[stop:], stop):
            second.learn(*toy_batch(labels, seed=k))
        state = second.state_dict()
        assert all(tensor.equal(state[name]) for name, tensor in whole.state_dict().items())
