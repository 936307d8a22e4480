"""The head of prima in version 0.1 (`rule="frames"`), which counts frames instead of lessons.

Each place has its own ridge regression. Generalised cross-validation estimates the error of each
regression from its sums alone, and the scores are added with weights that decrease with this
error. The current head of prima is `LessonHead` in `heads/prima.py`; this one continues learners
of version 0.1. Everything is written for numpy and torch arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace

from primavista.heads.base import Array, to_library_of
from primavista.heads.open_set import CosineFamiliarity, cosine_familiarity
from primavista.heads.ridge import RHO_GRID, Regression, regressions
from primavista.heads.statistics import AnalyticHead, SufficientStatistics

# Candidates for rho, in units of the mean eigenvalue of A: a fixed grid like `RHO_GRID`.
RELATIVE_RHO_GRID: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-4, 7))
# The prior weight of the backbone's own features. Neighbouring depths are redundant, so each of the
# other places has only 1.
OWN_FEATURES_PRIOR = 2.0
SIGNAL_TO_NOISE_POWER = 1.0
ERROR_FLOOR = 1e-3  # expected errors are clipped to [ERROR_FLOOR, 1 - ERROR_FLOOR]


class RidgeFit(NamedTuple):
    """A ridge regression with its expected error.

    Args:
        w: its weights, K x D.
        b: its offsets, K.
        error: the expected fraction of the variance of the targets that the regression does not
            explain in new frames.
        rho: its regularisation.
    """

    w: Array
    b: Array
    error: float
    rho: float


class FrameHead(AnalyticHead):
    """scores = sum_h omega_h (w_h x_h + b_h),  omega_h ~ prior_h (1 - error_h) / error_h

    w_h and b_h are the ridge regression of place h. Each place is one block of the features: the
    maps at four depths, and the backbone's own features, which come last. The regularisation and
    the expected error of a regression are computed from its own sums (`fit_ridge`), so the head
    learns from the stream which places separate its classes.

    Args:
        statistics: the sums, with one Gram matrix per place.
        balance: 1 to give every class the same weight, 0 to give every frame the same weight.
    """

    def __init__(self, statistics: SufficientStatistics, balance: float = 1.0) -> None:
        super().__init__(statistics)
        self.balance = balance

    def fits(self, classes: int) -> list[RidgeFit]:
        """Fit the regression of each place.

        Args:
            classes: the number of known classes, at least 1.

        Returns:
            One fit per place; the last one is that of the backbone's own features.
        """
        t = self.statistics.frames
        return [fit_ridge(x, t) for x in regressions(self.statistics, self.balance, classes)]

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        fits = self.fits(classes)
        priors = [1.0] * (len(fits) - 1) + [OWN_FEATURES_PRIOR]
        omega = mixture_weights([fit.error for fit in fits], priors)
        xp = array_namespace(fits[0].w)
        w = xp.concat([share * fit.w for share, fit in zip(omega, fits, strict=True)], axis=1)
        b = xp.stack([share * fit.b for share, fit in zip(omega, fits, strict=True)])
        return w, b.sum(0)

    def _familiarity(self, w: Array, classes: int) -> CosineFamiliarity:
        own = self.statistics
        spread = own.mean_square_deviation(classes)
        return cosine_familiarity(w, own.means(classes), spread, own=sum(own.blocks[:-1]))


def fit_ridge(x: Regression, t: float) -> RidgeFit:
    """error(rho) = u / (yy (1 - (1 + tr H) / N)^2),  H = inv(A + rho I) A,

    u = yy - sum_c r_c^T (2 I - H) inv(A + rho I) r_c

    This is generalised cross-validation. u is the part of the variance yy of the targets that the
    regression does not explain in the t frames it was fitted to; the bracket corrects for having
    seen these frames; N is the effective sample size. The function tries the values of
    `RELATIVE_RHO_GRID` times the mean non-zero eigenvalue of A and takes the rho with the smallest
    error. With few frames the grid begins at 0.1, because few frames are fitted perfectly and the
    rest of their variance is only rounding.

    Args:
        x: the regression.
        t: the number of frames.

    Returns:
        The fit with the smallest error.
    """
    dim, yy, n = x.dim, x.target_variance, x.effective_sample_size
    if yy < 1e-12:  # a single class: there is nothing to tell apart
        return RidgeFit(x.bordered[dim:, :dim] * 0, x.pi, 1.0, 1.0)
    values, vectors = _eigenvectors(x.correlations, t)
    q = vectors.T @ x.targets
    power = (q * q).sum(1)
    mean = float(values.sum()) / max(1.0, min(t - 1, dim))
    best = (math.inf, 1.0)
    for level in RELATIVE_RHO_GRID:
        if level < 0.1 and n < 2 * dim:
            continue
        rho = max(level * mean, RHO_GRID[0])  # if all frames are equal, rounding would decide
        unexplained = max(yy - float((power * (values + 2 * rho) / (values + rho) ** 2).sum()), 0.0)
        unseen = 1 - (1 + float((values / (values + rho)).sum())) / n
        error = unexplained / (yy * max(unseen, 1e-9) ** 2)
        if error < best[0] * (1 - 1e-7):
            best = error, rho
    error, rho = best
    w = (vectors @ (q / (values + rho)[:, None])).T / x.std
    return RidgeFit(w, x.pi - (w * x.mean).sum(1), error, rho)


def mixture_weights(
    errors: Sequence[float], priors: Sequence[float], power: float = SIGNAL_TO_NOISE_POWER
) -> list[float]:
    """omega_h ~ prior_h ((1 - error_h) / error_h)^power

    The weight of a regression is proportional to a power of its signal-to-noise ratio.

    Args:
        errors: the expected error of each regression.
        priors: the prior weight of each regression.
        power: the exponent of the ratio.

    Returns:
        The weights, which sum to 1.

    >>> [round(omega, 2) for omega in mixture_weights([0.5, 0.5, 0.75], [1, 2, 1], power=1)]
    [0.3, 0.6, 0.1]
    """
    clipped = [min(max(error, ERROR_FLOOR), 1 - ERROR_FLOOR) for error in errors]
    weights = [
        prior * ((1 - error) / error) ** power for prior, error in zip(priors, clipped, strict=True)
    ]
    return [weight / sum(weights) for weight in weights]


def _eigenvectors(a: Array, frames: float) -> tuple[Array, Array]:
    """Compute the eigenvalues and eigenvectors of A; pairs with eigenvalue 0 may be left out.

    With N frames the rank of A is below N. If N is small, A is first restricted to its range, which
    is spanned by the products of A with N random vectors.
    """
    linalg, dim = array_namespace(a).linalg, len(a)
    if frames >= dim / 2:
        values, vectors = linalg.eigh(a)
        return values.clip(0), vectors
    draw = np.random.RandomState(0).standard_normal((dim, int(frames) + 1))
    basis = linalg.qr(a @ to_library_of(draw, a))[0]
    values, vectors = linalg.eigh(basis.T @ (a @ basis))
    return values.clip(0), basis @ vectors
