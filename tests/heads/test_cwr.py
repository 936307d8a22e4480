"""CWR+ and CWR* worked by hand (paper, Algorithms 1 and 2), the linear head, and tensors with a row
a class.
"""

from __future__ import annotations

import pytest
import torch

from primavista.errors import InputError
from primavista.nn.class_rows import Rows, drop_all, grow_all
from primavista.nn.cwr_head import CWRHead
from primavista.nn.guards import PerWeight
from primavista.nn.linear import LinearHead
from primavista.strategies.caffe import ReleasedCWRHead


def teach(head, columns, tw, cur):
    """One batch: load, put the weights that training would leave in tw, consolidate.

    Returns what was loaded.
    """
    columns = torch.tensor(columns)
    head.load(columns)
    loaded = head.tw.detach().clone()
    with torch.no_grad():
        head.tw.fill_(
            100
        )  # rows of absent classes are trained too, as negatives: they must not count
        head.tw[columns] = torch.tensor(tw, dtype=torch.float32)
    head.consolidate(columns, torch.tensor(cur, dtype=torch.float32))
    return loaded.tolist()


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


def test_cwr_star_over_three_batches_by_hand():
    head = CWRHead(2, 4, "cwr*")

    # classes 0, 1, counts 4, 1: avg = (1 + 3 + 5 + 7) / 4 = 4, past = 0, so cw = tw - 4
    assert teach(head, [0, 1], [[1, 3], [5, 7]], [4, 1]) == [[0, 0]] * 4
    assert torch.allclose(head.cw, rows([-3, -1], [1, 3], [0, 0], [0, 0]))
    assert head.past.tolist() == [4, 1, 0, 0]

    # classes 0, 2, counts 1, 2: avg = (2 + 4 + 0 + 2) / 4 = 2;
    # wpast_0 = sqrt(4 / 1) = 2, wpast_2 = 0
    # cw_0 = ((-3, -1) 2 + (0, 2)) / 3 = (-2, 0); cw_2 = (-2, 0); class 1 is absent
    assert teach(head, [0, 2], [[2, 4], [0, 2]], [1, 2]) == [[-3, -1], [0, 0], [0, 0], [0, 0]]
    assert torch.allclose(head.cw, rows([-2, 0], [1, 3], [-2, 0], [0, 0]))
    assert head.past.tolist() == [5, 1, 2, 0]

    # classes 1, 0, counts 1, 20: avg = (0 + 4 + 4 + 8) / 4 = 4;
    # wpast_1 = 1, wpast_0 = sqrt(5 / 20) = 1/2
    # cw_1 = ((1, 3) + (-4, 0)) / 2 = (-3/2, 3/2);
    # cw_0 = ((-2, 0) / 2 + (0, 4)) / (3/2) = (-2/3, 8/3)
    assert teach(head, [1, 0], [[0, 4], [4, 8]], [1, 20]) == [[-2, 0], [1, 3], [0, 0], [0, 0]]
    assert torch.allclose(head.cw, rows([-2 / 3, 8 / 3], [-1.5, 1.5], [-2, 0], [0, 0]))
    assert head.past.tolist() == [25, 2, 2, 0]


def test_wpast_without_the_root():
    head = CWRHead(2, 4, "cwr*", wpast="ratio")
    teach(head, [0, 1], [[1, 3], [5, 7]], [4, 1])
    teach(head, [0, 2], [[2, 4], [0, 2]], [1, 2])
    # wpast_0 = 4: ((-3, -1) 4 + (0, 2)) / 5
    assert torch.allclose(head.cw[0], rows(-12 / 5, -2 / 5))


def test_cwr_plus_begins_from_zero_and_overwrites():
    head = CWRHead(2, 4, "cwr+")
    assert teach(head, [0, 1], [[1, 3], [5, 7]], [4, 1]) == [[0, 0]] * 4
    assert teach(head, [0, 2], [[2, 4], [0, 2]], [1, 2]) == [[0, 0]] * 4
    assert torch.allclose(head.cw, rows([0, 2], [1, 3], [-2, 0], [0, 0]))


@pytest.mark.parametrize("kind", ["cwr+", "cwr*"])
def test_new_classes_only_is_a_special_case(kind):
    """NC: past = 0, so CWR* loads 0 and consolidates tw - avg(tw), as CWR+ does."""
    head = CWRHead(2, 4, kind)
    teach(head, [0], [[2, 4]], [7])
    assert teach(head, [2, 1], [[0, 1], [2, 5]], [3, 9]) == [[0, 0]] * 4
    assert torch.allclose(head.cw, rows([-1, 1], [0, 3], [-2, -1], [0, 0]))


def test_training_sees_tw_and_inference_cw():
    head = CWRHead(2, 3, "cwr*")
    teach(head, [0, 1], [[1, 3], [5, 7]], [4, 1])
    head.load(torch.tensor([1]))
    z = rows([1, 2])
    assert head.scores(z).tolist() == [[-5, 7, 0]]  # cw = (-3, -1), (1, 3), 0; no bias
    assert head(z).tolist() == [[0, 7, 0]]
    assert list(head.weights()) == ["tw"]
    assert head.tw.requires_grad
    assert not head.cw.requires_grad


def test_the_gradient_reaches_every_row_of_tw_at_load():
    head = CWRHead(2, 4, "cwr*")
    head.load(torch.tensor([0]))
    (g,) = torch.autograd.grad(
        torch.nn.functional.cross_entropy(head(rows([1, 2])), torch.tensor([0])), head.tw
    )
    # all logits 0: softmax 1/4 each; (p - onehot) z
    assert torch.allclose(g, rows([-0.75, -1.5], [0.25, 0.5], [0.25, 0.5], [0.25, 0.5]))


def test_release_bias():
    """Absent outputs train at 1, batch 1's classes keep 1, later ones have 0.

    Unseen ones score 0.
    """
    head = ReleasedCWRHead(2, 4, "cwr*")
    nothing = torch.zeros(1, 2)
    head.in_batch_1 = True
    head.load(torch.tensor([0, 1]))
    assert head(nothing).tolist() == [[1, 1, 1, 1]]
    assert head.scores(nothing).tolist() == [[1, 1, 0, 0]]
    head.consolidate(torch.tensor([0, 1]), torch.tensor([1.0, 1.0]))
    head.in_batch_1 = False
    head.load(torch.tensor([2, 0]))
    assert head(nothing).tolist() == [[1, 1, 0, 1]]
    assert head.scores(nothing).tolist() == [[1, 1, 0, 0]]
    assert list(head.weights()) == ["tw"]  # the bias does not learn


@pytest.mark.parametrize(("unseen", "after"), [("negatives", [9, 19, 29]), ("reset", [9, 0, 0])])
def test_linear_head(unseen, after):
    head = LinearHead(2, 3, unseen)
    with torch.no_grad():
        head.weight.copy_(rows([1, 2], [3, 4], [5, 6]))
        head.bias.copy_(rows(10, 20, 30))
    z = rows([1, -1])
    assert head(z).tolist() == head.scores(z).tolist() == [[9, 19, 29]]
    head.load(torch.tensor([0]))
    assert head(z).tolist() == [[9, 19, 29]]
    head.consolidate(torch.tensor([0]), torch.tensor([1.0]))
    head.reset_unseen(known=1)
    assert head.scores(z).tolist() == [after]


def test_linear_head_msra():
    """Standard deviation sqrt(2 / fan-in), from its own generator; 0 without one."""

    def make():
        drawn = torch.Generator().manual_seed(5)
        return LinearHead(1000, 200, generator=drawn).weight

    assert make().std().item() == pytest.approx((2 / 1000) ** 0.5, rel=0.02)
    assert make().equal(make())
    assert not LinearHead(4, 3).weight.any()


def test_rows_grow_and_drop():
    head = CWRHead(2, 2, "cwr*")
    teach(head, [0, 1], [[1, 3], [5, 7]], [4, 1])
    grow_all(head, 4)
    assert head.rows == 4
    assert head.cw.tolist() == [[-3, -1], [1, 3], [0, 0], [0, 0]]
    grow_all(head, 3)  # never fewer
    assert head.rows == 4
    drop_all(head, 0)
    assert head.cw.tolist() == [[1, 3], [0, 0], [0, 0], [0, 0]]
    assert head.past.tolist() == [1, 0, 0, 0]
    with pytest.raises(InputError, match="row 4"):
        drop_all(head, 4)


def test_a_parameter_that_grows_is_the_same_parameter():
    head = LinearHead(2, 2)
    weight = head.weight
    head.grow(5)
    assert head.weight is weight
    assert weight.shape == (5, 2)
    assert weight.requires_grad


@pytest.mark.parametrize("capacity", [1, 2, 7])
@pytest.mark.parametrize(
    "make", [lambda n: ReleasedCWRHead(2, n, "cwr*"), lambda n: LinearHead(2, n)]
)
def test_rows_load_at_any_size(make, capacity):
    saved, other = make(4), make(capacity)
    saved.load_state_dict({name: torch.randn(t.shape) for name, t in saved.state_dict().items()})
    other.load_state_dict(saved.state_dict())
    assert all(t.equal(saved.state_dict()[name]) for name, t in other.state_dict().items())
    assert other.scores(rows([1, 2])).equal(saved.scores(rows([1, 2])))


def test_a_wrong_width_does_not_load():
    with pytest.raises(RuntimeError, match="size mismatch"):
        LinearHead(3, 4).load_state_dict(LinearHead(2, 4).state_dict())


def test_per_weight_has_rows_only_for_the_head():
    weights = {"body.0.weight": torch.ones(3, 2), "head.weight": torch.ones(4, 2)}
    kept = PerWeight(weights, ["head.weight"])
    kept.grow(6)
    kept.tensors[0].fill_(1)
    assert [tuple(t.shape) for t in kept.tensors] == [(3, 2), (6, 2)]
    assert kept.names == ["body.0.weight", "head.weight"]
    assert weights["head.weight"].shape == (4, 2)
    fresh = PerWeight(weights, ["head.weight"])
    fresh.load_state_dict(kept.state_dict())
    assert fresh.tensors[0].sum() == 6
    kept.drop(1)
    assert kept.tensors[0].shape == (3, 2)


def test_no_rows_at_all():
    assert Rows().rows == 0
