"""The river classifier: river's own checks, and the scikit-learn classifiers beside it."""

from __future__ import annotations

import numpy as np
import pytest
from river import checks, datasets, evaluate, metrics, preprocessing

from primavista.adapters.river import AnalyticClassifier
from primavista.adapters.sklearn import DSLDAClassifier, EvidenceRidgeClassifier, LDAClassifier
from primavista.errors import InputError

HEADS = ["lda", "dslda", "ncm", "ridge"]


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_rivers_own_checks(head):
    model = AnalyticClassifier(head)
    found = list(checks.yield_checks(model))
    assert len(found) > 30
    for check in found:
        if check.__name__ not in model._unit_test_skips():
            check(model.clone())


@pytest.mark.parametrize(
    ("head", "kind"),
    [("lda", LDAClassifier), ("dslda", DSLDAClassifier), ("ridge", EvidenceRidgeClassifier)],
)
def test_the_first_row_has_the_features_and_what_a_row_lacks_is_0(head, kind):
    rows = np.random.default_rng(0).normal(size=(40, 5)) + 2
    rows[20:, 3:] = 0
    labels = [f"class {k % 3}" for k in range(40)]
    model = AnalyticClassifier(head)
    for k, (row, label) in enumerate(zip(rows, labels, strict=True)):
        own = {f"f{j}": row[j] for j in range(5 if k < 20 else 3)}
        model.learn_one(own | ({"unheard of": 7.0} if k else {}), label)
    expected = kind().fit(rows, labels).predict_proba(rows[30:31])[0]
    found = model.predict_proba_one({f"f{j}": rows[30, j] for j in range(3)} | {"new": 9.0})
    assert [found[f"class {k}"] for k in range(3)] == pytest.approx(expected.tolist(), abs=1e-6)


def test_many_is_one_by_one():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(1).normal(size=(30, 4)), columns=list("abcd"))
    y = pandas.Series([k % 3 for k in range(30)])
    one, many = AnalyticClassifier(), AnalyticClassifier()
    many.learn_many(X, y)
    for row, label in zip(X.to_dict("records"), y, strict=True):
        one.learn_one(row, label)
    shares = many.predict_proba_many(X)
    assert shares.columns.tolist() == [0, 1, 2]
    for k in (0, 17):
        found = one.predict_proba_one(X.iloc[k].to_dict())
        assert shares.iloc[k].to_dict() == pytest.approx(found)


def test_image_segments_test_then_train():
    model = preprocessing.StandardScaler() | AnalyticClassifier("lda")
    metric = metrics.Accuracy()
    evaluate.progressive_val_score(datasets.ImageSegments().take(500), model, metric)
    assert metric.get() > 0.8  # 1 in 7 is chance; river's Gaussian naive Bayes has 0.72


def test_an_unknown_head_is_named():
    with pytest.raises(InputError, match="no head 'svm'"):
        AnalyticClassifier("svm")
