"""Synaptic Intelligence and the Fisher matrix: worked by hand, and against slow versions of the
reference's formulas.
"""

from __future__ import annotations

import copy

import pytest
import torch

from primavista.nn.guards import Fisher, Importance, SynapticIntelligence
from primavista.nn.sgd import Weight


def one(value):
    return torch.tensor([value], dtype=torch.float64)


def weights(**theta):
    """The weights of a batch, and one that is not guarded."""
    named = {"other": torch.zeros(3), **theta}
    return [Weight(name, tensor, lr=1, decays=True) for name, tensor in named.items()]


def walk(si, theta, steps, w):
    """A batch of (g, dtheta) steps on one live weight."""
    si.guard(weights(a=theta))
    for g, dtheta in steps:
        theta += dtheta
        si.observe({"a": one(g)}, {"a": one(dtheta)})
    si.consolidate(w)


def test_si_over_three_batches_by_hand():
    theta = one(5.0)
    si = SynapticIntelligence({"a": theta}, max_f=10)
    # -g dtheta: 2, -1; theta moves by -2: 1/2 * 1 / (4 + 1e-7)
    walk(si, theta, [(2.0, -1.0), (-1.0, -1.0)], 0.5)
    assert si.tensors[0].item() == pytest.approx(0.125, rel=1e-6)
    # uphill: -1 / 1 * 1/2; Omega is not clipped, F is
    walk(si, theta, [(1.0, 1.0)], 0.5)
    assert si.tensors[0].item() == pytest.approx(-0.375, rel=1e-6)
    assert si.clipped()[0].item() == 0
    # 4 / 1 * 1/2 = 2: 1.625 and not 2, since the negative share was kept
    walk(si, theta, [(-4.0, 1.0)], 0.5)
    assert si.clipped()[0].item() == pytest.approx(1.625, rel=1e-6)


def test_si_displacement_by_hand():
    theta = one(5.0)
    si = SynapticIntelligence({"a": theta}, max_f=10, path="displacement")
    # dtheta^2: 1 + 1; theta moves by -2
    walk(si, theta, [(2.0, -1.0), (-1.0, -1.0)], 0.5)
    assert si.clipped()[0].item() == pytest.approx(0.25, rel=1e-6)


def test_si_of_a_weight_that_comes_back():
    # it moves 1 and back: the sum is 3 * 1 - 1 * 1 = 2, the distance 0: 2 * 0.5 / 1e-7
    theta = one(0.0)
    si = SynapticIntelligence({"a": theta}, max_f=10)
    walk(si, theta, [(3.0, -1.0), (1.0, 1.0)], 0.5)
    assert si.tensors[0].item() == pytest.approx(1e7)
    assert si.clipped()[0].item() == 10


@pytest.mark.parametrize("path", ["gradient", "displacement"])
def test_si_against_a_slow_version(path):
    random = torch.Generator().manual_seed(0)
    theta = [
        torch.randn(3, 2, generator=random).double(),
        torch.randn(4, generator=random).double(),
    ]
    names = ["a.b", "c"]
    si = SynapticIntelligence(dict(zip(names, theta, strict=True)), max_f=1.0, path=path)
    omega = [[0.0] * t.numel() for t in theta]
    for w in (0.5, 0.25):
        begin = [t.flatten().tolist() for t in theta]
        sums = [[0.0] * t.numel() for t in theta]
        si.guard(weights(**dict(zip(names, theta, strict=True))))
        for _ in range(5):
            g = [torch.randn(t.shape, generator=random).double() for t in theta]
            dtheta = [-0.1 * a + 0.4 * torch.randn(a.shape, generator=random) for a in g]
            for t, d in zip(theta, dtheta, strict=True):
                t += d
            si.observe(*(dict(zip(names, values, strict=True)) for values in (g, dtheta)))
            for k in range(2):
                for n, (a, d) in enumerate(
                    zip(g[k].flatten().tolist(), dtheta[k].flatten().tolist(), strict=True)
                ):
                    sums[k][n] += -a * d if path == "gradient" else d * d
        si.consolidate(w)
        for k in range(2):
            for n, end in enumerate(theta[k].flatten().tolist()):
                omega[k][n] += w * sums[k][n] / ((end - begin[k][n]) ** 2 + 1e-7)
    every = torch.tensor(omega[0] + omega[1], dtype=torch.float64)
    assert torch.allclose(torch.cat([t.flatten() for t in si.tensors]), every, rtol=1e-10)
    assert torch.allclose(
        torch.cat([f.flatten() for f in si.clipped()]), every.clamp(0, 1), rtol=1e-10
    )
    assert float(si.saturated()) == pytest.approx(int((every >= 1).sum()) / 10)
    if path == "gradient":
        assert every.min() < 0
        assert 0 < si.saturated() < 1


def test_modulation_pull_and_the_saturated_share():
    theta = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]])]
    guard = Importance({"a": theta[0], "b": theta[1]}, max_f=0.5)
    guard.tensors[0].copy_(torch.tensor([-1.0, 0.125]))
    guard.tensors[1].copy_(torch.tensor([[0.5], [7.0]]))
    assert [f.flatten().tolist() for f in guard.clipped()] == [[0, 0.125], [0.5, 0.5]]
    named = weights(a=theta[0], b=theta[1])
    assert [m.flatten().tolist() for m in guard.guard(named).tensors] == [[1, 0.75], [0, 0]]
    assert guard.saturated() == 0.5
    guard.rule, guard.lam = "penalty", 8
    penalty = guard.guard(named)
    strength, star = penalty.strength, penalty.theta_star
    theta[0] += 100  # theta* is a copy
    assert [s.flatten().tolist() for s in strength] == [[0, 1], [4, 4]]
    assert [s.flatten().tolist() for s in star] == [[1, 2], [3, 4]]
    assert guard.tensors[0].tolist() == [-1, 0.125]  # F is clipped, the sum is not


def test_nothing_guarded():
    si = SynapticIntelligence({}, max_f=1)
    guard = si.guard(weights())
    si.observe({}, {})
    si.consolidate(0.5)
    assert (si.clipped(), guard.tensors, si.saturated()) == ([], [], 0)


def test_fisher_by_hand():
    fisher = Fisher({"a": torch.zeros(2)}, max_f=8, rule="modulate")
    assert fisher.guard(weights(a=torch.zeros(2))).tensors == []  # there is no F yet
    # mean gradients (2, 0) and (4, 2): the mean of the squares is (10, 2); the square of the mean
    # would be (9, 1)
    fisher.observe({"a": torch.tensor([2.0, 0.0])}, minibatches=2)
    fisher.observe({"a": torch.tensor([4.0, 2.0])}, minibatches=2)
    fisher.count_batch()
    assert fisher.clipped()[0].tolist() == [8, 2]
    # a batch of one minibatch: (10 + 0, 2 + 16) / 2 batches; the sum of the first weight was kept
    # beyond the clip
    fisher.observe({"a": torch.tensor([0.0, 4.0])}, minibatches=1)
    fisher.count_batch()
    assert fisher.clipped()[0].tolist() == [5, 8]
    assert fisher.guard(weights(a=torch.zeros(2))).tensors[0].tolist() == [0.375, 0]
    assert fisher.saturated() == 0.5


def test_fisher_before_any_batch_is_zero():
    assert Fisher({"a": torch.ones(2)}, max_f=1).clipped()[0].tolist() == [0, 0]


def test_arguments_by_position_and_their_defaults():
    theta = {"head.weight": torch.zeros(2, 1)}
    assert Fisher(theta, 1.0).rule == "penalty"  # as in EWC
    assert SynapticIntelligence(theta, 1.0).rule == "modulate"  # as in AR1*
    si = SynapticIntelligence(theta, 1.0, "displacement", rule="penalty", lam=2.0)
    assert (si.max_f, si.rule, si.lam, si.path) == (1, "penalty", 2, "displacement")
    fisher = Fisher(theta, 1.0, "modulate", lam=2.0, row_weights=["head.weight"])
    assert (fisher.max_f, fisher.rule, fisher.lam) == (1, "modulate", 2)


def test_fisher_saved_and_loaded_goes_on():
    first, second = (
        Fisher({"head.weight": torch.zeros(n, 1)}, 100, row_weights=["head.weight"]) for n in (2, 3)
    )
    first.observe({"head.weight": torch.tensor([[2.0], [4.0]])}, 1)
    first.count_batch()
    second.load_state_dict(first.state_dict())
    second.observe({"head.weight": torch.tensor([[0.0], [2.0]])}, 1)
    second.count_batch()
    assert second.clipped()[0].flatten().tolist() == [2, 10]


def test_the_next_guard_is_written_where_the_one_before_was():
    """New copies of the weights in each batch left holes in the heap."""
    theta = torch.ones(2, 3)
    fisher = Fisher({"w": theta}, max_f=1.0, rule="penalty", lam=8)
    fisher.observe({"w": torch.full((2, 3), 0.5)}, 1)
    fisher.count_batch()
    before = fisher.guard(weights(w=theta))
    places = [tensor.data_ptr() for tensor in before.tensors]
    theta *= 3
    fisher.observe({"w": torch.full((2, 3), 0.25)}, 1)
    after = fisher.guard(weights(w=theta))
    assert [tensor.data_ptr() for tensor in after.tensors] == places
    f, theta_star = (tensor[0, 0].item() for tensor in after.tensors)
    assert (f, theta_star) == (8 * 0.3125, 3)
    copied = copy.deepcopy(fisher).guard(weights(w=theta))
    assert not {tensor.data_ptr() for tensor in copied.tensors} & set(places)
