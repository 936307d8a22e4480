"""FeCAM: Gaussian classes with a covariance each, normalised to correlations (Goswami et al.)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Self

import numpy as np

from primavista.arrays import Array, array_namespace, float64, identity, zeros_like
from primavista.heads.base import ClassArrays, Head
from primavista.heads.options import HeadOptions, Range
from primavista.heads.solving import FLOOR, invert_positive_definite
from primavista.heads.statistics import add_gram, packed_size, unpack
from primavista.storage.validate import MAX_FEATURE, ArrayChecks


@dataclass(frozen=True)
class FeCAMOptions(HeadOptions):
    """The options of FeCAM.

    Args:
        power: lambda of Tukey's transformation; 1 leaves the features as they are.
        gamma_1: The weight of the mean variance, which is added to the variances.
        gamma_2: The weight of the mean covariance, which is added to the other covariances.
    """

    power: Annotated[float, Range(0.01, 1)] = 0.5
    gamma_1: Annotated[float, Range(1e-6, 1e6)] = 1.0
    gamma_2: Annotated[float, Range(0, 1e6)] = 1.0

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> FeCAMHead:
        """Make the head; see `HeadOptions`."""
        return FeCAMHead(ClassMoments.empty(sum(sizes)), self)


class ClassMoments(ClassArrays):
    """n_c = sum 1,  s_c = sum z,  x_c = sum x,  gram_c = sum x x^T  over the frames of class c.

    x is Tukey's transformation of z. There are K D (D + 1) / 2 numbers.

    Args:
        arrays: `n`, `s`, `x` and `gram`, each with one row per class.
    """

    row_names = ("n", "s", "x", "gram")

    @classmethod
    def empty(cls, dim: int) -> Self:
        """Make moments without frames and classes, in numpy, for D = `dim` features."""
        shapes = {"n": (0,), "s": (0, dim), "x": (0, dim), "gram": (0, packed_size(dim))}
        return cls({name: np.zeros(shape) for name, shape in shapes.items()})

    def add(self, z: Array, x: Array, columns: Array) -> None:
        """Add the frames of a batch.

        Args:
            z: Their features, N x D.
            x: Their transformed features, N x D.
            columns: The row of the class of each frame.
        """
        for c in array_namespace(columns).unique_values(columns).tolist():
            own = columns == c
            self.arrays["n"][c] += int(own.sum())
            self.arrays["s"][c] += z[own].sum(0)
            self.arrays["x"][c] += x[own].sum(0)
            add_gram(self.arrays["gram"][c], x[own])

    def covariance(self, c: int) -> Array:
        """Return the covariance of x in class c, with the divisor n - 1."""
        n, x, gram = (self.arrays[name][c] for name in ("n", "x", "gram"))
        out = unpack(gram, zeros_like((len(x), len(x)), gram))
        return (out - x[:, None] * (x / n)) / max(float(n) - 1, 1.0)

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check the counts, the shapes, and the bounds of sums; see `ClassArrays.check`."""
        own = ArrayChecks(self.arrays, prefix)
        n = own.counts("n", known, taught)
        dim = own.array("s", (len(n), None)).shape[1]
        own.array("x", (len(n), dim))
        own.array("gram", (len(n), packed_size(dim)))
        for name, largest in (("s", 1), ("x", 1), ("gram", MAX_FEATURE)):
            own.at_most(name, n[:, None] * MAX_FEATURE * largest, "sum of so many features")

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:
        """Check that n_c is the number of frames of class c; see `ClassArrays.check_frames`."""
        same = all(self.arrays["n"][row] == frames for row, frames in taught.items())
        problem = "differs from the numbers of frames in the manifest"
        ArrayChecks(self.arrays, prefix).that(same, "n", problem)


class FeCAMHead(Head):
    """scores = -(x - mu_c)^T inv(R_c) (x - mu_c)

    x is the unit vector of Tukey's transformation of z, z^lambda, and mu_c that of the mean of
    class c. R_c has the correlations of class c, of the covariance

        Sigma_c + gamma_1 V_1 I + gamma_2 V_2 (1 - I)

    where V_1 is the mean variance and V_2 the mean of the other covariances. The sums do not depend
    on the order of the frames. Nothing of a class remains after `forget`.

    Args:
        moments: The sums.
        options: The options.
    """

    def __init__(self, moments: ClassMoments, options: FeCAMOptions) -> None:
        super().__init__({"moments": moments})
        self.moments = moments
        self.options = options

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        z = float64(z)
        self.moments.add(z, self._transformed(z), columns)

    def scores(self, z: Array, classes: int) -> Array:
        """Score features; see `Head.scores`."""
        x = unit(self._transformed(float64(z)))
        columns = [zeros_like((len(x), 0), x)]
        for c in range(classes):
            mean, inverse = self.derived.get_or_compute(c, partial(self._gaussian, c))
            off = x - mean
            columns.append(-((off @ inverse) * off).sum(1)[:, None])
        return array_namespace(x).concat(columns, axis=1)

    def _gaussian(self, c: int) -> tuple[Array, Array]:
        """mu_c and inv(R_c)."""
        n, s = (self.moments.arrays[name][c] for name in ("n", "s"))
        shrunk = shrink(self.moments.covariance(c), self.options.gamma_1, self.options.gamma_2)
        deviation = shrunk.reshape(-1)[:: len(shrunk) + 1] ** 0.5
        correlations = shrunk / deviation / deviation[:, None]
        return unit(self._transformed(s / n)), invert_positive_definite(correlations)

    def _transformed(self, z: Array) -> Array:
        """z^lambda; of negative numbers, -(-z)^lambda."""
        power = self.options.power
        return z if power == 1 else z.clip(0) ** power - (-z).clip(0) ** power


def shrink(covariance: Array, gamma_1: float, gamma_2: float) -> Array:
    """Sigma + gamma_1 V_1 I + gamma_2 V_2 (1 - I)

    V_1 is at least a tiny number, so that a class of equal frames has correlations.

    Args:
        covariance: Sigma, D x D.
        gamma_1: See `FeCAMOptions`.
        gamma_2: See `FeCAMOptions`.

    Returns:
        D x D, a new array.
    """
    dim, one = len(covariance), identity(len(covariance), covariance)
    trace = float((covariance * one).sum())
    v_2 = (float(covariance.sum()) - trace) / max(dim * (dim - 1), 1)
    v_1 = max(trace / dim, FLOOR**2)
    return covariance + gamma_1 * v_1 * one + gamma_2 * v_2 * (1 - one)


def unit(x: Array) -> Array:
    """x / |x| along the last dimension; 0 stays 0."""
    length = (x * x).sum(-1) ** 0.5
    return x / length.clip(1e-12)[..., None]
