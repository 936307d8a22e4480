"""The analytic strategies: any order, any split and any merge give the same.

And what remains of a class that was forgotten.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.errors import InputError
from primavista.heads.statistics import SufficientStatistics, add_gram
from primavista.nn.class_rows import ArrayBuffers
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone
from primavista.strategies.creation import create

DIM = 16
ANALYTIC = {name: {} for name, preset in STRATEGIES.items() if preset.analytic} | {
    "ridge, expand": {"expand": 24}
}
del ANALYTIC["prima"]  # its features are not the backbone's own: test_prima.py


def made(variant, **options):
    return create(variant.partition(",")[0], tiny_backbone(), **(ANALYTIC[variant] | options))


def by_label(strategy, z):
    return strategy.scores_embedded(z)[:, strategy.classes.argsort()]


def off(a, b):
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-300))


def merge(ours, theirs, labels):
    """Add the sums of another strategy, whose classes have other labels here."""
    columns = ours.columns_of([labels[label] for label in theirs.classes.tolist()])
    ours.head.merge(theirs.head, torch.tensor(columns, dtype=torch.int64))


def features(labels, seed):
    """Correlated, never centred, with a dead feature and one that hardly varies: as a network gives
    them.
    """
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(DIM, DIM))
    z = np.maximum(
        random.normal(size=(len(labels), DIM)) @ mixing
        + 2 * random.normal(size=(50, DIM))[labels]
        + 1,
        0,
    )
    z[:, 3], z[:, 4] = 0, 5 + 1e-3 * z[:, 4]
    return torch.from_numpy(z.astype(np.float32))


streams = st.tuples(
    st.lists(st.integers(0, 6), min_size=2, max_size=60),
    st.integers(0, 10**6),
    st.randoms(use_true_random=False),
)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ANALYTIC)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(stream=streams)
def test_any_permutation_and_any_split_give_the_same_scores(variant, stream):
    labels, seed, random = stream
    z, y = features(labels, seed), torch.tensor(labels)
    whole, other = made(variant), made(variant)
    whole.learn_embedded(z, y)
    order = torch.tensor(random.sample(range(len(labels)), len(labels)))
    while len(order):
        size = random.randint(1, len(order))
        other.learn_embedded(z[order[:size]], y[order[:size]])
        order = order[size:]
    test = features(list(range(7)), seed + 1)
    assert sorted(other.classes.tolist()) == sorted(whole.classes.tolist())
    assert off(by_label(other, test), by_label(whole, test)) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("variant", ANALYTIC)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(first=streams, second=streams, shift=st.integers(0, 5))
def test_a_merge_equals_having_learned_both(variant, first, second, shift):
    """The classes of the other go by labels of its own; some are ours, some are new."""
    joint, ours, theirs = made(variant), made(variant), made(variant)
    a, b = torch.tensor(first[0]), torch.tensor(second[0])
    za, zb = features(first[0], first[1]), features(second[0], second[1])
    ours.learn_embedded(za, a)
    theirs.learn_embedded(zb, b + 100)
    joint.learn_embedded(torch.cat([za, zb]), torch.cat([a, b + shift]))
    merge(ours, theirs, {100 + k: shift + k for k in range(7)})
    test = features(list(range(7)), 5)
    assert sorted(ours.classes.tolist()) == sorted(joint.classes.tolist())
    assert off(by_label(ours, test), by_label(joint, test)) < 1e-8


def test_merging_with_nothing_and_from_nothing():
    taught, empty = made("ridge"), made("ridge")
    z = features([0, 1, 1, 0], 0)
    taught.learn_embedded(z, torch.tensor([0, 1, 1, 0]))
    before = taught.scores_embedded(z)
    merge(taught, made("ridge"), {})
    assert taught.scores_embedded(z).equal(before)
    merge(empty, taught, {0: 0, 1: 1})
    assert empty.scores_embedded(z).equal(before)


def test_ncm_by_hand_forgets_without_a_trace():
    strategy, fresh = made("ncm"), made("ncm")
    z = features([0, 1, 0, 2, 1, 1], 0)
    strategy.learn_embedded(z, torch.tensor([0, 1, 0, 2, 1, 1]))
    mean = [(z[0] + z[2]) / 2, (z[1] + z[4] + z[5]) / 3, z[3]]
    for k in range(6):
        distances = [float(((z[k].double() - m.double()) ** 2).sum()) for m in mean]
        assert int(strategy.scores_embedded(z[k : k + 1]).argmax()) == int(np.argmin(distances))
    strategy.forget(1)
    fresh.learn_embedded(z[[0, 2, 3]], torch.tensor([0, 0, 2]))
    assert all(
        torch.equal(t[:2], fresh.state_dict()[n])
        for n, t in strategy.state_dict().items()
        if n in ("moments.s",)
    )


@pytest.mark.parametrize("variant", ["lda", "ridge"])
def test_after_forgetting_only_the_scatter_around_its_own_mean_remains(variant):
    """As if the class had never been, but for frames without a class, moved to the origin.

    Their mean is nowhere.
    """
    labels = [0, 1, 0, 2, 1, 1, 2, 0, 2, 1]
    z, y = features(labels, 2), torch.tensor(labels)
    strategy, expected = made(variant), made(variant)
    strategy.learn_embedded(z, y)
    strategy.forget(1)
    expected.learn_embedded(z[y != 1], y[y != 1])
    moved = z[y == 1].double() - z[y == 1].double().mean(0)
    add_gram(expected.moments.gram, moved)
    expected.moments.t += len(moved)
    expected.derived.clear()
    assert off(by_label(strategy, z), by_label(expected, z)) < 1e-8


def test_lda_is_fisher_with_the_pooled_covariance():
    labels = np.array([0, 1, 0, 2, 1, 1, 2, 0, 2, 1])
    z = features(labels.tolist(), 7)
    strategy = made("lda", shrinkage=0.01)
    strategy.learn_embedded(z, torch.from_numpy(labels))
    x = z.double().numpy()
    mu = np.stack([x[labels == c].mean(0) for c in range(3)])
    sigma = sum(np.outer(v - mu[c], v - mu[c]) for v, c in zip(x, labels, strict=True)) / 10
    inverse = np.linalg.inv(0.99 * sigma + 0.01 * np.eye(DIM))
    distance = np.array([[(v - m) @ inverse @ (v - m) for m in mu] for v in x])
    assert np.allclose(
        by_label(strategy, z).numpy() - np.einsum("nd,de,ne->n", x, inverse, x)[:, None] / 2,
        -distance / 2,
        rtol=1e-6,
        atol=1e-6,
    )


def test_the_solve_waits_until_it_is_asked_for(monkeypatch):
    strategy, calls = made("ridge"), []
    solve = strategy.head.solve
    monkeypatch.setattr(strategy.head, "solve", lambda k: calls.append(1) or solve(k))
    z, y = features([0, 1, 2], 0), torch.tensor([0, 1, 2])
    for _ in range(5):
        strategy.learn_embedded(z, y)
    assert not calls
    for _ in range(3):
        strategy.scores_embedded(z)
    assert len(calls) == 1
    for change in (
        lambda: strategy.forget(1),
        lambda: strategy.load_state_dict(strategy.state_dict()),
        lambda: merge(strategy, made("ridge"), {}),
    ):
        change()
        strategy.scores_embedded(z)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expand": 0}, "expand"),
        ({"expand": 10**9}, "expand"),
        ({"balance": 2}, "balance"),
        ({"rho": 0}, "rho"),
        ({"expand": True}, "expand"),
    ],
)
def test_options_are_checked(options, words):
    with pytest.raises(InputError, match=words):
        create("ridge", tiny_backbone(), **options)
    with pytest.raises(InputError, match="shrinkage"):
        create("lda", tiny_backbone(), shrinkage=2)


def test_a_long_lesson_is_no_more_in_float64_at_once_than_a_short_one():
    """Sums of parts: 3,000 frames at once are 1,024, 1,024 and 952."""
    z = torch.randn(3000, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(3000) % 3
    whole, parts = (SufficientStatistics.empty(8) for _ in range(2))
    for statistics in (whole, parts):
        ArrayBuffers(statistics)  # in torch
        statistics.expand(3)
    whole.add(z, labels)
    for part, names in zip(z.split(1024), labels.split(1024), strict=True):
        parts.add(part, names)
    for name, tensor in whole.arrays.items():
        assert tensor.equal(parts.arrays[name])
    assert whole.s[1].numpy() == pytest.approx(z[labels == 1].double().sum(0).numpy(), rel=1e-12)
