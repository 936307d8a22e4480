"""Backbones read at several depths: which blocks, what of them, and that nothing else changes."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from primavista.backbones.spec import Spec
from primavista.networks.base import Backbone, build
from primavista.networks.multidepth import MAX_OWN_FEATURES, MultiDepthBackbone

HALF = (0.5, 0.5, 0.5)


def frames(count, side, seed=0):
    return torch.randint(
        0,
        256,
        (count, side, side, 3),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(seed),
    )


def backbone(body, side=16):
    return Backbone(body, Spec("custom", side, HALF, HALF))


def read(deep, images):
    with torch.no_grad():
        return deep.eval()(images)


def slow_root(x):
    return np.sign(x) * np.abs(x) / np.sqrt(np.abs(x) + 1e-3)


def slow_part(maps, place, grid, most):
    """Cell by cell, channel by channel."""
    count, channels, height, width = maps.shape
    means = np.zeros((count, channels, grid, grid))
    for i in range(grid):
        for j in range(grid):
            cell = maps[
                :,
                :,
                i * height // grid : (i + 1) * height // grid,
                j * width // grid : (j + 1) * width // grid,
            ]
            means[:, :, i, j] = cell.mean((2, 3))
    rooted = slow_root(means)
    if channels <= most:
        return rooted.reshape(count, -1)
    signs = np.random.RandomState(place).randint(0, 2, (most, channels)) * 2 - 1
    mixed = (
        sum(signs[None, :, c, None, None] * rooted[:, None, c] for c in range(channels))
        / channels**0.5
    )
    return mixed.reshape(count, -1)


def test_mobilenet_v1_is_read_at_blocks_4_6_8_10_and_its_end():
    plain = build("mobilenet_v1", "random", size=64)
    images = frames(2, 64)
    deep = MultiDepthBackbone(plain)
    assert deep.sizes == (1536, 1536, 1536, 1536, 1024)
    parts = read(deep, images).double().numpy()
    plain.eval()
    with torch.no_grad():
        x = plain.body.stem(images.permute(0, 3, 1, 2) * plain.scale + plain.shift)
        maps = []
        for block in plain.body.blocks:
            x = block(x)
            maps.append(x.double().numpy())
    for place, block in enumerate((4, 6, 8, 10)):
        expected = slow_part(maps[block], place, 4, 96)
        assert np.allclose(
            parts[:, 1536 * place : 1536 * (place + 1)], expected, rtol=1e-3, atol=1e-4
        )
    assert np.allclose(parts[:, 6144:], slow_root(maps[12].mean((2, 3))), rtol=1e-3, atol=1e-4)


def test_names_weights_and_spec_stay_and_the_given_backbone_is_left_alone():
    plain = build("mobilenet_v1", "random", width=0.25, size=32)
    deep = MultiDepthBackbone(plain)
    assert deep.spec == plain.spec
    assert list(deep.state_dict()) == list(plain.state_dict())
    assert not any(module._forward_hooks for module in plain.modules())
    with torch.no_grad():
        next(deep.parameters()).add_(1)
    assert not next(deep.parameters()).equal(next(plain.parameters()))


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def test_a_map_is_read_before_the_next_layer_overwrites_it():
    images = torch.full((1, 16, 16, 3), 0, dtype=torch.uint8)  # -1 everywhere
    deep = MultiDepthBackbone(
        backbone(
            nn.Sequential(*[layer for k in range(6) for layer in (Times(2), nn.ReLU(inplace=True))])
        )
    )
    # members 4, 6, 8 and 10 of 12: each is -1 doubled and cut to 0 before, so only zeros;
    # with member 1 kept negative:
    assert float(read(deep, images).abs().max()) == 0
    body = nn.Sequential(Times(1), Times(1), nn.ReLU(inplace=True), Times(1), Times(1), Times(1))
    first = read(MultiDepthBackbone(backbone(body)), images)[
        :, :48
    ]  # the block at a third: member 1
    assert torch.allclose(first, torch.full((1, 48), -1 / 1.001**0.5))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU())
        self.skip = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        return self.branch(x) + self.skip(x)


class Staged(nn.Module):
    """Stages of two blocks each, as attributes: a ResNet's plan."""

    def __init__(self):
        super().__init__()
        widths = (3, 8, 16, 100)
        for k in range(3):
            blocks = (
                Residual(widths[k], widths[k + 1], 2),
                Residual(widths[k + 1], widths[k + 1], 1),
            )
            setattr(self, f"stage{k}", nn.Sequential(*blocks))

    def forward(self, x):
        return self.stage2(self.stage1(self.stage0(x))).mean((2, 3))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda body: body,
        lambda body: nn.Sequential(body),
        lambda body: nn.Sequential(body, nn.Identity()),
    ],
)
def test_blocks_are_found_in_stages_and_under_wrappers(wrap):
    """Of six blocks, 1 to 4 are read: of 8, 16, 16 and 100 channels, 4 or more points a side."""
    deep = MultiDepthBackbone(backbone(wrap(Staged()), 32))
    assert deep.sizes == (8 * 16, 16 * 16, 16 * 16, 96 * 16, 100)
    assert read(deep, frames(2, 32)).shape == (2, 128 + 256 + 256 + 1536 + 100)


def test_a_body_without_maps_gives_its_own_features():
    body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
    plain = backbone(body, 8)
    deep = MultiDepthBackbone(plain)
    images = frames(3, 8)
    assert deep.sizes == (5,)
    assert np.allclose(
        read(deep, images).numpy(), slow_root(read(plain, images).numpy()), atol=1e-6
    )


def test_too_many_features_of_its_own_are_mixed_down():
    wide = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, MAX_OWN_FEATURES + 10))
    assert MultiDepthBackbone(backbone(wide, 8)).sizes == (MAX_OWN_FEATURES,)


def test_images_of_other_sizes_give_as_many_numbers():
    deep = MultiDepthBackbone(build("mobilenet_v1", "random", width=0.25, size=64))
    for side in (32, 64, 80):
        assert read(deep, frames(2, side)).shape == (2, deep.dim)


def test_threads_that_share_it_do_not_mix_up_their_maps():
    deep = MultiDepthBackbone(build("mobilenet_v1", "random", width=0.25, size=32))
    images = [frames(2, 32, seed) for seed in range(4)]
    alone = [read(deep, part) for part in images]
    wrong = []

    def again(k):
        for _ in range(10):
            if not torch.allclose(read(deep, images[k]), alone[k], atol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=again, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_copy_reads_its_own_body():
    deep = MultiDepthBackbone(build("mobilenet_v1", "random", width=0.25, size=32))
    other = copy.deepcopy(deep)
    images = frames(2, 32)
    before = read(deep, images)
    with torch.no_grad():
        for parameter in deep.parameters():
            parameter.zero_()
    assert read(other, images).equal(before)
    assert not read(deep, images).equal(before)
