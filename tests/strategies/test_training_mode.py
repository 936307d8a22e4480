"""CWR* in training mode and the Fisher matrix of EWC, against numpy alone, to 1e-12.

The network is computed here from its arrays. Its derivatives are taken with a complex step: the
derivative of f at w is the imaginary part of f(w + i h) / h, and with h = 1e-30 it is exact.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primavista.nn.minibatches import generator, shuffled_minibatches
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create

SEED, SIZE, ROWS, LR = 3, 4, 4, 0.25
R_MAX, D_MAX, PAST = 1.5, 2.5, 0.875
CONVOLUTIONS = {0: (2, 1), 3: (1, 1), 6: (1, 0)}  # index in the tiny backbone: stride, padding
STEP = 1e-30
BATCHES = (
    toy_batch([0, 0, 0, 0, 0, 1, 1, 1], 1),
    toy_batch([0, 2] * 4, 2),
    toy_batch([1, 1, 1, 2, 2, 0, 0, 0], 3),
)


def make(name, **options):
    settings = {
        "epochs_1": 2,
        "epochs": 2,
        "minibatch": SIZE,
        "capacity": ROWS,
        "lr_1": 0.5,
        "lr": LR,
        "r_max": R_MAX,
        "d_max": D_MAX,
        "moments_decay": PAST,
        "startup": 2,
        **options,
    }
    strategy = create(name, tiny_backbone(), seed=SEED, **settings).double()
    strategy.backbone.scale.fill_(1 / 127.5)  # not the float32 nearest to it
    return strategy


def arrays(strategy):
    """Its state in numpy, by names without the word backbone."""
    state = strategy.state_dict().items()
    return {name.removeprefix("backbone.body."): x.numpy().copy() for name, x in state}


def convolution(x, w, stride, padding):
    """A convolution whose groups follow from the shapes."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    if w.shape[1] == 1:  # depthwise
        return np.einsum("nchwij,cij->nchw", windows, w[:, 0])
    return np.einsum("nchwij,ocij->nohw", windows, w)


def features(w, images, moments, limits):
    """The features in training mode; `limits` are r_max and d_max, or None with batch norm.

    The moments of the minibatch are put into `moments`, if it is given, with the weight 1 - PAST.
    """
    x = images.numpy().transpose(0, 3, 1, 2) / 127.5 - 1
    for k, (stride, padding) in CONVOLUTIONS.items():
        x = convolution(x, w[f"{k}.weight"], stride, padding)
        mean = x.mean((0, 2, 3))
        variance = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3))
        sigma = np.sqrt(variance + 1e-5)
        r, d = 1.0, 0.0
        if limits is not None:
            own_mu, own_sigma = w[f"{k + 1}.mu"], w[f"{k + 1}.sigma"]
            r = (sigma.real / own_sigma).clip(1 / limits[0], limits[0])
            d = ((mean.real - own_mu) / own_sigma).clip(-limits[1], limits[1])
        if moments is not None:
            count = x.size // x.shape[1]
            unbiased = variance * count / (count - 1)
            spread = sigma if limits is not None else unbiased
            names = ("mu", "sigma") if limits is not None else ("running_mean", "running_var")
            for name, value in zip(names, (mean, spread), strict=True):
                before = moments[f"{k + 1}.{name}"]
                moments[f"{k + 1}.{name}"] = PAST * before + (1 - PAST) * value.real
        scale = w[f"{k + 1}.weight"] * r / sigma
        shift = w[f"{k + 1}.weight"] * d + w[f"{k + 1}.bias"]
        x = (x - mean[:, None, None]) * scale[:, None, None] + shift[:, None, None]
        x = np.where(x.real < 0, 0, np.where(x.real > 6, 6, x))
    return x.mean((2, 3))


def minibatches(i, epoch):
    """The minibatches of 8 frames in an epoch of batch i."""
    return [part.numpy() for part in shuffled_minibatches(8, SIZE, generator(SEED, i, epoch))]


def near(own, expected):
    assert np.abs(own - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("norm", ["brn", "bn"])
def test_cwr_star(norm):
    """From batch 2 on: tw by gradient descent on features whose norms see the minibatch."""
    strategy = make("cwr*", norm=norm)
    limits = (R_MAX, D_MAX) if norm == "brn" else None
    strategy.learn(*BATCHES[0])
    for i, (images, labels) in enumerate(BATCHES[1:], 2):
        w = arrays(strategy)
        strategy.learn(images, labels)
        y, present = labels.numpy(), labels.unique().numpy()
        tw, v = np.zeros((ROWS, 16)), 0.0
        tw[present] = w["head.cw"][present]
        for epoch in range(2):
            for index in minibatches(i, epoch):
                z = features(w, images[index], w, limits)
                p = np.exp(z @ tw.T)
                p /= p.sum(1, keepdims=True)
                p[np.arange(SIZE), y[index]] -= 1
                v = 0.9 * v + p.T @ z / SIZE + 5e-4 * tw
                tw = tw - LR * v
        average = tw[present].mean()
        for j in present:
            cur = (y == j).sum()
            wpast = np.sqrt(w["head.past"][j] / cur)
            w["head.cw"][j] = (w["head.cw"][j] * wpast + tw[j] - average) / (wpast + 1)
            w["head.past"][j] += cur
        own = arrays(strategy)
        moments = [name for name in w if name.endswith((".mu", ".sigma", "_mean", "_var"))]
        assert len(moments) == 6
        for name in ["head.cw", "head.past", *moments]:
            near(own[name], w[name])


def loss(w, images, y, limits):
    logits = features(w, images, None, limits) @ w["head.weight"].T + w["head.bias"]
    return -(logits[np.arange(len(y)), y] - np.log(np.exp(logits).sum(1))).mean()


def gradient(w, name, images, y, limits):
    """dL_cross / dtheta, one weight after another."""
    found = np.zeros(w[name].shape)
    for place in np.ndindex(found.shape):
        moved = w[name].astype(complex)
        moved[place] += 1j * STEP
        found[place] = loss({**w, name: moved}, images, y, limits).imag / STEP
    return found


@pytest.mark.parametrize("norm", ["brn", "bn"])
def test_the_fisher_matrix_of_ewc(norm):
    """The mean over the minibatches of g^2, the norms as in the last step, summed over batches."""
    strategy = make("ewc", norm=norm, max_f=1e-3, lam=2e3)
    names = ["6.weight", "head.weight"]
    total = dict.fromkeys(names, 0.0)
    for i, (images, labels) in enumerate(BATCHES, 1):
        strategy.learn(images, labels)
        w = arrays(strategy)  # of the end of the batch: the pass for F changes nothing
        limits = None if norm == "bn" else (3, 5) if i == 1 else (R_MAX, D_MAX)
        for index in minibatches(i, 0):
            for name in names:
                g = gradient(w, name, images[index], labels.numpy()[index], limits)
                total[name] = total[name] + g**2 / 2
        for own, name in zip(strategy.importance.clipped(), names, strict=True):
            near(own.numpy(), (total[name] / i).clip(0, 1e-3))


def test_the_pass_for_the_fisher_matrix_leaves_the_moments_alone():
    ewc, naive = make("ewc"), make("naive")
    for strategy in (ewc, naive):
        strategy.learn(*BATCHES[0])
    for name, moment in naive.state_dict().items():
        if name.endswith((".mu", ".sigma")):
            assert moment.equal(ewc.state_dict()[name])
    assert torch.cat([f.flatten() for f in ewc.importance.clipped()]).any()
