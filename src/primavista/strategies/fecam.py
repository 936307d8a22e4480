"""FeCAM: Gaussian classes with a covariance each."""

from __future__ import annotations

from primavista.heads.fecam import FeCAMOptions
from primavista.strategies.frozen import FrozenStrategy


class FeCAM(FrozenStrategy):
    """Gaussian classes with a covariance each (Goswami et al. 2023); see `FeCAMHead`.

    Its options are those of `FeCAMOptions`. Nothing is random.
    """

    OPTIONS = FeCAMOptions

    @property
    def open_set(self) -> bool:
        """False: it does not recognise strangers."""
        return False
