"""Batch renormalisation against hand-worked numbers and a slow float64 version of the paper's
section 2.2.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from primavista.engine.renorm_function import mean_and_variance
from primavista.networks.base import build
from primavista.nn.renorm import (
    BatchRenorm,
    RenormLimits,
    RenormSchedule,
    norm_layers,
    replace_batch_norm,
    set_limits,
)
from primavista.strategies.caffe import ReleasedBatchRenorm

SHAPES = {"NC": (8, 3), "NCL": (4, 3, 5), "NCHW": (4, 3, 5, 2), "NCDHW": (2, 3, 2, 3, 2)}


def wide(v, x):
    return v.reshape([1, -1] + [1] * (x.ndim - 2))


def mb_moments(x, eps):
    others = [k for k in range(x.ndim) if k != 1]
    mean = x.mean(others)
    return mean, ((x - wide(mean, x)).square().mean(others) + eps).sqrt()


def r_and_d(mu_mb, sigma_mb, mu, sigma, r_max, d_max):
    r = f64(
        [
            min(max(s / t, 1 / r_max), r_max)
            for s, t in zip(sigma_mb.tolist(), sigma.tolist(), strict=True)
        ]
    )
    offsets = ((mu_mb - mu) / sigma).tolist()
    d = f64([min(max(o, -d_max), d_max) for o in offsets])
    return r, d


def slow_brn(x, gamma, beta, mu, sigma, r_max, d_max, eps):
    """y, mu_mb, sigma_mb, r, d; r and d are plain numbers, so autograd takes them for constants."""
    mu_mb, sigma_mb = mb_moments(x, eps)
    with torch.no_grad():
        r, d = r_and_d(mu_mb, sigma_mb, mu, sigma, r_max, d_max)
    xhat = (x - wide(mu_mb, x)) / wide(sigma_mb, x) * wide(r, x) + wide(d, x)
    return xhat * wide(gamma, x) + wide(beta, x), mu_mb.detach(), sigma_mb.detach(), r, d


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer_with(mu, sigma, gamma, beta, limits, eps=0.0):
    layer = BatchRenorm(len(mu), eps).double()
    with torch.no_grad():
        layer.weight.copy_(f64(gamma))
        layer.bias.copy_(f64(beta))
        layer.mu.copy_(f64(mu))
        layer.sigma.copy_(f64(sigma))
    set_limits(layer, RenormLimits(*limits))
    return layer


# x = (1, 3): mu_mb = 2, sigma_mb = 1 (eps 0); gamma = 6, beta = 1; the weight of the past is 3/4
@pytest.mark.parametrize(
    ("mu", "sigma", "r_max", "d_max", "y", "moments"),
    [
        # r = 1/2 -> 2/3 (low clip), d = 1 -> 1/2 (high clip):
        # xhat = -2/3 + 1/2, 2/3 + 1/2 = -1/6, 7/6
        (0, 2, 1.5, 0.5, (0, 8), (0.5, 1.75)),
        # r = 4 -> 3/2 (high clip), d = -8 -> -1/2 (low clip): xhat = -2, 1
        (4, 0.25, 1.5, 0.5, (-11, 7), (3.5, 0.4375)),
        # neither clip: xhat = (x - mu) / sigma = 1/2, 3/2
        (0, 2, 3, 5, (4, 10), (0.5, 1.75)),
        # r_max = 1, d_max = 0 is batch norm: xhat = -1, 1
        (0, 2, 1, 0, (-5, 7), (0.5, 1.75)),
    ],
)
def test_forward_and_moments_by_hand(mu, sigma, r_max, d_max, y, moments):
    layer = layer_with([mu], [sigma], [6.0], [1.0], (r_max, d_max, 0.75))
    assert torch.allclose(layer(f64([[1.0], [3.0]])).flatten(), f64(y))
    assert (layer.mu.item(), layer.sigma.item()) == pytest.approx(
        moments
    )  # of the values before: 3/4 old + 1/4 minibatch


def test_averages_are_of_mu_and_sigma_not_of_the_variance():
    # sigma: 3/4 * 1 + 1/4 * 5 = 2; the root of the averaged variance would be sqrt(3/4 + 25/4) =
    # 2.65
    layer = layer_with([0.0], [1.0], [1.0], [0.0], (3, 5, 0.75))
    layer(f64([[-5.0], [5.0]]))
    assert (layer.mu.item(), layer.sigma.item()) == pytest.approx((0, 2))


def test_eps_stands_under_the_root_and_the_deviation_is_biased():
    # x = 0, 2: biased variance 1, eps 3: sigma_mb = 2; batch norm gives -1/2, 1/2
    layer = layer_with([0.0], [1.0], [1.0], [0.0], (1, 0, 0.5), eps=3.0)
    assert layer(f64([[0.0], [2.0]])).flatten().tolist() == pytest.approx([-0.5, 0.5])
    assert layer.sigma.item() == pytest.approx(1.5)


def test_r_and_d_use_the_moments_before_the_step_and_evaluation_those_after():
    # never clipped: the first step gives (x - 0) / 1, the second (x - mu_1) / sigma_1 with mu_1 =
    # 1, sigma_1 = 1
    layer = layer_with([0.0], [1.0], [1.0], [0.0], (1000, 1000, 0.5))
    x = f64([[1.0], [3.0]])
    assert layer(x).flatten().tolist() == pytest.approx([1, 3])
    assert layer(x).flatten().tolist() == pytest.approx([0, 2])
    # mu_2 = 1/2 + 2/2 = 3/2
    assert layer.eval()(x).flatten().tolist() == pytest.approx([-0.5, 1.5])
    assert layer.mu.item() == pytest.approx(1.5)  # evaluation left it there


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limits", [(1, 0), (1.5, 2.5), (1.25, 0.5), (1024, 1024)])
@pytest.mark.parametrize("shape", [*SHAPES, "channels-last"])
def test_forward_gradients_and_moments_against_the_slow_version(shape, limits, dtype):
    eps, past = 2**-7, 0.75
    x = random(*SHAPES.get(shape, SHAPES["NCHW"]))
    dy = random(*x.shape, seed=1)
    # channel 0 is clipped nowhere at (1.5, 2.5); channel 1 below r and above d; channel 2 above r
    # and below d
    mu, sigma = f64([0.2, -30.0, 3.0]), f64([1.0, 8.0, 0.25])
    gamma, beta = f64([2.0, -1.0, 0.5]), f64([0.0, 1.0, -3.0])
    slow = [t.clone().requires_grad_() for t in (x, gamma, beta)]
    y, mu_mb, sigma_mb, r, d = slow_brn(*slow, mu, sigma, *limits, eps)
    if limits == (1.5, 2.5):
        assert 1 / 1.5 < r[0] < 1.5
        assert (r[1].item(), r[2].item()) == pytest.approx((1 / 1.5, 1.5))
        assert abs(d[0]) < 2.5
        assert (d[1].item(), d[2].item()) == (2.5, -2.5)
    expected = torch.autograd.grad(y, slow, dy)

    layer = layer_with(mu, sigma, gamma, beta, (*limits, past), eps).to(dtype)
    own = x.to(dtype)
    if shape == "channels-last":
        own = own.to(memory_format=torch.channels_last)
    own.requires_grad_()
    out = layer(own)
    got = torch.autograd.grad(out, (own, layer.weight, layer.bias), dy.to(dtype))
    close = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-11}
    )
    if limits[0] == 1024 and dtype == torch.float32:
        close["atol"] = 1e-3  # gamma r is large where sigma is small
    assert torch.allclose(out.double(), y, **close)
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one.double(), other, **close)
    assert torch.allclose(layer.mu.double(), past * mu + (1 - past) * mu_mb, **close)
    assert torch.allclose(layer.sigma.double(), past * sigma + (1 - past) * sigma_mb, **close)


def test_gradients_by_the_formulas_of_the_reference():
    # dgamma = r sum(dy xhat) + d sum(dy), dbeta = sum(dy);
    # x = (1, 3), xhat_bn = (-1, 1), r = 2/3, d = 1/2, dy = (1, 4):
    # dgamma = 2/3 * 3 + 1/2 * 5 = 4.5; dbeta = 5;
    # dx = 0, since batch norm of two values does not depend on them
    layer = layer_with([0.0], [2.0], [6.0], [1.0], (1.5, 0.5, 0.75))
    x = f64([[1.0], [3.0]]).requires_grad_()
    dx, dgamma, dbeta = torch.autograd.grad(
        layer(x), (x, layer.weight, layer.bias), f64([[1.0], [4.0]])
    )
    assert dgamma.item() == pytest.approx(4.5)
    assert dbeta.item() == pytest.approx(5)
    assert dx.flatten().tolist() == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("limits", "mu", "sigma"),
    [
        ((1, 0), 0, 1),
        ((1.25, 0.5), -40, 16),
        ((1.25, 0.5), 40, 16),
        ((1.25, 0.5), -40, 2**-4),
        ((1.25, 0.5), 40, 2**-4),
    ],
    ids=["pure", "r low, d high", "r low, d low", "r high, d high", "r high, d low"],
)
def test_gradcheck_where_r_and_d_do_not_move(shape, limits, mu, sigma):
    layer = layer_with(
        [mu] * 3, [sigma] * 3, [1.0] * 3, [0.0] * 3, (*limits, 1.0), eps=1e-3
    )  # past 1: moments stay

    def f(x, gamma, beta):
        return torch.func.functional_call(layer, {"weight": gamma, "bias": beta}, (x,))

    x = random(*SHAPES[shape]).requires_grad_()
    gamma, beta = random(3, seed=1).requires_grad_(), random(3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(f, (x, gamma, beta))


def test_no_gradient_through_r_and_d():
    # never clipped, y = (x - mu) / sigma in value;
    # but with r and d constant sum(y) does not depend on x, and its gradient is 0
    layer = layer_with([1.0], [2.0], [1.0], [0.0], (1000, 1000, 0.75), eps=1e-3)
    x = random(6, 1).requires_grad_()
    (dx,) = torch.autograd.grad(layer(x).sum(), x)
    assert dx.abs().max() < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_evaluation(shape):
    mu, sigma, gamma, beta = (random(3, seed=k) for k in range(4))
    sigma = sigma.abs() + 0.5
    layer = layer_with(mu, sigma, gamma, beta, (1, 0, 0.5)).eval()
    x = random(*SHAPES[shape], seed=9)
    expected = wide(gamma, x) * (x - wide(mu, x)) / wide(sigma, x) + wide(beta, x)
    assert torch.allclose(layer(x), expected, rtol=1e-12)
    assert layer.mu.equal(mu)
    assert layer.sigma.equal(sigma)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.integers(2, 6),
    c=st.integers(1, 4),
    side=st.integers(0, 4),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.01, 1.0, 100.0]),
    mu=st.floats(-10, 10),
    sigma=st.floats(0.1, 10),
)
def test_pure_batch_norm_limits_are_torchs_batch_norm(n, c, side, seed, scale, mu, sigma):
    x = random(*((n, c, side, side) if side else (n, c)), seed=seed) * scale
    gamma, beta = random(c, seed=seed + 1), random(c, seed=seed + 2)
    layer = layer_with([mu] * c, [sigma] * c, gamma, beta, (1, 0, 0.99), eps=1e-3)
    expected = F.batch_norm(x, None, None, gamma, beta, training=True, eps=1e-3)
    assert torch.allclose(layer(x), expected, rtol=1e-9, atol=1e-9)


# with a decay of 1/2: the first minibatch replaces what was there, the second weighs 2/3
HALF = RenormSchedule(r_max=1.5, d_max=2.5, decay_1=0.5, startup=8)


def test_the_moments_of_the_release_by_hand():
    # After (1, 3): mean 2, variance 1 * 2/1 = 2: the averages of one step are its own values.
    # After (4, 8): mean 6, variance 4 * 2 = 8: mu = (1/4 * 2 + 1/2 * 6) / (3/4) = 14/3,
    # var = (1/4 * 2 + 1/2 * 8) / (3/4) = 6
    layer = ReleasedBatchRenorm(1, eps=0.25).double()
    set_limits(layer, RenormLimits(1, 0, HALF.at(1, 0, 1).decay))
    layer(f64([[1.0], [3.0]]))
    assert [m.item() for m in layer.moments()] == pytest.approx([2, 1.5])  # sqrt(2 + 1/4)
    set_limits(layer, RenormLimits(1, 0, HALF.at(1, 1, 1).decay))
    layer(f64([[4.0], [8.0]]))
    assert [m.item() for m in layer.moments()] == pytest.approx([14 / 3, 2.5])  # sqrt(6 + 1/4)
    assert layer.eval()(f64([[14 / 3 + 2.5]])).item() == pytest.approx(1)


PAPER = RenormSchedule(r_max=1.5, d_max=2.5)


@pytest.mark.parametrize(
    ("t", "r_max", "d_max"),
    [
        (0, 1, 0),
        (47, 1, 0),
        (48, 1 + 2 / 48, 5 / 48),
        (59, 1.5, 1.25),
        (71, 2, 2.5),
        (83, 2.5, 3.75),
        (95, 3, 5),
    ],
)
def test_schedule_of_batch_1_on_core50(t, r_max, d_max):
    """r_max = 1 + 2 (t - 47) / 48, d_max = 5 (t - 47) / 48 for 4 epochs of 24 iterations."""
    limits = PAPER.at(1, t, 24)
    assert (limits.r_max, limits.d_max) == pytest.approx((r_max, d_max))


def test_two_epochs_never_leave_pure_batch_norm():
    for per_epoch in (1, 3, 24):
        limits = [PAPER.at(1, t, per_epoch) for t in range(2 * per_epoch)]
        assert {(one.r_max, one.d_max) for one in limits} == {(1, 0)}


def test_the_ramp_stays_at_its_end():
    limits = PAPER.at(1, 150, 24)
    assert (limits.r_max, limits.d_max) == (3, 5)


@pytest.mark.parametrize(
    ("per_epoch", "t", "r_max", "d_max"),
    [
        (3, 5, 1, 0),
        (3, 6, 1 + 2 / 6, 5 / 6),
        (3, 8, 2, 2.5),
        (3, 11, 3, 5),
        (1, 1, 1, 0),
        (1, 2, 2, 2.5),
        (1, 3, 3, 5),
    ],
)
def test_the_start_up_lasts_two_epochs_and_so_does_the_ramp(per_epoch, t, r_max, d_max):
    limits = PAPER.at(1, t, per_epoch)
    assert (limits.r_max, limits.d_max) == pytest.approx((r_max, d_max))


@pytest.mark.parametrize("steps", [1, 2, 7, 96])
def test_the_moments_of_batch_1_are_the_weighted_mean_of_its_minibatches(steps):
    """The weight of each is 0.99 to the power of its age; what was there before has none."""
    layer = BatchRenorm(3).double()
    layer.mu.fill_(1e3)
    layer.sigma.fill_(1e3)
    generator = torch.Generator().manual_seed(steps)
    minibatches = [torch.randn(5, 3, generator=generator).double() * 4 + 1 for _ in range(steps)]
    for t, x in enumerate(minibatches):
        limits = PAPER.at(1, t, 24)
        set_limits(layer, limits)
        layer(x)
    ages = [0.99**age for age in reversed(range(steps))]
    means = [x.mean(0) for x in minibatches]
    deviations = [(x.var(0, unbiased=False) + 1e-5).sqrt() for x in minibatches]
    for own, values in ((layer.mu, means), (layer.sigma, deviations)):
        expected = sum(w * v for w, v in zip(ages, values, strict=True)) / sum(ages)
        assert torch.allclose(own, expected, rtol=1e-5)  # the limits are float32


def test_the_moments_may_continue_those_of_the_pretrained_network():
    pretrained = RenormSchedule(r_max=1.5, d_max=2.5, moments="pretrained")
    assert {pretrained.at(1, t, 24).decay for t in (0, 1, 95)} == {0.99}


def test_schedule_from_batch_2():
    assert {PAPER.at(i, t, 3) for i in (2, 3, 391) for t in (0, 11)} == {
        RenormLimits(1.5, 2.5, 0.9999)
    }


def test_set_limits_reaches_every_norm():
    module = nn.Sequential(BatchRenorm(2), nn.Sequential(nn.BatchNorm1d(2), BatchRenorm(3)))
    set_limits(module, RenormLimits(1.25, 0.5, 0.75))
    assert module[0].limits.tolist() == module[1][1].limits.tolist() == [1.25, 0.5, 0.75]
    assert module[1][0].momentum == 0.25


def trained_norms(module):
    """Moments and scales as after training, so that nothing is 0 or 1 by default."""
    for k, norm in enumerate(norm_layers(module)):
        if norm.affine:
            norm.weight.data = random(norm.num_features, seed=k).to(norm.weight)
            norm.bias.data = random(norm.num_features, seed=k + 1).to(norm.weight)
        if norm.track_running_stats:
            norm.running_mean.copy_(random(norm.num_features, seed=k + 2))
            norm.running_var.copy_(random(norm.num_features, seed=k + 3).square())
    return module.eval()


def count(module, kind):
    return sum(isinstance(m, kind) for m in module.modules())


@pytest.mark.parametrize(
    ("name", "weights", "norms"),
    [
        ("mobilenet_v1", "imagenet", 27),  # the first convolution and 13 blocks of two
        (
            "efficientnet_lite0",
            "random",
            49,
        ),  # the first, 2 of the first block, 15 blocks of three, and the last
    ],
)
def test_the_whole_network_is_replaced_and_gives_the_same(name, weights, norms):
    backbone = build(name, weights, size=64).eval()
    if weights == "random":
        for norm in norm_layers(backbone):
            norm.running_mean.copy_(random(norm.num_features) * 0.1)
            norm.running_var.copy_(random(norm.num_features, seed=1).square() + 0.5)
    frames = torch.randint(
        0, 256, (2, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        before = backbone(frames)
        assert replace_batch_norm(backbone) is backbone
        after = backbone(frames)
    assert count(backbone, BatchRenorm) == norms
    assert count(backbone, nn.modules.batchnorm._BatchNorm) == 0
    assert before.std() > 0.1  # there is something to compare
    assert torch.allclose(before, after, rtol=1e-5, atol=1e-5)


def test_digit_named_nested_and_every_dimension():
    module = trained_norms(
        nn.Sequential(
            nn.BatchNorm3d(2),
            nn.Sequential(
                nn.Flatten(3), nn.Sequential(nn.BatchNorm2d(2)), nn.Flatten(2), nn.BatchNorm1d(2)
            ),
        )
    )
    x = random(2, 2, 2, 3, 4).float()
    before = module(x)
    replace_batch_norm(module)
    assert [type(m) for m in (module[0], module[1][1][0], module[1][3])] == [BatchRenorm] * 3
    assert torch.allclose(module(x), before, rtol=1e-5, atol=1e-5)


def test_the_root_itself():
    norm = trained_norms(nn.BatchNorm1d(4, eps=0.5))
    new = replace_batch_norm(norm)
    x = random(5, 4).float()
    assert isinstance(new, BatchRenorm)
    assert new.eps == 0.5
    assert not new.training
    assert torch.allclose(new(x), norm(x), atol=1e-5)


def test_a_layer_in_two_places_stays_one():
    shared = nn.BatchNorm2d(3)
    module = replace_batch_norm(
        nn.ModuleList([shared, nn.Sequential(shared), nn.BatchNorm2d(3), shared])
    )
    assert module[0] is module[1][0] is module[3]
    assert isinstance(module[0], BatchRenorm)
    assert module[0] is not module[2]


def test_without_scale_and_shift():
    norm = trained_norms(nn.BatchNorm2d(3, affine=False))
    x = random(2, 3, 4, 4).float()
    new = replace_batch_norm(norm)
    assert torch.allclose(new(x), norm(x), atol=1e-5)
    assert not any(p.requires_grad for p in new.parameters())


def test_without_running_moments_it_trains_as_before():
    norm = trained_norms(nn.BatchNorm1d(3, track_running_stats=False)).train()
    x = random(6, 3).float()
    assert torch.allclose(replace_batch_norm(norm)(x), norm(x), atol=1e-5)


def test_a_float64_network_stays_one():
    norm = trained_norms(nn.BatchNorm1d(3).double())
    x = random(6, 3)
    new = replace_batch_norm(norm)
    assert new.mu.dtype == new.weight.dtype == torch.float64
    assert torch.allclose(new(x), norm(x), rtol=1e-12)


@pytest.mark.parametrize("kind", [BatchRenorm, ReleasedBatchRenorm])
def test_a_checkpoint_keeps_the_moments(kind):
    layer, fresh = kind(3).double(), kind(3).double()
    set_limits(layer, RenormLimits(1.25, 0.5, 0.75))
    for t in range(3):
        layer(random(8, 3, seed=t) * 5 + 7)
    fresh.load_state_dict(layer.state_dict())
    x = random(4, 3, seed=9)
    assert not math.isclose(fresh.moments()[0][0].item(), 0, abs_tol=0.1)
    assert fresh(x).equal(layer(x))
    assert fresh.eval()(x).equal(layer.eval()(x))


@pytest.mark.parametrize("shape", [(6, 5), (7, 5, 3, 3), (40, 32, 32, 32), (600, 2048)])
@pytest.mark.parametrize("last", [False, True])
def test_mean_and_variance_round_to_the_exact_ones(shape, last):
    """Several parts of a minibatch are added up in the largest ones; the mean is far from 0."""
    x = (random(*shape) * 0.1 + 30).float()
    if last and x.ndim == 4:
        x = x.to(memory_format=torch.channels_last)
    mean, variance = mean_and_variance(x)
    values = x.double().movedim(1, 0).flatten(1)
    exact = values.sum(1) / values.shape[1]
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean.double(), exact, rtol=2**-24, atol=0)
    squares = (values - exact[:, None]).square().sum(1) / values.shape[1]
    torch.testing.assert_close(variance.double(), squares, rtol=2**-24, atol=0)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", [BatchRenorm, ReleasedBatchRenorm])
def test_renormalisation_that_clips_is_renormalisation_and_then_relu6(kind, last):
    """To the last bit, the gradients of x, gamma and beta too, also where y is 0 or 6 exactly."""
    clipping, plain = kind(4), kind(4)
    for layer in (clipping, plain):
        set_limits(layer, RenormLimits(1.5, 2.5, 0.9))
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([3.0, -2.0, 1.0, 0.0]))
            layer.bias.copy_(torch.tensor([1.0, 5.0, -0.5, 6.0]))
    x = random(8, 4, 5, 5).float()
    if last:
        x = x.to(memory_format=torch.channels_last)
    inputs = x.clone().requires_grad_(), x.clone().requires_grad_()
    ys = clipping.relu6(inputs[0]), F.relu6(plain(inputs[1]))
    for y in ys:
        (y * x).sum().backward()
    assert ys[0].equal(ys[1])
    assert (ys[0] == 0).any()
    assert (ys[0] == 6).any()
    assert ((ys[0] > 0) & (ys[0] < 6)).any()
    assert inputs[0].grad.equal(inputs[1].grad)
    assert clipping.weight.grad.equal(plain.weight.grad)
    assert clipping.bias.grad.equal(plain.bias.grad)
    assert clipping.moments()[1].equal(plain.moments()[1])


def test_a_mean_halfway_between_two_numbers_rounds_as_before():
    # 1 and 1 + 2^-23: the mean 1 + 2^-24 lies halfway between them
    x = torch.tensor([1.0, 1.0 + 2**-23]).reshape(2, 1)
    variance, mean = torch.var_mean(x, 0, correction=0)
    assert [values.tolist() for values in mean_and_variance(x)] == [
        mean.tolist(),
        variance.tolist(),
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(30, 512, 2, 2), (30, 2048, 2, 2), (15, 4096), (30, 2048, 4)])
def test_means_halfway_between_two_numbers_round_as_before_in_any_channel(shape, seed):
    """With 15 times a power of two numbers, one mean in a hundred lies halfway between floats."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    others = [0, *range(2, x.ndim)]
    variance, mean = torch.var_mean(x, others, correction=0)
    exact = x.double().mean(others)
    halfway = (exact.view(torch.int64) & (2**29 - 1)) == 2**28
    assert halfway.any()
    found = mean_and_variance(x)
    assert found[0][halfway].equal(mean[halfway])
    assert found[1][halfway].equal(variance[halfway])
    torch.testing.assert_close(found[0].double(), exact, rtol=2**-24, atol=0)
