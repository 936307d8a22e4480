"""Comparisons of accuracies with their spread over runs, and the rule for verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from primavista.report.series import MeanStd, mean_std
from primavista.report.table import Verdict

MARGIN = 2.0  # differences up to this many points of accuracy count as the same
# The 95% quantiles of Student's t with 1 to 20 degrees of freedom.
_T = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)

Expectation = Literal["better", "the same", "no better"]
Runs = Mapping[int, float]  # an accuracy for each run


@dataclass(frozen=True)
class Estimate:
    """The difference of two accuracies, in points.

    Args:
        difference: The mean difference.
        half_width: Half the width of its 90% confidence interval; None if there are too few runs.
    """

    difference: float
    half_width: float | None


def paired_estimate(differences: Sequence[float]) -> Estimate:
    """Return the mean of differences between paired runs.

    >>> found = paired_estimate([1.0, 2.0, 3.0])
    >>> found.difference, round(found.half_width, 3)
    (2.0, 1.686)
    """
    if len(differences) == 1:
        return Estimate(differences[0], None)
    error = stdev(differences) / sqrt(len(differences))
    return Estimate(fmean(differences), _t_quantile(len(differences) - 1) * error)


def pooled_estimate(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Return the difference of the means of two samples of equal variance.

    A sample of one takes its spread from the other.

    >>> found = pooled_estimate([1.0, 2.0, 3.0], [0.0])
    >>> found.difference, round(found.half_width, 3)
    (2.0, 3.372)
    """
    difference = fmean(first) - fmean(second)
    degrees = len(first) + len(second) - 2
    if degrees == 0:
        return Estimate(difference, None)
    squares = sum((x - fmean(own)) ** 2 for own in (first, second) for x in own)
    error = sqrt(squares / degrees * (1 / len(first) + 1 / len(second)))
    return Estimate(difference, _t_quantile(degrees) * error)


def _t_quantile(degrees: int) -> float:
    return _T[degrees - 1] if degrees <= len(_T) else 1.645 + 1.6 / degrees


@dataclass(frozen=True)
class Comparison:
    """Two accuracies that a claim compares."""

    what: str
    where: str
    expected: Expectation
    first: Runs
    second: Runs
    paired: bool = True

    @property
    def estimate(self) -> Estimate:
        """The difference; each side has a finished run."""
        common = sorted(self.first.keys() & self.second.keys())
        if self.paired and len(common) > 1:
            return paired_estimate([self.first[run] - self.second[run] for run in common])
        return pooled_estimate(list(self.first.values()), list(self.second.values()))

    @property
    def means(self) -> tuple[MeanStd | None, MeanStd | None]:
        """The mean accuracy of each side over all its runs."""
        return mean_std(list(self.first.values())), mean_std(list(self.second.values()))

    @property
    def verdict(self) -> Verdict:
        """The outcome by the rule that the report states below its table of claims."""
        found = self.estimate
        agrees = "agrees" if self._holds(found.difference, found.difference) else "disagrees"
        if found.half_width is None:
            return Verdict(f"open: one run each, which {agrees}", "open")
        low, high = found.difference - found.half_width, found.difference + found.half_width
        if self._holds(low, high):
            return Verdict("holds", "good")
        if self._fails(low, high):
            return Verdict("does not hold", "bad")
        return Verdict(f"open: the mean {agrees}", "open")

    def _holds(self, low: float, high: float) -> bool:
        if self.expected == "better":
            return low > 0
        return high <= MARGIN and (self.expected == "no better" or low >= -MARGIN)

    def _fails(self, low: float, high: float) -> bool:
        if self.expected == "better":
            return high < 0
        return low > MARGIN or (self.expected == "the same" and high < -MARGIN)
