"""The CUDA forms of batch renormalisation equal the CPU form: output, moments, gradients."""

from __future__ import annotations

import pytest
import torch

from primavista.engine import renorm_function
from primavista.nn.renorm import BatchRenorm, RenormLimits, set_limits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CASES = [(1.0, 0.0), (3.0, 5.0), (1.05, 0.01)]
SHAPES = [(6, 8, 5, 7), (3, 200, 9, 9), (64, 32, 16, 16), (40, 24)]


def results(
    device,
    shape,
    r_max,
    d_max,
    *,
    channels_last=True,
    training=True,
    clip=False,
    dtype=torch.float32,
):
    generator = torch.Generator().manual_seed(0)
    channels = shape[1]
    x = torch.randn(shape, generator=generator) * 2 + 1
    dy = torch.randn(shape, generator=generator).to(device, dtype)
    layer = BatchRenorm(channels, eps=1e-3)
    with torch.no_grad():
        layer.weight.copy_(torch.rand(channels, generator=generator) + 0.5)
        layer.bias.copy_(torch.rand(channels, generator=generator))
        layer.mu.copy_(torch.randn(channels, generator=generator))
        layer.sigma.copy_(torch.rand(channels, generator=generator) + 1)
    set_limits(layer, RenormLimits(r_max, d_max, 0.9))
    layer.to(device).train(training)
    x = x.to(device, dtype)
    if channels_last and x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    y = layer.relu6(x) if clip else layer(x)
    edge = (y.abs() < 1e-3) | (
        (y - 6).abs() < 1e-3
    )  # there rounding decides what the clip lets through
    grads = torch.autograd.grad(
        y, [x, layer.weight, layer.bias], dy.to(y.dtype).masked_fill(edge & clip, 0)
    )
    return [t.detach().cpu().float() for t in (y, *grads, layer.mu, layer.sigma)]


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("r_max", "d_max"), CASES)
def test_cuda_equals_cpu(monkeypatch, r_max, d_max, shape, channels_last, training, clip, kernels):
    if not kernels:
        monkeypatch.setattr(renorm_function, "_has_triton", lambda: False)
    how = {"channels_last": channels_last, "training": training, "clip": clip}
    ours, theirs = (results(device, shape, r_max, d_max, **how) for device in ("cuda", "cpu"))
    for value, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_is_the_same_up_to_its_rounding(shape):
    ours = results("cuda", shape, 3.0, 5.0, dtype=torch.bfloat16)
    theirs = results("cpu", shape, 3.0, 5.0)
    for value, reference in zip(ours, theirs, strict=True):
        assert float((value - reference).abs().max() / reference.abs().max()) < 0.03


def test_a_large_mean_does_not_cancel():
    x = (torch.randn(64, 16, 8, 8, device="cuda") + 1000).contiguous(
        memory_format=torch.channels_last
    )
    layer = BatchRenorm(16).cuda()
    with torch.no_grad():
        layer.mu.fill_(999.0)
    set_limits(layer, RenormLimits(1.0, 0.0, 0.0))
    layer(x)
    true = x.double().var((0, 2, 3), unbiased=False).add(layer.eps).sqrt()
    torch.testing.assert_close(layer.sigma.double(), true, rtol=1e-4, atol=0)
