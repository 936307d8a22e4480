"""Every measure against numbers worked out by hand."""

from __future__ import annotations

import json

import pytest
import torch

from primavista.bench.metrics import (
    Tally,
    class_accuracy,
    class_counts,
    confusion,
)


def test_a_confusion_matrix_has_true_rows_and_predicted_columns():
    labels = torch.tensor([0, 0, 0, 2, 2])
    predicted = torch.tensor([0, 2, 2, 2, 0])
    matrix = confusion(labels, predicted, 3)
    assert matrix.tolist() == [[1, 0, 2], [0, 0, 0], [1, 0, 1]]
    assert class_accuracy(matrix) == {0: 100 / 3, 2: 50.0}  # class 1 has no test patterns
    assert class_counts(matrix) == {0: (1, 3), 2: (1, 2)}


def test_a_predicted_class_that_the_stream_does_not_have_is_wrong():
    labels, predicted = torch.tensor([0, 1, 1, 2]), torch.tensor([7, 1, 3, 49])
    matrix = confusion(labels, predicted, 3)
    assert matrix.shape == (3, 3)
    assert class_counts(matrix) == {0: (0, 1), 1: (1, 2), 2: (0, 1)}


def test_the_row_of_the_matrix_is_over_the_frames_of_the_classes_that_a_batch_showed_first():
    tally = Tally()
    tally.teach([0, 1], 1)
    tally.teach([1, 2], 4)  # class 1 is not new: batch 4 is the task of class 2 alone
    found = tally.test({0: (1, 4), 1: (4, 4), 2: (1, 2), 3: (0, 10)})
    # batch 1: 5 of 8; batch 4: 1 of 2; class 3 is not met
    assert found.task_accuracy == {1: 62.5, 4: 50.0}
    assert found.accuracy == 30.0  # 6 of 20
    assert found.seen_accuracy == 60.0  # 6 of 10
    assert found.average_accuracy == 56.25


def three_tests() -> list:
    """R has the rows (80), (50, 90) and (60, 30, 100); each task is one class of 10 frames.

    There is a fourth class of 10 frames that is never met.
    """
    tally, found = Tally(), []
    rows = [{0: 8}, {0: 5, 1: 9}, {0: 6, 1: 3, 2: 10}]
    for i, right in enumerate(rows):
        tally.teach([i], i + 1)
        found.append(tally.test({label: (right.get(label, 0), 10) for label in range(4)}))
    return found


def test_averages():
    first, second, third = three_tests()
    assert [one.accuracy for one in (first, second, third)] == [20.0, 35.0, 47.5]
    assert [one.seen_accuracy for one in (first, second, third)] == [80.0, 70.0, 190 / 3]
    assert [one.average_accuracy for one in (first, second, third)] == [80.0, 70.0, 190 / 3]
    # the classes seen so far have 10, 20 and 30 frames; the test set always has 40
    assert third.average_incremental == pytest.approx((80 + 70 + 190 / 3) / 3)
    assert third.average == pytest.approx((20 + 35 + 47.5) / 3)
    assert third.average_anytime == pytest.approx((80 + 70 + 190 / 3) / 3)


def test_average_incremental_weighs_frames_and_average_anytime_weighs_tasks():
    """Batch 1 shows two classes of 10 and 30 frames, batch 2 one class of 10."""
    tally = Tally()
    tally.teach([0, 1], 1)
    first = tally.test({0: (10, 10), 1: (6, 30), 2: (0, 10)})
    assert (first.accuracy, first.seen_accuracy, first.average_incremental) == (32.0, 40.0, 40.0)
    tally.teach([2], 2)
    second = tally.test({0: (4, 10), 1: (6, 30), 2: (10, 10)})
    assert second.task_accuracy == {1: 25.0, 2: 100.0}
    assert (second.accuracy, second.seen_accuracy) == (40.0, 40.0)  # all classes are met
    assert second.average_incremental == 40.0  # (40 + 40) / 2
    assert second.average == 36.0  # (32 + 40) / 2
    assert second.average_anytime == 51.25  # (40 + (25 + 100) / 2) / 2


def test_learning_accuracy_is_measured_on_the_classes_of_the_batch_just_learned():
    *_, third = three_tests()
    assert third.learning_accuracy == 90.0  # (80 + 90 + 100) / 3, the diagonal of R
    tally = Tally()
    tally.teach([0, 1], 1)
    assert tally.test({0: (5, 10), 1: (9, 10), 2: (0, 10)}).learning_accuracy == 70.0
    tally.teach([2], 2)  # there is no test after batch 2: it does not count
    tally.teach([1, 2], 3)
    later = tally.test({0: (0, 10), 1: (2, 10), 2: (4, 10)})
    assert later.learning_accuracy == 50.0  # (70 + 30) / 2
    tally.teach([9], 4)  # a class without test frames
    assert tally.test({0: (0, 10), 1: (2, 10), 2: (4, 10)}).learning_accuracy == 50.0


def test_backward_transfer_is_the_change_since_a_task_was_learned():
    first, second, third = three_tests()
    assert first.backward_transfer is None
    assert second.backward_transfer == -30.0  # 50 - 80
    # task 1: 60 - 80 = -20; task 2: 30 - 90 = -60; task 3 is new
    assert third.backward_transfer == -40.0
    # the best of task 1 is 80 (not 50, its last test), that of task 2 is 90: (20 + 60) / 2
    assert third.forgetting == 40.0


def test_forgetting_is_the_fall_from_the_best_so_far():
    tally = Tally()
    values = [{0: 5}, {0: 9, 1: 8}, {0: 7, 1: 9, 2: 10}]
    found = []
    for i, right in enumerate(values):
        tally.teach([i], i + 1)
        found.append(tally.test({label: (count, 10) for label, count in right.items()}))
    assert found[0].forgetting is None
    assert found[1].forgetting == -40.0  # it rose from 50 to 90
    # task 1: best 90 (not 50, where it began), now 70: 20; task 2: best 80, now 90: -10
    assert found[2].forgetting == 5.0
    # the same rows: task 1 rose by 20, task 2 by 10
    assert found[2].backward_transfer == 15.0


def test_a_task_counts_from_the_first_test_after_it():
    tally = Tally()
    tally.teach([3], 1)
    tally.teach([5], 2)
    tally.teach([3], 3)
    found = tally.test({3: (4, 10), 5: (2, 10)})
    assert (found.forgetting, found.backward_transfer) == (None, None)
    found = tally.test({3: (3, 10), 5: (2, 10)})
    assert (found.forgetting, found.backward_transfer) == (5.0, -5.0)


def test_a_class_without_test_frames_is_in_no_measure():
    tally = Tally()
    tally.teach([0], 1)
    tally.teach([1], 2)
    found = tally.test({0: (5, 10)})
    assert found.task_accuracy == {1: 50.0}
    tally = Tally()
    tally.teach([1], 1)
    found = tally.test({0: (0, 10)})
    assert (found.accuracy, found.seen_accuracy, found.average_accuracy) == (0.0, None, None)
    assert found.average_anytime is None


def test_forward_transfer_is_the_share_recognised_before_learning_above_chance():
    tally = Tally()
    tally.teach([0, 1, 2, 3], 1)
    assert tally.forward_transfer is None
    tally.transfer(3, 4)  # 75 % where chance is 25 %: 50
    assert tally.forward_transfer == 50.0
    tally.teach([4], 2)
    tally.transfer(0, 4)  # 0 % where chance is 20 %: -20
    assert tally.forward_transfer == pytest.approx(15.0)
    found = tally.test({0: (1, 1)})
    assert found.forward_transfer == pytest.approx(15.0)
    assert (found.transfer_batches, found.transfer_frames) == (2, 8)


def test_a_tally_survives_json_exactly():
    tally = Tally()
    tally.teach([7, 3], 1)
    tally.transfer(1, 3)
    tally.teach([9], 2)
    tally.test({7: (1, 7), 3: (1, 3)})
    tally.test({7: (2, 7), 3: (1, 3)})
    again = Tally.from_json(json.loads(json.dumps(tally.to_json())))
    assert again == tally
    assert list(again.met) == [7, 3, 9]
    counts = {7: (0, 7), 3: (1, 3), 9: (1, 1)}
    assert again.test(counts) == tally.test(counts)
