"""The analytic heads on numpy features, with arbitrary labels for the classes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from primavista.arrays import softmax
from primavista.errors import InputError
from primavista.heads.base import Head
from primavista.heads.dslda import DSLDAHead
from primavista.heads.lda import LDAOptions, lda_offsets, shrunk_covariance
from primavista.heads.ncm import NCMOptions
from primavista.heads.ridge import RidgeOptions
from primavista.heads.solving import solve_positive_definite
from primavista.heads.statistics import AnalyticHead
from primavista.strategies.options import DSLDAOptions

Features = np.ndarray[Any, np.dtype[np.float64]]
# The options of each head, which make it.
HEADS: dict[str, Any] = {
    "ncm": NCMOptions,
    "lda": LDAOptions,
    "dslda": DSLDAOptions,
    "ridge": RidgeOptions,
}


class LabelledHead:
    """A head that learns features with labels: strings, numbers or any other hashable objects.

    New classes may appear at any time. Only the sums of the head are kept, so a hundred calls of
    `learn` with one row each give the same result as one call with a hundred rows, up to rounding.

    Args:
        name: A key of `HEADS`.
        dim: D, the number of features.
        **options: Options of the head, such as `shrinkage`.

    Raises:
        InputError: If there is no such head.

    >>> head = LabelledHead("ncm", 2)
    >>> head.learn(np.array([[0.0, 0.0], [4.0, 4.0]]), ["cup", "mug"])
    >>> [head.labels[column] for column in head.scores(np.array([[3.0, 4.0]])).argmax(1)]
    ['mug']
    """

    def __init__(self, name: str, dim: int, **options: Any) -> None:
        if name not in HEADS:
            raise InputError(f"no head '{name}': choose one of {', '.join(HEADS)}")
        self.name = name
        self.head: Head = HEADS[name](**options).make_head((dim,), (1.0,), 0)
        self.labels: list[Hashable] = []
        self._columns: dict[Hashable, int] = {}

    def learn(self, z: Features, labels: Sequence[Hashable]) -> None:
        """Learn rows of features.

        Args:
            z: N x D, finite.
            labels: The label of each row; a new label becomes a new class.
        """
        for label in labels:
            if label not in self._columns:
                self._columns[label] = len(self.labels)
                self.labels.append(label)
        self.head.expand(len(self.labels))
        columns = np.array([self._columns[label] for label in labels], dtype=np.int64)
        self.head.learn(z, columns, 1)

    def scores(self, z: Features) -> Features:
        """Score rows of features.

        Args:
            z: N x D.

        Returns:
            N x K in float64, one column per label in `labels`; the highest score wins.
        """
        if not isinstance(self.head, DSLDAHead):
            return np.asarray(self.head.scores(z, len(self.labels)), np.float64)
        w, b = self.head.derived.get_or_compute("float64", self._dslda_weights)
        return np.asarray(z @ w.T + b)

    def probabilities(self, z: Features) -> Features:
        """softmax(scores / T)

        LDA and DSLDA have T = 1, which gives the posteriors of Gaussian classes with a shared
        covariance and equal priors. The scores of the other heads are not logits; their T is the
        temperature of their familiarity, with which a class leads by a fixed logit at its own mean,
        on average.

        Args:
            z: N x D.

        Returns:
            The probabilities, N x K; each row sums to 1.
        """
        t = 1.0
        if isinstance(self.head, AnalyticHead) and self.name not in ("lda", "dslda"):
            t = self.head.familiarity(len(self.labels)).temperature
        return np.asarray(softmax(self.scores(z) / max(t, np.finfo(np.float64).tiny)))

    def _dslda_weights(self) -> tuple[Features, Features]:
        """Solve for the weights of DSLDA in float64; the head itself uses float32, as published."""
        assert isinstance(self.head, DSLDAHead)
        own = self.head.statistics
        mu = own.mu[: len(self.labels)]
        a = shrunk_covariance(own.scatter, own.frames, self.head.options.shrinkage)
        w = solve_positive_definite(a, mu.T).T
        return w, lda_offsets(w, mu)
