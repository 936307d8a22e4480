"""Each strategy against a slow version written here from the paper.

Compared are its weights, moments and importances after some batches. The strategies run in float64
here, so that what is compared is the mathematics and not the rounding.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from primavista.backbones.spec import Spec
from primavista.errors import InputError
from primavista.media.frames import Selection
from primavista.networks.base import Backbone
from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.nn.renorm import norm_layers
from primavista.strategies.conformance import SIDE, tiny_backbone, toy_batch
from primavista.strategies.creation import create
from primavista.strategies.cumulative import Cumulative, CumulativeOptions, LevelUntilFlat

SEED, SIZE, ROWS = 3, 4, 4
LR_1, LR = 0.5, 0.25
CONVS = (
    (2, 1, 1),
    (1, 1, 8),
    (1, 0, 1),
)  # stride, padding, groups of the tiny backbone's convolutions 0, 3, 6
SPATIAL = {"backbone.body.0.weight", "backbone.body.3.weight"}
# 8 frames in minibatches of 4, two epochs: 4 iterations per batch. In batch 1 two of them start up,
# then the ramp
LIMITS_1 = [(1, 0, "batch 1"), (1, 0, "batch 1"), (2, 2.5, "batch 1"), (3, 5, "batch 1")]
LIMITS = [(1.5, 2.5, 0.875)] * 4
B1, B2, B3 = (
    toy_batch([0, 0, 0, 0, 0, 1, 1, 1], 1),
    toy_batch([0, 2] * 4, 2),
    toy_batch([1, 1, 1, 2, 2, 0, 0, 0], 3),
)


def make(name, backbone=None, **options):
    settings = {
        "epochs_1": 2,
        "epochs": 2,
        "minibatch": SIZE,
        "capacity": ROWS,
        "lr_1": LR_1,
        "lr": LR,
        "moments_decay": 0.875,
        "startup": 2,
        **options,
    }
    strategy = create(name, backbone or tiny_backbone(), seed=SEED, **settings).double()
    strategy.backbone.scale.fill_(1 / 127.5)  # not the float32 nearest to it
    return strategy


class Slow:
    """The tiny backbone with renormalisation and a linear output, trained by gradient descent, in
    float64.
    """

    @classmethod
    def of(cls, strategy):
        """With the weights of the head as they were drawn."""
        slow = cls()
        slow.w["head.weight"] = strategy.head.weight.detach().clone()
        return slow

    def __init__(self, head="linear"):
        state = tiny_backbone().double().state_dict()
        self.w = {f"backbone.{k}": v for k, v in state.items() if k.endswith(("weight", "bias"))}
        self.mu = {k: state[f"body.{k}.running_mean"] for k in (1, 4, 7)}
        self.sigma = {k: (state[f"body.{k}.running_var"] + 1e-5).sqrt() for k in (1, 4, 7)}
        self.batch_1 = {k: [] for k in (1, 4, 7)}  # the moments of its minibatches
        if head == "linear":
            self.w |= {
                "head.weight": torch.zeros(ROWS, 16).double(),
                "head.bias": torch.zeros(ROWS).double(),
            }
        else:
            self.w["head.tw"] = torch.zeros(ROWS, 16).double()
            self.cw, self.past = torch.zeros(ROWS, 16).double(), [0] * ROWS
        self.theta = [name for name in self.w if name.startswith("backbone")]

    def features(self, images, limits=None):
        """In evaluation without `limits`; with (r_max, d_max, past), in training."""
        x = images.permute(0, 3, 1, 2).double() / 127.5 - 1
        for k, (stride, padding, groups) in zip((0, 3, 6), CONVS, strict=True):
            x = F.conv2d(x, self.w[f"backbone.body.{k}.weight"], None, stride, padding, 1, groups)
            x = (
                self.renorm(x, k + 1, limits)
                * self.w[f"backbone.body.{k + 1}.weight"][:, None, None]
            )
            x = F.relu6(x + self.w[f"backbone.body.{k + 1}.bias"][:, None, None])
        return x.mean((2, 3))

    def renorm(self, x, k, limits):
        mu, sigma = self.mu[k], self.sigma[k]
        if limits is None:
            return (x - mu[:, None, None]) / sigma[:, None, None]
        r_max, d_max, past = limits
        mu_mb = x.mean((0, 2, 3))
        sigma_mb = ((x - mu_mb[:, None, None]).square().mean((0, 2, 3)) + 1e-5).sqrt()
        r = (sigma_mb / sigma).clamp(1 / r_max, r_max).detach()
        d = ((mu_mb - mu) / sigma).clamp(-d_max, d_max).detach()
        if past == "batch 1":
            self.batch_1[k].append((mu_mb.detach(), sigma_mb.detach()))
            weights = [0.99**age for age in reversed(range(len(self.batch_1[k])))]
            self.mu[k], self.sigma[k] = (
                sum(w * m for w, m in zip(weights, moments, strict=True)) / sum(weights)
                for moments in zip(*self.batch_1[k], strict=True)
            )
        else:
            self.mu[k] = past * mu + (1 - past) * mu_mb.detach()
            self.sigma[k] = past * sigma + (1 - past) * sigma_mb.detach()
        return (x - mu_mb[:, None, None]) / sigma_mb[:, None, None] * r[:, None, None] + d[
            :, None, None
        ]

    def logits(self, z):
        return (
            z @ self.w["head.tw"].T
            if "head.tw" in self.w
            else z @ self.w["head.weight"].T + self.w["head.bias"]
        )

    def gradients(self, images, goal, names, limits=None):
        """Of the mean cross-entropy with (soft) targets `goal`."""
        kept = self.w
        self.w = {name: t.clone().requires_grad_(name in names) for name, t in kept.items()}
        loss = -(goal * self.logits(self.features(images, limits)).log_softmax(1)).sum(1).mean()
        found = torch.autograd.grad(loss, [self.w[name] for name in names])
        self.w = kept
        return dict(zip(names, found, strict=True))

    def train(
        self,
        batch,
        i,
        lr,
        lr_head=None,
        *,
        goal=None,
        modulation=None,
        pull=None,
        v=None,
        order=None,
    ):
        """v <- 0.9 v + (1 - F / max_F) (g + wd theta) + lambda F (theta - theta*).

        theta <- theta - eta v.

        Returns sum(-g dtheta) and sum(dtheta^2) of each weight.
        """
        images, labels = batch
        goal = F.one_hot(labels, ROWS).double() if goal is None else goal
        names = [name for name in self.w if i == 1 or name not in SPATIAL]
        v = {} if v is None else v
        start, t = dict(self.w), 0
        path, squares = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        for epoch in range(2):
            key = (SEED, i, epoch) if order is None else order
            for index in shuffled_minibatches(len(labels), SIZE, generator(*key)):
                g = self.gradients(
                    images[index], goal[index], names, (LIMITS_1 if i == 1 else LIMITS)[t]
                )
                for name in names:
                    eta = lr_head if name.startswith("head") and lr_head is not None else lr
                    direction = g[name] + (5e-4 * self.w[name] if self.w[name].ndim > 1 else 0)
                    direction = direction * (modulation or {}).get(name, 1)
                    if pull is not None and name in pull:
                        direction = direction + pull[name] * (self.w[name] - start[name])
                    v[name] = 0.9 * v.get(name, 0) + direction
                    step = -eta * v[name]
                    path[name] = path[name] - g[name] * step
                    squares[name] = squares[name] + step.square()
                    self.w[name] = self.w[name] + step
                t += 1
        return path, squares

    def clear(self, known):
        for name in ("head.weight", "head.bias"):
            self.w[name][known:] = 0

    def load(self, batch, kind="cwr*"):
        """Algorithm 1, line 7; Algorithm 2, line 6."""
        present = batch[1].unique()
        self.w["head.tw"] = torch.zeros(ROWS, 16).double()
        if kind == "cwr*":
            self.w["head.tw"][present] = self.cw[present]

    def consolidate(self, batch, kind="cwr*"):
        """Algorithm 1, lines 11 to 14; Algorithm 2, lines 10 and 11."""
        tw, present = self.w["head.tw"], batch[1].unique().tolist()
        avg = sum(tw[j].sum() for j in present) / (16 * len(present))
        for j in present:
            cur = batch[1].tolist().count(j)
            wpast = (self.past[j] / cur) ** 0.5 if kind == "cwr*" else 0
            self.cw[j] = (self.cw[j] * wpast + (tw[j] - avg)) / (wpast + 1)
            self.past[j] += cur


def close(one, other, rtol=1e-6):
    """Within a part in a million of the largest."""
    return bool((one.double() - other.double()).abs().max() <= rtol * other.double().abs().max())


START = Slow()


def differences(
    strategy, slow, rtol=1e-5
):  # the initial sigma and the limits are rounded to float32
    """The names of weights and moments whose way from the initial values differs."""
    own = strategy.state_dict()
    pairs = {name: (slow.w[name], START.w[name]) for name in slow.theta}
    pairs |= {f"backbone.body.{k}.mu": (slow.mu[k], START.mu[k]) for k in slow.mu}
    pairs |= {f"backbone.body.{k}.sigma": (slow.sigma[k], START.sigma[k]) for k in slow.sigma}
    return [
        name
        for name, (value, start) in pairs.items()
        if not close(own[name] - start, value - start, rtol)
    ]


def test_naive():
    strategy = make("naive")
    slow = Slow.of(strategy)
    for i, batch in enumerate((B1, B2, B3), 1):
        strategy.learn(*batch)
        slow.train(batch, i, LR_1 if i == 1 else LR)
        assert differences(strategy, slow) == []
        assert close(strategy.head.weight, slow.w["head.weight"])
        assert close(strategy.head.bias, slow.w["head.bias"])
    images = toy_batch([0, 1, 2], 9)[0]
    assert close(strategy.scores(images), slow.logits(slow.features(images))[:, :3])
    assert not close(
        strategy.backbone.body[1].mu, tiny_backbone().body[1].running_mean
    )  # something moved


def test_the_losses_reported_are_the_means_over_the_patterns():
    strategy = make("naive", lr_1=0.0, unseen="reset")
    report = strategy.learn(*B1)
    assert report.losses == pytest.approx(
        [torch.tensor(4.0).log().item()] * 2
    )  # logits are 0, four outputs


def torch_training(net, batch, i, *, lr, epochs=2, momentum=0.01, rate=lambda t: 1.0, steps=99):
    """torch.optim.SGD on a batch norm network, with the same minibatches."""
    images, labels = batch
    decays = [p for p in net.parameters() if p.ndim > 1 and p.requires_grad]
    others = [p for p in net.parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD(
        [{"params": decays, "weight_decay": 5e-4}, {"params": others}], lr=lr, momentum=0.9
    )
    net.train()
    for norm in norm_layers(net):
        norm.momentum = momentum
    t = 0
    for epoch in range(epochs):
        for index in shuffled_minibatches(len(labels), SIZE, generator(SEED, i, epoch)):
            if t == steps:
                return
            for group in optimizer.param_groups:
                group["lr"] = lr * rate(t)
            optimizer.zero_grad()
            F.cross_entropy(
                net(images[index].permute(0, 3, 1, 2).double() / 127.5 - 1), labels[index]
            ).backward()
            optimizer.step()
            t += 1


def torch_network(weight=None):
    net = nn.Sequential(
        *tiny_backbone().body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, ROWS)
    ).double()
    nn.init.zeros_(net[-1].weight)
    nn.init.zeros_(net[-1].bias)
    if weight is not None:
        net[-1].weight.data.copy_(weight)
    return net


def differs_from_torch(strategy, net):
    own, theirs, start = strategy.state_dict(), net.state_dict(), torch_network().state_dict()
    names = {
        k: f"head.{k[3:]}" if k.startswith("11.") else f"backbone.body.{k}"
        for k in theirs
        if "num_batches" not in k
    }
    return [k for k, name in names.items() if not close(own[name] - start[k], theirs[k] - start[k])]


def test_naive_with_batch_norm_is_torchs_sgd():
    strategy = make("naive", norm="bn")
    net = torch_network(strategy.head.weight)
    strategy.learn(*B1)
    torch_training(net, B1, 1, lr=LR_1)
    assert differs_from_torch(strategy, net) == []
    strategy.learn(*B2)
    net[0].weight.requires_grad_(False)
    net[3].weight.requires_grad_(False)
    torch_training(net, B2, 2, lr=LR, momentum=0.125)  # a new optimizer: the momentum is reset
    assert differs_from_torch(strategy, net) == []


def test_cwr_star():
    """Batch 1 trains everything.

    From batch 2 on tw is trained by plain gradient descent on fixed features.
    """
    strategy, slow = make("cwr*", features="fixed"), Slow("cwr")
    strategy.learn(*B1)
    slow.load(B1)
    slow.train(B1, 1, LR_1)
    slow.consolidate(B1)
    assert differences(strategy, slow) == []
    for i, batch in ((2, B2), (3, B3)):
        slow.load(batch)
        tw, v = slow.w["head.tw"], 0
        z, onehot = slow.features(batch[0]), F.one_hot(batch[1], ROWS).double()
        for epoch in range(2):
            for index in shuffled_minibatches(8, SIZE, generator(SEED, i, epoch)):
                p = (z[index] @ tw.T).softmax(1)
                v = 0.9 * v + (p - onehot[index]).T @ z[index] / len(index) + 5e-4 * tw
                tw = tw - LR * v
        slow.w["head.tw"] = tw
        slow.consolidate(batch)
        strategy.learn(*batch)
        assert differences(strategy, slow) == []
        assert close(strategy.head.cw, slow.cw)
    assert strategy.head.past.tolist() == slow.past == [5 + 4 + 3, 3 + 3, 4 + 2, 0]


def test_cwr_plus():
    strategy, slow = make("cwr+"), Slow("cwr")
    strategy.learn(*B1)
    slow.load(B1, "cwr+")
    slow.train(B1, 1, LR_1)
    slow.consolidate(B1, "cwr+")
    assert close(strategy.head.cw, slow.cw)
    before = strategy.head.cw.clone()
    strategy.learn(*B2)
    assert strategy.head.cw[1].equal(before[1])
    assert abs(strategy.head.cw[[0, 2]].mean()) < 1e-9  # begun from 0 and shifted by its mean


def test_lwf():
    """target = (1 - lambda) onehot + lambda softmax(previous model), in evaluation mode,
    once before training.
    """
    strategy = make("lwf", lam=0.25)
    slow = Slow.of(strategy)
    for i, batch in enumerate((B1, B2, B3), 1):
        strategy.learn(*batch)
        goal = None
        if i > 1:
            goal = 0.75 * F.one_hot(batch[1], ROWS) + 0.25 * slow.logits(
                slow.features(batch[0])
            ).softmax(1)
        slow.train(batch, i, LR_1 if i == 1 else LR, goal=goal)
        assert differences(strategy, slow) == []
        assert close(strategy.head.weight, slow.w["head.weight"])


def test_ewc():
    """F: the squared mean gradient of the minibatches with the norms as in the last step, over the
    batches; theta*: the latest.
    """
    max_f, lam = 1e-3, 2e3
    strategy = make("ewc", max_f=max_f, lam=lam)
    slow = Slow.of(strategy)
    # what decays: not norm scales, shifts and biases
    guarded = [name for name, t in slow.w.items() if name not in SPATIAL and t.ndim > 1]
    assert strategy.importance.names == guarded
    total, pull = dict.fromkeys(guarded, 0.0), None
    for i, batch in enumerate((B1, B2, B3), 1):
        report = strategy.learn(*batch)
        slow.train(batch, i, LR_1 if i == 1 else LR, pull=pull)
        onehot = F.one_hot(batch[1], ROWS).double()
        parts = list(shuffled_minibatches(8, SIZE, generator(SEED, i, 0)))
        for index in parts:
            seen = (3, 5, 1.0) if i == 1 else (1.5, 2.5, 1.0)  # the moments stay
            g = slow.gradients(batch[0][index], onehot[index], guarded, seen)
            total = {name: total[name] + g[name].square() / len(parts) for name in guarded}
        f = {name: (total[name] / i).clamp(0, max_f) for name in guarded}
        pull = {name: lam * f[name] for name in guarded}
        assert differences(strategy, slow) == []
        assert close(strategy.head.weight, slow.w["head.weight"])
        for own, name in zip(strategy.importance.clipped(), guarded, strict=True):
            assert close(own, f[name])
        full = sum(int((x >= max_f).sum()) for x in f.values()) / sum(x.numel() for x in f.values())
        assert report.saturated == pytest.approx(full)
        assert 0 < full < 1


@pytest.mark.parametrize("path", ["gradient", "displacement"])
def test_ar1_star(path):
    """Omega of two batches, the modulation in the next, two learning rates, spatial convolutions
    fixed from batch 2.
    """
    name, max_f = "backbone.body.6.weight", 1.0  # the only convolution that is free from batch 2 on
    strategy, slow = (
        make("ar1*", max_f=max_f, path=path, w_1=0.5, w_i=0.25, lr=LR, lr_head=1.0),
        Slow("cwr"),
    )
    assert strategy.importance.names == [name]
    omega, modulation, shares = torch.zeros(16, 8, 1, 1).double(), None, []
    for i, batch in enumerate((B1, B2, B3), 1):
        report = strategy.learn(*batch)
        slow.load(batch)
        start = slow.w[name]
        sums = slow.train(batch, i, *((LR_1,) if i == 1 else (LR, 1.0)), modulation=modulation)
        slow.consolidate(batch)
        moved = (slow.w[name] - start).square() + 1e-7
        omega = omega + (0.5 if i == 1 else 0.25) * sums[path == "displacement"][name] / moved
        modulation = {name: 1 - omega.clamp(0, max_f) / max_f}
        assert differences(strategy, slow) == []
        assert close(strategy.head.cw, slow.cw)
        assert torch.allclose(strategy.importance.tensors[0], omega, rtol=1e-3)
        shares.append(report.saturated)
        assert report.saturated == pytest.approx((omega >= max_f).double().mean().item())
    assert 0 < shares[0] < 1


def test_ar1():
    """CWR+, and lambda F (theta - theta*) in the gradient in place of the modulation."""
    name, max_f, lam = "backbone.body.6.weight", 1.0, 2.0
    strategy, slow = make("ar1", max_f=max_f, lam=lam, lr=LR, lr_head=1.0), Slow("cwr")
    omega, pull = torch.zeros(16, 8, 1, 1).double(), None
    for i, batch in enumerate((B1, B2, B3), 1):
        strategy.learn(*batch)
        slow.load(batch, "cwr+")
        start = slow.w[name]
        path, _ = slow.train(batch, i, *((LR_1,) if i == 1 else (LR, 1.0)), pull=pull)
        slow.consolidate(batch, "cwr+")
        omega = omega + 0.5 * path[name] / ((slow.w[name] - start).square() + 1e-7)
        pull = {name: lam * omega.clamp(0, max_f)}
        assert differences(strategy, slow) == []
        assert close(strategy.head.cw, slow.cw)


@pytest.mark.parametrize("shrinkage", [1e-4, 0.1])
def test_dslda(shrinkage):
    """Scores against the published recursion, one sample at a time, on the features of the given
    backbone.
    """
    strategy = create("dslda", tiny_backbone(), shrinkage=shrinkage)
    mu, n, sigma, t = torch.zeros(3, 16).double(), [0] * 3, torch.zeros(16, 16).double(), 0
    for batch in (B1, B2, B3):
        strategy.learn(*batch)
        for z, j in zip(Slow().features(batch[0]), batch[1].tolist(), strict=True):
            delta = z - mu[j]
            sigma = (t * sigma + t / (t + 1) * delta[:, None] * delta[None]) / (t + 1)
            mu[j] = (n[j] * mu[j] + z) / (n[j] + 1)
            n[j], t = n[j] + 1, t + 1
    assert strategy.classes.tolist() == [0, 1, 2]
    inverse = torch.linalg.inv((1 - shrinkage) * sigma + shrinkage * torch.eye(16))
    images = toy_batch([0, 1, 2, 0], 9)[0]
    z = Slow().features(images)
    expected = z @ (mu @ inverse).T - (mu @ inverse * mu).sum(1) / 2
    assert close(strategy.scores(images), expected, 1e-3)


def test_dslda_base_init():
    """Batch 1 gives class means and the OAS covariance of what is left.

    The recursion goes on from there.
    """
    strategy = create("dslda", tiny_backbone(), base_init=True)
    strategy.learn(*B1)
    z, y = Slow().features(B1[0]), B1[1]
    mu = torch.stack([z[y == j].mean(0) for j in (0, 1)])
    c = (z - mu[y]).T @ (z - mu[y]) / 8
    trace, square = c.trace(), (c @ c).trace()
    s = min(1.0, float((square + trace**2) / (9 * (square - trace**2 / 16))))
    sigma = (1 - s) * c + s * trace / 16 * torch.eye(16)
    inverse = torch.linalg.inv((1 - 1e-4) * sigma + 1e-4 * torch.eye(16))
    expected = z @ (mu @ inverse).T - (mu @ inverse * mu).sum(1) / 2
    assert close(strategy.scores(B1[0]), expected, 1e-3)


def test_cumulative_is_joint_training_from_the_initial_weights():
    """Torch's SGD on the union: the rate rises in 2 steps, is level up to step 6, falls in 4."""
    strategy, net = make("cumulative"), torch_network()
    strategy.learn(*B1)
    strategy.learn(*B2)
    union = torch.cat([B1[0], B2[0]]), torch.cat([B1[1], B2[1]])
    half = 0.5**0.5
    rates = [0.5, 1, 1, 1, 1, 1, 1, (1 + half) / 2, 0.5, (1 - half) / 2, 0, 0]
    torch_training(net, union, 1, lr=LR_1, epochs=3, rate=lambda t: rates[t], steps=10)
    assert differs_from_torch(strategy, net) == []


@pytest.mark.parametrize(
    ("losses", "falls_from"),
    [
        ([5, 4, 3, 2, 1.9], 5),  # less than a tenth lower
        ([5, 6, 7], 2),  # not while the rate rises
        ([5, 0.5, 0.05, 0.005, 0.0049], 5),  # however low it is
        ([5, 4, 3, 2, 1.5, 1.2, 1, 0.8, 0.6], 7),  # 7 windows are the most
    ],
)
def test_the_learning_rate_falls_when_the_loss_is_flat(losses, falls_from):
    schedule, rates = LevelUntilFlat(rise=15, fall=20, most=70), []
    for window in range(100):
        for _ in range(10):
            rates.append(schedule.rate)
            schedule.t += 1
        schedule.observe(losses[min(window, len(losses) - 1)])
        if schedule.done:
            break
    assert rates[:15] == pytest.approx([(t + 1) / 15 for t in range(15)])
    assert rates[15 : 10 * falls_from] == [1.0] * (10 * falls_from - 15)
    falling = [(1 + math.cos(math.pi * k / 20)) / 2 for k in range(20)]
    assert rates[10 * falls_from :] == pytest.approx(falling)


def test_cumulative_converges_on_few_frames():
    """Eight frames of three classes are learned by heart, however few they are."""
    options = CumulativeOptions(minibatch=SIZE, capacity=ROWS, window=100, fall=100)
    strategy = Cumulative(tiny_backbone(), options=options)
    report = strategy.learn(*toy_batch([0, 1, 2, 0, 1, 2, 0, 1], 1))
    assert report.losses[-1] < 0.02 < report.losses[0]


@pytest.mark.parametrize(("copies", "window"), [(1, 4), (5, 20), (50, 50)])
def test_passes_shorten_the_training_on_few_frames(copies, window):
    """Four passes over 8 frames in minibatches of 8 are 4 steps, and 20 over 40; 50 are the most.

    The rate rises in a fifth of a window and falls in two, after five at the latest. At such a rate
    the loss is flat: the second window is as high as the first.
    """
    images, labels = toy_batch([0, 1, 2, 0, 1, 2, 0, 1], 1)
    lengths = {"rise": 10, "window": 50, "fall": 100, "most": 250, "passes": 4}
    options = CumulativeOptions(minibatch=8, lr_1=1e-9, **lengths)
    strategy, steps, seen = Cumulative(tiny_backbone(), options=options), [], []
    strategy.on_step = steps.append
    strategy.learn(
        images.repeat(copies, 1, 1, 1),
        labels.repeat(copies),
        progress=lambda *how_far: seen.append(how_far),
    )
    assert [done for done, _ in seen] == list(range(1, 4 * window + 1))
    assert [seen[0][1], seen[-1][1]] == [7 * window, 4 * window]
    assert steps[0].lr == pytest.approx(1e-9 / max(1, window // 5))


def test_cumulative_counts_the_frames_that_its_indices_stand_for():
    frames = torch.zeros(40, SIDE, SIDE, 3, dtype=torch.uint8)
    strategy = make("cumulative")
    report = strategy.learn(Selection(frames, torch.arange(10)), torch.arange(10) % 2)
    assert report.stored_bytes == 10 * SIDE * SIDE * 3
    report = strategy.learn(Selection(frames, torch.arange(10, 40)), torch.arange(30) % 2)
    assert report.stored_bytes == 40 * SIDE * SIDE * 3


def test_cumulative_does_not_depend_on_its_history():
    images, labels = torch.cat([B1[0], B2[0]]), torch.cat([B1[1], B2[1]])
    states = []
    for cuts in ([16], [8, 16], [3, 6, 10, 16]):
        strategy, start = make("cumulative"), 0
        for end in cuts:
            strategy.learn(images[start:end], labels[start:end])
            start = end
        own = strategy.state_dict()
        states.append({name: own[name] for name in own if name.startswith(("backbone", "head"))})
    assert all(state[name].equal(states[0][name]) for state in states[1:] for name in state)


def test_cumulative_with_the_head_of_cwr_begins_anew_too():
    images, labels = torch.cat([B1[0], B2[0]]), torch.cat([B1[1], B2[1]])
    whole, parts = (make("cumulative", head="cwr*") for _ in range(2))
    whole.learn(images, labels)
    parts.learn(images[:8], labels[:8])
    parts.learn(images[8:], labels[8:])
    assert parts.head.cw.any()
    assert parts.head.cw.equal(whole.head.cw)
    assert parts.head.past.tolist() == [9, 3, 4, 0]


def test_counts_go_with_their_classes_whatever_the_order_of_the_labels():
    strategy = make("cwr*")
    strategy.learn(*toy_batch([5] * 4))
    strategy.learn(*toy_batch([2, 5, 2, 2]))
    assert strategy.classes.tolist() == [5, 2]
    assert strategy.head.past.tolist() == [5, 3, 0, 0]


@pytest.mark.parametrize("name", ["naive", "lwf", "ewc", "cwr+", "cwr*", "ar1", "ar1*"])
def test_labels_are_only_names(name):
    """But for the weights of a linear head, which are drawn for its columns."""
    options = {"lr": 0.02, "lam": 10.0} if name in ("ewc", "ar1") else {}
    own, named = (make(name, unseen="reset", **options) for _ in range(2))
    other = torch.tensor([9, 4, 0])  # the columns come in another order: 4, 9, 0
    for images, labels in (B1, B2, B3):
        own.learn(images, labels)
        named.learn(images, other[labels])
    assert named.classes.tolist() == [4, 9, 0]
    assert close(named.scores(B3[0])[:, [1, 0, 2]], own.scores(B3[0]))


def changed(strategy, batch):
    """The entries of the backbone's state that a batch changes."""
    before = {name: t.clone() for name, t in strategy.backbone.state_dict().items()}
    strategy.learn(*batch)
    return {
        name.removeprefix("body.")
        for name, t in strategy.backbone.state_dict().items()
        if not t.equal(before[name])
    }


CONV = {"0.weight", "3.weight", "6.weight"}
SCALES = {f"{k}.{part}" for k in (1, 4, 7) for part in ("weight", "bias")}
MOMENTS = {f"{k}.{part}" for k in (1, 4, 7) for part in ("mu", "sigma")}
LIMIT = {f"{k}.limits" for k in (1, 4, 7)}


@pytest.mark.parametrize(
    ("freeze", "fixed"),
    [
        ("none", set()),
        ("depthwise", {"0.weight", "3.weight"}),
        ("pointwise", {"6.weight"}),
        ("all", CONV),
    ],
)
@pytest.mark.parametrize("name", ["naive", "lwf", "ewc", "ar1*"])
def test_what_freezing_leaves_bit_identical(name, freeze, fixed):
    mild = {
        "ewc": {"lam": 1.0},
        "ar1*": {"max_f": 1e9},
    }  # so that no guard holds a weight where it is
    strategy = make(name, freeze=freeze, **mild.get(name, {}))
    assert changed(strategy, B1) == CONV | SCALES | MOMENTS | LIMIT
    assert changed(strategy, B2) == (CONV - fixed) | SCALES | MOMENTS | LIMIT
    assert changed(strategy, B3) == (CONV - fixed) | SCALES | MOMENTS


@pytest.mark.parametrize("name", ["cwr+", "cwr*"])
def test_cwr_fixes_theta_from_batch_2(name):
    strategy = make(name)
    assert changed(strategy, B1) == CONV | SCALES | MOMENTS | LIMIT
    assert changed(strategy, B2) == MOMENTS | LIMIT
    assert changed(strategy, B3) == MOMENTS
    assert not strategy.embeds


@pytest.mark.parametrize("name", ["cwr+", "cwr*"])
def test_fixed_features_fix_the_moments_too(name):
    strategy = make(name, features="fixed")
    assert changed(strategy, B1) == CONV | SCALES | MOMENTS | LIMIT
    assert changed(strategy, B2) == set()
    assert changed(strategy, B3) == set()
    assert strategy.embeds


def test_dslda_fixes_everything_from_the_start():
    assert changed(create("dslda", tiny_backbone()), B1) == set()


def test_what_the_user_has_fixed_stays_fixed():
    backbone = tiny_backbone()
    backbone.body[4].weight.requires_grad_(False)
    backbone.body[6].weight.requires_grad_(False)
    strategy = make("naive", backbone)
    assert changed(strategy, B1) == (CONV | SCALES | MOMENTS | LIMIT) - {"4.weight", "6.weight"}


def test_a_norm_without_scale_and_shift_does_not_get_them():
    backbone = tiny_backbone()
    backbone.body[4] = nn.BatchNorm2d(8, affine=False)
    strategy = make("naive", backbone)
    assert changed(strategy, B1) & {"4.weight", "4.bias"} == set()


# the weight of the past at minibatch n of batch 1: the sum of 0.99^age over those before it
AGED = {n: 1 - 1 / sum(0.99**age for age in range(n)) for n in (4, 8)}


@pytest.mark.parametrize(
    ("options", "limits_1", "limits_2"),
    [
        # two epochs of 2 iterations start up
        ({}, [1, 0, AGED[4]], [1.5, 2.5, 0.9999]),
        ({"protocol": "nicv2-79"}, [1, 0, AGED[4]], [1.25, 0.5, 0.9999]),
        ({"protocol": "ni"}, [1, 0, AGED[4]], [1.25, 0.5, 0.9999]),
        # four epochs of 2 iterations, then the ramp to its end
        ({"epochs_1": 4}, [3, 5, AGED[8]], [1.5, 2.5, 0.9999]),
        # iteration 3 is the first of a ramp of 3
        ({"startup": 3}, [1 + 2 / 3, 5 / 3, AGED[4]], [1.5, 2.5, 0.9999]),
        ({"moments": "pretrained"}, [1, 0, 0.99], [1.5, 2.5, 0.9999]),
    ],
)
def test_the_limits_of_renormalisation_at_the_end_of_batches_1_and_2(options, limits_1, limits_2):
    strategy = create("naive", tiny_backbone(), minibatch=SIZE, **options)
    for batch, limits in ((B1, limits_1), (B2, limits_2)):
        strategy.learn(*batch)
        assert strategy.backbone.body[4].limits.tolist() == pytest.approx(limits)


def test_without_a_first_batch_it_is_learned_as_batch_2():
    """No start-up, the moments inherited, the learning rates of batch 2, spatial convolutions
    fixed.
    """
    strategy = make("naive", first_batch=False)
    slow = Slow.of(strategy)
    strategy.learn(*B1)
    slow.train(B1, 2, LR)
    assert differences(strategy, slow) == []
    assert close(strategy.head.weight, slow.w["head.weight"])
    strategy = make("cwr*", first_batch=False, features="fixed")
    assert changed(strategy, B1) == set()
    assert strategy.head.cw[:2].any()


@pytest.mark.parametrize("name", ["naive", "lwf", "ewc", "cwr+", "cwr*", "ar1", "ar1*"])
def test_the_capacity_doubles_when_full(name):
    strategy = make(name, capacity=2)
    seen = []
    for labels in ([0, 1], [1, 2], [0, 3], [4, 5, 6]):
        strategy.learn(*toy_batch(labels * 2))
        seen.append(strategy.head.rows)
    assert seen == [2, 4, 4, 8]
    assert strategy.scores(B1[0]).shape == (8, 7)


@pytest.mark.parametrize("name", ["naive", "lwf", "ewc"])
def test_outputs_of_unseen_classes_are_negatives_from_the_start(name):
    """A class that comes late starts from where the batches before have pushed its output."""
    strategy = make(name)
    for batch, known in ((B1, 2), (B2, 3)):
        strategy.learn(*batch)
        assert strategy.head.weight.any(1).all()
        assert (strategy.head.bias[known:] < 0).all()
        unseen = strategy.head(strategy.backbone(B2[0]))[:, known:]
        assert (unseen < strategy.scores(B2[0]).max(1).values[:, None]).all()


@pytest.mark.parametrize("name", ["naive", "lwf", "ewc"])
def test_outputs_of_unseen_classes_may_be_reset(name):
    strategy = make(name, unseen="reset")
    for batch, known in ((B1, 2), (B2, 3)):
        strategy.learn(*batch)
        assert strategy.head.weight[:known].any(1).all()
        assert not strategy.head.weight[known:].any()
        assert not strategy.head.bias[known:].any()


def test_classes_of_other_lessons_are_untouched_by_cwr():
    strategy = make("ar1*")
    strategy.learn(*B1)
    before = strategy.head.cw.clone()
    strategy.learn(*toy_batch([2] * 8))
    assert strategy.head.cw[:2].equal(before[:2])
    assert strategy.head.cw[2].any()


def test_caffe_knows_all_outputs_from_the_start():
    strategy = make("cwr*", compat="caffe")
    assert strategy.scores(B1[0]).shape == (8, ROWS)
    strategy.learn(*B2)
    assert strategy.classes.tolist() == list(range(ROWS))
    assert strategy.head.cw.any(1).tolist() == [True, False, True, False]
    assert strategy.head.bias.tolist() == [1, 0, 1, 0]  # the classes of batch 1
    with pytest.raises(InputError, match="0 to 3"):
        strategy.learn(*toy_batch([4] * 4))
    linear = make("naive", compat="caffe", capacity=200)
    assert linear.head.weight.std().item() == pytest.approx((2 / 16) ** 0.5, rel=0.1)  # MSRA


def test_caffe_batch_1_of_lwf_has_no_past_though_all_outputs_are_known():
    lwf, naive = make("lwf", compat="all_outputs"), make("naive", compat="all_outputs")
    lwf.learn(*B1)
    naive.learn(*B1)
    assert lwf.head.weight.equal(naive.head.weight)


def test_caffe_pads_the_batch_and_counts_the_padded_one():
    # 6 frames in minibatches of 4: padded to 8 by the first two, which are of class 1
    strategy = make("cwr*", compat="pad_batch")
    report = strategy.learn(*toy_batch([1, 1, 0, 0, 0, 2]))
    assert report.patterns == 8
    assert dict(zip(strategy.classes.tolist(), strategy.head.past.tolist(), strict=False)) == {
        0: 3,
        1: 4,
        2: 1,
    }


def test_caffe_pads_with_the_first_frames_in_front():
    images, labels = toy_batch([1, 1, 0, 0, 0, 2])
    padded, plain = make("naive", compat="pad_batch"), make("naive")
    padded.learn(images, labels)
    plain.learn(torch.cat([images[:2], images]), torch.cat([labels[:2], labels]))
    assert all(t.equal(plain.state_dict()[name]) for name, t in padded.state_dict().items())


def test_caffe_keeps_the_momentum_from_batch_2_on():
    strategy = make("naive", compat="keep_momentum")
    slow = Slow.of(strategy)
    velocity = {}
    for i, batch in enumerate((B1, B2, B3), 1):
        strategy.learn(*batch)
        slow.train(batch, i, LR_1 if i == 1 else LR, v=None if i == 1 else velocity)
        assert differences(strategy, slow) == []


def test_caffe_keeps_the_momentum_where_freezing_begins_later():
    strategy = make("naive", compat="keep_momentum", freeze_from=3)
    for batch in (B1, B2, B3):
        strategy.learn(*batch)


def test_caffe_shuffles_once_with_seed_0():
    strategy = make("naive", compat="shuffle_once")
    B = strategy.begin_batch(*B1)
    first, again = ([index.tolist() for index in strategy.shuffled(B, e)] for e in (0, 1))
    # numpy.random.seed(0); numpy.random.permutation(8)
    assert first == again == [[6, 2, 1, 7], [3, 0, 5, 4]]


def test_caffe_moments_start_from_nothing():
    """After the first batch the debiased mean is that of its minibatches alone, whatever
    the pretrained moments are.
    """
    backbone = tiny_backbone()
    backbone.body[1].running_mean.fill_(1000)
    strategy = make(
        "naive", backbone, compat="moments_from_zero", lr_1=0.0, epochs_1=1, minibatch=8
    )
    strategy.learn(*B1)
    x = B1[0].permute(0, 3, 1, 2).double() / 127.5 - 1
    x = (
        F.conv2d(x, strategy.backbone.body[0].weight.double(), None, 2, 1)
        .transpose(0, 1)
        .flatten(1)
    )
    mu, sigma = strategy.backbone.body[1].moments()
    assert close(mu, x.mean(1))
    assert close(sigma, (x.var(1) + 1e-5).sqrt())


def test_caffe_sums_displacements():
    states = [
        make("ar1*", **options)
        for options in ({"compat": "displacement"}, {"path": "displacement"}, {})
    ]
    for strategy in states:
        strategy.learn(*B1)
    first, second, gradient = (strategy.importance.tensors[0] for strategy in states)
    assert first.equal(second)
    assert not first.equal(gradient)


@pytest.mark.parametrize("name", ["lwf", "ewc"])
def test_caffe_moves_the_moments_in_passes_without_a_step(name):
    """LwF's targets, EWC's Fisher matrix: 2 more forward passes beside 4 training steps."""
    strategy = make(name, compat="train_mode_passes", moments_decay=0.9999)
    strategy.learn(*B1)
    start = strategy.backbone.body[1].mu.clone()
    strategy.learn(*B2)
    # the first convolution is fixed, so its minibatch means average to the batch's:
    # mu <- (1 - n 1e-4) mu + n 1e-4 mean
    x = B2[0].permute(0, 3, 1, 2).double() / 127.5 - 1
    mean = F.conv2d(x, strategy.backbone.body[0].weight, None, 2, 1).mean((0, 2, 3))
    moved = strategy.backbone.body[1].mu - start
    forwards = (moved @ (mean - start) / (mean - start).square().sum() / 1e-4).item()
    assert forwards == pytest.approx(6, rel=0.01)


def test_a_custom_backbone_of_features_trains_too():
    """A body that gives N x D, with BatchNorm1d: nothing here depends on maps."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 5), nn.BatchNorm1d(5))
    strategy = make("ar1*", Backbone(body, Spec("custom", SIDE, (0.5,) * 3, (0.5,) * 3)))
    strategy.learn(*B1)
    assert strategy.importance.names == ["backbone.body.1.weight"]
    assert (strategy.scores(B1[0]).argmax(1) == B1[1]).all()
