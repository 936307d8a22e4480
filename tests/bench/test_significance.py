"""The comparison of two strategies over runs, against numbers worked out by hand."""

from __future__ import annotations

from itertools import product
from math import sqrt

import pytest

from primavista.bench.significance import compare, effect_size, holm, permutation_test


def test_three_runs_that_agree_cannot_be_more_significant_than_one_in_four():
    # of the 8 choices of signs, +++ and --- give a sum as large as 6
    assert permutation_test([1.0, 2.0, 3.0]) == 2 / 8
    assert permutation_test([-1.0, -2.0, -3.0]) == 2 / 8


def test_by_hand_with_one_run_against_the_others():
    # sums of +-1 +-2 +-3: 6, 4, 2, 0, 0, -2, -4, -6; observed 1 + 2 - 3 = 0: all are as large
    assert permutation_test([1.0, 2.0, -3.0]) == 1.0
    # observed -1 + 2 + 3 = 4: 6, 4, -4 and -6 are as large
    assert permutation_test([-1.0, 2.0, 3.0]) == 4 / 8


def test_a_difference_of_nothing_is_not_significant():
    assert permutation_test([0.0, 0.0, 0.0]) == 1.0
    assert permutation_test([5.0]) == 1.0


def test_rounding_does_not_break_ties():
    # 0.1 + 0.2 is not 0.3 in floating point: the sums of (0.1, 0.2, -0.3) are all about 0 or more
    assert permutation_test([0.1, 0.2, -0.3]) == 1.0


def test_ten_runs_by_an_independent_count():
    values = [1.5, -0.5, 2.0, 3.0, 0.25, -1.0, 2.5, 1.0, 0.75, 4.0]
    observed = abs(sum(values))
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True)))
        for signs in product((1, -1), repeat=10)
    ]
    wanted = sum(one >= observed - 1e-9 for one in sums) / 1024
    assert permutation_test(values) == wanted


def test_many_runs_are_sampled_the_same_each_time():
    values = [1.0] * 30
    found = permutation_test(values)
    assert found == permutation_test(values)
    assert 0 < found < 0.001
    assert permutation_test([1.0, -1.0] * 15) > 0.8


def test_the_effect_size_is_the_mean_difference_in_its_deviations():
    # mean 2, sample deviation of 1, 2, 3 is 1
    assert effect_size([1.0, 2.0, 3.0]) == 2.0
    assert effect_size([2.0, 4.0]) == pytest.approx(3 / sqrt(2))
    assert effect_size([2.0, 2.0]) is None  # no deviation
    assert effect_size([2.0]) is None


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.03, 0.5; times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.5
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    # 0.03 x 3 = 0.09 > 0.04 x 2 = 0.08: the second may not be below the first; none above 1
    assert holm([0.03, 0.04, 0.9]) == pytest.approx([0.09, 0.09, 0.9])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_pairs_of_strategies_over_the_runs_that_both_have():
    accuracies = {
        "a": {0: 50.0, 1: 60.0, 2: 70.0},
        "b": {0: 49.0, 1: 58.0, 2: 67.0, 3: 0.0},
        "c": {2: 70.0},
    }
    (found,) = compare(accuracies)  # c has one run in common with each: no comparison
    assert (found.first, found.second, found.runs) == ("a", "b", 3)
    assert found.difference == 2.0
    assert found.p == 0.25
    assert found.p_holm == 0.25
    assert found.effect == 2.0
    # three pairs of two runs: the smallest p is 2/4, times 3
    three = compare({name: {0: float(k), 1: 3.0 * k} for k, name in enumerate("xyz")})
    assert [(one.first, one.second) for one in three] == [("x", "y"), ("x", "z"), ("y", "z")]
    assert {one.p for one in three} == {0.5}
    assert {one.p_holm for one in three} == {1.0}
