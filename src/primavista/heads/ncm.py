"""NCM: classification by the nearest class mean."""

from __future__ import annotations

from primavista.arrays import Array
from primavista.heads.statistics import AnalyticHead


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
