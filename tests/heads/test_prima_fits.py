"""Heads that judge themselves: against the hat matrix of the frames themselves, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primavista.heads.prima_frames import RELATIVE_RHO_GRID, fit_ridge, mixture_weights
from primavista.heads.ridge import regression
from primavista.heads.statistics import SufficientStatistics

FLOOR = 1e-6


def data(frames, dim, classes, seed, signal=1.0):
    random = np.random.default_rng(seed)
    labels = np.arange(frames) % classes
    z = random.normal(size=(frames, dim)) @ random.normal(size=(dim, dim)) + 3
    return z + signal * 4 * random.normal(size=(classes, dim))[labels], labels


def statistics(z, labels, classes):
    members = (labels == np.arange(classes)[:, None]).astype(float)
    n, s = members.sum(1), members @ z
    mu = s / n[:, None]
    return n, s, (z - mu[labels]).T @ (z - mu[labels])


def judged(z, labels, classes, balance=0.0):
    n, s, scatter = statistics(z, labels, classes)
    return fit_ridge(regression(n, s, scatter, len(z), balance), len(z))


def by_frames(z, labels, classes):
    """Every rho: the regression on the frames, its residuals, and the trace of the matrix that maps
    targets to predictions.
    """
    frames, dim = z.shape
    x = z - z.mean(0)
    variance = (x * x).mean(0)
    moment = variance + z.mean(0) ** 2
    x = x / np.sqrt(variance + FLOOR * moment + 1e-8 * moment.mean() + 1e-30)
    y = np.eye(classes)[labels]
    y = y - y.mean(0)
    mean = np.trace(x.T @ x / frames) / min(frames - 1, dim)
    errors = []
    levels = [level for level in RELATIVE_RHO_GRID if level >= 0.1 or frames >= 2 * dim]
    for level in levels:
        hat = x @ np.linalg.inv(x.T @ x + frames * level * mean * np.eye(dim)) @ x.T + 1 / frames
        residual = y - hat @ y
        errors.append(((residual**2).sum() / (y**2).sum()) / (1 - np.trace(hat) / frames) ** 2)
    best = int(np.argmin(errors))
    w = np.linalg.solve(x.T @ x + frames * levels[best] * mean * np.eye(dim), x.T @ y)
    return errors[best], levels[best] * mean, x @ w + np.eye(classes)[labels].mean(0)


@pytest.mark.parametrize(("frames", "dim"), [(60, 8), (30, 20), (12, 40)])
def test_error_rho_and_predictions_are_those_of_the_frames(frames, dim):
    z, labels = data(frames, dim, 3, seed=frames)
    head = judged(z, labels, 3)
    error, rho, predictions = by_frames(z, labels, 3)
    assert head.error == pytest.approx(error, rel=1e-6)
    assert head.rho == pytest.approx(rho, rel=1e-9)
    assert np.allclose(z @ head.w.T + head.b, predictions, atol=1e-6)


def test_the_error_foretells_that_of_new_frames():
    random = np.random.default_rng(0)
    mixing, means = random.normal(size=(10, 10)), random.normal(size=(4, 10))
    for signal in (0.3, 1.0, 3.0):
        labels = np.arange(400) % 4
        draw = [random.normal(size=(400, 10)) @ mixing + signal * means[labels] for _ in range(2)]
        head = judged(draw[0], labels, 4)
        y = np.eye(4)[labels]
        unexplained = ((draw[1] @ head.w.T + head.b - y) ** 2).sum() / ((y - 0.25) ** 2).sum()
        assert head.error == pytest.approx(unexplained, abs=0.06)


def test_noise_is_hardly_heard():
    z, labels = data(200, 10, 4, seed=1)
    noise, _ = data(200, 10, 4, seed=2, signal=0.0)
    informed, ignorant = judged(z, labels, 4), judged(noise, labels, 4)
    assert informed.error < 0.4 < 0.9 < ignorant.error
    omega = mixture_weights([informed.error, ignorant.error], [1, 1])
    assert omega[1] < 0.05
    assert sum(omega) == pytest.approx(1)


def test_frames_of_unequal_weight_count_as_fewer():
    """n = 2 and 6: weighed alike, 1 / (1/4 / 2 + 1/4 / 6) = 6; each frame alike, 8."""
    z, _ = data(8, 3, 2, seed=4)
    labels = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    n, s, scatter = statistics(z, labels, 2)
    assert regression(n, s, scatter.copy(), 8, 1.0).effective_sample_size == pytest.approx(6)
    assert regression(n, s, scatter.copy(), 8, 0.0).effective_sample_size == pytest.approx(8)


@pytest.mark.parametrize("many", [10, 300, 3000])
def test_noise_is_hardly_heard_however_many_frames_one_class_has(many):
    """Nor if that class is forgotten: then its frames are in t and in the scatter alone."""
    random = np.random.default_rng(many)
    labels = np.repeat(np.arange(3), (10, 10, many))
    n, s, scatter = statistics(random.normal(size=(len(labels), 60)), labels, 3)
    for known in (3, 2):
        x = regression(n[:known], s[:known], scatter.copy(), len(labels), 1.0)
        assert fit_ridge(x, len(labels)).error > 0.9


def test_mixture_weights_by_hand():
    """Ratios 1, 1/3 and 4."""
    assert mixture_weights([0.5, 0.75, 0.2], [1, 1, 1], 1) == pytest.approx(
        [3 / 16, 1 / 16, 12 / 16]
    )
    assert mixture_weights([0.5, 0.75, 0.2], [1, 3, 1], 1) == pytest.approx([1 / 6, 1 / 6, 4 / 6])
    assert mixture_weights([0.5, 0.75, 0.2], [1, 1, 1], 2) == pytest.approx(
        [9 / 154, 1 / 154, 144 / 154]
    )
    assert mixture_weights([0.0, 2.0], [1, 1])[0] == pytest.approx(
        1, abs=1e-5
    )  # neither is believed without limit
    assert mixture_weights([1.5, 1.5, 1.5], [1, 1, 2]) == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.parametrize("frames", [6, 40])
def test_numpy_and_torch_agree(frames):
    z, labels = data(frames, 30, 3, seed=5)
    sums = SufficientStatistics.empty(30, like=torch.zeros(0))
    sums.expand(3)
    sums.add(torch.from_numpy(z), torch.from_numpy(labels))
    x = regression(sums.n, sums.s, sums.scatter(), float(frames), 1.0)
    head, expected = fit_ridge(x, float(frames)), judged(z, labels, 3, balance=1.0)
    assert head.error == pytest.approx(expected.error, rel=1e-8)
    assert np.allclose(head.w.numpy(), expected.w, rtol=1e-7, atol=1e-10)


def test_one_class_and_frames_all_alike():
    z, _ = data(5, 4, 1, seed=3)
    head = judged(z, np.zeros(5, int), 1)
    assert not head.w.any()
    assert head.b.tolist() == [1.0]
    alike = judged(np.ones((6, 4)), np.arange(6) % 2, 2)
    assert np.isfinite(alike.w).all()
    assert np.allclose(np.ones((1, 4)) @ alike.w.T + alike.b, 0.5)


def test_blocks_of_statistics_are_the_squares_of_the_whole():
    z, labels = data(50, 12, 3, seed=9)
    like = torch.zeros(0)
    whole = SufficientStatistics.empty(12, like=like)
    parts, both = (SufficientStatistics.empty(12, blocks=(5, 3, 4), like=like) for _ in range(2))
    for sums in (whole, parts):
        sums.expand(3)
        sums.add(torch.from_numpy(z), torch.from_numpy(labels))
        sums.drop(1)
    assert parts.gram.numel() == 15 + 6 + 10
    found = list(parts.scatters())
    assert [columns for _, columns in found] == [slice(0, 5), slice(5, 8), slice(8, 12)]
    for scatter, columns in found:
        assert torch.allclose(scatter, whole.scatter()[columns, columns], rtol=1e-10)
    both.expand(3)
    for _ in range(2):
        both.merge(parts, torch.tensor([0, 1]))
    for (double, _), (single, _) in zip(both.scatters(), found, strict=True):
        assert torch.allclose(double, 2 * single, rtol=1e-10)
