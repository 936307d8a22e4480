"""NCM: classification by the nearest class mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primavista.arrays import Array
from primavista.heads.options import HeadOptions
from primavista.heads.statistics import AnalyticHead, SufficientStatistics


@dataclass(frozen=True)
class NCMOptions(HeadOptions):
    """NCM has no options."""

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> NCMHead:
        """Make the head; see `HeadOptions`."""
        return NCMHead(SufficientStatistics.empty(sum(sizes), gram=False))


class NCMHead(AnalyticHead):
    """scores = mu z - |mu|^2 / 2 = (|z|^2 - |z - mu|^2) / 2,  mu_c = s_c / n_c

    The class with the nearest mean has the highest score. Nothing of a class remains after
    `forget`.

    Args:
        statistics: The sums; no Gram matrix is needed.
    """

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Return the means and -|mu|^2 / 2; see `AnalyticHead.solve`."""
        mu = self.statistics.means(classes)
        return mu, (mu * mu).sum(1) * -0.5
