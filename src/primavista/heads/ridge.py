"""Ridge regression of the class indicators on the features, from sufficient statistics.

The sums n, s and G determine the correlations of the features with each other and with the
classes, hence the regression for every strength of regularisation rho. They also determine the
evidence of rho (the marginal likelihood of the labels), so rho needs no validation data: it is the
value with the highest evidence. Everything is written for numpy and torch arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from primavista.arrays import Array, array_namespace, float64
from primavista.heads.options import HeadOptions, Range
from primavista.heads.random_features import Drawn, Expand, RandomFeatureHead
from primavista.heads.solving import FLOOR, invert_positive_definite, solve_positive_definite
from primavista.heads.statistics import SufficientStatistics

# This fraction of the mean second moment is added to each variance, so that standardisation does
# not amplify the rounding errors of a feature that never varied.
ROUNDING = 1e-8
# A fixed grid, so that the chosen value does not depend on rounding.
RHO_GRID: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-10, 5))


@dataclass(frozen=True)
class RidgeOptions(HeadOptions):
    """The options of Ridge.

    Args:
        expand: The number of random features; None for the backbone's own features.
        balance: 1 to give every class the same weight, 0 to give every frame the same weight.
        rho: The regularisation, in units of the variance of a feature; None for the value with the
            highest evidence.
    """

    expand: Expand = None
    balance: Annotated[float, Range(0, 1)] = 1.0
    rho: Annotated[float, Range(1e-8, 1e8)] | None = None

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> RidgeHead:
        """Make the head; see `HeadOptions`."""
        statistics = SufficientStatistics.empty(self.expand or sum(sizes))
        return RidgeHead(statistics, self, seed)


@dataclass(frozen=True)
class Regression:
    """[[A, r^T], [r, I]],  A = E[x x^T],  r_c = E[x (y_c - pi_c)],  x = (z - mean) / std

    The moments of a regression of one-hot targets y on standardised features x: A is the
    correlation matrix of x, and r_c is the covariance of x with the target of class c.

    Args:
        bordered: The matrix above, (D + K) x (D + K).
        pi: The weights of the classes, which sum to 1.
        mean: The mean of the features.
        std: The standard deviation of the features.
        effective_sample_size: N = 1 / sum_c (pi_c^2 / n_c), the effective sample size (Kish). It is
            the number of frames if all frames have the same weight.
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


class RidgeHead(RandomFeatureHead):
    """scores = w x + pi,  w = inv(A + rho I) r

    x are the standardised features, A their correlations, and r their covariances with the classes
    (`Regression`). Unless `rho` is given, it is the value with the highest evidence. With
    `expand=M` the features are relu(z R), where R is a fixed random matrix, D x M.

    Args:
        statistics: The sums, with a Gram matrix.
        options: `expand` is M; see `RidgeOptions`.
        seed: The seed of R.
    """

    options: RidgeOptions

    def features(self, z: Array) -> Array:
        """Return z, or relu(z R); see `Head.features`."""
        if self.options.expand is None:
            return z
        (r,) = self.drawn(z)
        return (float64(z) @ r).clip(0)  # in float32, results would depend on the rest of the batch

    def draw(self, random: np.random.RandomState, dim: int) -> Drawn:
        """Draw R; see `RandomFeatureHead.draw`."""
        return (random.standard_normal((dim, self.statistics.dim)) / dim**0.5,)

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        x = self._regression(classes)
        return ridge_weights(x, self._chosen_rho(x))

    def precision(self, classes: int) -> Array:
        """Return inv(A + rho I), rescaled from x to z; see `AnalyticHead.precision`."""
        x = self._regression(classes)
        x.diagonal[: x.dim] += self._chosen_rho(x)
        return invert_positive_definite(x.correlations) / x.std / x.std[:, None]

    def _regression(self, classes: int) -> Regression:
        own = self.statistics
        n, s = own.n[:classes], own.s[:classes]
        return regression(n, s, own.scatter(), own.frames, self.options.balance)

    def _chosen_rho(self, x: Regression) -> float:
        if self.options.rho is not None:
            return float(self.options.rho)
        return self.derived.get_or_compute("rho", lambda: choose_rho(x))


def regression(n: Array, s: Array, scatter: Array, t: float, balance: float) -> Regression:
    """C = S / t + sum_c pi_c (mu_c - m) (mu_c - m)^T,  pi_c ~ n_c^(1 - balance),

    m = sum_c pi_c mu_c,  std^2 = diag C,  A = C / (std std^T),  r_c = pi_c (mu_c - m) / std

    C is the covariance of the features with the weight pi_c for class c. With balance = 0 this is
    exactly the regression on the frames. With balance = 1 every class has the same weight, however
    many frames it has. The weights are exact for the part of C between classes. The part within
    classes is the pooled covariance, because no covariance is kept per class; this is exact if all
    classes have the same covariance.

    Args:
        n: The number of frames of each class, K.
        s: The sum of the features of each class, K x D.
        scatter: S of `within_class_scatter`, D x D; it is overwritten.
        t: The number of frames in S.
        balance: From 0 to 1.

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
    bordered = xp.zeros((size, size), dtype=xp.float64, device=scatter.device)
    bordered[:dim, :dim] = scatter
    bordered[dim:, :dim] = r
    bordered[:dim, dim:] = r.T
    result = Regression(bordered, pi, mean, std, 1 / float((pi * pi / n.clip(1)).sum()))
    result.diagonal[dim:] = 1
    return result


def negative_log_evidence(x: Regression, rho: float) -> float:
    """-(2 / K) log p(Y | rho) = (N + K - 1) log(u + K yy / N) + log det(I + A / rho) + constant

    u = yy - sum_c r_c^T inv(A + rho I) r_c

    This is the negative log evidence of the model y = w x + noise with the prior
    w ~ N(0, noise / (N rho)), a flat prior for the offset and the maximum-likelihood variance of
    the noise. yy is the variance of the targets, and u is the part of it that the regression does
    not explain. The term K yy / N adds one frame of pure noise per class: the frames of a video are
    so similar that a few lessons are always fitted perfectly, which would drive rho to 0 although
    it says nothing about the next video. With more frames than features this term hardly matters.

    One Cholesky factorisation suffices: it turns the corner I of the bordered matrix into
    I - r inv(A + rho I) r^T.

    Args:
        x: The regression.
        rho: The regularisation.

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
    """Find the value of `RHO_GRID` with the highest evidence; in a tie, the largest.

    The search tries every fourth value, then the neighbours of the best one.

    Args:
        x: The regression.

    Returns:
        The chosen rho.
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
    """w_c = inv(A + rho I) r_c / std,  b = pi - w mean

    The weights are solved for x = (z - mean) / std and returned for z.

    Args:
        x: The regression.
        rho: The regularisation.

    Returns:
        w (K x D) and b (K): scores = w z + b.
    """
    x.diagonal[: x.dim] += rho
    w = solve_positive_definite(x.correlations, x.targets).T / x.std
    x.diagonal[: x.dim] -= rho
    return w, x.pi - (w * x.mean).sum(1)
