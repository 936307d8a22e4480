"""KLDA: linear discriminant analysis on random Fourier features (Momeni et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from primavista.arrays import Array, array_namespace, float64
from primavista.heads.lda import lda_offsets
from primavista.heads.options import Range
from primavista.heads.random_features import Drawn, ExpandOptions, RandomFeatureHead
from primavista.heads.statistics import SufficientStatistics

CUTOFF = float(np.finfo(np.float32).eps)  # per feature; the pseudo-inverse of the authors' code
LEAST = 1e-12  # smaller mean squares than this are rounding: |phi|^2 is about 1


@dataclass(frozen=True)
class KLDAOptions(ExpandOptions):
    """The options of KLDA.

    Args:
        expand: The number of random features; None for 5,000, but at most 16 D.
        sigma: The kernel is exp(-sigma |x - y|^2).
    """

    PUBLISHED = 5_000
    sigma: Annotated[float, Range(1e-12, 1e6)] = 1e-4

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> KLDAHead:
        """Make the head; see `HeadOptions`."""
        return KLDAHead(SufficientStatistics.empty(self.width(sizes)), self, seed)


class KLDAHead(RandomFeatureHead):
    """scores = w phi + b,  w_c = P (mu_c - m),  b_c = -w_c (mu_c + m) / 2,  P = pinv(Sigma),

    phi(z) = sqrt(2 / M) cos(z omega + beta),  omega ~ N(0, 2 sigma),  beta ~ U(0, 2 pi)

    m is the mean of the class means, which changes the scores of a frame by one number for all
    classes. phi(x) phi(y) is nearly the Gaussian kernel exp(-sigma |x - y|^2). Sigma is the scatter
    of phi within classes, exactly pooled. As in float32, eigenvalues below M eps of the largest one
    count as 0 in the pseudo-inverse.

    Args:
        statistics: The sums of phi.
        options: `sigma` is the parameter of the kernel.
        seed: The seed of omega and beta.
    """

    options: KLDAOptions

    def draw(self, random: np.random.RandomState, dim: int) -> Drawn:
        """Draw omega and beta; see `RandomFeatureHead.draw`."""
        width = self.statistics.dim
        omega = random.standard_normal((dim, width)) * (2 * self.options.sigma) ** 0.5
        return omega, random.uniform(0, 2 * np.pi, width)

    def features(self, z: Array) -> Array:
        """Return phi(z); see `Head.features`."""
        omega, beta = self.drawn(z)
        angles = float64(z) @ omega + beta
        return array_namespace(angles).cos(angles) * (2 / self.statistics.dim) ** 0.5

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        mu = self.statistics.means(classes)
        m = mu.mean(0)
        w = (mu - m) @ self.precision(classes)
        return w, lda_offsets(w, mu + m)

    def precision(self, classes: int) -> Array:
        """Return P; see `AnalyticHead.precision`."""
        return self.derived.get_or_compute("precision", self._pseudo_inverse)

    def _pseudo_inverse(self) -> Array:
        """P, the pseudo-inverse of Sigma = S / t."""
        own = self.statistics
        values, vectors = array_namespace(own.s).linalg.eigh(own.scatter() / own.frames)
        large = float64(values > max(float(values[-1]) * CUTOFF * own.dim, LEAST))
        return (vectors * (large / values.clip(LEAST))) @ vectors.T
