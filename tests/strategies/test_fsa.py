"""First-session adaptation: what batch 1 trains, and the scores by hand from then on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create

NORMS = {f"body.{k}.{name}" for k in (1, 4, 7) for name in ("weight", "bias")}
FIRST, SECOND = toy_batch([0, 1] * 8, 1), toy_batch([2, 0] * 8, 2)


def parameters(strategy):
    return {name: p.detach().clone() for name, p in strategy.backbone.named_parameters()}


@pytest.mark.parametrize("adapt", ["film", "all"])
def test_batch_1_trains_what_the_option_says_and_later_batches_train_nothing(adapt):
    strategy = create("fsa", tiny_backbone(), adapt=adapt, epochs_1=3)
    before = parameters(strategy)
    assert not strategy.embeds
    report = strategy.learn(*FIRST)
    assert len(report.losses) == 3
    assert report.losses[-1] < report.losses[0]
    after = parameters(strategy)
    moved = {name for name, p in after.items() if not p.equal(before[name])}
    assert moved == (NORMS if adapt == "film" else set(before))
    assert all(p.requires_grad for p in strategy.backbone.parameters())
    assert strategy.embeds
    assert strategy.learn(*SECOND).losses == ()
    assert all(p.equal(after[name]) for name, p in parameters(strategy).items())


def test_the_discarded_head_learns_as_naive_does():
    strategy = create("fsa", tiny_backbone(), adapt="all", epochs_1=3, seed=5)
    naive = create("naive", tiny_backbone(), epochs_1=3, lr_1=0.01, seed=5)
    strategy.learn(*FIRST)
    naive.learn(*FIRST)
    for name, p in naive.backbone.state_dict().items():
        assert torch.equal(p, strategy.backbone.state_dict()[name]), name


def test_a_network_without_a_first_batch_of_its_own_is_left_as_it_is():
    strategy = create("fsa", tiny_backbone(), first_batch=False)
    before = parameters(strategy)
    assert strategy.learn(*FIRST).losses == ()
    assert all(p.equal(before[name]) for name, p in parameters(strategy).items())


def test_the_scores_are_those_of_lda_on_the_adapted_features():
    strategy = create("fsa", tiny_backbone(), shrinkage=0.1)
    strategy.learn(*FIRST)
    strategy.learn(*SECOND)
    frames = torch.cat([FIRST[0], SECOND[0]])
    z = strategy.embed(frames).double().numpy()
    labels = torch.cat([FIRST[1], SECOND[1]]).numpy()
    mu = np.stack([z[labels == c].mean(0) for c in range(3)])
    off = z - mu[labels]
    inverse = np.linalg.inv(0.9 * off.T @ off / len(off) + 0.1 * np.eye(z.shape[1]))
    expected = z @ inverse @ mu.T - np.einsum("cd,de,ce->c", mu, inverse, mu) / 2
    assert np.allclose(strategy.scores(frames).numpy(), expected, atol=1e-6)
