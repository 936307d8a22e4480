"""The measures of a strategy that learns a stream, in percent and points; classes are the tasks.

After batch i, with a_i(c) the percent of class c's test patterns that are right:

    accuracy          A_i   = 100 (patterns right) / (patterns), over the whole test set, which
                              contains classes that are not taught yet
    average           AIA_i = mean of A_j over the tested batches j <= i: the average incremental
                              accuracy
    forgetting        F_i   = mean over c of a_f(c)(c) - a_i(c), where f(c) < i is the first test
                              after c was taught; this is minus the backward transfer (BWT) of
                              Lopez-Paz & Ranzato 2017
    forward transfer  FWT_i = mean over j <= i of p_j - 100 / K_j, where p_j is the percent right of
                              the patterns of batch j whose class was taught before, asked *before*
                              batch j is learned, and K_j the number of classes taught by then

A class that was never taught scores 0 by construction, so forward transfer is measured on new
sessions of known classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Count the patterns of each true class (row) by the class that was predicted (column).

    Args:
        labels: the true label of each pattern.
        predicted: the predicted label of each pattern.
        classes: the number of classes.

    Returns:
        A matrix of counts, classes x classes.

    >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    pairs = labels * classes + predicted
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def accuracy(matrix: Tensor) -> float:
    """Return the percent of patterns on the diagonal of a confusion matrix.

    Args:
        matrix: counts, classes x classes.

    >>> accuracy(torch.tensor([[1, 1], [0, 2]]))
    75.0
    """
    return 100 * int(matrix.diagonal().sum()) / int(matrix.sum())


def class_accuracy(matrix: Tensor) -> dict[int, float]:
    """Return the percent right of each class that has test patterns.

    Args:
        matrix: counts, classes x classes.

    >>> class_accuracy(torch.tensor([[1, 1], [0, 2]]))
    {0: 50.0, 1: 100.0}
    """
    rows = zip(matrix.diagonal().tolist(), matrix.sum(1).tolist(), strict=True)
    return {label: 100 * right / count for label, (right, count) in enumerate(rows) if count}


@dataclass
class Tally:
    """The sums over earlier tests that the measures need; a checkpoint keeps them.

    Args:
        tests: the number of tests.
        summed: the sum of A_j over the tests.
        transfers: the number of batches with patterns of classes taught before.
        transferred: the sum of p_j - 100 / K_j over those batches.
        taught: a_f(c)(c) of each class that was taught; None if it was not tested since.
    """

    tests: int = 0
    summed: float = 0.0
    transfers: int = 0
    transferred: float = 0.0
    taught: dict[int, float | None] = field(default_factory=dict)

    def teach(self, labels: Iterable[int]) -> None:
        """Enter classes that a batch has taught.

        Args:
            labels: their labels; known ones stay as they are.
        """
        for label in labels:
            self.taught.setdefault(label, None)

    def transfer(self, right: int, count: int) -> None:
        """Enter a measurement of forward transfer, made before a batch was learned.

        Args:
            right: how many patterns of classes taught before were recognised.
            count: how many there were.
        """
        self.transferred += 100 * right / count - 100 / len(self.taught)
        self.transfers += 1

    def test(self, overall: float, by_class: dict[int, float]) -> float | None:
        """Enter a test after a batch.

        Args:
            overall: the accuracy A_i, in percent.
            by_class: a_i(c) of each class in the test set, in percent.

        Returns:
            The forgetting F_i, in points; None if no class was tested before.
        """
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
        """The average incremental accuracy so far, in percent; None before the first test."""
        return self.summed / self.tests if self.tests else None

    @property
    def forward_transfer(self) -> float | None:
        """The forward transfer so far, in points; None if it could not be measured yet."""
        return self.transferred / self.transfers if self.transfers else None

    def to_json(self) -> dict[str, Any]:
        """Return everything, exactly, as JSON values."""
        return {
            "tests": self.tests,
            "summed": self.summed,
            "transfers": self.transfers,
            "transferred": self.transferred,
            "taught": [[label, first] for label, first in self.taught.items()],
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Tally:
        """Restore what `to_json` gave.

        Args:
            raw: the JSON values.
        """
        return cls(**{**raw, "taught": dict(raw["taught"])})
