"""The CUDA form of batch renormalisation equals the CPU form: output, moments, gradients."""

from __future__ import annotations

import pytest
import torch

from primavista.parts.renorm import BatchRenorm

CASES = [(1.0, 0.0), (3.0, 5.0), (1.05, 0.01)]


def results(device: str, channels_last: bool, r_max: float, d_max: float) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 8, 5, 7, generator=generator) * 2 + 1
    dy = torch.randn(6, 8, 5, 7, generator=generator).to(device)
    layer = BatchRenorm(8, eps=1e-3)
    with torch.no_grad():
        layer.weight.copy_(torch.rand(8, generator=generator) + 0.5)
        layer.bias.copy_(torch.rand(8, generator=generator))
        layer.mu.copy_(torch.randn(8, generator=generator))
        layer.sigma.copy_(torch.rand(8, generator=generator) + 1)
    layer.set_limits(r_max, d_max, 0.9)
    layer.to(device)
    x = x.to(device)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    y = layer(x)
    grads = torch.autograd.grad(y, [x, layer.weight, layer.bias], dy)
    return [t.detach().cpu() for t in (y, *grads, layer.mu, layer.sigma)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("r_max", "d_max"), CASES)
def test_cuda_equals_cpu(channels_last, r_max, d_max):
    ours, theirs = (results(device, channels_last, r_max, d_max) for device in ("cuda", "cpu"))
    for value, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-4, atol=1e-4)
