"""Heads that train with the representation, as torch modules: linear, CWR+ and CWR*."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.heads.cwr import Consolidation, WPast, consolidate
from primavista.nn.class_rows import Rows

HeadKind = Literal["linear", "cwr+", "cwr*"]
Unseen = Literal["negatives", "reset"]


class LinearHead(Rows):
    """logits = W z + b

    A maximal head: there is one output per class from the start, and those of classes never seen
    take part in training as negatives.

    Args:
        dim: the number of features.
        capacity: the number of rows.
        unseen: with `reset`, the rows of classes never seen are 0 again after each batch.
        generator: draws the initial weights by MSRA (He et al. 2015); None for 0.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        dim: int,
        capacity: int,
        unseen: Unseen = "negatives",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.unseen = unseen
        weight = torch.zeros(capacity, dim)
        if generator is not None:
            weight.normal_(0, (2 / dim) ** 0.5, generator=generator)
        self.add_rows("weight", weight, parameter=True)
        self.add_rows("bias", torch.zeros(capacity), parameter=True)

    def forward(self, z: Tensor) -> Tensor:
        """Score features.

        Args:
            z: N x dim.

        Returns:
            N x capacity.
        """
        return F.linear(z, self.weight, self.bias)

    scores = forward

    def load(self, columns: Tensor, first: bool) -> None:
        """Prepare for a batch: the weights continue from where they are.

        Args:
            columns: the columns of the classes of the batch.
            first: whether it is batch 1.
        """

    @torch.no_grad()
    def consolidate(self, columns: Tensor, cur: Tensor, known: int) -> None:
        """Finish a batch: with `unseen="reset"`, set the rows of classes never seen to 0.

        Args:
            columns: the columns of the classes of the batch.
            cur: the number of patterns of each.
            known: the number of known classes.
        """
        if self.unseen == "reset":
            self.weight[known:] = 0
            self.bias[known:] = 0

    def weights(self) -> dict[str, Tensor]:
        """List what trains.

        Returns:
            The tensors by name.
        """
        return {"weight": self.weight, "bias": self.bias}


class CWRHead(Rows):
    """Two sets of weights: cw, consolidated, for inference; tw, temporary, for training. No bias.

    CWR*: tw[j] = cw[j] for the classes of B_i, else 0; after training, for each class j of B_i,
    cw[j] = (cw[j] wpast_j + (tw[j] - avg(tw))) / (wpast_j + 1),  wpast_j = sqrt(past_j / cur_j),
    and past_j += cur_j. CWR+: tw = 0;  cw[j] = tw[j] - avg(tw). See `heads/cwr.py`.

    Args:
        dim: the number of features.
        capacity: the number of rows.
        consolidation: which of the two algorithms.
        wpast: `sqrt`, or `ratio`, which leaves the root out.
    """

    scoring_buffers: ClassVar[tuple[str, ...]] = ("cw",)  # the head that anybody would keep
    cw: Tensor
    tw: Tensor
    past: Tensor

    def __init__(
        self,
        dim: int,
        capacity: int,
        consolidation: Consolidation = "cwr*",
        wpast: WPast = "sqrt",
    ) -> None:
        super().__init__()
        self.consolidation, self.wpast = consolidation, wpast
        self.add_rows("cw", torch.zeros(capacity, dim))
        self.add_rows("past", torch.zeros(capacity))
        self.add_rows("tw", torch.zeros(capacity, dim), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Score features by tw, for training.

        Args:
            z: N x dim.

        Returns:
            N x capacity.
        """
        return F.linear(z, self.tw)

    def scores(self, z: Tensor) -> Tensor:
        """Score features by cw (Algorithm 1, line 15).

        Args:
            z: N x dim.

        Returns:
            N x capacity.
        """
        return F.linear(z, self.cw)

    @torch.no_grad()
    def load(self, columns: Tensor, first: bool) -> None:
        """Algorithm 1, line 7: tw[j] = cw[j] if class j is in B_i, 0 otherwise. (CWR+: 0 for all.)

        Args:
            columns: the columns of the classes of the batch.
            first: whether it is batch 1.
        """
        columns = columns.to(self.cw.device, non_blocking=True)
        self.tw.requires_grad_(False).zero_()
        if self.consolidation == "cwr*":
            self.tw[columns] = self.cw[columns]
        self.tw.requires_grad_()

    @torch.no_grad()
    def consolidate(self, columns: Tensor, cur: Tensor, known: int) -> None:
        """Algorithm 1, lines 11 to 14 (CWR+: Algorithm 2, lines 10 and 11).

        Args:
            columns: the columns of the classes of the batch.
            cur: the number of patterns of each.
            known: the number of known classes.
        """
        device = self.cw.device
        columns, cur = (tensor.to(device, non_blocking=True) for tensor in (columns, cur))
        tw, kind = self.tw[columns], self.consolidation
        consolidate(self.cw, self.past, tw, columns, cur, kind, self.wpast)
        self.tw.requires_grad_(False).zero_()

    def weights(self) -> dict[str, Tensor]:
        """List what trains.

        Returns:
            The tensors by name.
        """
        return {"tw": self.tw}
