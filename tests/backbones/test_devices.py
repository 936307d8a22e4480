"""Backbones and modules that are already on a device, which need not be the CPU."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

from primavista import InputError, Learner, build_backbone, create
from primavista.networks.base import device_of
from primavista.networks.places import MiddleBackbone

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FRAMES = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(3 if k == 0 else 8, 8, 3, padding=1)) for k in range(7)]
    return nn.Sequential(*layers)


def tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def test_a_module_on_another_device_is_probed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device meta computes shapes alone, so every machine has it; it has no autocast."""
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: contextlib.nullcontext())
    module = network().to("meta")
    backbone = build_backbone(module, size=32)
    assert backbone.dim == 8
    assert {tensor.device.type for tensor in tensors(backbone)} == {"meta"}
    assert backbone.body is not module
    deep = MiddleBackbone(backbone)
    assert deep.sizes == (8,) * 7
    assert {tensor.device.type for tensor in tensors(deep)} == {"meta"}


def test_a_module_without_tensors_is_on_the_cpu() -> None:
    assert device_of(nn.Flatten()).type == "cpu"
    assert build_backbone(nn.AdaptiveAvgPool2d(2), size=8).dim == 3


@pytest.mark.parametrize("device", ["mps", "xpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_one_line_of_ours(device: str) -> None:
    """F11, D14: torch says 300 characters on its dispatcher."""
    backend = getattr(torch, device.partition(":")[0], None)
    if device != "cuda:99" and backend is not None and backend.is_available():
        pytest.skip(f"this machine has {device}")
    with pytest.raises(InputError) as caught:
        Learner("ncm", weights="random", size=32, width=0.25, device=device)
    said = str(caught.value)
    assert len(said) < 100
    assert "\n" not in said
    assert said.endswith(("choose auto, cpu or cuda", "choose auto or cpu"))


@cuda
@pytest.mark.parametrize("name", ["ar1*", "cwr*", "dslda", "prima", "latent-replay", "cumulative"])
def test_a_strategy_of_a_backbone_on_a_gpu_is_that_of_the_cpu(name: str) -> None:
    backbone = build_backbone("mobilenet_v1", "random", width=0.25, size=32)
    moved = create(name, backbone).to("cuda")  # counters and numbers per class stay on the CPU
    backbone.to("cuda")
    strategy = create(name, backbone)
    assert {tensor.device.type for tensor in strategy.parameters()} == {"cuda"}
    assert {tensor.device.type for tensor in tensors(backbone)} == {"cuda"}
    expected, found = moved.state_dict(), strategy.state_dict()
    assert found.keys() == expected.keys()
    assert all(found[key].device == expected[key].device for key in expected)
    assert all(found[key].equal(expected[key]) for key in expected)


@cuda
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("strategy", ["prima", "ar1*"])
def test_a_learner_accepts_a_module_on_a_gpu(strategy: str, device: str) -> None:
    module = network().to("cuda")
    learner = Learner(strategy, backbone=module, size=32, device=device)
    learner.learn(FRAMES, "noise")
    learner.learn(255 - FRAMES // 4, "bright")
    assert learner.predict(FRAMES[0]).label in ("noise", "bright")
    assert learner.strategy.device.partition(":")[0] == device
    assert next(module.parameters()).device.type == "cuda"
