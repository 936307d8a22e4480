"""Heads: the linear one, and the double memory of CWR+ and CWR* (paper, Algorithms 1 and 2)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.heads.cwr import Consolidation, WPast, consolidate
from primavista.nn.class_rows import Rows

HeadKind = Literal["linear", "cwr+", "cwr*"]


class LinearHead(Rows):
    """logits = W z + b, over a fixed capacity: unused rows are 0 at the start of a batch and act as negatives."""

    weight: Tensor
    bias: Tensor

    def __init__(self, dim: int, capacity: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        weight = torch.zeros(capacity, dim)
        if generator is not None:  # MSRA, as the release starts its linear heads
            weight.normal_(0, (2 / dim) ** 0.5, generator=generator)
        self.add_rows("weight", weight, parameter=True)
        self.add_rows("bias", torch.zeros(capacity), parameter=True)

    def forward(self, z: Tensor) -> Tensor:
        """N x dim to N x capacity."""
        return F.linear(z, self.weight, self.bias)

    scores = forward

    def load(self, columns: Tensor, first: bool) -> None:
        """Before a batch: the weights go on from where they are."""

    @torch.no_grad()
    def consolidate(self, columns: Tensor, cur: Tensor, known: int) -> None:
        """After a batch: the rows of classes never seen go back to 0; what they learned as negatives is not knowledge."""
        self.weight[known:] = 0
        self.bias[known:] = 0

    def weights(self) -> dict[str, Tensor]:
        """What learns."""
        return {"weight": self.weight, "bias": self.bias}


class CWRHead(Rows):
    """Two sets of weights: cw, consolidated, for inference; tw, temporary, for training. No bias is trained.

    CWR*: tw[j] = cw[j] for the classes of B_i, else 0; after training, for each class j of B_i,
    cw[j] = (cw[j] wpast_j + (tw[j] - avg(tw))) / (wpast_j + 1),  wpast_j = sqrt(past_j / cur_j);  past_j += cur_j.
    CWR+: tw = 0;  cw[j] = tw[j] - avg(tw).  avg(tw) is one number: the mean over all the weights of the batch's classes.

    `wpast="ratio"` leaves the root out. `release_bias` is the bias of the authors' code, fixed in training: 1 for outputs
    absent from the batch and for the classes of batch 1, 0 for later ones.
    """

    cw: Tensor
    tw: Tensor
    past: Tensor
    bias: Tensor
    training_bias: Tensor

    def __init__(
        self,
        dim: int,
        capacity: int,
        consolidation: Consolidation = "cwr*",
        wpast: WPast = "sqrt",
        release_bias: bool = False,
    ) -> None:
        super().__init__()
        self.consolidation, self.wpast, self.release_bias = consolidation, wpast, release_bias
        self.add_rows("cw", torch.zeros(capacity, dim))
        self.add_rows("past", torch.zeros(capacity))
        self.add_rows("tw", torch.zeros(capacity, dim), persistent=False)
        if release_bias:
            self.add_rows("bias", torch.zeros(capacity))
            self.add_rows("training_bias", torch.zeros(capacity), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Training: N x dim to N x capacity by tw."""
        return F.linear(z, self.tw, self.training_bias if self.release_bias else None)

    def scores(self, z: Tensor) -> Tensor:
        """Inference: N x dim to N x capacity by cw."""
        return F.linear(z, self.cw, self.bias if self.release_bias else None)

    @torch.no_grad()
    def load(self, columns: Tensor, first: bool) -> None:
        """Algorithm 1, line 7: tw[j] = cw[j] if class j is in B_i, 0 otherwise. (CWR+: 0 for all.)"""
        columns = columns.to(self.cw.device, non_blocking=True)
        self.tw.requires_grad_(False).zero_()
        if self.consolidation == "cwr*":
            self.tw[columns] = self.cw[columns]
        if self.release_bias:
            if first:
                self.bias[columns] = 1
            self.training_bias.fill_(1)
            self.training_bias[columns] = self.bias[columns]
        self.tw.requires_grad_()

    @torch.no_grad()
    def consolidate(self, columns: Tensor, cur: Tensor, known: int) -> None:
        """Algorithm 1, lines 11 to 14 (CWR+: Algorithm 2, lines 10 and 11); `cur` counts the patterns of each class."""
        columns, cur = (counted.to(self.cw.device, non_blocking=True) for counted in (columns, cur))
        consolidate(
            self.cw, self.past, self.tw[columns], columns, cur, self.consolidation, self.wpast
        )
        self.tw.requires_grad_(False).zero_()

    def weights(self) -> dict[str, Tensor]:
        """What learns."""
        return {"tw": self.tw}
