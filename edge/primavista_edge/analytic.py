"""ncm, lda, ridge and prima in numpy: linear scores, solved from sums over frames when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .errors import InputError
from .heads.dslda import lda_weights, oas
from .heads.open_set import Alike, Familiarity, familiarity, likeness
from .heads.prima import judged_ridge, shares
from .heads.ridge import FLOOR, NUMPY, Regression, choose_rho, regression, ridge_weights
from .moments import Moments

Array = np.ndarray[Any, Any]
OWN = 2.0  # votes of the backbone's own features in prima


class Analytic:
    """scores = w phi(z) + b, with w and b solved from `Moments` of phi(z)."""

    def __init__(
        self,
        arrays: dict[str, Array],
        options: dict[str, Any],
        seed: int,
        blocks: Sequence[int] | None = None,
    ) -> None:
        self.arrays, self.options, self.seed = arrays, options, seed
        self.moments = Moments(arrays, "moments.", blocks)
        self._solved: tuple[Array, Array] | None = None
        self._familiar: Familiarity | None = None

    def grow(self, classes: int) -> None:
        """As many rows as classes."""
        self.moments.grow(classes)

    def learn(self, z: Array, columns: Array, i: int) -> None:
        """Sums."""
        self.moments.add(self.phi(z), columns)
        self._solved = None

    def scores(self, z: Array, classes: int) -> Array:
        """In float64."""
        w, b = self._solution(classes)
        scores: Array = self.phi(z).astype(np.float64) @ w.T + b
        return scores

    def familiar(self, classes: int) -> Familiarity:
        """See `parts/familiar.py`."""
        w, _ = self._solution(classes)
        if self._familiar is None:
            self._familiar = self.familiarity(w, classes)
        return self._familiar

    def familiarity(self, w: Array, classes: int) -> Familiarity:
        """By how far a frame strays, unless a strategy knows better."""
        m = self.moments
        if not m.has_gram:
            return familiarity(
                w, m.means(classes), self.precision(classes), m.spread(classes), float(m.n.sum())
            )
        ((scatter, _),) = m.scatters()
        return familiarity(w, m.means(classes), self.precision(classes), scatter / m.t, m.t)

    def phi(self, z: Array) -> Array:
        """As they are."""
        return z

    def drop(self, column: int) -> None:
        """Its count and sum go, and so its mean."""
        self.moments.drop(column)
        self._solved = None

    def clear(self) -> None:
        """As before the first lesson."""
        self.moments.clear()
        self._solved = None

    def check(self, known: int, taught: Sequence[int]) -> None:
        """See `parts/sums.py`."""
        self.moments.check(known, taught)

    def __getstate__(self) -> dict[str, Any]:
        """For copies: they are made to be changed, and solve anew."""
        return {**self.__dict__, "_solved": None, "_familiar": None}

    def solve(self, classes: int) -> tuple[Array, Array]:
        """w and b: the nearest class mean, unless a strategy does more."""
        mu = self.moments.means(classes)
        return mu, (mu * mu).sum(1) * -0.5

    def precision(self, classes: int) -> Array | None:
        """P of `parts/familiar.py`; None is I."""
        return None

    def _solution(self, classes: int) -> tuple[Array, Array]:
        if self._solved is None:
            try:
                self._solved, self._familiar = self.solve(classes), None
            except np.linalg.LinAlgError as error:
                raise InputError(
                    f"the statistics are no sums over frames: {error}. Was the file altered?"
                ) from error
        return self._solved

    def _regressions(self, classes: int) -> Iterator[Regression]:
        m = self.moments
        for scatter, features in m.scatters():
            yield regression(
                m.n[:classes], m.s[:classes, features], scatter, m.t, self.options["balance"], NUMPY
            )


class LDA(Analytic):
    """w_c = Lambda mu_c,  b_c = -mu_c^T Lambda mu_c / 2,  Lambda = inv((1 - eps) S / t + eps m I)."""

    def solve(self, classes: int) -> tuple[Array, Array]:
        """From the pooled covariance."""
        return self._weights(self.moments.means(classes), classes)

    def precision(self, classes: int) -> Array | None:
        """Lambda."""
        return self._weights(np.eye(self.moments.s.shape[1]), classes)[0]

    def _weights(self, directions: Array, classes: int) -> tuple[Array, Array]:
        ((scatter, _),) = self.moments.scatters()
        t, eps, target = int(self.moments.t), self.options["shrinkage"], 1.0
        if eps is None:
            eps, m = oas(scatter / t, t)
            target = (
                m + FLOOR * (m + float((self.moments.means(classes) ** 2).mean()) + 1e-30) / eps
            )
        return lda_weights(directions, scatter, t, eps, NUMPY.solve, target)


class Ridge(Analytic):
    """w = inv(A + rho I) r on standardised features, rho the likeliest; with `expand` those are relu(z R), R random."""

    def solve(self, classes: int) -> tuple[Array, Array]:
        """See `parts/ridge.py`."""
        (x,) = self._regressions(classes)
        self._rho = (
            choose_rho(x, NUMPY) if self.options["rho"] is None else float(self.options["rho"])
        )
        return ridge_weights(x, self._rho, NUMPY)

    def precision(self, classes: int) -> Array | None:
        """Of the features, from that of the standardised ones."""
        self._solution(classes)
        (x,) = self._regressions(classes)
        x.diagonal[: x.dim] += self._rho
        inverse: Array = np.linalg.inv(x.bordered[: x.dim, : x.dim]) / x.std / x.std[:, None]
        return inverse

    def phi(self, z: Array) -> Array:
        """The backbone's, or random ones of them."""
        if self.options["expand"] is None:
            return z
        draw = np.random.RandomState(self.seed % 2**32).standard_normal(
            (z.shape[1], self.options["expand"])
        )
        random: Array = np.maximum(z.astype(np.float64) @ (draw / z.shape[1] ** 0.5), 0)
        return random


class Prima(Analytic):
    """A ridge regression for each depth of the backbone, weighed by the error that each is expected to make."""

    def solve(self, classes: int) -> tuple[Array, Array]:
        """See `parts/committee.py`."""
        heads = [judged_ridge(x, self.moments.t, NUMPY) for x in self._regressions(classes)]
        omega = shares([head.error for head in heads], [1.0] * (len(heads) - 1) + [OWN])
        w = np.concatenate([share * head.w for share, head in zip(omega, heads, strict=True)], 1)
        return w, np.sum([share * head.b for share, head in zip(omega, heads, strict=True)], 0)

    def familiarity(self, w: Array, classes: int) -> Alike:
        """By what a frame looks like."""
        m = self.moments
        return likeness(w, m.means(classes), m.spread(classes), own=sum(m.blocks[:-1]))
