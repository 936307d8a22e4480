"""Every measure against numbers worked out by hand."""

from __future__ import annotations

import json

import pytest
import torch

from primavista.bench.metrics import Tally, accuracy, class_accuracy, confusion


def test_a_confusion_matrix_has_true_rows_and_predicted_columns():
    labels = torch.tensor([0, 0, 0, 2, 2])
    predicted = torch.tensor([0, 2, 2, 2, 0])
    matrix = confusion(labels, predicted, 3)
    assert matrix.tolist() == [[1, 0, 2], [0, 0, 0], [1, 0, 1]]
    assert accuracy(matrix) == 40.0  # 2 of 5
    assert class_accuracy(matrix) == {0: 100 / 3, 2: 50.0}  # class 1 has no test patterns


def test_the_average_is_over_the_tests_so_far():
    tally = Tally()
    assert tally.average is None
    for value in (10.0, 40.0, 100.0):
        tally.test(value, {})
    assert tally.average == 50.0


def test_forgetting_is_the_fall_since_the_first_test_after_a_class_was_taught():
    tally = Tally()
    tally.teach([0, 1])
    # classes 0 and 1 are tested for the first time: nothing to compare with
    assert tally.test(50.0, {0: 80.0, 1: 60.0, 2: 0.0}) is None
    tally.teach([2])
    # 0: 80 -> 50, fell by 30; 1: 60 -> 70, rose by 10; 2 is new and not counted
    assert tally.test(60.0, {0: 50.0, 1: 70.0, 2: 90.0}) == 10.0
    # 0: 80 -> 80: 0; 1: 60 -> 30: 30; 2: 90 -> 30: 60
    assert tally.test(60.0, {0: 80.0, 1: 30.0, 2: 30.0}) == 30.0


def test_classes_taught_between_two_tests_count_from_the_next_test():
    tally = Tally()
    tally.teach([3])
    tally.teach([5])
    tally.teach([3])
    assert tally.test(0.0, {3: 40.0, 5: 20.0}) is None
    assert tally.test(0.0, {3: 30.0, 5: 20.0}) == 5.0


def test_forward_transfer_is_the_share_recognised_before_learning_above_chance():
    tally = Tally()
    tally.teach([0, 1, 2, 3])
    assert tally.forward_transfer is None
    tally.transfer(3, 4)  # 75 % where chance is 25 %: 50
    assert tally.forward_transfer == 50.0
    tally.teach([4])
    tally.transfer(0, 4)  # 0 % where chance is 20 %: -20
    assert tally.forward_transfer == pytest.approx(15.0)


def test_a_tally_survives_json_exactly():
    tally = Tally()
    tally.teach([7, 3])
    tally.transfer(1, 3)
    tally.test(100 / 3, {7: 100 / 7})
    again = Tally.from_json(json.loads(json.dumps(tally.to_json())))
    assert again == tally
    assert list(again.taught) == [7, 3]
    assert again.taught[3] is None
