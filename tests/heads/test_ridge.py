"""Ridge regression from counts, sums and a Gram matrix against the same frame by frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.heads.ridge import (
    RHO_GRID,
    ROUNDING,
    choose_rho,
    negative_log_evidence,
    regression,
    ridge_weights,
)
from primavista.heads.solving import FLOOR
from primavista.heads.statistics import SufficientStatistics, within_class_scatter
from primavista.nn.class_rows import ArrayBuffers


def stream(seed, counts, dim, spread=1.0):
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    return random.normal(size=(len(y), dim)) * spread + random.normal(size=(len(counts), dim))[y], y


def statistics(z, y, classes):
    n = np.bincount(y, minlength=classes).astype(float)
    return n, np.stack([z[y == c].sum(0) for c in range(classes)]), z.T @ z


def solved(z, y, classes, balance, rho):
    n, s, gram = statistics(z, y, classes)
    x = regression(n, s, within_class_scatter(n, s, gram), len(z), balance)
    return x, ridge_weights(x, rho)


def frame_by_frame(z, weights, targets, rho):
    """Weighted, standardised least squares with rho |w|^2, each sum written as a loop over the
    frames.
    """
    weights = weights / weights.sum()
    mean = sum(v * row for v, row in zip(weights, z, strict=True))
    variance = sum(v * (row - mean) ** 2 for v, row in zip(weights, z, strict=True))
    std = np.sqrt(variance * (1 + FLOOR) + FLOOR * mean**2 + ROUNDING * (variance + mean**2).mean())
    x = (z - mean) / std
    pi = weights @ targets
    a = sum(v * np.outer(row, row) for v, row in zip(weights, x, strict=True))
    r = sum(
        v * np.outer(row, target - pi) for v, row, target in zip(weights, x, targets, strict=True)
    )
    return lambda new: (new - mean) / std @ np.linalg.inv(a + rho * np.eye(z.shape[1])) @ r + pi


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    counts=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    dim=st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_unbalanced_it_is_ridge_regression_on_the_frames(counts, dim, seed):
    z, y = stream(seed, counts, dim)
    _, (w, b) = solved(z, y, len(counts), 0.0, 0.1)
    expected = frame_by_frame(z, np.ones(len(z)), np.eye(len(counts))[y], 0.1)
    new = np.random.default_rng(seed + 1).normal(size=(5, dim))
    assert np.allclose(new @ w.T + b, expected(new), rtol=1e-8, atol=1e-9)


def test_balanced_it_is_weighted_regression_where_the_classes_share_a_covariance():
    """Two classes, one of them three times the other's frames, moved.

    Frame weights 1 / n_c give the same, exactly.
    """
    random = np.random.default_rng(3)
    one = random.normal(size=(8, 4))
    other = np.tile(one, (3, 1)) + random.normal(size=4)
    z, y = np.concatenate([one, other]), np.repeat([0, 1], [8, 24])
    _, (w, b) = solved(z, y, 2, 1.0, 0.05)
    expected = frame_by_frame(z, np.where(y == 0, 1 / 8, 1 / 24), np.eye(2)[y], 0.05)
    assert np.allclose(z @ w.T + b, expected(z), rtol=1e-9)
    assert not np.allclose(
        z @ w.T + b, frame_by_frame(z, np.ones(len(z)), np.eye(2)[y], 0.05)(z), rtol=1e-2
    )


def test_the_negative_log_evidence_is_that_of_the_gaussian():
    """log p of the targets and of K frames of pure noise under N(offset, noise (I + X X^T / (N
    rho))), noise searched for.
    """
    z, y = stream(0, [6, 6], 3)
    n, s, gram = statistics(z, y, 2)
    x = regression(n, s, within_class_scatter(n, s, gram), 12, 0.0)
    inputs, targets = (z - x.mean) / x.std, np.eye(2)[y] - 0.5
    basis = np.linalg.svd(np.eye(12) - 1 / 12)[0][:, :11]  # of what is left without the offset
    noise = np.exp(np.linspace(np.log(1e-3), np.log(10), 20001))

    def best_log_p(rho):
        covariance = basis.T @ (np.eye(12) + inputs @ inputs.T / (12 * rho)) @ basis
        seen = sum(c @ basis @ np.linalg.solve(covariance, basis.T @ c) for c in targets.T)
        pure = 2 * (0.25 + 0.25)  # two frames, two columns, each of the variance of its targets
        log_p = (
            -(
                (11 + 2) * 2 * np.log(noise)
                + 2 * np.linalg.slogdet(covariance)[1]
                + (seen + pure) / noise
            )
            / 2
        )
        return log_p.max()

    ours = [negative_log_evidence(x, rho) for rho in (0.01, 0.1, 1.0)]
    assert np.allclose(
        np.diff(ours), -np.diff([best_log_p(rho) for rho in (0.01, 0.1, 1.0)]), rtol=1e-4
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    dim=st.integers(1, 8),
    seed=st.integers(0, 999),
)
def test_the_search_finds_the_least_of_the_grid(counts, dim, seed):
    z, y = stream(seed, counts, dim, spread=0.5)
    n, s, gram = statistics(z, y, len(counts))
    x = regression(n, s, within_class_scatter(n, s, gram), len(z), 1.0)
    values = [negative_log_evidence(x, rho) for rho in RHO_GRID]
    tolerance = 1e-6 + 0.02 * (max(values) - min(values))
    assert negative_log_evidence(x, choose_rho(x)) <= min(values) + tolerance


def test_frames_all_alike_do_not_make_the_regularisation_vanish():
    """Two videos of nearly one frame each are fitted perfectly at any rho.

    Noise without signal asks for the most.
    """
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    alike = random.normal(size=(2, 50))[y] + 1e-3 * random.normal(size=(60, 50))
    noise = random.normal(size=(60, 50))
    chosen = []
    for z in (alike, noise):
        n, s, gram = statistics(z, y, 2)
        chosen.append(choose_rho(regression(n, s, within_class_scatter(n, s, gram), 60, 1.0)))
    assert 0.01 < chosen[0] < chosen[1]


def test_a_feature_that_never_varies_does_not_decide():
    z, y = stream(1, [5, 5], 3)
    z[:, 1] = 7.0
    _, (w, b) = solved(z, y, 2, 1.0, 0.1)
    moved = z + np.array([0.0, 7e-3, 0.0])  # a thousandth more than ever seen
    assert np.abs((moved - z) @ w.T).max() < 1e-3
    assert np.isfinite(z @ w.T + b).all()


def test_numpy_and_torch_agree():
    z, y = stream(2, [9, 4, 7], 5)
    sums = SufficientStatistics.empty(5)
    ArrayBuffers(sums)  # in torch
    sums.expand(3)
    sums.add(torch.from_numpy(z), torch.from_numpy(y))
    n, s, gram = statistics(z, y, 3)
    ours = regression(n, s, within_class_scatter(n, s, gram), len(z), 1.0)
    theirs = regression(sums.n, sums.s, sums.scatter(), sums.frames, 1.0)
    assert choose_rho(ours) == choose_rho(theirs)
    for a, b in zip(ridge_weights(ours, 0.1), ridge_weights(theirs, 0.1), strict=True):
        assert np.allclose(a, b.numpy(), rtol=1e-10)


@pytest.mark.parametrize("row", [0, 1])
def test_forgetting_takes_the_mean_out_of_the_gram_matrix(row):
    z, y = stream(4, [6, 5], 4)
    sums = SufficientStatistics.empty(4)
    ArrayBuffers(sums)  # in torch
    sums.expand(2)
    sums.add(torch.from_numpy(z), torch.from_numpy(y))
    before = sums.scatter()
    sums.drop(row)
    left = z[y != row]
    assert np.allclose(sums.n.numpy(), [len(left), 0])
    assert torch.allclose(sums.scatter(), before)  # the scatter around the own mean stays
    # so the whole is that of the other class, and of the forgotten one moved to the origin
    moved = z[y == row] - z[y == row].mean(0)
    whole = sums.scatter() + torch.outer(sums.s[0], sums.s[0]) / sums.n[0]
    assert np.allclose(whole.numpy(), left.T @ left + moved.T @ moved)
