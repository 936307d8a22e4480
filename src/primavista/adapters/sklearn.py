"""The analytic heads as scikit-learn classifiers of features, such as those of a backbone.

`fit` and `partial_fit` only add to sums, so learning a stream row by row, in any order, gives the
same result as one `fit` of everything. New classes may appear at any time. For examples, see
`docs/guides/neighbours.md`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from primavista.adapters.labelled import Features, LabelledHead
from primavista.errors import require_extra

require_extra("sklearn", "sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

__all__ = ["DSLDAClassifier", "EvidenceRidgeClassifier", "LDAClassifier", "NCMClassifier"]


class HeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The common part of the classifiers: one head, and the conventions of scikit-learn.

    Attributes:
        classes_: The labels, sorted.
        n_features_in_: The number of features.
        head_: The head with its sums; see `primavista.adapters.labelled`.
    """

    HEAD = ""

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything, then learn the given rows.

        Args:
            X: The features, N x D.
            y: The label of each row.

        Returns:
            The classifier itself.
        """
        return self._learn(X, y, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn more rows, of classes that are known or new.

        Args:
            X: The features, N x D.
            y: The label of each row.
            classes: Labels of future rows, which `classes_` lists from now on. Announcing them is
                optional.

        Returns:
            The classifier itself.
        """
        return self._learn(X, y, reset=not hasattr(self, "head_"), announced=classes)

    def decision_function(self, X: Any) -> Features:
        """Score rows.

        Args:
            X: The features, N x D.

        Returns:
            With two classes, the score of the second minus that of the first; otherwise N x K in
            the order of `classes_`. The score is minus infinity for a class that was announced but
            has no rows yet.
        """
        scores = self._scores(X)
        if len(self.classes_) == 1:
            return scores[:, 0]
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the class with the highest score for each row.

        Args:
            X: The features, N x D.
        """
        scores = self._scores(X)
        best: np.ndarray[Any, Any] = self.classes_[scores.argmax(1)]
        return best

    def predict_proba(self, X: Any) -> Features:
        """Return the probability of each class, N x K in the order of `classes_`.

        Args:
            X: The features, N x D.
        """
        z = self._checked(X)
        return self._by_class(self.head_.probabilities(z), 0.0)

    def _learn(self, X: Any, y: Any, reset: bool, announced: Any = None) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(y)
        if reset:
            self.head_ = LabelledHead(self.HEAD, X.shape[1], **self.get_params())
            self.classes_ = np.unique(y)
        known = [self.classes_, y, *([] if announced is None else [np.asarray(announced)])]
        self.classes_ = np.unique(np.concatenate(known))
        self.head_.learn(X, y.tolist())
        return self

    def _scores(self, X: Any) -> Features:
        z = self._checked(X)
        return self._by_class(self.head_.scores(z), -np.inf)

    def _checked(self, X: Any) -> Features:
        check_is_fitted(self)
        checked: Features = validate_data(self, X, dtype=np.float64, reset=False)
        return checked

    def _by_class(self, values: Features, missing: float) -> Features:
        """Put the columns of the head into the order of `classes_`."""
        result = np.full((len(values), len(self.classes_)), missing)
        places = {label: k for k, label in enumerate(self.classes_.tolist())}
        result[:, [places[label] for label in self.head_.labels]] = values
        return result


class NCMClassifier(HeadClassifier):
    """Classification by the nearest class mean: scores = mu z - |mu|^2 / 2.

    It keeps the mean and the count of each class, and needs no covariance matrix.

    >>> NCMClassifier().fit([[0, 0], [4, 4]], ["cup", "mug"]).predict([[3, 4]]).tolist()
    ['mug']
    """

    HEAD = "ncm"


class LDAClassifier(HeadClassifier):
    """Linear discriminant analysis with the exact pooled covariance, from sums.

    Args:
        shrinkage: The weight of the identity in the covariance; None for oracle approximating
            shrinkage, which needs no tuning.
    """

    HEAD = "lda"

    def __init__(self, shrinkage: float | None = None) -> None:
        self.shrinkage = shrinkage


class DSLDAClassifier(HeadClassifier):
    """Deep streaming linear discriminant analysis (Hayes and Kanan 2020), computed in batches.

    Unlike `LDAClassifier`, it centres each row on the mean of its class at that time, as published,
    so its results depend on the order of the rows.

    Args:
        shrinkage: The weight of the identity in the covariance.
    """

    HEAD = "dslda"

    def __init__(self, shrinkage: float = 1e-4) -> None:
        self.shrinkage = shrinkage


class EvidenceRidgeClassifier(HeadClassifier):
    """Ridge regression of one-hot targets; its regularisation is chosen by the highest evidence.

    Args:
        rho: The regularisation in units of the variance of a feature; None for the value with the
            highest evidence.
        balance: 1 to give every class the same weight, 0 to give every row the same weight.
        expand: The number of random features relu(z R) that replace the features z; None for z.
    """

    HEAD = "ridge"

    def __init__(
        self, rho: float | None = None, balance: float = 1.0, expand: int | None = None
    ) -> None:
        self.rho = rho
        self.balance = balance
        self.expand = expand
