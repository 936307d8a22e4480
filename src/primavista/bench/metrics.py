"""The measures of a strategy that learns a stream, in percent and points.

The task j is the classes that batch j shows first; a batch without new classes has no task. After
batch i, R[i, j] is the percent of the test frames of task j that are right. Tests may be rarer than
batches: f(j) is the first test at or after batch j, and every i below is a test.

    accuracy             A_i   = percent right of the whole test set, classes not met yet included
    seen accuracy        S_i   = percent right of the test frames of the classes met so far
    average incremental  AIA_i = mean of S_k over the tests k <= i
    average              mean of A_k over the tests k <= i
    average accuracy     ACC_i = mean of R[i, j] over the tasks j <= i
    average anytime      AAA_i = mean of ACC_k over the tests k <= i
    learning accuracy    LA_i  = mean over the tests k <= i of the percent right of the test frames
                                 of the classes in batch k, which was learned just before
    forgetting           F_i   = mean over the tasks j with f(j) < i
                                 of max over the tests k < i of R[k, j], minus R[i, j]
    backward transfer    BWT_i = mean over the same tasks of R[i, j] - R[f(j), j]
    forward transfer     FWT_i = mean over the batches k <= i with a test, except the first,
                                 of p_k - 100 / K_k: the percent right of the frames of batch k
                                 whose class was met before, asked before batch k is learned,
                                 beyond chance among the K_k classes met by then

The page `docs/guides/metrics.md` has the citations, and the reasons for adapting definitions to
these streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

Better = Literal["high", "low"]
Name = TypeVar("Name")
ClassCounts = Mapping[int, tuple[int, int]]  # by class: the number of right frames, and of all


def confusion(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Count the patterns of each true class (row) by the class that was predicted (column).

    Args:
        labels: The true label of each pattern.
        predicted: The predicted label of each pattern. A label that is not one of the classes is
            counted as a wrong one: the class after the true one.
        classes: The number of classes.

    Returns:
        A matrix of counts, classes x classes.

    >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    # With one class, no column is wrong: the matrix then cannot be made.
    wrong = (labels + 1) % max(classes, 2)
    pairs = labels * classes + torch.where(predicted < classes, predicted, wrong)
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def class_counts(matrix: Tensor) -> dict[int, tuple[int, int]]:
    """Return how many patterns of each class are right, out of how many.

    Args:
        matrix: Counts, classes x classes; classes without test patterns are left out.

    >>> class_counts(torch.tensor([[1, 1], [0, 2]]))
    {0: (1, 2), 1: (2, 2)}
    """
    rows = zip(matrix.diagonal().tolist(), matrix.sum(1).tolist(), strict=True)
    return {label: (right, count) for label, (right, count) in enumerate(rows) if count}


def class_accuracy(matrix: Tensor) -> dict[int, float]:
    """Return the percent right of each class that has test patterns.

    Args:
        matrix: Counts, classes x classes.

    >>> class_accuracy(torch.tensor([[1, 1], [0, 2]]))
    {0: 50.0, 1: 100.0}
    """
    return {label: 100 * right / all_ for label, (right, all_) in class_counts(matrix).items()}


def learned_little(learning: Mapping[Name, float]) -> list[Name]:
    """Return those that hardly learn what they are taught: such a one has nothing to forget.

    Args:
        learning: The learning accuracy of strategies that learned the same streams.

    Returns:
        Those with less than half of the best one's.

    >>> learned_little({"prima": 68.0, "er": 52.0, "naive": 27.0})
    ['naive']
    """
    enough = max(learning.values(), default=0.0) / 2
    return [name for name, value in learning.items() if value < enough]


def _measure(title: str, better: Better | None) -> Any:
    """Declare a measure: its title in tables, and whether high or low values of it are better."""
    return field(default=None, metadata={"title": title, "better": better})


@dataclass(frozen=True)
class Measures:
    """The measures after one test; the module's text defines them. None: not defined, or no test.

    They are declared here and nowhere else: steps, `metrics.jsonl` and `result.json` contain them
    in a field `measures` or `final`, and the rows of `load_results` by their names.

    Args:
        accuracy: A_i.
        seen_accuracy: S_i.
        average_incremental: AIA_i.
        average: The mean of A_k.
        average_accuracy: ACC_i.
        average_anytime: AAA_i.
        learning_accuracy: LA_i.
        forgetting: F_i.
        backward_transfer: BWT_i.
        forward_transfer: FWT_i.
        transfer_batches: The number of batches that FWT_i is a mean over.
        transfer_frames: The number of frames in these batches that were asked.
        task_accuracy: R[i, j] by the batch j that showed the classes first.
    """

    accuracy: float | None = _measure("accuracy (%)", "high")
    seen_accuracy: float | None = _measure("on the classes seen (%)", "high")
    average_incremental: float | None = _measure("average incremental (%)", "high")
    average: float | None = _measure("average on all classes (%)", "high")
    average_accuracy: float | None = _measure("average over tasks (%)", "high")
    average_anytime: float | None = _measure("average anytime (%)", "high")
    learning_accuracy: float | None = _measure("learning accuracy (%)", "high")
    forgetting: float | None = _measure("forgetting", "low")
    backward_transfer: float | None = _measure("backward transfer", "high")
    # It rests on other frames in each run, so no value is the best one.
    forward_transfer: float | None = _measure("forward transfer", None)
    transfer_batches: int = 0
    transfer_frames: int = 0
    task_accuracy: dict[int, float] = field(default_factory=dict)


# The fields that are measures; the title of each, and whether high or low values of it are better.
_DECLARED = [one for one in fields(Measures) if one.metadata]
TITLES: dict[str, str] = {one.name: one.metadata["title"] for one in _DECLARED}
BETTER: dict[str, Better | None] = {one.name: one.metadata["better"] for one in _DECLARED}
MEASURES = tuple(TITLES)


@dataclass
class Tally:
    """A summary of earlier batches and tests, for the measures; a checkpoint keeps it.

    Args:
        met: The batch in which each class was met first.
        taught: The classes of the last batch.
        first: R[f(j), j] of each task j that was tested.
        best: The maximum of R[k, j] over the tests k so far.
        sums: Of each measure that is a mean over tests: the number of values, and their sum.
        transfer_frames: The number of frames that were asked for forward transfer.
    """

    met: dict[int, int] = field(default_factory=dict)
    taught: list[int] = field(default_factory=list)
    first: dict[int, float] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)
    sums: dict[str, list[float]] = field(default_factory=dict)
    transfer_frames: int = 0

    def teach(self, labels: Iterable[int], batch: int) -> None:
        """Enter the classes that a batch has taught.

        Args:
            labels: Their labels; those met before stay with the batch that showed them first.
            batch: The number of the batch, from 1.
        """
        self.taught = list(labels)
        for label in self.taught:
            self.met.setdefault(label, batch)

    def transfer(self, right: int, count: int) -> None:
        """Enter a measurement of forward transfer, made before a batch was learned.

        Args:
            right: How many patterns of classes met before were recognised.
            count: How many there were.
        """
        self._add("forward_transfer", 100 * right / count - 100 / len(self.met))
        self.transfer_frames += count

    @property
    def forward_transfer(self) -> float | None:
        """The forward transfer so far, in points; None if it could not be measured yet."""
        return self._average("forward_transfer")

    def test(self, counts: ClassCounts) -> Measures:
        """Enter a test after a batch.

        Args:
            counts: The number of right frames and of all frames, by class of the test set, met or
                not.

        Returns:
            The measures after this test.
        """
        row = self._row(counts)
        now = {
            "average": _percent(counts.values()),
            "average_incremental": _percent_of(self.met, counts),
            "average_anytime": _mean(list(row.values())),
            "learning_accuracy": _percent_of(self.taught, counts),
        }
        for name, value in now.items():
            self._add(name, value)
        old = [task for task in row if task in self.first]
        measures = Measures(
            accuracy=now["average"],
            seen_accuracy=now["average_incremental"],
            average_accuracy=now["average_anytime"],
            **{name: self._average(name) for name in now},
            forgetting=_mean([self.best[task] - row[task] for task in old]),
            backward_transfer=_mean([row[task] - self.first[task] for task in old]),
            forward_transfer=self.forward_transfer,
            transfer_batches=int(self.sums.get("forward_transfer", [0])[0]),
            transfer_frames=self.transfer_frames,
            task_accuracy=row,
        )
        for task, value in row.items():
            self.first.setdefault(task, value)
            self.best[task] = max(value, self.best.get(task, value))
        return measures

    def _add(self, name: str, value: float | None) -> None:
        """Enter a value of a measure that is a mean; None is no value."""
        if value is not None:
            count, total = self.sums.get(name, [0, 0.0])
            self.sums[name] = [count + 1, total + value]

    def _average(self, name: str) -> float | None:
        count, total = self.sums.get(name, [0, 0.0])
        return total / count if count else None

    def to_json(self) -> dict[str, Any]:
        """Return everything, exactly, as JSON values."""
        return {**asdict(self), **{name: list(getattr(self, name).items()) for name in _TABLES}}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Tally:
        """Restore what `to_json` gave.

        Args:
            raw: The JSON values.
        """
        return cls(**{**raw, **{name: dict(raw[name]) for name in _TABLES}})

    def _row(self, counts: ClassCounts) -> dict[int, float]:
        """Return R[i, j] of each task j that is met and has test frames."""
        tasks: dict[int, list[tuple[int, int]]] = {}
        for label, batch in self.met.items():
            if label in counts:
                tasks.setdefault(batch, []).append(counts[label])
        return {task: _percent(own) for task, own in tasks.items()}


_TABLES = ("met", "first", "best")  # by number: the keys of JSON objects are texts


def _percent_of(labels: Iterable[int], counts: ClassCounts) -> float | None:
    """Return the percent right of the test frames of some classes; None if they have none."""
    own = [counts[label] for label in labels if label in counts]
    return _percent(own) if own else None


def _percent(counts: Iterable[tuple[int, int]]) -> float:
    pairs = list(counts)
    return 100 * sum(right for right, _ in pairs) / sum(count for _, count in pairs)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
