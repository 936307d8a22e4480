"""LDA: linear discriminant analysis with the exact pooled covariance, in numpy or torch.

All classes are Gaussian with one covariance, which is shrunk towards a multiple of the identity so
that it can be inverted after few frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from primavista.arrays import Array, identity
from primavista.heads.options import HeadOptions, Range
from primavista.heads.solving import FLOOR, solve_positive_definite
from primavista.heads.statistics import AnalyticHead, SufficientStatistics


@dataclass(frozen=True)
class LDAOptions(HeadOptions):
    """The options of LDA.

    Args:
        shrinkage: The shrinkage of the covariance towards I (DSLDA has 1e-4); None for oracle
            approximating shrinkage towards m I.
    """

    shrinkage: Annotated[float, Range(1e-12, 1)] | None = None

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> LDAHead:
        """Make the head; see `HeadOptions`."""
        return LDAHead(SufficientStatistics.empty(sum(sizes)), self.shrinkage)


class LDAHead(AnalyticHead):
    """w_c = Lambda mu_c,  b_c = -mu_c^T Lambda mu_c / 2,  Lambda = inv((1 - eps) S / t + eps m I)

    S = sum (z - mu)(z - mu)^T, where mu is the mean of the class of z over the whole stream; the
    recursion of DSLDA uses the mean at the time when the frame was learned. Unless `shrinkage` is
    given, eps and m are those of oracle approximating shrinkage (`oas`).

    Args:
        statistics: The sums, with a Gram matrix.
        shrinkage: eps, towards m = 1; None for `oas`.
    """

    def __init__(self, statistics: SufficientStatistics, shrinkage: float | None = None) -> None:
        super().__init__(statistics)
        self.shrinkage = shrinkage

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        mu = self.statistics.means(classes)
        w = solve_positive_definite(self._covariance(classes), mu.T).T
        return w, lda_offsets(w, mu)

    def precision(self, classes: int) -> Array:
        """Return Lambda; see `AnalyticHead.precision`."""
        one = identity(self.statistics.dim, self.statistics.s)
        return solve_positive_definite(self._covariance(classes), one).T

    def _covariance(self, classes: int) -> Array:
        """(1 - eps) S / t + eps m I, the inverse of Lambda."""
        scatter, t = self.statistics.scatter(), int(self.statistics.frames)
        eps, target = self.shrinkage, 1.0
        if eps is None:
            eps, m = oas(scatter / t, t)
            means = self.statistics.means(classes)
            moment = m + float((means**2).mean()) + 1e-30  # > 0 even if all features are 0
            target = m + FLOOR * moment / eps  # if all frames are equal, S is only rounding
        return shrunk_covariance(scatter, t, eps, target)


def lda_weights(
    mu: Array, scatter: Array, t: int, shrinkage: float, target: float = 1.0
) -> tuple[Array, Array]:
    """w_k = Lambda mu_k,  b_k = -mu_k^T Lambda mu_k / 2,  Lambda as in `shrunk_covariance`.

    Args:
        mu: The means, K x D.
        scatter: S, D x D.
        t: The number of frames.
        shrinkage: eps.
        target: m.

    Returns:
        w (K x D) and b (K): scores = w z + b.
    """
    w = solve_positive_definite(shrunk_covariance(scatter, t, shrinkage, target), mu.T).T
    return w, lda_offsets(w, mu)


def lda_offsets(w: Array, mu: Array) -> Array:
    """b_k = -w_k mu_k / 2.

    Args:
        w: K x D.
        mu: K x D.

    Returns:
        K numbers.
    """
    return (w * mu).sum(1) * -0.5


def shrunk_covariance(scatter: Array, t: int, shrinkage: float, target: float = 1.0) -> Array:
    """inv(Lambda) = (1 - eps) S / t + eps m I.

    Args:
        scatter: S, D x D.
        t: The number of frames; 0 counts as 1.
        shrinkage: eps.
        target: m.

    Returns:
        D x D, a new array.
    """
    a = scatter * ((1 - shrinkage) / max(t, 1))
    _diagonal(a)[:] += shrinkage * target
    return a


def oas(c: Array, count: float) -> tuple[float, float]:
    """s = (mean(C^2) + m^2) / ((N + 1) (mean(C^2) - m^2 / D)), at most 1,  m = tr C / D

    This is oracle approximating shrinkage of a covariance (Chen et al. 2010), without its terms in
    2 / D.

    Args:
        c: C, D x D.
        count: N, the number of samples.

    Returns:
        s and m.
    """
    dim = len(c)
    m = float(_diagonal(c).sum()) / dim
    spread = float((c * c).mean())
    denominator = (count + 1) * (spread - m * m / dim)
    if denominator <= 0:
        return 1.0, m
    return min(1.0, (spread + m * m) / denominator), m


def oas_covariance(centred: Array) -> Array:
    """(1 - s) C + s m I,  C = X^T X / N, with s and m of `oas`.

    Args:
        centred: X, N x D, with mean 0.

    Returns:
        The shrunk covariance, D x D.
    """
    count = centred.shape[0]
    c = centred.T @ centred / count
    s, m = oas(c, count)
    c = c * (1 - s)
    _diagonal(c)[:] += s * m
    return c


def _diagonal(a: Array) -> Array:
    """Return the diagonal of a contiguous square matrix as a writable view."""
    return a.reshape(-1)[:: len(a) + 1]
