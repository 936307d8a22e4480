"""prima as version 0.1 had it, for its files: order, split and merge of frames do not matter.

Against a slow version; on a stream where depths differ; what it costs.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from primavista.heads.prima_frames import (
    OWN_FEATURES_PRIOR,
    RELATIVE_RHO_GRID,
    SIGNAL_TO_NOISE_POWER,
    mixture_weights,
)

from primavista import Learner
from primavista.errors import InputError
from primavista.media.frames import crop_and_resize
from primavista.networks.base import build
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create


def made(**options):
    return create("prima", tiny_backbone(), rule="frames", **options)


def features(strategy, labels, seed):
    """Correlated, never centred, with a dead feature and one that hardly varies in each block."""
    random = np.random.default_rng(seed)
    parts = []
    for size in strategy.head.statistics.blocks:
        mixing = random.normal(size=(size, size)) / size**0.5
        z = (
            random.normal(size=(len(labels), size)) @ mixing
            + random.normal(size=(50, size))[labels]
            + 1
        )
        z[:, 3], z[:, 4] = 0, 5 + 1e-3 * z[:, 4]
        parts.append(z)
    return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))


def by_label(strategy, z):
    return strategy.scores_embedded(z)[:, strategy.classes.argsort()]


def familiar(strategy, z):
    """Cubed: at its cube root near 0 rounding would show."""
    return strategy.familiar()(z.double(), strategy.scores_embedded(z).argmax(1)) ** 3


def off(a, b):
    return float((a - b).abs().max() / b.abs().max())


streams = st.tuples(
    st.lists(st.integers(0, 6), min_size=2, max_size=60),
    st.integers(0, 10**6),
    st.randoms(use_true_random=False),
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(stream=streams)
def test_any_permutation_and_any_split_give_the_same_scores(stream):
    labels, seed, random = stream
    whole, other = made(), made()
    z, y = features(whole, labels, seed), torch.tensor(labels)
    whole.learn_embedded(z, y)
    order = torch.tensor(random.sample(range(len(labels)), len(labels)))
    while len(order):
        size = random.randint(1, len(order))
        other.learn_embedded(z[order[:size]], y[order[:size]])
        order = order[size:]
    test = features(whole, list(range(7)), seed + 1)
    assert off(by_label(other, test), by_label(whole, test)) < 1e-8
    assert torch.allclose(familiar(other, test), familiar(whole, test), atol=1e-6)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(first=streams, second=streams, shift=st.integers(0, 5))
def test_a_merge_equals_having_learned_both(first, second, shift):
    joint, ours, theirs = made(), made(), made()
    a, b = torch.tensor(first[0]), torch.tensor(second[0])
    za, zb = features(joint, first[0], first[1]), features(joint, second[0], second[1])
    ours.learn_embedded(za, a)
    theirs.learn_embedded(zb, b + 100)
    joint.learn_embedded(torch.cat([za, zb]), torch.cat([a, b + shift]))
    ours.merge(theirs, {100 + k: shift + k for k in range(7)})
    test = features(joint, list(range(7)), 5)
    assert off(by_label(ours, test), by_label(joint, test)) < 1e-8
    assert torch.allclose(familiar(ours, test), familiar(joint, test), atol=1e-6)


def slow_scores(z, labels, test, sizes):
    """Everything from the frames, at balance 1 with as many frames of each class.

    Weights, errors and shares in the open.
    """
    classes = labels.max() + 1
    y = np.eye(classes)[labels] - 1 / classes
    at, errors, predictions = 0, [], []
    for size in sizes:
        x, new = z[:, at : at + size], test[:, at : at + size]
        mean, variance = x.mean(0), x.var(0)
        moment = variance + mean**2
        std = np.sqrt(variance + 1e-6 * moment + 1e-8 * moment.mean() + 1e-30)
        x, new = (x - mean) / std, (new - mean) / std
        scale = np.trace(x.T @ x / len(x)) / min(len(x) - 1, size)
        tried = []
        for level in (level for level in RELATIVE_RHO_GRID if level >= 0.1 or len(x) >= 2 * size):
            w = np.linalg.solve(x.T @ x / len(x) + level * scale * np.eye(size), x.T @ y / len(x))
            values = np.linalg.eigvalsh(x.T @ x / len(x))
            trace = (values / (values + level * scale)).sum() + 1
            tried.append(
                (
                    (((y - x @ w) ** 2).sum() / (y**2).sum()) / (1 - trace / len(x)) ** 2,
                    new @ w + 1 / classes,
                )
            )
        best = min(tried, key=lambda pair: pair[0])
        errors.append(best[0])
        predictions.append(best[1])
        at += size
    ratio = [((1 - min(e, 0.999)) / max(e, 1e-3)) ** SIGNAL_TO_NOISE_POWER for e in errors]
    ratio[-1] *= 2
    return sum(r * p for r, p in zip(ratio, predictions, strict=True)) / sum(ratio)


def test_scores_are_those_of_the_slow_version():
    strategy = made()
    labels = np.arange(90) % 3
    z = features(strategy, labels.tolist(), 1)
    test = features(strategy, [0, 1, 2], 1)
    strategy.learn_embedded(z, torch.from_numpy(labels))
    expected = slow_scores(
        z.double().numpy(), labels, test.double().numpy(), strategy.head.statistics.blocks
    )
    assert np.allclose(by_label(strategy, test).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("forgotten", [False, True])
def test_familiarity_is_that_of_the_slow_version(forgotten):
    """From the frames.

    Of a class that was forgotten only its scatter around its own mean is left.
    """
    strategy = made()
    labels = np.arange(90) % 3
    z = features(strategy, labels.tolist(), 1)
    strategy.learn_embedded(z, torch.from_numpy(labels))
    x, kept = z.double().numpy(), 3
    mu = np.stack([x[labels == k].mean(0) for k in range(3)])
    own = slice(-strategy.head.statistics.blocks[-1], None)
    spread = ((x - mu[labels])[:, own] ** 2).sum(1).mean()
    if forgotten:
        strategy.forget(2)
        mu, kept = mu[:2], 2
    test = features(strategy, [0, 1, 2, 0, 1], 1)
    new, m = test.double().numpy(), mu.mean(0)

    def lead(z):
        """Of each class over the average one, from frames on."""
        scores = strategy.score_features(torch.from_numpy(z)).numpy()
        return scores - scores.mean(1, keepdims=True)

    at_m, at_means = lead(m[None])[0], lead(mu)
    between = ((mu - m)[:, own] ** 2).sum() / (kept - 1)
    for z_i, row, found in zip(new, lead(new), familiar(strategy, test).tolist(), strict=True):
        c = row.argmax()
        way = (row[c] - at_m[c]) / (at_means[c, c] - at_m[c])
        cos = z_i[own] @ mu[c][own] / np.linalg.norm(z_i[own]) / np.linalg.norm(mu[c][own])
        assert found == pytest.approx(
            max(way, 0) * max(cos, 0) ** 4 * between / (between + spread), rel=1e-6
        )
    assert familiar(strategy, test).max() > 0.01


@pytest.mark.parametrize("telling", [0, 3])
def test_the_depth_that_tells_the_classes_apart_decides(telling):
    """Of two streams, one where only an early block knows the class and one where only a late one
    does.
    """
    strategy = made()
    random = np.random.default_rng(0)
    labels = torch.arange(200) % 4
    z = torch.from_numpy(random.normal(size=(200, strategy.backbone.dim)).astype(np.float32))
    start = sum(strategy.head.statistics.blocks[:telling])
    z[:, start : start + 8] += 3 * torch.nn.functional.one_hot(labels, 4).repeat(1, 2)
    strategy.learn_embedded(z, labels)
    errors = [head.error for head in strategy.head.fits(4)]
    assert int(np.argmin(errors)) == telling
    assert all(error > 0.9 for k, error in enumerate(errors) if k != telling)
    assert mixture_weights(errors, [1, 1, 1, 1, OWN_FEATURES_PRIOR])[telling] > 0.9


def test_the_state_of_mobilenet_v1_stays_within_its_bound():
    strategy = create("prima", build("mobilenet_v1", "random"), rule="frames")
    before = {
        name
        for name in create("ncm", build("mobilenet_v1", "random")).state_dict()
        if name.startswith("backbone.")
    }
    labels = torch.arange(100)
    strategy.learn_embedded(torch.zeros(100, strategy.backbone.dim), labels)
    size = {name: t.numel() * t.element_size() for name, t in strategy.state_dict().items()}
    assert {name for name in size if name.startswith("backbone.")} == before
    beyond = sum(bytes_ for name, bytes_ in size.items() if name not in before)
    assert beyond == pytest.approx(
        8 * (4 * 1536 * 1537 / 2 + 1024 * 1025 / 2 + 100 * 7168), rel=1e-3
    )
    assert beyond < 64e6


def test_a_learner_with_it_saves_loads_and_tells_the_unknown(tmp_path):
    learner = Learner("prima", weights="random", size=32, width=0.25, rule="frames")
    images, labels = toy_batch([0, 1] * 8)
    images = images.repeat_interleave(2, 1).repeat_interleave(2, 2)
    for label, name in ((0, "one"), (1, "two")):
        learner.learn(images[labels == label].numpy(), name)
    learner.save(tmp_path / "toys.pv")
    loaded = Learner.load(tmp_path / "toys.pv")
    for mine, its, label in zip(
        learner.predict(images.numpy()),
        loaded.predict(images.numpy()),
        labels.tolist(),
        strict=True,
    ):
        assert mine == its
        assert mine.label == ("one", "two")[label]
        assert mine.familiarity is not None


def test_an_unbalanced_option_is_refused():
    with pytest.raises(InputError, match="balance"):
        made(balance=2)


@pytest.mark.slow
def test_real_frames_with_the_settings_that_it_ships_with(shared):
    """The CORe50 frames, sessions 3, 7 and 10 unseen: at least 79 of 100."""
    import tarfile

    parts = {"train": ([], []), "test": ([], [])}
    with tarfile.open(shared / "data" / "core50_frames.tar") as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if member.name.endswith(".jpg"):
                category, session, _ = member.name.split("/")
                images, names = parts["test" if int(session[1:]) in (3, 7, 10) else "train"]
                images.append(
                    crop_and_resize(Image.open(io.BytesIO(archive.extractfile(member).read())), 128)
                )
                names.append(category)
    classes = sorted(set(parts["train"][1]))
    images, labels = {}, {}
    for part, (pictures, names) in parts.items():
        images[part] = torch.from_numpy(np.stack(pictures))
        labels[part] = torch.tensor([classes.index(name) for name in names])
    strategy = create("prima", build(), rule="frames")
    strategy.learn(images["train"], labels["train"])
    best = strategy.classes[strategy.scores(images["test"]).argmax(1)]
    assert float((best == labels["test"]).double().mean()) >= 0.79


def test_made_again_from_its_own_backbone_it_reads_every_block_once():
    learner = Learner("prima", weights="random", width=0.125, size=32, device="cpu", rule="frames")
    for _ in range(3):
        learner = learner.untaught()
    hooks = [len(module._forward_hooks) for module in learner.strategy.backbone.modules()]
    assert (sum(hooks), max(hooks)) == (4, 1)
