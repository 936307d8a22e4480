"""Batch renormalisation on a GPU: three kernels forward, three backward, including ReLU6.

A channels-last map is a matrix of M = N H W rows and C columns. In the forward pass, the first
kernel sums the columns in pieces; the second, a small one, adds the pieces, computes r and d,
updates mu and sigma, and computes the constants of y = clip(a x + b); the third computes y. The
backward pass is analogous: the mask of the clip is computed again from x, so only x is kept. In
evaluation dx = a g needs no sum, so two kernels suffice.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 8192  # elements of a tile
PIECES = 512  # the largest number of pieces of the rows; one program adds up their sums
PROGRAMS = 1056  # enough to fill a large GPU


@triton.jit  # type: ignore[untyped-decorator]
def _forward_sums(  # type: ignore[no-untyped-def]
    x, mu, s1, s2, M, C, rows, BM: tl.constexpr, BC: tl.constexpr
):
    """Sum x - mu and its square; centring on the moving average avoids cancellation."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = column < C
    centre = tl.load(mu + column, mask=inside, other=0.0)
    first = tl.program_id(1) * rows
    sum1 = tl.zeros((BM, BC), tl.float32)
    sum2 = tl.zeros((BM, BC), tl.float32)
    for start in range(0, rows, BM):
        row = first + start + tl.arange(0, BM)
        mask = (row < M)[:, None] & inside[None, :]
        at = row[:, None].to(tl.int64) * C + column[None, :]
        u = tl.where(
            mask, tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :], 0.0
        )
        sum1 += u
        sum2 += u * u
    out = tl.program_id(1) * C + column
    tl.store(s1 + out, tl.sum(sum1, 0), mask=inside)
    tl.store(s2 + out, tl.sum(sum2, 0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _forward_constants(  # type: ignore[no-untyped-def]
    s1,
    s2,
    gamma,
    beta,
    mu,
    sigma,
    limits,
    out,
    M,
    C,
    S,
    eps,
    TRAINING: tl.constexpr,
    BS: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute a, b, mu_mb, 1 / sigma_mb, r and d of a column; in training also new mu and sigma."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = column < C
    g = tl.load(gamma + column, mask=inside, other=0.0)
    b = tl.load(beta + column, mask=inside, other=0.0)
    m = tl.load(mu + column, mask=inside, other=0.0)
    s = tl.load(sigma + column, mask=inside, other=1.0)
    if TRAINING:
        piece = tl.arange(0, BS)
        mask = (piece < S)[:, None] & inside[None, :]
        at = piece[:, None] * C + column[None, :]
        e1 = tl.sum(tl.load(s1 + at, mask=mask, other=0.0), 0) / M
        e2 = tl.sum(tl.load(s2 + at, mask=mask, other=0.0), 0) / M
        m_mb = m + e1
        s_mb = tl.sqrt_rn(tl.maximum(e2 - e1 * e1, 0.0) + eps)
        r_max, d_max, decay = tl.load(limits), tl.load(limits + 1), tl.load(limits + 2)
        r = tl.minimum(tl.maximum(tl.div_rn(s_mb, s), tl.div_rn(1.0, r_max)), r_max)
        d = tl.minimum(tl.maximum(tl.div_rn(e1, s), -d_max), d_max)
        tl.store(mu + column, m + (1 - decay) * e1, mask=inside)
        tl.store(sigma + column, s + (1 - decay) * (s_mb - s), mask=inside)
    else:
        m_mb, s_mb, r, d = m, s, tl.full((BC,), 1.0, tl.float32), tl.zeros((BC,), tl.float32)
    inverse = tl.div_rn(1.0, s_mb)
    a = g * r * inverse
    tl.store(out + column, a, mask=inside)
    tl.store(out + C + column, g * d + b - m_mb * a, mask=inside)
    tl.store(out + 2 * C + column, m_mb, mask=inside)
    tl.store(out + 3 * C + column, inverse, mask=inside)
    tl.store(out + 4 * C + column, r, mask=inside)
    tl.store(out + 5 * C + column, d, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _forward_map(  # type: ignore[no-untyped-def]
    x, y, constants, M, C, CLIP: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = column < C
    a = tl.load(constants + column, mask=inside, other=0.0)
    b = tl.load(constants + C + column, mask=inside, other=0.0)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    mask = (row < M)[:, None] & inside[None, :]
    at = row[:, None].to(tl.int64) * C + column[None, :]
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    if CLIP:
        value = tl.minimum(tl.maximum(value, 0.0), 6.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_sums(  # type: ignore[no-untyped-def]
    dy,
    x,
    dx,
    constants,
    s1,
    s2,
    M,
    C,
    rows,
    CLIP: tl.constexpr,
    MAP: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Sum g and g xhat, with xhat = (x - mu_mb) / sigma_mb; g is dy, or 0 for clipped values.

    With MAP, compute dx = a g as well.
    """
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = column < C
    a = tl.load(constants + column, mask=inside, other=0.0)
    b = tl.load(constants + C + column, mask=inside, other=0.0)
    centre = tl.load(constants + 2 * C + column, mask=inside, other=0.0)
    first = tl.program_id(1) * rows
    sum1 = tl.zeros((BM, BC), tl.float32)
    sum2 = tl.zeros((BM, BC), tl.float32)
    for start in range(0, rows, BM):
        row = first + start + tl.arange(0, BM)
        mask = (row < M)[:, None] & inside[None, :]
        at = row[:, None].to(tl.int64) * C + column[None, :]
        g = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        u = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        if CLIP:
            value = u * a[None, :] + b[None, :]
            g = tl.where((value > 0.0) & (value < 6.0), g, 0.0)
        sum1 += g
        sum2 += g * (u - centre[None, :])
        if MAP:
            tl.store(dx + at, (g * a[None, :]).to(dx.dtype.element_ty), mask=mask)
    inverse = tl.load(constants + 3 * C + column, mask=inside, other=0.0)
    out = tl.program_id(1) * C + column
    tl.store(s1 + out, tl.sum(sum1, 0), mask=inside)
    tl.store(s2 + out, tl.sum(sum2, 0) * inverse, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_constants(  # type: ignore[no-untyped-def]
    s1, s2, constants, out, M, C, S, BS: tl.constexpr, BC: tl.constexpr
):
    """Compute dgamma, dbeta and the constants of dx = a g + q x + c in training."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = column < C
    piece = tl.arange(0, BS)
    mask = (piece < S)[:, None] & inside[None, :]
    at = piece[:, None] * C + column[None, :]
    sum_g = tl.sum(tl.load(s1 + at, mask=mask, other=0.0), 0)
    sum_gx = tl.sum(tl.load(s2 + at, mask=mask, other=0.0), 0)
    a = tl.load(constants + column, mask=inside, other=0.0)
    centre = tl.load(constants + 2 * C + column, mask=inside, other=0.0)
    inverse = tl.load(constants + 3 * C + column, mask=inside, other=0.0)
    r = tl.load(constants + 4 * C + column, mask=inside, other=0.0)
    d = tl.load(constants + 5 * C + column, mask=inside, other=0.0)
    tl.store(out + column, r * sum_gx + d * sum_g, mask=inside)
    tl.store(out + C + column, sum_g, mask=inside)
    q = -a * inverse * sum_gx / M
    c = -a * sum_g / M - q * centre
    tl.store(out + 2 * C + column, q, mask=inside)
    tl.store(out + 3 * C + column, c, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_map(  # type: ignore[no-untyped-def]
    dy, x, dx, constants, found, M, C, CLIP: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = column < C
    a = tl.load(constants + column, mask=inside, other=0.0)
    b = tl.load(constants + C + column, mask=inside, other=0.0)
    q = tl.load(found + 2 * C + column, mask=inside, other=0.0)
    c = tl.load(found + 3 * C + column, mask=inside, other=0.0)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    mask = (row < M)[:, None] & inside[None, :]
    at = row[:, None].to(tl.int64) * C + column[None, :]
    g = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    if CLIP:
        value = u * a[None, :] + b[None, :]
        g = tl.where((value > 0.0) & (value < 6.0), g, 0.0)
    value = g * a[None, :] + u * q[None, :] + c[None, :]
    tl.store(dx + at, value.to(dx.dtype.element_ty), mask=mask)


class FusedRenorm(torch.autograd.Function):
    """y = gamma xhat + beta, through a ReLU6 if `clip`   (see `BatchRenorm`)

    In training the function also updates mu and sigma.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mu: Tensor,
        sigma: Tensor,
        limits: Tensor,
        eps: float,
        training: bool,
        clip: bool,
    ) -> Tensor:
        """Return y; in training, update the moments."""
        M, C, BM, BC, S, rows = _tiling(x)
        blocks = triton.cdiv(C, BC)
        sums = torch.empty((2, S, C), device=x.device) if training else gamma
        if training:
            _forward_sums[(blocks, S)](x, mu, sums[0], sums[1], M, C, rows, BM, BC)
        constants = torch.empty((6, C), device=x.device)
        s1, s2 = (sums[0], sums[1]) if training else (sums, sums)
        BS = triton.next_power_of_2(S)
        _forward_constants[(triton.cdiv(C, 16),)](
            s1, s2, gamma, beta, mu, sigma, limits, constants, M, C, S, eps, training, BS, 16
        )
        y = torch.empty_like(x)
        _forward_map[(triton.cdiv(M, BM), blocks)](x, y, constants, M, C, clip, BM, BC)
        ctx.save_for_backward(x, constants)
        ctx.training, ctx.clip = training, clip
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return dx, dgamma and dbeta."""
        x, constants = ctx.saved_tensors
        dy = grads[0]
        if dy.stride() != x.stride():
            dy = torch.empty_like(x, dtype=dy.dtype).copy_(dy)
        M, C, BM, BC, S, rows = _tiling(x)
        blocks = triton.cdiv(C, BC)
        sums = torch.empty((2, S, C), device=x.device)
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        at_once = dx is not None and not ctx.training
        into = x if dx is None else dx  # the kernel needs some pointer
        _backward_sums[(blocks, S)](
            dy, x, into, constants, sums[0], sums[1], M, C, rows, ctx.clip, at_once, BM, BC
        )
        found = torch.empty((4, C), device=x.device)
        BS = triton.next_power_of_2(S)
        _backward_constants[(triton.cdiv(C, 16),)](
            sums[0], sums[1], constants, found, M, C, S, BS, 16
        )
        if dx is not None and not at_once:
            _backward_map[(triton.cdiv(M, BM), blocks)](
                dy, x, dx, constants, found, M, C, ctx.clip, BM, BC
            )
        return dx, found[0], found[1], None, None, None, None, None, None


def applies(x: Tensor) -> bool:
    """Return True if the kernels accept `x`: channels-last, or a matrix, of a float type."""
    layout = (
        x.is_contiguous(memory_format=torch.channels_last)
        if x.ndim == 4
        else x.ndim == 2 and x.is_contiguous()
    )
    return layout and x.dtype in (torch.float32, torch.bfloat16, torch.float16)


def _tiling(x: Tensor) -> tuple[int, int, int, int, int, int]:
    C = x.shape[1]
    M = x.numel() // C
    BC = min(triton.next_power_of_2(C), 128)
    BM = TILE // BC
    pieces = min(triton.cdiv(M, BM), PIECES, max(1, PROGRAMS // triton.cdiv(C, BC)))
    rows = triton.cdiv(triton.cdiv(M, pieces), BM) * BM
    return M, C, BM, BC, triton.cdiv(M, rows), rows
