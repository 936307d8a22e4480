"""The head of CWR* and CWR+ as a torch module, on a representation that trains too."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.heads.cwr import Consolidation, WPast, consolidate
from primavista.nn.class_rows import Rows


class CWRHead(Rows):
    """The consolidated weights cw for inference and the temporary weights tw for training; no bias.

    All rows of tw are trained, those of absent classes as negatives. Those of B_i are consolidated.

    Args:
        dim: The number of features; `capacity` is the number of rows.
        consolidation: The algorithm, `cwr*` or `cwr+`.
        wpast: `sqrt`, or `ratio`, which omits the square root.
    """

    scoring_buffers: ClassVar[tuple[str, ...]] = ("cw",)  # all that inference needs
    cw: Tensor
    tw: Tensor
    past: Tensor

    def __init__(
        self, dim: int, capacity: int, consolidation: Consolidation = "cwr*", wpast: WPast = "sqrt"
    ) -> None:
        super().__init__()
        self.consolidation, self.wpast = consolidation, wpast
        self.add_rows("cw", torch.zeros(capacity, dim))
        self.add_rows("past", torch.zeros(capacity))
        self.add_rows("tw", torch.zeros(capacity, dim), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Score features, N x dim, by tw, for training."""
        return F.linear(z, self.tw)

    def scores(self, z: Tensor) -> Tensor:
        """Score features, N x dim, by cw (Algorithm 1, line 15)."""
        return F.linear(z, self.cw)

    @torch.no_grad()
    def load(self, present: Tensor) -> None:
        """Algorithm 1, line 7: tw[j] = cw[j] if class j is in B_i, else 0. (CWR+: 0 for all.)"""
        present = present.to(self.cw.device, non_blocking=True)
        self.tw.requires_grad_(False).zero_()
        if self.consolidation == "cwr*":
            self.tw[present] = self.cw[present]
        self.tw.requires_grad_()

    @torch.no_grad()
    def consolidate(self, present: Tensor, cur: Tensor) -> None:
        """Algorithm 1, lines 11 to 14 (CWR+: Algorithm 2, lines 10 and 11)."""
        device = self.cw.device
        present, cur = (tensor.to(device, non_blocking=True) for tensor in (present, cur))
        tw, rule = self.tw[present], self.wpast
        consolidate(self.cw, self.past, tw, present, cur, self.consolidation, rule)
        self.tw.requires_grad_(False).zero_()

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors to train, by name."""
        return {"tw": self.tw}
