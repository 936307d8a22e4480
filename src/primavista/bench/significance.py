"""Comparing strategies over runs: a paired permutation test, an effect size, Holm's correction.

Two strategies have one accuracy each per run, and runs with the same number have the same order of
batches, seed and split, so that the runs are pairs. With the differences d_1, ..., d_n:

    p     = the share of all 2^n choices of signs s for which |sum of s_k d_k| >= |sum of d_k|
    d_z   = mean(d) / sample standard deviation of d
    p_(k) of m comparisons, sorted, becomes max over l <= k of min(1, (m - l + 1) p_(l))

The test assumes no more than that, if the strategies were equally good, either of the two values of
a run could have been either strategy's (Fisher 1935). It cannot give less than 2 / 2^n: three runs
never reach 0.05. The correction is Holm's (1979), the effect size Cohen's (1988).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

MOST_EXACT = 16  # runs; 65,536 choices of signs
SAMPLED = 99_999  # choices of signs if there are more runs
TOLERANCE = 1e-9  # relative; sums that differ by rounding count as equal


@dataclass(frozen=True)
class PairwiseComparison:
    """Two strategies compared over the runs that both have.

    Args:
        first: The name of the first strategy.
        second: The name of the second one.
        runs: The number of runs that both have.
        difference: The mean of first - second, in points.
        effect: D_z; None if all differences are equal.
        p: Of the paired permutation test, two-sided.
        p_holm: P after Holm's correction for all comparisons that were made together.
    """

    first: str
    second: str
    runs: int
    difference: float
    effect: float | None
    p: float
    p_holm: float


def permutation_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired permutation test of the mean difference.

    It is exact up to 16 runs. With more, 99,999 random choices of signs are drawn from a fixed
    seed, and p is (as large + 1) / (drawn + 1), which is never too small (Phipson & Smyth 2010).

    Args:
        differences: One per run, at least one.

    >>> permutation_test([1.0, 2.0, 3.0])
    0.25
    """
    observed = abs(sum(differences))
    least = observed - TOLERANCE * sum(map(abs, differences))
    if len(differences) <= MOST_EXACT:
        sums = [0.0]
        for value in differences:
            sums = [one + value for one in sums] + [one - value for one in sums]
        return sum(abs(one) >= least for one in sums) / len(sums)
    source = random.Random(0)
    as_large = sum(abs(_signed_sum(differences, source)) >= least for _ in range(SAMPLED))
    return (as_large + 1) / (SAMPLED + 1)


def _signed_sum(values: Sequence[float], source: random.Random) -> float:
    bits = source.getrandbits(len(values))
    return sum(value if bits >> k & 1 else -value for k, value in enumerate(values))


def effect_size(differences: Sequence[float]) -> float | None:
    """Return d_z, the mean difference in units of its sample standard deviation over the runs.

    Args:
        differences: One per run.

    Returns:
        The effect size; None if there is one run, or if all differences are equal.

    >>> effect_size([1.0, 2.0, 3.0])
    2.0
    """
    if len(differences) < 2:
        return None
    deviation = stdev(differences)
    return fmean(differences) / deviation if deviation > 0 else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of comparisons, by Holm's step-down method.

    Args:
        p_values: One per comparison.

    Returns:
        The corrected values, in the same order.

    >>> holm([0.01, 0.5])
    [0.02, 0.5]
    """
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[k]))
        corrected[k] = largest
    return corrected


def compare(accuracies: Mapping[str, Mapping[int, float]]) -> list[PairwiseComparison]:
    """Compare every two strategies that have at least two runs in common.

    Args:
        accuracies: By strategy, the accuracy of each run.

    Returns:
        One comparison per pair, in the order of the strategies; the correction is for all of them.
    """
    pairs = []
    for first, second in combinations(accuracies, 2):
        common = sorted(accuracies[first].keys() & accuracies[second].keys())
        if len(common) > 1:
            own = [accuracies[first][run] - accuracies[second][run] for run in common]
            pairs.append((first, second, own))
    p_values = [permutation_test(own) for _, _, own in pairs]
    return [
        PairwiseComparison(first, second, len(own), fmean(own), effect_size(own), p, corrected)
        for (first, second, own), p, corrected in zip(pairs, p_values, holm(p_values), strict=True)
    ]
