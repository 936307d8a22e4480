"""The linear head as a torch module, trained together with the representation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.heads.options import Unseen
from primavista.nn.class_rows import Rows


class LinearHead(Rows):
    """logits = W z + b

    This is a maximal head: there is one output per class from the start, and the outputs of classes
    never seen take part in training as negatives.

    Args:
        dim: The number of features; `capacity` is the number of rows.
        unseen: With `reset`, the rows of classes never seen are set to 0 after each batch.
        generator: Draws the initial weights by MSRA (He et al. 2015); None for weights of 0.
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
        """Score features, N x dim."""
        return F.linear(z, self.weight, self.bias)

    scores = forward

    def load(self, present: Tensor) -> None:
        """Prepare for a batch: a linear head continues with its present weights."""

    def consolidate(self, present: Tensor, cur: Tensor) -> None:
        """Finish a batch: a linear head keeps its present weights."""

    @torch.no_grad()
    def reset_unseen(self, known: int) -> None:
        """Set the rows beyond those of the known classes to 0, if `unseen="reset"`."""
        if self.unseen == "reset":
            self.weight[known:] = 0
            self.bias[known:] = 0

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors to train, by name."""
        return {"weight": self.weight, "bias": self.bias}
