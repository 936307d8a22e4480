"""Streaming LDA in batches against one sample at a time (Hayes & Kanan 2020), numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.heads.dslda import add_symmetric, lda_update
from primavista.heads.lda import lda_weights, oas_covariance

KINDS = {"numpy": np.asarray, "torch": torch.as_tensor}


def one_at_a_time(batches, classes, dim):
    """The published recursion: delta before the update, mu of a new class is 0, mean after."""
    mu, n, sigma, t = np.zeros((classes, dim)), np.zeros(classes), np.zeros((dim, dim)), 0
    for z, y in batches:
        for sample, j in zip(z, y, strict=True):
            delta = sample - mu[j]
            sigma = (t * sigma + t / (t + 1) * np.outer(delta, delta)) / (t + 1)
            mu[j] = (n[j] * mu[j] + sample) / (n[j] + 1)
            n[j] += 1
            t += 1
    return mu, n, sigma, t


def in_batches(kind, batches, classes, dim):
    make = KINDS[kind]
    mu, n, scatter, t = (
        make(np.zeros((classes, dim))),
        make(np.zeros(classes)),
        make(np.zeros((dim, dim))),
        0,
    )
    for z, y in batches:
        t = lda_update(mu, n, scatter, t, make(z), make(y))
    return np.asarray(mu), np.asarray(n), np.asarray(scatter) / max(t, 1), t


def off_by(a, b):
    return np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)


@pytest.mark.parametrize("kind", KINDS)
def test_by_hand(kind):
    # one feature, classes 0 0 1 0, z = 2, 4, 3, 9:
    # delta = 2, 2, 3 (mu of the new class is 0), 9 - 3 = 6
    # S += t / (t + 1) delta^2: 0 * 4 + 1/2 * 4 + 2/3 * 9 + 3/4 * 36 = 35, Sigma = 35/4;
    # means 5 and 3
    z, y = np.array([[2.0], [4.0], [3.0], [9.0]]), np.array([0, 0, 1, 0])
    mu, n, sigma, t = in_batches(kind, [(z[:1], y[:1]), (z[1:], y[1:])], 2, 1)
    assert mu.ravel().tolist() == [5, 3]
    assert n.tolist() == [3, 1]
    assert (sigma.item(), t) == (pytest.approx(35 / 4), 4)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    labels=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=30), min_size=1, max_size=5),
    dim=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    offset=st.sampled_from([0.0, 10.0]),
)
def test_a_batch_is_its_samples_one_by_one(kind, labels, dim, seed, offset):
    random = np.random.default_rng(seed)
    batches = [
        (random.normal(size=(len(y), dim)) + offset + np.array(y)[:, None], np.array(y))
        for y in labels
    ]
    slow, fast = one_at_a_time(batches, 5, dim), in_batches(kind, batches, 5, dim)
    assert off_by(fast[0], slow[0]) < 1e-9
    assert fast[1].tolist() == slow[1].tolist()
    assert off_by(fast[2], slow[2]) < 1e-9
    assert fast[3] == slow[3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_first_seen_in_mid_stream_and_how_the_stream_is_cut(kind):
    random = np.random.default_rng(0)
    y = np.array([0] * 6 + [1, 0] * 5 + [2] * 4 + [1, 2, 0] * 3)
    z = random.normal(size=(len(y), 3)) + 2 * y[:, None]
    slow = one_at_a_time([(z, y)], 3, 3)
    for cuts in ([], [1], [6, 16], [5, 7, 18, 20], list(range(1, len(y)))):
        fast = in_batches(kind, zip(np.split(z, cuts), np.split(y, cuts), strict=True), 3, 3)
        assert off_by(fast[0], slow[0]) < 1e-12
        assert off_by(fast[2], slow[2]) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_weights_against_an_explicit_inverse(kind):
    random = np.random.default_rng(1)
    x, mu, t, eps = random.normal(size=(20, 4)), random.normal(size=(3, 4)), 20, 0.01
    scatter = x.T @ x
    inverse = np.linalg.inv((1 - eps) * scatter / t + eps * np.eye(4))
    w, b = lda_weights(KINDS[kind](mu), KINDS[kind](scatter.copy()), t, eps)
    assert np.allclose(w, mu @ inverse, rtol=1e-10)
    assert np.allclose(b, [-m @ inverse @ m / 2 for m in mu], rtol=1e-10)


def test_weights_by_hand_leave_the_statistics_alone():
    # Sigma = diag(6, 14) / 2, eps 1/2: diag(3/2 + 1/2, 7/2 + 1/2) = diag(2, 4), mu = (2, 4):
    # w = (1, 1), b = -(2 + 4) / 2
    scatter, mu = torch.tensor([[6.0, 0.0], [0.0, 14.0]]), torch.tensor([[2.0, 4.0]])
    w, b = lda_weights(mu, scatter, 2, 0.5)
    assert w.tolist() == [[1, 1]]
    assert b.tolist() == [-3]
    assert scatter.tolist() == [[6, 0], [0, 14]]
    assert mu.tolist() == [[2, 4]]


def test_weights_before_any_sample():
    w, b = lda_weights(torch.zeros(0, 2), torch.zeros(2, 2), 0, 0.5)
    assert (w.shape, b.shape) == ((0, 2), (0,))


@pytest.mark.parametrize("kind", KINDS)
def test_oas_by_hand(kind):
    # X = (2, 0), (-2, 0), (0, 1), (0, -1): C = diag(2, 1/2), m = 5/4, mean(C^2) = 17/16
    # s = (17/16 + 25/16) / (5 (17/16 - 25/32)) = (42/16) / (45/32) > 1: s = 1, so m I
    x = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert np.allclose(oas_covariance(KINDS[kind](x)), [[1.25, 0], [0, 1.25]])
    # 8 times the same rows, N = 32: s = (42/16) / (33 * 9/32) = 84/297; (1 - s) C + s 5/4 I
    s = 84 / 297
    expected = np.diag([2 * (1 - s) + 1.25 * s, 0.5 * (1 - s) + 1.25 * s])
    assert np.allclose(oas_covariance(KINDS[kind](np.tile(x, (8, 1)))), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_oas_against_its_formula(kind):
    x = np.random.default_rng(2).normal(size=(40, 6)) * np.arange(1, 7)
    c = sum(np.outer(row, row) for row in x) / 40
    trace, trace_of_square = np.trace(c), np.trace(c @ c)
    s = (trace_of_square + trace**2) / (
        41 * (trace_of_square - trace**2 / 6)
    )  # Chen et al., without the terms in 2 / D
    assert 0 < s < 1
    assert np.allclose(
        oas_covariance(KINDS[kind](x)), (1 - s) * c + s * trace / 6 * np.eye(6), rtol=1e-12
    )


def test_oas_of_equal_variances_is_not_divided_by_zero():
    assert np.allclose(
        oas_covariance(np.eye(2) * 2), np.eye(2) * 2
    )  # C = 2 I: the denominator is 0


@pytest.mark.parametrize("dim", [1, 255, 256, 700])
def test_add_symmetric_is_a_gram_product(dim):
    generator = np.random.default_rng(0)
    x, w = generator.normal(size=(20, dim)), generator.uniform(size=(20, 1))
    start = np.eye(dim)
    expected = start + np.einsum("nd,ne->de", x * w, x)
    for total, a, b in (
        (start.copy(), x * w, x),
        tuple(map(torch.from_numpy, (start.copy(), x * w, x))),
    ):
        add_symmetric(total, a, b)
        assert np.allclose(np.asarray(total), expected, atol=1e-12)
