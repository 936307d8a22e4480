"""RanPAC, ACIL, KLDA and FeCAM against slow versions written here from their papers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from primavista.errors import InputError
from primavista.heads.acil import ACILHead, ACILOptions
from primavista.heads.fecam import ClassMoments, FeCAMHead, FeCAMOptions
from primavista.heads.klda import KLDAHead, KLDAOptions
from primavista.heads.ranpac import (
    LAMBDAS,
    RanPACHead,
    RanPACOptions,
    RanPACStatistics,
    best_lambda,
)
from primavista.heads.shuffling import permutation, seed_of
from primavista.heads.statistics import SufficientStatistics

DIM, WIDTH = 5, 12


def batches(counts=((40, [0, 1]), (30, [2]), (26, [1, 3]))):
    """Features that are never negative, as a network gives them, and their columns."""
    random = np.random.default_rng(7)
    centres = random.uniform(0, 3, size=(4, DIM))
    for count, classes in counts:
        columns = np.resize(classes, count)
        noise = random.normal(size=(count, DIM))
        yield np.maximum(centres[columns] + noise, 0).astype(np.float32), columns


def taught(head):
    for i, (z, columns) in enumerate(batches(), 1):
        head.expand(int(columns.max()) + 1)
        head.learn(z, columns, i)
    return head


def asked():
    return np.random.default_rng(8).uniform(0, 4, size=(9, DIM)).astype(np.float32)


def everything():
    parts = list(batches())
    return np.concatenate([z for z, _ in parts]).astype(float), np.concatenate(
        [columns for _, columns in parts]
    )


def test_acil_is_the_recursion_of_its_paper():
    """Equations 9 and 10, one batch after the other."""
    head = taught(ACILHead(SufficientStatistics.empty(WIDTH), ACILOptions(gamma=0.3), 5))
    (w_fe,) = head.drawn(asked())
    assert abs(w_fe).max() <= DIM**-0.5
    assert abs(w_fe).max() > 0.8 * DIM**-0.5
    r, w = np.eye(WIDTH) / 0.3, np.zeros((WIDTH, 4))
    for z, columns in batches():
        h = np.maximum(z.astype(float) @ w_fe, 0)
        r -= r @ h.T @ np.linalg.inv(np.eye(len(h)) + h @ r @ h.T) @ h @ r
        w += r @ h.T @ (np.eye(4)[columns] - h @ w)
    expected = np.maximum(asked().astype(float) @ w_fe, 0) @ w
    assert np.allclose(head.scores(asked(), 4), expected, atol=1e-9)


def test_ranpac_solves_with_the_lambda_of_the_last_batch():
    head = taught(RanPACHead(RanPACStatistics.empty(WIDTH), RanPACOptions(), 5))
    (w_rand,) = head.drawn(asked())
    assert abs(w_rand.std() - 1) < 0.3
    z, columns = list(batches())[-1]
    h, y = np.maximum(z.astype(float) @ w_rand, 0), np.eye(4)[columns]
    order = permutation(len(h), seed_of(5, 3))
    rest, held = order[: int(0.8 * len(h))], order[int(0.8 * len(h)) :]
    errors = []
    for strength in LAMBDAS:
        gram = h[rest].T @ h[rest] + strength * np.eye(WIDTH)
        weights = np.linalg.solve(gram, h[rest].T @ y[rest])
        errors.append(((h[held] @ weights - y[held]) ** 2).mean())
    chosen = LAMBDAS[int(np.argmin(errors))]
    assert 1e-8 < chosen < 1e8  # a choice, and not the end of the range
    assert head.strength == chosen
    z, columns = everything()
    h = np.maximum(z @ w_rand, 0)
    weights = np.linalg.inv(h.T @ h + chosen * np.eye(WIDTH)) @ h.T @ np.eye(4)[columns]
    expected = np.maximum(asked().astype(float) @ w_rand, 0) @ weights
    assert np.allclose(head.scores(asked(), 4), expected, atol=1e-9)


@pytest.mark.parametrize("count", [6, 60], ids=["fewer frames than features", "more"])
def test_lambda_is_the_same_from_frames_and_from_features(count):
    random = np.random.default_rng(count)
    h, held = random.normal(size=(count, WIDTH)), random.normal(size=(7, WIDTH))
    y, expected = random.normal(size=(count, 3)), random.normal(size=(7, 3))
    errors = {}
    for strength in LAMBDAS[4:]:  # with less, rounding decides if there are fewer frames
        weights = np.linalg.solve(h.T @ h + strength * np.eye(WIDTH), h.T @ y)
        errors[strength] = ((held @ weights - expected) ** 2).mean()
    assert best_lambda(h, y, held, expected) == min(errors, key=errors.__getitem__)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_lambda_that_rounding_swallows_is_solved_as_the_least_that_counts(library):
    """Large features, more of them than frames: G + 1e-8 I cannot be factorised in float64."""
    random = np.random.default_rng(0)
    mix = random.normal(size=(40, 128))
    z, other = (np.abs(random.normal(size=(count, 40)) @ mix) * 30 for count in (400, 100))
    columns = random.integers(0, 5, 400)
    head = RanPACHead(RanPACStatistics.empty(1500), RanPACOptions(1500), 3)
    head.expand(5)
    as_array = torch.from_numpy if library == "torch" else np.asarray
    if library == "torch":
        own = head.statistics.arrays
        own.update({name: torch.from_numpy(array) for name, array in own.items()})
    head.learn(as_array(z), as_array(columns), 1)
    head.statistics.arrays["lambda"][...] = 1e-8
    (w_rand,) = head.drawn(z)
    h, asked = np.maximum(z @ w_rand, 0), np.maximum(other @ w_rand, 0)
    g = h.T @ h
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(g + 1e-8 * np.eye(1500))
    # the same equations, as many as there are frames, in which 1e-8 is not lost
    expected = asked @ h.T @ np.linalg.solve(h @ h.T + 1e-8 * np.eye(400), np.eye(5)[columns])
    found = np.asarray(head.scores(as_array(other), 5))
    assert np.abs(found - expected).max() < 2e-3
    assert np.abs(expected).max() > 1


def test_a_single_frame_chooses_no_lambda_and_ranpac_is_not_merged():
    head = RanPACHead(RanPACStatistics.empty(WIDTH), RanPACOptions())
    head.expand(1)
    head.learn(asked()[:1], np.zeros(1, np.int64), 1)
    assert head.strength == 1
    with pytest.raises(InputError, match="last batch"):
        head.merge(copy.deepcopy(head), np.zeros(1, np.int64))
    head.check(1, [0])
    head.statistics.arrays["lambda"][...] = 3.0
    with pytest.raises(InputError, match=r"moments\.lambda is not a power"):
        head.check(1, [0])


def test_klda_is_lda_by_the_kernel():
    """-(phi - mu)^T pinv(Sigma) (phi - mu) / 2, up to a number of each frame."""
    head = taught(KLDAHead(SufficientStatistics.empty(WIDTH), KLDAOptions(sigma=0.05), 5))
    omega, beta = head.drawn(asked())

    def phi(z):
        return np.sqrt(2 / WIDTH) * np.cos(z.astype(float) @ omega + beta)

    z, columns = everything()
    mu = [phi(z[columns == c]).mean(0) for c in range(4)]
    off = [phi(x[None])[0] - mu[c] for x, c in zip(z, columns, strict=True)]
    inverse = np.linalg.pinv(sum(np.outer(x, x) for x in off) / len(off), rcond=WIDTH * 1.2e-7)
    expected = np.array([[-(x - m) @ inverse @ (x - m) / 2 for m in mu] for x in phi(asked())])
    found = head.scores(asked(), 4)
    assert np.allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-6)


def test_its_random_features_are_nearly_the_gaussian_kernel():
    head = KLDAHead(SufficientStatistics.empty(20_000), KLDAOptions(sigma=0.05), 1)
    phi = head.features(asked())
    distances = ((asked()[:, None] - asked()[None]) ** 2).sum(2)
    assert abs(phi @ phi.T - np.exp(-0.05 * distances)).max() < 0.03


def test_klda_leaves_out_directions_without_spread():
    """Frames that are all equal within their class leave nothing to measure distances with."""
    head = KLDAHead(SufficientStatistics.empty(WIDTH), KLDAOptions(sigma=0.05))
    head.expand(2)
    head.learn(np.repeat(asked()[:2], 3, axis=0), np.repeat([0, 1], 3), 1)
    assert head.scores(asked(), 2).tolist() == np.zeros((9, 2)).tolist()


@pytest.mark.parametrize(("power", "gammas"), [(0.5, (1.0, 1.0)), (1.0, (2.0, 0.0))])
def test_fecam_measures_by_the_correlations_of_each_class(power, gammas):
    options = FeCAMOptions(power, *gammas)
    head = taught(FeCAMHead(ClassMoments.empty(DIM), options))
    z, columns = everything()
    expected = np.zeros((9, 4))
    for c in range(4):
        own = z[columns == c]
        sigma = np.cov((own**power).T)
        diagonal = np.eye(DIM, dtype=bool)
        v_1, v_2 = sigma[diagonal].mean(), sigma[~diagonal].mean()
        sigma = np.where(diagonal, sigma + gammas[0] * v_1, sigma + gammas[1] * v_2)
        deviation = np.sqrt(np.diag(sigma))
        inverse = np.linalg.inv(sigma / np.outer(deviation, deviation))
        prototype = own.mean(0) ** power
        for k, x in enumerate(asked().astype(float) ** power):
            off = x / np.linalg.norm(x) - prototype / np.linalg.norm(prototype)
            expected[k, c] = -off @ inverse @ off
    assert np.allclose(head.scores(asked(), 4), expected, atol=1e-7)


def test_fecam_forgets_without_a_trace_and_refuses_what_cannot_be():
    head = taught(FeCAMHead(ClassMoments.empty(DIM), FeCAMOptions()))
    before = head.scores(asked(), 4)
    head.check(4, [0, 1, 2, 3])
    head.forget(1)
    assert np.allclose(head.scores(asked(), 3), before[:, [0, 2, 3]])
    assert not head.moments.arrays["gram"][3].any()
    head.moments.arrays["gram"][0, 0] = np.inf
    with pytest.raises(InputError, match=r"moments\.gram"):
        head.check(3, [0, 1, 2])


def test_the_default_number_of_random_features_is_that_of_the_paper_for_large_networks():
    widths = [RanPACOptions().width((dim,)) for dim in (64, 768, 2048)]
    assert widths == [1024, 10_000, 10_000]
    assert RanPACOptions(50).width((64, 32)) == 50
