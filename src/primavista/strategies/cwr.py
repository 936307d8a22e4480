"""CWR+ and CWR*: copy weights with reinit, the head as a double memory on a representation fixed after batch 1."""

from __future__ import annotations

from dataclasses import dataclass

from primavista.parts.head import HeadKind
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options


@dataclass(frozen=True)
class CWROptions(Options):
    """`tab:hyper_core50`, CWR*."""

    epochs_1: int = 4
    epochs: int = 4
    lr: float = 1e-3
    head: HeadKind = "cwr*"


class CWR(GradientStrategy):
    """Algorithm 1 of the paper (CWR*), and with `head="cwr+"` Algorithm 2.

    From batch 2 on Theta and the moments are fixed, so the features of a batch are computed once, in evaluation mode.
    """

    OPTIONS = CWROptions
    THETA_LEARNS = False

    @property
    def embeds(self) -> bool:
        """From batch 2 on."""
        return self.i > 1 and not self.release.train_mode_features

    def learn_batch(self, batch: Batch) -> LearnReport:
        self.head.load(batch.present, batch.i == 1)  # line 7
        if batch.i == 1:
            losses = self._sgd(batch, self._weights(batch.i))  # line 9: learn both Theta and tw
        elif self.release.train_mode_features:
            losses = self._sgd(batch, self._weights(batch.i, theta=False))
        else:  # line 10: learn tw while keeping Theta fixed
            losses = self._sgd(batch, self._weights(batch.i, theta=False), features=self.features(batch))
        self.head.consolidate(batch.present, batch.cur, len(self.classes))  # lines 11 to 14
        return self._report(batch, losses)
