"""Ridge regression from sufficient statistics, its regularisation included, in numpy or torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace, device

from .base import Array, float64, to_library_of
from .solving import FLOOR, invert_positive_definite, solve_positive_definite
from .statistics import AnalyticHead, SufficientStatistics

# A share of the mean second moment added to each variance: the rounding that is left of a feature
# that never varied is not blown up either.
ROUNDING = 1e-8
# A fixed grid: which value is chosen does not depend on rounding.
RHO_GRID: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-10, 5))


@dataclass(frozen=True)
class Regression:
    """One-hot targets on x = (z - mean) / std:  [[A, r^T], [r, I]]

    with the correlations A of x and r_c = E[x (y_c - pi_c)].

    Args:
        bordered: the matrix above, (D + K) x (D + K).
        pi: the weight of each class; they sum to 1.
        mean: the mean of the features.
        std: their standard deviation.
        effective_sample_size: N = 1 / sum_c pi_c^2 / n_c, the number of frames of equal weight
            that say as much; the number of frames if none weighs more than another.
    """

    bordered: Array
    pi: Array
    mean: Array
    std: Array
    effective_sample_size: float

    @property
    def dim(self) -> int:
        """D, the number of features."""
        return len(self.mean)

    @property
    def diagonal(self) -> Array:
        """The diagonal of the bordered matrix, as a view to write to."""
        return self.bordered.reshape(-1)[:: len(self.bordered) + 1]

    @property
    def correlations(self) -> Array:
        """A, D x D, as a view."""
        return self.bordered[: self.dim, : self.dim]

    @property
    def targets(self) -> Array:
        """r^T, D x K, as a view."""
        return self.bordered[: self.dim, self.dim :]

    @property
    def target_variance(self) -> float:
        """yy = sum_c pi_c (1 - pi_c), the variance of the targets."""
        return float((self.pi * (1 - self.pi)).sum())


class RidgeHead(AnalyticHead):
    """w = inv(A + rho I) r  on standardised features x,  scores = w x + pi

    with the correlations A of x and r of x with the classes (`Regression`). Unless `rho` is given,
    it is the value with the highest evidence. With `expand=M` the features are relu(z R), R fixed
    and random, D x M.

    Args:
        statistics: the sums, with a Gram matrix.
        expand: M, the number of random features; None for those of the backbone.
        balance: 1 if every class has the same weight, 0 if every frame has.
        rho: the regularisation, in units of the variance of a feature; None for the likeliest.
        seed: the seed of R.
    """

    def __init__(
        self,
        statistics: SufficientStatistics,
        *,
        expand: int | None = None,
        balance: float = 1.0,
        rho: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(statistics)
        self.expand_to = expand
        self.balance = balance
        self.rho = rho
        self.seed = seed
        self._projection: tuple[int, Array] | None = None  # the seed, R

    def features(self, z: Array) -> Array:
        """Return z, or relu(z R); see `Head.features`."""
        if self.expand_to is None:
            return z
        # in float32, results would depend on the rest of the batch
        projected = float64(z) @ self._random_projection(z, self.expand_to)
        return projected.clip(0)

    def _random_projection(self, z: Array, width: int) -> Array:
        """R where z is: made once, and again if the seed or the device has changed."""
        kept = self._projection
        if kept is None or kept[0] != self.seed or device(kept[1]) != device(z):
            # numpy's legacy generator gives the same numbers for ever, so no file needs to hold R
            draw = np.random.RandomState(self.seed % 2**32).standard_normal((z.shape[1], width))
            kept = self.seed, to_library_of(draw / z.shape[1] ** 0.5, z)
            self._projection = kept
        return kept[1]

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        (x,) = regressions(self.statistics, self.balance, classes)
        return ridge_weights(x, self._chosen_rho(x))

    def precision(self, classes: int) -> Array:
        """Return inv(A + rho I) for z in place of x; see `AnalyticHead.precision`."""
        (x,) = regressions(self.statistics, self.balance, classes)
        x.diagonal[: x.dim] += self._chosen_rho(x)
        return invert_positive_definite(x.correlations) / x.std / x.std[:, None]

    def _chosen_rho(self, x: Regression) -> float:
        if self.rho is not None:
            return float(self.rho)
        return self.derived.get_or_compute("rho", lambda: choose_rho(x))


def regressions(
    statistics: SufficientStatistics, balance: float, classes: int
) -> Iterator[Regression]:
    """Make the regression of each block of features.

    Args:
        statistics: the sums.
        balance: 1 if every class has the same weight, 0 if every frame has.
        classes: the number of known classes.

    Yields:
        One regression per block.
    """
    n, s, t = statistics.n[:classes], statistics.s[:classes], statistics.frames
    for scatter, features in statistics.scatters():
        yield regression(n, s[:, features], scatter, t, balance)


def regression(n: Array, s: Array, scatter: Array, t: float, balance: float) -> Regression:
    """C = S / t + sum_c pi_c (mu_c - m) (mu_c - m)^T,  pi_c ~ n_c^(1 - balance),

    m = sum_c pi_c mu_c,  std^2 = diag C,  A = C / (std std^T),  r_c = pi_c (mu_c - m) / std

    With balance = 0 this is exactly the regression on the frames. With balance = 1 every class has
    the same weight, however many frames it has: exactly so for the means, hence for all that lies
    between classes. The covariance within classes is the pooled one, because none is kept per
    class; that is exact if the classes share it.

    Args:
        n: the counts, K.
        s: the sums, K x D.
        scatter: S of `within_class_scatter`, D x D; it is overwritten.
        t: the number of frames in S.
        balance: from 0 to 1.

    Returns:
        The regression.
    """
    dim, classes = len(scatter), len(n)
    weight = n.clip(1) ** (1 - balance)
    pi = weight / weight.sum()
    mu = s / n.clip(1)[:, None]
    mean = (pi[:, None] * mu).sum(0)
    offset = mu - mean
    scatter /= max(t, 1)
    scatter += (pi[:, None] * offset).T @ offset
    variance = scatter.reshape(-1)[:: dim + 1].clip(0)
    moment = variance + mean * mean
    std = (variance + FLOOR * moment + ROUNDING * moment.mean() + 1e-30) ** 0.5
    scatter /= std[:, None]
    scatter /= std
    r = pi[:, None] * offset / std
    xp, size = array_namespace(scatter), dim + classes
    bordered = xp.zeros((size, size), dtype=xp.float64, device=device(scatter))
    bordered[:dim, :dim] = scatter
    bordered[dim:, :dim] = r
    bordered[:dim, dim:] = r.T
    result = Regression(bordered, pi, mean, std, 1 / float((pi * pi / n.clip(1)).sum()))
    result.diagonal[dim:] = 1
    return result


def negative_log_evidence(x: Regression, rho: float) -> float:
    """-(2 / K) log p(Y | rho) = (N + K - 1) log(u + K yy / N) + log det(I + A / rho) + constant

    u = yy - sum_c r_c^T inv(A + rho I) r_c

    The evidence of y = w x + noise with w ~ N(0, noise / (N rho)), an offset of any size and the
    noise at its likeliest; yy is the variance of the targets, u what a regression leaves
    unexplained. One more frame per class is counted that is pure noise: the frames of a video are
    so alike that a few lessons are always fitted perfectly, which says nothing about the next
    video; without it rho would vanish then. With more frames than features it hardly matters.

    It takes one factorisation: the corner I of the bordered matrix becomes
    I - r inv(A + rho I) r^T.

    Args:
        x: the regression.
        rho: the regularisation.

    Returns:
        The negative log evidence, up to a constant.
    """
    dim, classes, n = x.dim, len(x.pi), x.effective_sample_size
    x.diagonal[:dim] += rho
    factor = array_namespace(x.bordered).linalg.cholesky(x.bordered)
    x.diagonal[:dim] -= rho
    corner = factor[dim:, dim:]
    yy = x.target_variance
    unexplained = max(yy - classes + float((corner * corner).sum()), 0.0)
    logdet = 2 * sum(map(math.log, factor.reshape(-1)[:: dim + classes + 1][:dim].tolist()))
    noise = unexplained + classes * yy / n
    return (n + classes - 1) * math.log(noise or 1) + logdet - dim * math.log(rho)


def choose_rho(x: Regression) -> float:
    """Find the value of `RHO_GRID` with the highest evidence, the largest of equals.

    Every fourth value is tried, then those around the best.

    Args:
        x: the regression.

    Returns:
        rho.
    """
    tried: dict[int, tuple[float, int]] = {}

    def at(k: int) -> tuple[float, int]:
        if k not in tried:
            tried[k] = round(negative_log_evidence(x, RHO_GRID[k]), 6), -k
        return tried[k]

    last = len(RHO_GRID) - 1
    best = min(range(0, last + 1, 4), key=at)
    for step in (2, 1):
        around = (best - step, best, best + step)
        best = min((k for k in around if 0 <= k <= last), key=at)
    return RHO_GRID[best]


def ridge_weights(x: Regression, rho: float) -> tuple[Array, Array]:
    """w_c = inv(A + rho I) r_c for x = (z - mean) / std, returned for z: b = pi - w mean.

    Args:
        x: the regression.
        rho: the regularisation.

    Returns:
        w (K x D) and b (K): scores = w z + b.
    """
    x.diagonal[: x.dim] += rho
    w = solve_positive_definite(x.correlations, x.targets).T / x.std
    x.diagonal[: x.dim] -= rho
    return w, x.pi - (w * x.mean).sum(1)
