"""RanPAC: ridge regression on random features, lambda chosen on each batch (McDonnell et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from primavista.arrays import Array, array_namespace, float64
from primavista.errors import InputError
from primavista.heads.random_features import Drawn, ExpandOptions, RandomReluHead
from primavista.heads.shuffling import permutation, seed_of
from primavista.heads.statistics import AnalyticHead, SufficientStatistics
from primavista.storage.validate import ArrayChecks

LAMBDAS = tuple(10.0**k for k in range(-8, 9))
TAUGHT = 0.8  # the part of a batch from which the trial weights are solved


@dataclass(frozen=True)
class RanPACOptions(ExpandOptions):
    """The option of RanPAC.

    Args:
        expand: M, the number of random features; None for 10,000, but at most 16 D.
    """

    PUBLISHED = 10_000

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> RanPACHead:
        """Make the head; see `HeadOptions`."""
        return RanPACHead(RanPACStatistics.empty(self.width(sizes)), self, seed)


class RanPACStatistics(SufficientStatistics):
    """The sums of h, and the lambda that the last batch has chosen."""

    @classmethod
    def empty(cls, dim: int, **options: Any) -> Self:
        """Make statistics without frames and classes; see `SufficientStatistics.empty`."""
        made = super().empty(dim, **options)
        made.arrays["lambda"] = np.asarray(1.0)
        return made

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check the sums and that lambda is one of `LAMBDAS`; see `ClassArrays.check`."""
        super().check(prefix, known, taught)
        own = ArrayChecks(self.arrays, prefix)
        own.that(float(own.array("lambda", ())) in LAMBDAS, "lambda", "is not a power of 10")


class RanPACHead(RandomReluHead):
    """scores = w h,  w = inv(G + lambda I) Q,  h = relu(z W),  W_jk ~ N(0, 1)

    Each batch chooses the lambda that the next solution uses: weights are solved from four fifths
    of its frames for each of the 17 values, and the one with the least squared error on the other
    frames is kept. The sums do not depend on the order of the batches, but lambda does.

    Args:
        statistics: The sums, and lambda.
        seed: The seed of W and of the split of each batch.
    """

    statistics: RanPACStatistics

    def draw(self, random: np.random.RandomState, dim: int) -> Drawn:
        """Draw W; see `RandomFeatureHead.draw`."""
        return (random.standard_normal((dim, self.statistics.dim)),)

    @property
    def strength(self) -> float:
        """lambda."""
        return float(self.statistics.arrays["lambda"])

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        h = self.features(z)
        self.statistics.add(h, columns)
        y = float64(
            columns[:, None] == array_namespace(z).arange(self.statistics.rows, device=z.device)
        )
        order = permutation(len(h), seed_of(self.seed, i)).tolist()
        held = int(TAUGHT * len(h))
        if held:  # a single frame chooses nothing
            rest, other = order[:held], order[held:]
            chosen = best_lambda(h[rest], y[rest], h[other], y[other])
            self.statistics.arrays["lambda"][...] = chosen

    def merge(self, other: AnalyticHead, columns: Array) -> None:
        """Refuse, because lambda depends on the order of the batches."""
        raise InputError("RanPAC cannot be merged: its lambda is that of the last batch")


def best_lambda(h: Array, y: Array, held: Array, expected: Array) -> float:
    """argmin_lambda |held inv(h^T h + lambda I) h^T y - expected|^2 over `LAMBDAS`

    With fewer frames than features, h^T inv(h h^T + lambda I) y is the same and cheaper. One
    factorisation of the smaller matrix serves every lambda.

    Args:
        h: The features of the frames that are taught, N x M.
        y: Their targets, N x K.
        held: The features of the other frames.
        expected: Their targets.

    Returns:
        The lambda; of equal ones, the smallest.
    """
    few = h.shape[0] <= h.shape[1]
    gram, left, right = (h @ h.T, held @ h.T, y) if few else (h.T @ h, held, h.T @ y)
    values, vectors = array_namespace(h).linalg.eigh(gram)
    left, right, values = left @ vectors, vectors.T @ right, values.clip(0)

    def error(strength: float) -> float:
        return float((((left / (values + strength)) @ right - expected) ** 2).mean())

    return min(LAMBDAS, key=error)
