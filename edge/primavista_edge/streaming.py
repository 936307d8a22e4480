"""CWR+, CWR* and DSLDA in numpy: what learns is the head, from features that are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .errors import InputError
from .heads.cwr import consolidate
from .heads.dslda import lda_update, lda_weights, oas_covariance
from .heads.open_set import Familiarity, familiarity, lda_familiarity
from .moments import Moments, dropped
from .nn.shuffling import permutation, pieces, seed_of
from .storage.validate import check_past, check_scatter

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


class Head(Protocol):
    """Turns features into scores, and learns a batch; `arrays` are its tensors by their names in the file."""

    arrays: Arrays

    def grow(self, classes: int) -> None:
        """Make room for so many classes."""

    def learn(self, z: Array, columns: Array, i: int) -> None:
        """Batch B_i: features, and the column of each."""

    def scores(self, z: Array, classes: int) -> Array:
        """N x classes."""

    def familiar(self, classes: int) -> Familiarity | None:
        """What tells how familiar a frame is; None where there is nothing to tell it by."""

    def phi(self, z: Array) -> Array:
        """The features that its statistics are of."""

    def drop(self, column: int) -> None:
        """Take a class out; those behind it move up."""

    def check(self, known: int, taught: Sequence[int]) -> None:
        """Refuse arrays that no lessons can have given; `taught` are the columns, of the `known` ones, that have names."""


class CWR:
    """Algorithm 1 (CWR*) and 2 (CWR+) of the paper from batch 2 on: tw is trained by SGD on softmax, then consolidated."""

    NAMES = ("head.cw", "head.past")

    def __init__(self, arrays: Arrays, options: dict[str, Any], seed: int) -> None:
        if options.get("compat") is not None:
            raise InputError("a learner with compat= is learned with torch only")
        self.arrays, self.options, self.seed = arrays, options, seed
        self.seen = Moments(arrays, "seen.") if options.get("open_set") else None

    def grow(self, classes: int) -> None:
        """The capacity, doubled when full."""
        for name in self.NAMES:
            while len(self.arrays[name]) < classes:
                self.arrays[name] = np.concatenate(
                    [self.arrays[name], np.zeros_like(self.arrays[name])]
                )
        if self.seen is not None:
            self.seen.grow(len(self.arrays["head.cw"]))

    def learn(self, z: Array, columns: Array, i: int) -> None:
        """g = (softmax(tw z) - onehot) z^T / m;  v <- mu v + g + wd tw;  tw <- tw - eta v."""
        if i == 1:
            raise InputError(
                "the paper's batch 1 trains the network, which needs torch: teach the first objects there"
            )
        options, cw = self.options, self.arrays["head.cw"]
        present, cur = np.unique(columns, return_counts=True)
        tw = np.zeros_like(cw)
        if options["head"] == "cwr*":
            tw[present] = cw[present]
        velocity = np.zeros_like(tw)
        rate = np.float32(options["lr"] if options.get("lr_head") is None else options["lr_head"])
        momentum, decay = np.float32(options["momentum"]), np.float32(options["weight_decay"])
        for epoch in range(options["epochs"]):
            order = permutation(len(z), seed_of(self.seed, i, epoch))
            for index in np.array_split(order, pieces(len(z), options["minibatch"])):
                x = z[index]
                error = softmax(x @ tw.T)
                error[np.arange(len(index)), columns[index]] -= 1
                velocity *= momentum
                velocity += error.T @ x / np.float32(len(index)) + decay * tw
                tw -= rate * velocity
        consolidate(
            cw,
            self.arrays["head.past"],
            tw[present],
            present,
            cur.astype(np.float32),
            options["head"],
            options["wpast"],
        )
        if self.seen is not None:
            self.seen.add(z, columns)

    def scores(self, z: Array, classes: int) -> Array:
        """By cw."""
        return z @ self.arrays["head.cw"][:classes].T

    def familiar(self, classes: int) -> Familiarity | None:
        """By the means of the classes, if they are kept."""
        if self.seen is None:
            return None
        cw = self.arrays["head.cw"][:classes].astype(np.float64)
        return familiarity(
            cw, self.seen.means(classes), None, self.seen.spread(classes), float(self.seen.n.sum())
        )

    def phi(self, z: Array) -> Array:
        """As they are."""
        return z

    def drop(self, column: int) -> None:
        """The last row becomes 0."""
        for name in self.NAMES:
            self.arrays[name] = dropped(self.arrays[name], column)
        if self.seen is not None:
            self.seen.drop(column)

    def check(self, known: int, taught: Sequence[int]) -> None:
        """See `parts/sums.py`."""
        check_past(self.arrays, "head.past")
        if not len(self.arrays["head.cw"]) == len(self.arrays["head.past"]) >= known:
            raise InputError(f"head.cw and head.past do not have a row for each of {known} classes")
        if self.seen is not None:
            self.seen.check(known, taught)


class DSLDA:
    """Streaming linear discriminant analysis: one Gram product a batch, one solve when scores are asked for."""

    ROWS = ("statistics.mu", "statistics.n")

    def __init__(self, arrays: Arrays, options: dict[str, Any], seed: int) -> None:
        self.arrays, self.options = arrays, options
        self._solved: tuple[Array, Array] | None = None
        self._familiar: Familiarity | None = None

    def grow(self, classes: int) -> None:
        """As many rows as classes."""
        for name in self.ROWS:
            old = self.arrays[name]
            self.arrays[name] = np.concatenate(
                [old, np.zeros((max(classes - len(old), 0), *old.shape[1:]))]
            )

    def learn(self, z: Array, columns: Array, i: int) -> None:
        """See `lda_update`; with `base_init` the first covariance is that of oracle approximating shrinkage."""
        if self.options["tune"] and i == 1:
            raise InputError(
                "tune=True trains the network on batch 1, which needs torch: teach the first objects there"
            )
        a, features = self.arrays, z.astype(np.float64)
        mu, n, scatter, t = (
            a["statistics.mu"],
            a["statistics.n"],
            a["statistics.scatter"],
            a["statistics.t"].item(),
        )
        self._solved = None
        if self.options["base_init"] and t == 0:
            for j in np.unique(columns):
                mu[j], n[j] = features[columns == j].mean(0), (columns == j).sum()
            scatter[:] = oas_covariance(features - mu[columns]) * len(z)
            t = len(z)
        else:
            t = lda_update(mu, n, scatter, t, features, columns)
        a["statistics.t"] = np.array([t], np.int64)

    def scores(self, z: Array, classes: int) -> Array:
        """w z + b."""
        w, b = self._solution(classes)
        return z @ w.T + b

    def familiar(self, classes: int) -> Familiarity | None:
        """By the covariance, if it was asked for."""
        if not self.options.get("open_set"):
            return None
        self._solution(classes)
        if self._familiar is None:
            scatter, t = (
                self.arrays["statistics.scatter"],
                max(self.arrays["statistics.t"].item(), 1),
            )
            mu, shrinkage = self.arrays["statistics.mu"][:classes], self.options["shrinkage"]
            self._familiar = lda_familiarity(
                mu, scatter, t, shrinkage, np.eye(len(scatter)), np.linalg.solve
            )
        return self._familiar

    def phi(self, z: Array) -> Array:
        """As they are."""
        return z

    def drop(self, column: int) -> None:
        """Mean and count go; the class' share in the covariance stays."""
        for name in self.ROWS:
            self.arrays[name] = dropped(self.arrays[name], column)
        self._solved = None

    def check(self, known: int, taught: Sequence[int]) -> None:
        """See `parts/sums.py`."""
        check_scatter(self.arrays, "statistics.", known, taught)

    def _solution(self, classes: int) -> tuple[Array, Array]:
        if self._solved is None:
            scatter, t = self.arrays["statistics.scatter"], self.arrays["statistics.t"].item()
            mu = self.arrays["statistics.mu"][:classes]
            w, b = lda_weights(mu, scatter, t, self.options["shrinkage"], np.linalg.solve)
            self._solved, self._familiar = (w.astype(np.float32), b.astype(np.float32)), None
        return self._solved


def softmax(x: Array) -> Array:
    """Over the last dimension."""
    e = np.exp(x - x.max(-1, keepdims=True))
    shares: Array = e / e.sum(-1, keepdims=True)
    return shares
