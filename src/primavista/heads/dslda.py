"""DSLDA: deep streaming linear discriminant analysis (Hayes & Kanan 2020).

The published algorithm updates class means and a shared covariance sample by sample. `lda_update`
computes the same result for a whole batch with one matrix product. Everything is written for numpy
and torch arrays alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from primavista.arrays import Array, float32, float64, identity
from primavista.heads.base import ClassArrays, Familiarity, Head
from primavista.heads.lda import lda_offsets, lda_weights, oas, oas_covariance, shrunk_covariance
from primavista.heads.open_set import mahalanobis_familiarity
from primavista.heads.solving import solve_positive_definite
from primavista.storage.validate import MAX_FEATURE, ArrayChecks

STRIP = 256  # rows of a symmetric product computed at a time


class StreamingStatistics(ClassArrays):
    """The mean mu and the count n of each class, S = t Sigma, and the number t of all frames.

    All but t are float64. n and t stay on the CPU, so reading a count does not wait for a GPU.
    """

    ON_CPU: ClassVar[tuple[str, ...]] = ("n", "t")
    row_names = ("mu", "n")

    @classmethod
    def empty(cls, dim: int) -> StreamingStatistics:
        """Make statistics without frames and classes, in numpy.

        Args:
            dim: D, the number of features.

        Returns:
            The empty statistics.
        """
        arrays = {
            "mu": np.zeros((0, dim)),
            "n": np.zeros(0),
            "scatter": np.zeros((dim, dim)),
            "t": np.zeros((), np.int64),
        }
        return cls(arrays)

    @property
    def mu(self) -> Array:
        """The mean of each class, classes x D."""
        return self.arrays["mu"]

    @property
    def n(self) -> Array:
        """The number of frames of each class."""
        return self.arrays["n"]

    @property
    def scatter(self) -> Array:
        """S = t Sigma, D x D."""
        return self.arrays["scatter"]

    @property
    def frames(self) -> int:
        """The number t of all frames."""
        return int(self.arrays["t"].item())

    def set_frames(self, t: int) -> None:
        """Set the number of all frames.

        Args:
            t: The number.
        """
        self.arrays["t"][...] = t

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check that t >= sum n,  |mu_c| <= F,  diag S >= 0,  |S| <= t F^2,

        and that every n_c is an integer. F is the largest feature allowed. The arguments are those
        of `ClassArrays.check`.
        """
        own = ArrayChecks(self.arrays, prefix)
        n = own.counts("n", known, taught)
        scatter = own.array("scatter", (None, None))
        own.array("mu", (len(n), len(scatter)))
        own.at_most("mu", MAX_FEATURE, "mean of features")
        t = own.total("t", n)
        own.array("scatter", (len(scatter), len(scatter)))
        positive = (scatter.diagonal() >= 0).all()
        own.that(positive, "scatter", "is not a sum over frames: it has variances below 0")
        own.at_most("scatter", max(t, 1) * MAX_FEATURE**2, "sum over frames")


class DSLDAHead(Head):
    """w = Lambda mu,  b = -mu^T Lambda mu / 2,  Lambda = inv((1 - eps) Sigma + eps I)

    All classes share one covariance Sigma, which is updated with every sample. Learning a batch
    takes one matrix product; the weights are solved when scores are first requested. After
    `forget`, the contribution of the class to Sigma remains. The scores are float32.

    Args:
        statistics: Means, counts and Sigma.
        options: Those of DSLDA: `shrinkage` is eps; with `base_init` it begins with the OAS
            covariance of the first batch, as the authors do; with `open_set` it computes how
            familiar frames are.
    """

    COLUMNS_ON_CPU: ClassVar[bool] = True

    def __init__(self, statistics: StreamingStatistics, options: Any) -> None:
        super().__init__({"statistics": statistics})
        self.statistics, self.options = statistics, options

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        own, z = self.statistics, float64(z)
        if self.options.base_init and own.frames == 0:
            self._begin(z, columns)
        else:
            own.set_frames(lda_update(own.mu, own.n, own.scatter, own.frames, z, columns))

    def _begin(self, z: Array, columns: Array) -> None:
        """Take the means of batch 1 and its OAS covariance around them."""
        own = self.statistics
        for j in sorted(set(columns.tolist())):
            samples = z[columns == j]
            own.mu[j] = samples.mean(0)
            own.n[j] = len(samples)
        own.scatter[:] = oas_covariance(z - own.mu[columns]) * len(z)
        own.set_frames(len(z))

    def scores(self, z: Array, classes: int) -> Array:
        """Score features by w z + b; see `Head.scores`."""
        w, b = self.derived.get_or_compute("solution", lambda: self.solve(classes))
        return z @ w.T + b

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights.

        Args:
            classes: The number of known classes.

        Returns:
            w (classes x D) and b (classes), in float32.
        """
        own = self.statistics
        mu = own.mu[:classes]
        a = shrunk_covariance(own.scatter, own.frames, self.options.shrinkage)
        w = solve_positive_definite(a, mu.T).T
        return float32(w), float32(lda_offsets(w, mu))

    def _familiarity(self, classes: int) -> Familiarity | None:
        """Make the familiarity from a covariance with the shrinkage of `oas`.

        The fixed shrinkage of 1e-4 is too small if there are fewer frames than features. The
        covariance is shrunk towards at least `shrinkage` times the identity.
        """
        if not self.options.open_set:
            return None
        own = self.statistics
        mu, scatter, t = own.mu[:classes], own.scatter, max(own.frames, 1)
        eps, m = oas(scatter / t, t)
        target = max(m, self.options.shrinkage)
        precision, _ = lda_weights(identity(len(scatter), scatter), scatter, t, eps, target)
        return mahalanobis_familiarity(mu @ precision, mu, precision, scatter / t, t)


def lda_update(mu: Array, n: Array, scatter: Array, t: int, z: Array, y: Array) -> int:
    """Sigma <- (t Sigma + t / (t + 1) delta delta^T) / (t + 1),  delta = z - mu_y before the update

    This is the update of Hayes & Kanan (2020) for every sample in turn, computed as one product.
    With S = t Sigma the recursion is S <- S + t / (t + 1) delta delta^T, a Gram product with the
    weights t / (t + 1), and delta depends only on the running mean of the class before the sample.
    The mean of a class without samples is 0, as in the published code.

    Args:
        mu: The means, classes x D; updated in place.
        n: The counts, on the CPU; updated in place.
        scatter: S, D x D; updated in place.
        t: The number of samples so far.
        z: The samples, N x D, in float64.
        y: The row in `mu` of the class of each sample, on the CPU.

    Returns:
        The new number of samples.
    """
    labels, order = np.asarray(y), np.arange(len(z), dtype=np.float64)
    present = sorted(set(labels.tolist()))
    members = [np.flatnonzero(labels == j) if len(present) > 1 else slice(None) for j in present]
    before = np.empty(len(z))  # the number of earlier samples of the same class
    for j, own in zip(present, members, strict=True):
        before[own] = float(n[j]) + order[: len(labels[own])]
    before_all = t + order  # the number of earlier samples of any class
    move = getattr(z, "new_tensor", np.asarray)  # to the device of z
    divisor, weight = move(np.stack([before.clip(1), before_all / (before_all + 1)]))[:, :, None]
    if len(present) == 1:
        delta = _update_class(mu, n, present[0], z, divisor)
    else:
        delta = z * 1
        for j, own in zip(present, members, strict=True):
            delta[own] = _update_class(mu, n, j, z[own], divisor[own])
    add_symmetric(scatter, delta * weight, delta)
    return t + len(z)


def _update_class(mu: Array, n: Array, j: int, z: Array, divisor: Array) -> Array:
    """Update the mean and the count of class j, and return delta of its samples z.

    `divisor` is the number of earlier samples of the class for each sample, at least 1.
    """
    count = float(n[j])
    summed = mu[j] * count
    delta = z - (summed + z.cumsum(0) - z) / divisor
    mu[j] = (summed + z.sum(0)) / (count + len(z))
    n[j] += len(z)
    return delta


def add_symmetric(total: Array, a: Array, b: Array) -> None:
    """total += a^T b, in place, for a symmetric product a^T b.

    Strips to the right of the diagonal are computed and mirrored, which takes two thirds of the
    work. A GPU computes the whole product at once, because launching a small product takes longer
    than the product itself.

    Args:
        total: D x D.
        a: N x D.
        b: N x D.
    """
    if getattr(total, "is_cuda", False):
        total.addmm_(a.T, b)
        return
    for i in range(0, len(total), STRIP):
        j = i + STRIP
        total[i:j, i:] += a[:, i:j].T @ b[:, i:]
        total[j:, i:j] = total[i:j, j:].T
