"""The forward and backward pass of batch renormalisation as one autograd function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from threading import local
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
ROUNDED = 2**29 - 1  # the bits of a float64 that rounding to float32 removes
NEARLY = 64  # the largest error of a sum of parts, in units of the last bit
PART = 2**20  # numbers that are summed at a time
MANY_CHANNELS = 128  # from here on, selecting some channels is faster than summing all again

_kept = local()


class RenormFunction(torch.autograd.Function):
    """y = gamma (xhat_bn r + d) + beta   (equation 2, where xhat_bn is that of equation 1)

    This is batch norm with the scale gamma r and the shift gamma d + beta. r and d are constants,
    so the backward pass is that of batch norm too: dx has the weight gamma r,
    dgamma = r sum(dy xhat_bn) + d sum(dy), dbeta = sum(dy). With `clip` the result is
    min(max(y, 0), 6), in the memory of y, and dy is 0 where the result is 0 or 6. The moments of
    the minibatch are those of `minibatch_moments`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        r: Tensor,
        d: Tensor,
        mu_mb: Tensor,
        var_mb: Tensor,
        invstd: Tensor,
        eps: float,
        clip: bool,
    ) -> Tensor:
        """Return y; see `BatchRenorm`."""
        weight, bias = gamma * r, gamma * d + beta
        if x.is_cuda:
            y = torch.batch_norm_elemt(x, weight, bias, mu_mb, invstd, eps)
        else:
            y = F.batch_norm(x, mu_mb, var_mb, weight, bias, training=False, eps=eps)
        if clip:
            y.clamp_(0, 6)
        ctx.save_for_backward(x, weight, mu_mb, invstd, r, d, y if clip else None)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return dx, dgamma and dbeta."""
        dy = grads[0]
        x, weight, mu_mb, invstd, r, d, y = ctx.saved_tensors
        if y is not None:
            dy = torch.ops.aten.hardtanh_backward(dy, y, 0, 6)
        dx: Tensor | None
        if x.is_cuda:
            sum_dy, sum_dy_xmu, dweight, dbias = torch.batch_norm_backward_reduce(
                dy, x, mu_mb, invstd, weight, True, True, True
            )
            count = torch.full((1,), x.numel() // x.shape[1], dtype=torch.int32, device=x.device)
            dx = torch.batch_norm_backward_elemt(
                dy, x, mu_mb, invstd, weight, sum_dy, sum_dy_xmu, count
            )
        else:
            dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
                dy,
                x,
                weight,
                None,
                None,
                mu_mb,
                invstd,
                True,
                ctx.eps,
                [ctx.needs_input_grad[0], True, True],
            )
        return dx, r * dweight + d * dbias, dbias, *[None] * 7


def minibatch_moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mu_mb, sigma_mb, the variance (on a GPU mu_mb instead) and 1 / sigma_mb."""
    if x.is_cuda:
        mu_mb, invstd = torch.batch_norm_stats(x, eps)
        return mu_mb, invstd.reciprocal(), mu_mb, invstd
    mu_mb, var_mb = mean_and_variance(x)
    sigma_mb = (var_mb + eps).sqrt()
    return mu_mb, sigma_mb, var_mb, sigma_mb.reciprocal()


def evaluated(x: Tensor, gamma: Tensor, beta: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """y = gamma (x - mu) / sigma + beta,  computed by one product and one sum per value."""
    gain = gamma / sigma
    shape = [1, -1] + [1] * (x.ndim - 2)
    return x * gain.reshape(shape) + (beta - mu * gain).reshape(shape)


def limit_values(limits: Tensor) -> Sequence[Any]:
    """Return r_max, d_max and decay; on a CPU as numbers, which are faster than tensors.

    On a GPU they stay tensors, because a captured step reads them again each time.
    """
    return limits.unbind() if limits.is_cuda else limits.tolist()


def mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the biased variance of each channel, to the precision of `x`.

    On a CPU the sums are computed as in batch norm, in float64 and over parts of the minibatch that
    fit into the cache. They round to the same numbers as `torch.var_mean`, which takes 5 to 10
    times as long and alone made batch renormalisation 1.5 times as slow as batch norm.

    >>> [values.tolist() for values in mean_and_variance(torch.tensor([[1.0], [3.0]]))]
    [[2.0], [1.0]]
    """
    if x.device.type != "cpu":
        return _by_var_mean(x)
    parts = (x,) if x.numel() <= PART else x.split(max(PART * len(x) // x.numel(), 1))
    sums = [torch.batch_norm_update_stats(_in_float64(part), None, None, 0.0) for part in parts]
    mean, variance = sums[0]
    if len(parts) > 1:
        share = x.new_tensor([[len(part) / len(x)] for part in parts], dtype=torch.float64)
        means, variances = (torch.stack(values) for values in zip(*sums, strict=True))
        mean = (share * means).sum(0)
        variance = (share * (variances + (means - mean) ** 2)).sum(0)
    # halfway between two numbers both are right; take the one of `torch.var_mean`
    above_half = (mean.view(torch.int64) + (NEARLY - 2**28)) & ROUNDED
    again = x.dtype == torch.float32 and int(above_half.min()) <= 2 * NEARLY
    if again and len(mean) < MANY_CHANNELS:
        return _by_var_mean(x)
    mean, variance = mean.to(x.dtype), variance.to(x.dtype)
    if again:
        halfway = above_half <= 2 * NEARLY
        halfway[:2] = True  # a single channel would be summed in another order
        which = halfway.nonzero().flatten()
        mean[which], variance[which] = _by_var_mean(x.index_select(1, which))
    return mean, variance


def _in_float64(x: Tensor) -> Tensor:
    """Return x in float64; the result is valid until the next call in this thread.

    The memory of parts is reused, because allocating new memory takes longer than the sum.
    """
    last = torch.channels_last
    if x.numel() > PART or not (x.is_contiguous() or x.is_contiguous(memory_format=last)):
        return x.double()
    if not hasattr(_kept, "part"):
        _kept.part = torch.empty(PART, dtype=torch.float64)
    part: Tensor = _kept.part.as_strided(x.size(), x.stride())
    return part.copy_(x)


def _by_var_mean(x: Tensor) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    return mean, variance


def can_fuse(x: Tensor) -> bool:
    """Return True if the Triton kernels can compute batch renormalisation of `x`."""
    return x.is_cuda and _has_triton() and bool(_kernels().applies(x))


def fused_renorm(x: Tensor, *arguments: Any) -> Tensor:
    """Compute batch renormalisation by Triton kernels; the arguments are those of `FusedRenorm`."""
    y: Tensor = _kernels().FusedRenorm.apply(x, *arguments)
    return y


@cache
def _has_triton() -> bool:
    """Return True if Triton, which comes with torch for CUDA, has the C compiler it needs."""
    compiler = which("cc") or which("gcc") or which("clang")
    return find_spec("triton") is not None and compiler is not None


def _kernels() -> Any:
    return import_module("primavista.engine.renorm_triton")
