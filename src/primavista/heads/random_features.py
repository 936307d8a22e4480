"""Heads on random features of the features of the backbone: h = g(z W), with W drawn once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from primavista.arrays import Array, float64, to_library_of
from primavista.heads.options import HeadOptions, Range
from primavista.heads.solving import invert_positive_definite, solve_positive_definite
from primavista.heads.statistics import AnalyticHead, SufficientStatistics

MAX_EXPAND = 2**15  # the largest number of random features
ROUNDING = 2e-14  # a hundred times the relative rounding of float64
MAX_RATIO = 16  # the default has at most so many random features per feature
Expand = Annotated[int, Range(1, MAX_EXPAND)] | None
Drawn = tuple[np.ndarray[Any, Any], ...]


@dataclass(frozen=True)
class ExpandOptions(HeadOptions):
    """The option of methods that are defined on random features.

    Args:
        expand: The number of random features; None for that of the paper, but at most 16 D.
    """

    PUBLISHED: ClassVar[int]  # the number in the paper
    expand: Expand = None

    def width(self, sizes: Sequence[int]) -> int:
        """Return the number of random features of a network with `sizes` features per place."""
        return self.expand or min(self.PUBLISHED, MAX_RATIO * sum(sizes))


class RandomFeatureHead(AnalyticHead):
    """scores = w h + b,  h = g(z W)

    W is drawn from the seed and is not part of the state. numpy guarantees the numbers of its
    legacy generator, so they are the same on every machine.

    Args:
        statistics: The sums of h.
        options: The options of the strategy, which have made this head.
        seed: The seed of W.
    """

    def __init__(self, statistics: SufficientStatistics, options: Any, seed: int = 0) -> None:
        super().__init__(statistics)
        self.options, self.seed = options, seed
        self._drawn: tuple[int, tuple[Array, ...]] | None = None  # the seed and the arrays

    @abstractmethod
    def draw(self, random: np.random.RandomState, dim: int) -> Drawn:
        """Draw the random arrays.

        Args:
            random: The generator.
            dim: D, the number of features of the backbone.

        Returns:
            The arrays that `drawn` returns.
        """

    def drawn(self, z: Array) -> tuple[Array, ...]:
        """Return the random arrays on the device of z; the first use of a seed draws them.

        Args:
            z: The features of the backbone, N x D.

        Returns:
            The arrays of `draw`.
        """
        kept = self._drawn
        if kept is None or kept[0] != self.seed or kept[1][0].device != z.device:
            found = self.draw(np.random.RandomState(self.seed % 2**32), z.shape[1])
            kept = self._drawn = self.seed, tuple(to_library_of(array, z) for array in found)
        return kept[1]


class RandomReluHead(RandomFeatureHead):
    """h = relu(z W);  ridge regression with an absolute strength:  w = inv(G + lambda I) Q,

    G = sum h h^T,  Q_c = sum h over the frames of class c. There is no offset. A subclass draws W
    and has lambda. A lambda that would be lost in the rounding of G, less than `ROUNDING` trace G,
    counts as that much; the weights are then those of the limit lambda -> 0.
    """

    @property
    @abstractmethod
    def strength(self) -> float:
        """lambda."""

    def features(self, z: Array) -> Array:
        """Return relu(z W); see `Head.features`."""
        (w,) = self.drawn(z)
        return (float64(z) @ w).clip(0)  # in float32, results would depend on the rest of the batch

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        q = self.statistics.s[:classes]
        return solve_positive_definite(self._regularised(), q.T).T, q[:, 0] * 0

    def precision(self, classes: int) -> Array:
        """Return t inv(G + lambda I); see `AnalyticHead.precision`."""
        return invert_positive_definite(self._regularised()) * self.statistics.frames

    def _regularised(self) -> Array:
        """G + lambda I."""
        g = self.statistics.second_moments()
        diagonal = g.reshape(-1)[:: len(g) + 1]
        diagonal += max(self.strength, ROUNDING * float(diagonal.sum()))
        return g
