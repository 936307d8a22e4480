"""ACIL: ridge regression on random features, with a fixed strength (Zhuang et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from primavista.heads.options import Range
from primavista.heads.random_features import Drawn, ExpandOptions, RandomReluHead
from primavista.heads.statistics import SufficientStatistics


@dataclass(frozen=True)
class ACILOptions(ExpandOptions):
    """The options of ACIL.

    Args:
        expand: The number of random features; None for 8,192, but at most 16 D.
        gamma: The strength of the regularisation.
    """

    PUBLISHED = 8192  # the size of the buffer in the authors' code
    gamma: Annotated[float, Range(1e-12, 1e12)] = 0.1

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> ACILHead:
        """Make the head; see `HeadOptions`."""
        return ACILHead(SufficientStatistics.empty(self.width(sizes)), self, seed)


class ACILHead(RandomReluHead):
    """W_FCN = R Q,  R = inv(sum h^T h + gamma I),  h = relu(z W_fe)

    The paper updates R and the weights with each batch (its equations 9 and 10). The sums give the
    same weights without the rounding of a recursion. W_fe is drawn as the weights of a linear layer
    are, uniformly from -1 / sqrt(D) to 1 / sqrt(D).

    Args:
        statistics: The sums of h.
        options: `gamma` is the strength of the regularisation.
        seed: The seed of W_fe.
    """

    options: ACILOptions

    def draw(self, random: np.random.RandomState, dim: int) -> Drawn:
        """Draw W_fe; see `RandomFeatureHead.draw`."""
        return (random.uniform(-(dim**-0.5), dim**-0.5, (dim, self.statistics.dim)),)

    @property
    def strength(self) -> float:
        """gamma."""
        return self.options.gamma
