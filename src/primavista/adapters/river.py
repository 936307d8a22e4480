"""The analytic heads as a river classifier, which learns one or many rows at a time.

`docs/guides/neighbours.md` shows the classifier in a pipeline.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from primavista.adapters.labelled import Features, LabelledHead
from primavista.errors import require_extra

require_extra("river", "river")

from river import base  # noqa: E402

__all__ = ["AnalyticClassifier"]


class AnalyticClassifier(base.MiniBatchClassifier):
    """An analytic head on dictionaries of features.

    Classes may come at any time. The features are those of the first row; a feature that is missing
    in a row counts as 0, and others are ignored. Learning a row only adds to sums. The next
    prediction solves for the weights, in a time that grows with the cube of the number of features;
    further predictions reuse them.

    Args:
        head: "lda", "dslda", "ncm" or "ridge"; see the classes of `primavista.adapters.sklearn`.

    >>> model = AnalyticClassifier("ncm")
    >>> model.learn_one({"width": 1.0, "height": 2.0}, "cup")
    >>> model.learn_one({"width": 9.0, "height": 7.0}, "plate")
    >>> model.predict_one({"width": 8.0, "height": 8.0})
    'plate'
    """

    def __init__(self, head: str = "lda") -> None:
        self.head = head
        self._head = LabelledHead(head, 0)
        self._features: list[Hashable] = []

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Learn one row.

        Args:
            x: The features by name.
            y: The label.
        """
        self._begin(x)
        self._head.learn(self._row(x), [y])

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each label, in the order in which they were learned.

        Args:
            x: The features by name; features that were never learned are ignored.
            **kwargs: Ignored.
        """
        if not self._head.labels:
            return {}
        shares = self._head.probabilities(self._row(x))[0].tolist()
        return dict(zip(self._head.labels, shares, strict=True))

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a data frame.

        Args:
            X: The features, one column each.
            y: The labels, a series.
        """
        self._begin(X.columns)
        self._head.learn(self._rows(X), y.tolist())

    def predict_proba_many(self, X: Any) -> Any:
        """Return a data frame with the probability of each label for each row.

        Args:
            X: The features, one column each; features that were never learned are ignored.
        """
        labels = self._head.labels
        if not labels:
            return type(X)(index=X.index)
        return type(X)(self._head.probabilities(self._rows(X)), index=X.index, columns=labels)

    def _begin(self, names: Any) -> None:
        """Take the features of the first row."""
        if not self._features:
            self._features = list(names)
            self._head = LabelledHead(self.head, len(self._features))

    def _row(self, x: dict[Any, Any]) -> Features:
        return np.array([[x.get(name, 0.0) for name in self._features]], np.float64)

    def _rows(self, X: Any) -> Features:
        rows: Features = X.reindex(columns=self._features, fill_value=0.0).to_numpy(np.float64)
        return rows
