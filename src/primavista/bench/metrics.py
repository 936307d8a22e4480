"""What is measured as a strategy learns a stream, in percent and points; the classes are the tasks.

After batch i, with a_i(c) the percent of class c's test patterns that are right:

    accuracy            A_i   = 100 (patterns right) / (patterns), over the whole test set, classes not taught yet included
    average             AIA_i = mean of A_j over the tested batches j <= i: the average incremental accuracy
    forgetting          F_i   = mean over c of a_f(c)(c) - a_i(c), f(c) the first test after c was taught, f(c) < i;
                                it is minus the backward transfer (BWT) of Lopez-Paz & Ranzato 2017
    forward transfer    FWT_i = mean over j <= i of p_j - 100 / K_j: p_j is the percent right of the patterns of batch j whose
                                class was taught before, *before* batch j is learned, K_j the number of classes taught by then

A class never taught scores 0 by construction, so the forward transfer is measured on new sessions of known classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """How many patterns of each class (row) were taken for each class (column).

    >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).reshape(
        classes, classes
    )


def accuracy(matrix: Tensor) -> float:
    """The percent of patterns on the diagonal of a confusion matrix.

    >>> accuracy(torch.tensor([[1, 1], [0, 2]]))
    75.0
    """
    return 100 * int(matrix.diagonal().sum()) / int(matrix.sum())


def class_accuracy(matrix: Tensor) -> dict[int, float]:
    """The percent right of each class that has test patterns.

    >>> class_accuracy(torch.tensor([[1, 1], [0, 2]]))
    {0: 50.0, 1: 100.0}
    """
    rows = zip(matrix.diagonal().tolist(), matrix.sum(1).tolist(), strict=True)
    return {label: 100 * right / count for label, (right, count) in enumerate(rows) if count}


@dataclass
class Tally:
    """What earlier tests leave behind for the measures that look back; `to_json` goes into a checkpoint."""

    tests: int = 0
    summed: float = 0.0  # of A_j
    transfers: int = 0
    transferred: float = 0.0  # of p_j - 100 / K_j
    taught: dict[int, float | None] = field(
        default_factory=dict
    )  # a_f(c)(c); None: not tested since it was taught

    def teach(self, labels: Iterable[int]) -> None:
        """These classes have been taught."""
        for label in labels:
            self.taught.setdefault(label, None)

    def transfer(self, right: int, count: int) -> None:
        """Of `count` patterns of classes taught before, `right` were recognised before their batch was learned."""
        self.transferred += 100 * right / count - 100 / len(self.taught)
        self.transfers += 1

    def test(self, overall: float, by_class: dict[int, float]) -> float | None:
        """A test after a batch. Returns the forgetting, None where no class has been tested before."""
        self.summed += overall
        self.tests += 1
        drops = []
        for label, first in self.taught.items():
            if label not in by_class:
                continue
            if first is None:
                self.taught[label] = by_class[label]
            else:
                drops.append(first - by_class[label])
        return sum(drops) / len(drops) if drops else None

    @property
    def average(self) -> float | None:
        """The average incremental accuracy so far."""
        return self.summed / self.tests if self.tests else None

    @property
    def forward_transfer(self) -> float | None:
        """The forward transfer so far."""
        return self.transferred / self.transfers if self.transfers else None

    def to_json(self) -> dict[str, Any]:
        """All of it, exactly."""
        return {
            "tests": self.tests,
            "summed": self.summed,
            "transfers": self.transfers,
            "transferred": self.transferred,
            "taught": [[label, first] for label, first in self.taught.items()],
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Tally:
        """What `to_json` gave."""
        return cls(**{**raw, "taught": dict(raw["taught"])})
