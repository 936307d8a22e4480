"""Stochastic gradient descent: against torch without a guard, worked by hand with one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.heads.shuffling import minibatch_count, permutation, seed_of
from primavista.nn.guards import Guard, Modulation, Penalty
from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.nn.sgd import SGD, Weight


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def weight(value, lr=0.5, decays=True, name="a"):
    return Weight(name, f64(value), lr, decays)


def modulation(factor):
    return Modulation(["a"], [f64(factor)])


def penalty(strength, theta_star):
    return Penalty(["a"], [f64(strength)], [f64(theta_star)])


def steps(sgd, gradients):
    """theta of the only weight after each step."""
    seen = []
    for g in gradients:
        sgd.step({"a": f64(g)})
        seen.append(sgd.theta["a"].item())
    return seen


def test_momentum_and_weight_decay_are_torchs():
    random = torch.Generator().manual_seed(0)
    start = [
        torch.randn(3, 2, generator=random).double(),
        torch.randn(3, generator=random).double(),
    ]
    theirs = [t.clone() for t in start]
    sgd = SGD([Weight("w", start[0], 0.1, decays=True), Weight("b", start[1], 0.02, decays=False)])
    torchs = torch.optim.SGD(
        [
            {"params": [theirs[0]], "lr": 0.1, "weight_decay": 5e-4},
            {"params": [theirs[1]], "lr": 0.02},
        ],
        lr=1,
        momentum=0.9,
    )
    for _ in range(6):
        g = [torch.randn(t.shape, generator=random).double() for t in start]
        before = [t.clone() for t in start]
        dtheta = sgd.step(dict(zip("wb", g, strict=True))).values()
        for t, gradient in zip(theirs, g, strict=True):
            t.grad = gradient
        torchs.step()
        for mine, other, old, change in zip(start, theirs, before, dtheta, strict=True):
            assert torch.allclose(mine, other, rtol=1e-13)
            assert torch.allclose(mine - old, change, rtol=1e-9)


def test_plain_by_hand():
    # eta = mu = wd = 1/2, g = 1, theta = 1
    # v = 1 + 1/2 = 3/2, theta = 1/4;  v = 3/4 + 9/8 = 15/8, theta = -11/16;
    # v = 15/16 + 21/32 = 51/32, theta = -95/64
    sgd = SGD([weight(1.0)], momentum=0.5, weight_decay=0.5)
    assert steps(sgd, [1, 1, 1]) == [1 / 4, -11 / 16, -95 / 64]


def test_modulation_by_hand():
    # as above with (g + wd theta) / 2: v = 3/4, theta = 5/8;
    # v = 3/8 + 21/32 = 33/32, theta = 7/64;
    # v = 33/64 + 135/256 = 267/256, theta = 7/64 - 267/512 = -211/512
    sgd = SGD([weight(1.0)], momentum=0.5, weight_decay=0.5, guard=modulation(0.5))
    assert steps(sgd, [1, 1, 1]) == [5 / 8, 7 / 64, -211 / 512]


def test_modulation_comes_before_momentum():
    # velocity 4 is there already: v = 2 + 1/2 (1 + 1/2) = 11/4, theta = 1 - 11/8;
    # after momentum it would be 1 - 7/8
    sgd = SGD(
        [weight(1.0)],
        momentum=0.5,
        weight_decay=0.5,
        velocity=[f64(4.0)],
        guard=modulation(0.5),
    )
    assert steps(sgd, [1]) == [-3 / 8]


def test_a_saturated_weight_stands_still_even_against_weight_decay():
    sgd = SGD([weight(1.0)], guard=modulation(0.0))
    assert steps(sgd, [5, -3, 2]) == [1, 1, 1]


def test_penalty_by_hand():
    # eta = mu = lambda F = 1/2, theta* = 0, g = 1, theta = 1:
    # v = 1 + 1/2 = 3/2, theta = 1/4;  v = 3/4 + 1 + 1/8 = 15/8, theta = -11/16;
    # v = 15/16 + 1 - 11/32 = 51/32, theta = -95/64
    sgd = SGD(
        [weight(1.0)],
        momentum=0.5,
        weight_decay=0,
        guard=penalty(0.5, 0.0),
    )
    assert steps(sgd, [1, 1, 1]) == [1 / 4, -11 / 16, -95 / 64]
    assert sgd.velocity[0].item() == 51 / 32


def test_the_penalty_comes_to_rest_at_the_minimum_of_equation_4():
    # L = theta + lambda / 2 F (theta - theta*)^2 has its minimum at theta* - 1 / (lambda F),
    # whatever the momentum; with eta 1e-4, lambda 2e6, F 1e-3 this is theta* - 5e-4
    sgd = SGD(
        [weight(1.0, lr=1e-4)],
        weight_decay=0,
        guard=penalty(2e3, 1.0),
    )
    after = steps(sgd, [1] * 400)
    assert after[-1] - 1 == pytest.approx(-5e-4, rel=1e-6)


@pytest.mark.parametrize(("strength", "stable"), [(0.2, True), (3.7, True), (3.9, False)])
def test_the_penalty_is_stable_iff_eta_lambda_f_is_below_2_times_1_plus_mu(strength, stable):
    # momentum 0.9: the limit is 3.8
    sgd = SGD(
        [weight(4.0, lr=0.25)],
        weight_decay=0,
        guard=penalty(strength / 0.25, 3.0),
    )
    after = steps(sgd, [0] * 2000)
    assert (abs(after[-1] - 3) < 1e-6) == stable


class Both(Guard):
    """Modulation and penalty at once, of the weights b and d."""

    modulation = Modulation(["b", "d"], [f64(0.5), f64(0.0)])
    penalty = Penalty(["b", "d"], [f64(1.0), f64(2.0)], [f64(0.0), f64(6.0)])

    def protect(self, direction, theta):
        self.modulation.protect(direction, theta)
        self.penalty.protect(direction, theta)


def test_guards_concern_the_guarded_weights_in_their_order():
    weights = [
        weight(1.0, name="a"),
        weight(2.0, name="b"),
        weight(3.0, name="c"),
        weight(4.0, lr=0.25, name="d"),
    ]
    sgd = SGD(weights, weight_decay=0, guard=Both())
    sgd.step(dict.fromkeys("abcd", f64(1.0)))
    # 1 - 1/2;  2 - 1/2 * 1/2 - 1/2 * 1 * 2;  3 - 1/2;  4 - 0 - 1/4 * 2 * (4 - 6)
    assert [w.tensor.item() for w in weights] == [0.5, 0.75, 2.5, 5.0]


def test_rate_scales_the_learning_rate_of_step_and_penalty():
    sgd = SGD([weight(1.0)], weight_decay=0, guard=penalty(1.0, 0.0))
    sgd.set_rate(0.5)
    dtheta = sgd.step({"a": f64(1.0)})
    assert dtheta["a"].item() == -0.5  # eta = 1/4: -1/4 - 1/4
    assert sgd.theta["a"].item() == 0.5
    assert sgd.present_lr == 0.25


def test_a_velocity_that_is_given_is_used_and_kept_up():
    velocity = [f64(2.0)]
    steps(SGD([weight(1.0)], momentum=0.5, weight_decay=0, velocity=velocity), [1, 1])
    assert velocity[0].item() == 2  # 1/2 * 2 + 1 = 2, twice


@settings(deadline=None, derandomize=True)
@given(count=st.integers(1, 700), size=st.integers(1, 300), seed=st.integers(0, 5))
def test_minibatches_cover_everything_once_in_even_pieces(count, size, seed):
    parts = list(shuffled_minibatches(count, size, generator(seed)))
    assert sorted(torch.cat(parts).tolist()) == list(range(count))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= size
    assert len(parts) == minibatch_count(count, size) == math.ceil(count / size)


def test_minibatches_are_shuffled_by_the_key_alone():
    def order(*key):
        return torch.cat(list(shuffled_minibatches(100, 30, generator(*key)))).tolist()

    before = torch.get_rng_state()
    assert order(0, 1, 2) == order(0, 1, 2)
    keys = [(0, 1, 2), (0, 1, 3), (0, 2, 1), (1, 1, 2), (0,), (0, 12)]
    assert len({tuple(order(*key)) for key in keys} | {tuple(range(100))}) == len(keys) + 1
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 301])
@pytest.mark.parametrize("key", [(0,), (0, 2, 3), (-7, 1, 0), (2**62, 9, 9)])
def test_the_order_without_torch_is_torchs(count, key):
    assert (
        permutation(count, seed_of(*key)).tolist()
        == torch.randperm(count, generator=generator(*key)).tolist()
    )
