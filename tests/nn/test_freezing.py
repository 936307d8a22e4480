"""Depthwise layer freezing (paper, section 2.3) and the other curves of `fig:NI`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from primavista.errors import InputError
from primavista.networks.base import build
from primavista.nn.freezing import is_pointwise, set_freezing
from primavista.nn.renorm import BatchRenorm, replace_batch_norm


def fixed(module):
    return {name for name, p in module.named_parameters() if not p.requires_grad}


# EfficientNet-Lite0: the first and 16 depthwise; 15 expansions, 16 projections and the last
@pytest.mark.parametrize(
    ("name", "spatial", "pointwise"), [("mobilenet_v1", 14, 13), ("efficientnet_lite0", 17, 32)]
)
def test_counts(name, spatial, pointwise):
    backbone = replace_batch_norm(build(name, "random", size=32))
    for freeze, count in [
        ("none", 0),
        ("depthwise", spatial),
        ("pointwise", pointwise),
        ("all", spatial + pointwise),
    ]:
        names = set_freezing(backbone, freeze)
        assert len(names) == len(set(names)) == count
        assert fixed(backbone) == set(
            names
        )  # so norms are free in every setting, and a later setting undoes an earlier one
        for each in names:
            conv = backbone.get_submodule(each.removesuffix(".weight"))
            assert freeze == "all" or (conv.kernel_size == (1, 1)) == (freeze == "pointwise")


def test_the_first_convolution_and_all_13_depthwise_of_mobilenet():
    names = set_freezing(build("mobilenet_v1", "random", width=0.25, size=32), "depthwise")
    assert names == [
        "body.stem.conv.weight",
        *(f"body.blocks.{i}.0.conv.weight" for i in range(13)),
    ]


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), BatchRenorm(4)])
def test_norms_and_heads_are_left_as_they_are(norm):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.Linear(4, 2))
    net[1].weight.requires_grad_(False)
    net[2].bias.requires_grad_(False)
    set_freezing(net, "all")
    assert fixed(net) == {"0.weight", "0.bias", "1.weight", "2.bias"}
    set_freezing(net, "none")
    assert fixed(net) == {"1.weight", "2.bias"}


@pytest.mark.parametrize(
    ("conv", "expected"),
    [
        (nn.Conv2d(4, 8, 1), True),
        (nn.Conv2d(4, 8, 1, stride=2), True),
        (nn.Conv1d(4, 8, 1), True),
        (nn.Conv2d(4, 4, 3, groups=4), False),
        (nn.Conv2d(4, 4, 1, groups=4), False),  # mixes nothing
        (nn.Conv2d(4, 8, (1, 3)), False),
        (nn.Linear(4, 8), False),
    ],
)
def test_what_is_pointwise(conv, expected):
    assert is_pointwise(conv) is expected


def test_the_root_itself_and_a_wrong_setting():
    assert set_freezing(nn.Conv2d(3, 4, 3, bias=False), "depthwise") == ["weight"]
    with pytest.raises(InputError, match="freeze is none"):
        set_freezing(nn.Conv2d(3, 4, 3), "norms")


def test_frozen_weights_get_no_gradient():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    set_freezing(net, "depthwise")
    net(torch.ones(1, 3, 4, 4)).sum().backward()
    assert net[0].weight.grad is None
    assert net[1].weight.grad is not None
