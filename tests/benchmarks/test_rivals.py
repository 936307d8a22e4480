"""benchmarks/rivals.py: each rule against its formula, written out with D equations."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import rivals

COLUMNS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])


@pytest.fixture(params=[4, 40], ids=["fewer features than frames", "more"])
def data(request) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(request.param)
    centres = random.normal(size=(3, request.param))
    z = centres[COLUMNS] + random.normal(size=(10, request.param))
    return z, centres[[2, 0]] + random.normal(size=(2, request.param))


def test_lda_inverts_the_covariance_within_classes(data):
    z, asked = data
    mu = np.stack([z[c == COLUMNS].mean(0) for c in range(3)])
    scatter = sum(np.outer(x - mu[c], x - mu[c]) for x, c in zip(z, COLUMNS, strict=True)) / 10
    dim = z.shape[1]
    sigma = scatter + rivals.SHRINKAGE * np.trace(scatter) / dim * np.eye(dim)
    distances = [[(x - m) @ np.linalg.inv(sigma) @ (x - m) for m in mu] for x in asked]
    found = rivals.lda(z, COLUMNS, asked)
    # scores are -distance / 2 up to a number of each frame
    expected = -np.array(distances) / 2
    assert np.allclose(found - found[:, :1], expected - expected[:, :1])


def test_ridge_solves_the_normal_equations(data):
    z, asked = data
    targets = np.eye(3)[COLUMNS]
    weights = np.linalg.inv(z.T @ z + 0.3 * np.eye(z.shape[1])) @ z.T @ targets
    found = rivals.ridge(z, COLUMNS, asked, np.array([0.3]))
    assert np.allclose(found, asked @ weights)


def test_the_chosen_lambda_has_the_least_error_on_the_frames_held_out(data):
    z, asked = data
    order = np.random.default_rng(0).permutation(10)
    rest, held = order[:8], order[8:]
    targets = np.eye(3)[COLUMNS]
    errors = {}
    for choice in (0.01, 1.0, 100.0):
        gram = z[rest].T @ z[rest] + choice * np.eye(z.shape[1])
        weights = np.linalg.solve(gram, z[rest].T @ targets[rest])
        errors[choice] = ((z[held] @ weights - targets[held]) ** 2).mean()
    best = min(errors, key=errors.__getitem__)
    found = rivals.ridge(z, COLUMNS, asked, np.array(list(errors)))
    assert np.allclose(found, rivals.ridge(z, COLUMNS, asked, np.array([best])))


def test_the_nearest_mean_and_the_nearest_frame(data):
    z, asked = data
    mu = np.stack([z[c == COLUMNS].mean(0) for c in range(3)])

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    m = mu.mean(0)
    means = [[cosine(x - m, one - m) for one in mu] for x in asked]
    assert np.allclose(rivals.cosine(z, COLUMNS, asked), means)
    nearest = [[max(cosine(x, y) for y in z[c == COLUMNS]) for c in range(3)] for x in asked]
    assert np.allclose(rivals.knn(z, COLUMNS, asked), nearest)


def test_fecam_measures_by_the_correlations_of_each_class(data):
    z, asked = (np.abs(x) for x in data)
    roots, shown = np.sqrt(z), np.sqrt(asked)
    dim = z.shape[1]
    expected = np.zeros((2, 3))
    for c in range(3):
        own = roots[c == COLUMNS]
        sigma = np.cov(own.T)
        off = sigma[~np.eye(dim, dtype=bool)].mean()
        sigma = sigma + (np.trace(sigma) / dim + 1e-6 - off) * np.eye(dim) + off
        deviation = np.sqrt(np.diag(sigma))
        inverse = np.linalg.inv(sigma / deviation[:, None] / deviation[None])
        for k, x in enumerate(shown):
            expected[k, c] = -(x - own.mean(0)) @ inverse @ (x - own.mean(0))
    assert np.allclose(rivals.fecam(z, COLUMNS, asked), expected)


def test_random_features_are_the_same_for_taught_and_asked_frames(data):
    z, _ = data
    for rule in (rivals.acil, rivals.klda):
        assert rule(z, COLUMNS, z).argmax(1).tolist() == COLUMNS.tolist()
