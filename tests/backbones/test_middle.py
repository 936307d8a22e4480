"""Backbones read in the middle of their maps: which blocks, which pixels, nothing else changes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from primavista.backbones.places import Place, middle_masks
from primavista.backbones.spec import Spec
from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.networks.base import Backbone, build
from primavista.networks.places import MiddleBackbone

HALF = (0.5, 0.5, 0.5)


def frames(count: int, side: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, generator=generator)


@torch.no_grad()
def read(backbone: Backbone, images: torch.Tensor) -> np.ndarray:
    return backbone.eval()(images).double().numpy()


def slow_root(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.abs(x) / np.sqrt(np.abs(x) + 1e-3)


def slow_middle(maps: np.ndarray, share: float) -> np.ndarray:
    """The mean over the region of maps whose pixels are cut into 60 x 60 pieces."""
    fine = maps.repeat(60, axis=2).repeat(60, axis=3)
    side = fine.shape[2]
    low, high = round(side * (1 - share) / 2), round(side * (1 + share) / 2)
    return fine[:, :, low:high, low:high].mean((2, 3))


def slow_quarters(maps: np.ndarray) -> np.ndarray:
    """Half of the side in the middle, cut into quarters, of which channel j reads pattern j mod 4.

    The patterns: the mean, right minus left, lower minus upper, and a diagonal minus the other.
    """
    fine = maps.repeat(60, axis=2).repeat(60, axis=3)
    side = fine.shape[2]
    low, centre, high = side // 4, side // 2, side * 3 // 4
    upper = left = slice(low, centre)
    lower = right = slice(centre, high)
    found = np.empty(maps.shape[:2])
    for j in range(maps.shape[1]):
        a, b, c, d = (
            fine[:, j, rows, columns].mean((1, 2))
            for rows, columns in ((upper, left), (upper, right), (lower, left), (lower, right))
        )
        patterns = (a + b + c + d, b + d - a - c, c + d - a - b, a + d - b - c)
        found[:, j] = patterns[j % 4] / 4
    return found


@pytest.mark.parametrize("size", [64, 96])
def test_mobilenet_v1_is_read_at_blocks_6_8_10_and_12(size: int):
    plain = build("mobilenet_v1", "random", width=0.25, size=size)
    images = frames(2, size)
    deep = MiddleBackbone(plain)
    assert deep.sizes == (256, 256, 256, 128, 128, 128, 128)
    assert deep.priors == (1, 1, 1, 1 / 2, 1 / 4, 1 / 4, 1 / 8)
    plain.eval()
    with torch.no_grad():
        x = plain.body.stem(images.permute(0, 3, 1, 2) * plain.scale + plain.shift)
        maps = []
        for block in plain.body.blocks:
            x = block(x)
            maps.append(x.double().numpy())
    parts = [maps[12].mean((2, 3))]
    for block, share in ((12, 2), (12, 3), (10, 3), (8, 3)):
        parts.append(slow_middle(maps[block], 1 / share))
    parts += [slow_quarters(maps[8]), slow_middle(maps[6], 1 / 3)]
    expected = slow_root(np.concatenate(parts, 1))
    assert np.allclose(read(deep, images), expected, rtol=1e-3, atol=1e-4)


def test_names_weights_and_spec_stay_and_the_given_backbone_is_left_alone():
    plain = build("mobilenet_v1", "random", width=0.25, size=32)
    deep = MiddleBackbone(plain)
    assert deep.spec == plain.spec
    assert list(deep.state_dict()) == list(plain.state_dict())
    assert not any(module._forward_hooks for module in plain.modules())
    assert np.array_equal(read(MiddleBackbone(deep), frames(1, 32)), read(deep, frames(1, 32)))


def test_a_copy_reads_with_weights_of_its_own():
    deep = MiddleBackbone(build("mobilenet_v1", "random", width=0.25, size=32))
    images = frames(2, 32)
    expected, other = read(deep, images), copy.deepcopy(deep)
    deep.middle_0.zero_()
    assert np.array_equal(read(other, images), expected)
    assert not np.array_equal(read(deep, images), expected)


def test_a_body_without_maps_has_its_own_features_alone():
    body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 5))
    deep = MiddleBackbone(Backbone(body, Spec("custom", 8, HALF, HALF)))
    assert deep.sizes == (5,)
    assert deep.priors == (1.0,)
    assert read(deep, frames(3, 8)).shape == (3, 5)


@pytest.mark.parametrize("side", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("share", [1 / 3, 1 / 2, 1])
def test_weights_of_a_mean_sum_to_1_and_are_symmetric(side: int, share: float):
    (mask,) = middle_masks(Place(0, share), side, side)
    assert float(mask.sum()) == pytest.approx(1)
    assert np.allclose(mask, mask[::-1, ::-1])


@pytest.mark.parametrize("side", [2, 3, 5, 8])
def test_a_picture_without_structure_has_no_differences_between_quarters(side: int):
    masks = middle_masks(Place(0, 1 / 2, quarters=True), side, side)
    assert masks.sum((1, 2)).tolist() == pytest.approx([1, 0, 0, 0], abs=1e-6)


@pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")
def test_onnx_runtime_gives_the_same_features():
    deep = MiddleBackbone(build("mobilenet_v1", "imagenet", size=96)).eval()
    images = frames(3, 96)
    found = OnnxFeatures()(deep, images)
    assert np.abs(found.double().numpy() - read(deep, images)).max() < 1e-3
