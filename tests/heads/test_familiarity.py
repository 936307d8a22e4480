"""Familiarity by hand, and its invariances."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primavista.heads.open_set import LOGIT_AT_MEAN, mahalanobis_familiarity

KINDS = {"numpy": np.asarray, "torch": torch.as_tensor}


@pytest.mark.parametrize("kind", KINDS)
def test_by_hand(kind):
    # means (2, 0), (-2, 0): m = 0; w the same: v = w; gain = 4 each;
    # E h = tr S + mean |mu|^2 = 2 + 4 = 6
    make = KINDS[kind]
    mu = make(np.array([[2.0, 0.0], [-2.0, 0.0]]))
    familiar = mahalanobis_familiarity(mu, mu, None, 2.0, 10)
    # at the mean: way 1, stray 4; at (1, 1): way 1/2, stray 2; at (0, 3): way 0
    z = make(np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]]))
    assert np.allclose(
        familiar(z, make(np.array([0, 0, 0]))), [(6 / 4) ** 0.5, 0.5 * (6 / 2) ** 0.5, 0]
    )
    assert familiar.temperature == pytest.approx(
        4 / LOGIT_AT_MEAN
    )  # at its own mean a class leads the average by 4: logit 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_precision_by_hand(kind):
    # P = diag(1, 4), S = diag(2, 1), N = 60: tr P S = 6, g = 1/10, so 6 / 0.9; between:
    # 1^2 * 4 = 4; gain v (mu - m) = 3
    make = KINDS[kind]
    mu, w = make(np.array([[0.0, 1.0], [0.0, -1.0]])), make(np.array([[0.0, 3.0], [0.0, -3.0]]))
    familiar = mahalanobis_familiarity(
        w, mu, make(np.diag([1.0, 4.0])), make(np.diag([2.0, 1.0])), 60
    )
    # z = (2, 2): stray 4 + 16 = 20; the way to class 0 is 3 * 2 / 3 = 2
    z = make(np.array([[2.0, 2.0]]))
    assert np.allclose(familiar(z, make(np.array([0]))), 2 * ((6 / 0.9 + 4) / 20) ** 0.5)


def test_with_one_class_only_the_distance_counts():
    mu = np.array([[1.0, 1.0]])
    familiar = mahalanobis_familiarity(mu, mu, None, 2.0, 10)
    assert np.allclose(
        familiar(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([0, 0])), [(2 / 4) ** 0.5, 1]
    )
    assert np.isfinite(familiar(mu, np.array([0]))).all()  # at the mean itself the distance is 0
    assert familiar.temperature == 1


def test_the_scale_of_the_features_does_not_matter():
    random = np.random.default_rng(0)
    mu, z = random.normal(size=(4, 5)), random.normal(size=(6, 5))
    scatter = np.cov(random.normal(size=(5, 40)))
    precision = np.linalg.inv(scatter + 0.1 * np.eye(5))
    best = (z @ (mu @ precision).T).argmax(1)
    plain = mahalanobis_familiarity(mu @ precision, mu, precision, scatter, 40)
    scaled = mahalanobis_familiarity(mu @ precision / 7, mu * 7, precision / 49, scatter * 49, 40)
    moved = mahalanobis_familiarity(mu @ precision, mu + 3, precision, scatter, 40)
    assert np.allclose(plain(z, best), scaled(z * 7, best))
    assert np.allclose(plain(z, best), moved(z + 3, best))
