"""The scikit-learn classifiers: scikit-learn's own checks, and its LDA as the slow version."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from primavista.adapters.sklearn import (
    DSLDAClassifier,
    EvidenceRidgeClassifier,
    LDAClassifier,
    NCMClassifier,
)

ALL = [NCMClassifier, LDAClassifier, DSLDAClassifier, EvidenceRidgeClassifier]
DIGITS, LABELS = load_digits(return_X_y=True)


CHECKS = [pair for kind in ALL for pair in estimator_checks_generator(kind())]


@pytest.mark.parametrize(
    ("estimator", "check"),
    CHECKS,
    ids=[f"{type(one).__name__}-{check.func.__name__}" for one, check in CHECKS],
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_lda_against_the_posterior_of_gaussians():
    """p_c ~ exp(-(z - mu_c)^T inv(C) (z - mu_c) / 2) with the covariance C within classes."""
    X, y = DIGITS[:, 20:24], LABELS
    mu = np.array([X[y == c].mean(0) for c in range(10)])
    C = (X - mu[y]).T @ (X - mu[y]) / len(X)
    C = (1 - 0.25) * C + 0.25 * np.eye(4)
    offset = X[:, None] - mu
    logit = -0.5 * np.einsum("ncd,de,nce->nc", offset, np.linalg.inv(C), offset)
    expected = np.exp(logit - logit.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    found = LDAClassifier(shrinkage=0.25).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_lda_is_nearly_scikit_learns():
    """That one weighs the classes alike in the covariance, and has another shrinkage."""
    theirs = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=[0.1] * 10)
    theirs.fit(DIGITS, LABELS)
    ours = LDAClassifier().fit(DIGITS, LABELS)
    assert (ours.predict(DIGITS) == theirs.predict(DIGITS)).mean() > 0.99


def test_ncm_is_scikit_learns():
    X = DIGITS[:, 18:23]
    theirs = NearestCentroid().fit(X, LABELS)
    assert (NCMClassifier().fit(X, LABELS).predict(X) == theirs.predict(X)).all()


@pytest.mark.parametrize("kind", ALL)
def test_row_by_row_is_all_at_once(kind):
    X, y = DIGITS[:60], LABELS[:60]
    whole, parts = kind().fit(X, y), kind()
    for row, label in zip(X, y, strict=True):
        parts.partial_fit(row[None], [label])
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize("kind", ALL)
def test_classes_may_come_later_or_be_announced(kind):
    names = np.array(["zero", "one", "two"])[LABELS[:500] % 3]
    first = names != "one"
    model = kind().partial_fit(DIGITS[:500][first], names[first], classes=["one", "two", "zero"])
    assert model.classes_.tolist() == ["one", "two", "zero"]
    assert (model.predict_proba(DIGITS[:9])[:, 0] == 0).all()
    assert (model.decision_function(DIGITS[:9])[:, 0] == -np.inf).all()
    model.partial_fit(DIGITS[:500][~first], names[~first])
    later = kind().partial_fit(DIGITS[:500][first], names[first])
    assert later.classes_.tolist() == ["two", "zero"]
    later.partial_fit(DIGITS[:500][~first], names[~first])
    assert later.classes_.tolist() == ["one", "two", "zero"]
    expected = model.predict_proba(DIGITS[500:520])
    np.testing.assert_array_equal(later.predict_proba(DIGITS[500:520]), expected)


@pytest.mark.parametrize(("kind", "least"), [*zip(ALL, [0.85, 0.9, 0.85, 0.9], strict=True)])
def test_in_a_pipeline(kind, least):
    scores = cross_val_score(make_pipeline(StandardScaler(), kind()), DIGITS, LABELS, cv=3)
    assert scores.mean() > least
