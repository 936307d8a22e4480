"""Batch renormalisation (Ioffe 2017) as one autograd function, its schedule, and the swap for batch norm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.errors import InputError

Norm = Literal["bn", "brn"]
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class BatchRenorm(nn.Module):
    """y = gamma xhat + beta,  xhat = (x - mu_mb) / sigma_mb * r + d   (paper, section 2.2)

    r = clip(sigma_mb / sigma, 1 / r_max, r_max),  d = clip((mu_mb - mu) / sigma, -d_max, d_max), both without gradient and
    from the moments before this step; then mu <- decay mu + (1 - decay) mu_mb, and sigma likewise. sigma_mb is the biased
    deviation with eps under the root. In evaluation xhat = (x - mu) / sigma.

    `limits` holds (r_max, d_max, decay), a buffer, so that one captured step serves every batch. `debiased` is the release's
    start from nothing: the variance is averaged with the m / (m - 1) correction, and the averages divided by 1 - decay^t.

    >>> layer = BatchRenorm(1)
    >>> layer.set_limits(r_max=3, d_max=5, decay=0.99)
    >>> layer(torch.tensor([[1.0], [3.0]])).flatten().tolist()     # mu = 0 and sigma = 1 hold: nearly the identity
    [1.0, 3.0]
    """

    weight: nn.Parameter
    bias: nn.Parameter
    mu: Tensor
    sigma: Tensor
    limits: Tensor
    mass: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, debiased: bool = False) -> None:
        super().__init__()
        self.eps, self.debiased = eps, debiased
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mu", torch.zeros(channels))
        self.register_buffer(
            "sigma", torch.ones(channels)
        )  # the debiased form keeps the averaged variance here
        self.register_buffer("limits", torch.tensor([1.0, 0.0, 0.99]))
        if debiased:
            self.register_buffer(
                "mass", torch.zeros(())
            )  # 1 - decay^t: the weight that the averages have gathered
            self.sigma.zero_()

    def set_limits(self, r_max: float, d_max: float, decay: float) -> None:
        """Set r_max, d_max and the weight of the past in the moving averages."""
        self.limits.copy_(torch.tensor([r_max, d_max, decay]))

    def moments(self) -> tuple[Tensor, Tensor]:
        """The global mu and sigma."""
        if not self.debiased:
            return self.mu, self.sigma
        mass = torch.where(self.mass > 0, self.mass, 1.0)
        variance = torch.where(self.mass > 0, self.sigma / mass, 1.0)
        return self.mu / mass, (variance + self.eps).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        """N x C, N x C x L or N x C x H x W, normalised a channel."""
        if self._fuses(x):
            return self._fused(x, clip=False)
        if x.dtype in (torch.bfloat16, torch.float16):  # statistics are not
            return self(x.float()).to(x.dtype)  # type: ignore[no-any-return]
        mu, sigma = self.moments()
        if not self.training:
            gain = self.weight / sigma
            shape = [1, -1] + [1] * (x.ndim - 2)
            return x * gain.reshape(shape) + (self.bias - mu * gain).reshape(shape)
        y, mu_mb, sigma_mb = _Renorm.apply(
            x, self.weight, self.bias, mu, sigma, self.limits, self.eps
        )  # type: ignore[no-untyped-call]
        self._update(mu_mb, sigma_mb, x.numel() // x.shape[1])
        return y  # type: ignore[no-any-return]

    def relu6(self, x: Tensor) -> Tensor:
        """min(max(y, 0), 6), on a GPU in the kernels that give y."""
        return self._fused(x, clip=True) if self._fuses(x) else F.relu6(self(x))

    def _fuses(self, x: Tensor) -> bool:
        return x.is_cuda and not self.debiased and _has_triton() and _kernels().applies(x)

    def _fused(self, x: Tensor, clip: bool) -> Tensor:
        moments = (self.mu, self.sigma, self.limits, self.eps)
        y: Tensor = _kernels().FusedRenorm.apply(
            x, self.weight, self.bias, *moments, self.training, clip
        )
        return y

    @torch.no_grad()
    def _update(self, mu_mb: Tensor, sigma_mb: Tensor, m: int) -> None:
        decay = self.limits[2]
        if self.debiased:
            sigma_mb = (sigma_mb.square() - self.eps) * (m / max(m - 1, 1))
            self.mass.lerp_(torch.ones_like(self.mass), 1 - decay)
        self.mu.lerp_(mu_mb, 1 - decay)
        self.sigma.lerp_(sigma_mb, 1 - decay)

    def extra_repr(self) -> str:
        """Channels and eps, for print(module)."""
        return f"{len(self.mu)}, eps={self.eps}"


@cache
def _has_triton() -> bool:
    """It comes with torch for CUDA, and needs a C compiler when it is first used."""
    return (
        find_spec("triton") is not None
        and (which("cc") or which("gcc") or which("clang")) is not None
    )


def _kernels() -> Any:
    return import_module("primavista.engine.renorm_triton")


class _Renorm(torch.autograd.Function):
    """The forward is batch norm with scale gamma r and shift gamma d + beta; with r and d constant, so is the backward.

    dx is batch norm's with weight gamma r; dgamma = r sum(dy xhat_bn) + d sum(dy); dbeta = sum(dy).
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
    ) -> tuple[Tensor, Tensor, Tensor]:
        dims = [0, *range(2, x.ndim)]
        if x.is_cuda:
            mu_mb, invstd = torch.batch_norm_stats(x, eps)
            sigma_mb = invstd.reciprocal()
        else:
            var_mb, mu_mb = torch.var_mean(x, dims, correction=0)
            sigma_mb = (var_mb + eps).sqrt()
            invstd = sigma_mb.reciprocal()
        r_max, d_max = limits[0], limits[1]
        r = torch.clamp(sigma_mb / sigma, 1 / r_max, r_max)
        d = torch.clamp((mu_mb - mu) / sigma, -d_max, d_max)
        weight, bias = gamma * r, gamma * d + beta
        if x.is_cuda:
            y = torch.batch_norm_elemt(x, weight, bias, mu_mb, invstd, eps)
        else:
            y = F.batch_norm(x, mu_mb, var_mb, weight, bias, training=False, eps=eps)
        ctx.save_for_backward(x, weight, mu_mb, invstd, r, d)
        ctx.eps = eps
        ctx.mark_non_differentiable(mu_mb, sigma_mb)
        return y, mu_mb, sigma_mb

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy = grads[0]
        x, weight, mu_mb, invstd, r, d = ctx.saved_tensors
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
        return dx, r * dweight + d * dbias, dbias, None, None, None, None


def replace_batch_norm(module: nn.Module, debiased: bool = False) -> nn.Module:
    """Every batch norm of any module tree becomes a `BatchRenorm` with the same scale, shift, moments and eps.

    In place, except that a module which is itself a batch norm is returned replaced. A layer that stands in several
    places stays one layer.

    >>> replace_batch_norm(nn.Sequential(nn.Sequential(nn.BatchNorm2d(4))))[0][0]
    BatchRenorm(4, eps=1e-05)
    """
    made: dict[nn.Module, nn.Module] = {}

    def swapped(old: nn.Module) -> nn.Module:
        if isinstance(old, NORMS):
            if old not in made:
                made[old] = _renorm_like(old, debiased)
            return made[old]
        for name, child in list(
            old._modules.items()
        ):  # not named_children: it would skip a layer's second place
            if child is not None:
                old._modules[name] = swapped(child)
        return old

    return swapped(module)


def _renorm_like(old: nn.Module, debiased: bool) -> BatchRenorm:
    assert isinstance(old, NORMS)
    if isinstance(old, nn.modules.lazy.LazyModuleMixin):
        raise InputError(
            f"{type(old).__name__} has no channels yet: run the network once before it becomes a backbone"
        )
    if type(old).forward not in {
        kind.forward for kind in (*NORMS, nn.modules.batchnorm._BatchNorm)
    }:
        raise InputError(
            f"{type(old).__module__}.{type(old).__name__} is a batch norm that does more than normalise, so it cannot be "
            "replaced by batch renormalisation: make it a plain nn.BatchNorm2d and a layer for the rest, or choose norm='bn'"
        )
    new = BatchRenorm(old.num_features, old.eps, debiased)
    if (like := old.weight if old.running_mean is None else old.running_mean) is not None:
        new.to(like.device, like.dtype)
    with torch.no_grad():
        if old.affine:
            new.weight.copy_(old.weight)
            new.bias.copy_(old.bias)
        if old.running_mean is not None and old.running_var is not None and not debiased:
            new.mu.copy_(old.running_mean)
            new.sigma.copy_((old.running_var + old.eps).sqrt())
    new.weight.requires_grad_(old.affine)
    new.bias.requires_grad_(old.affine)
    new.train(old.training)
    return new


def norm_layers(module: nn.Module) -> Iterator[nn.Module]:
    """The norm layers of a module tree, of either kind, each once."""
    return (m for m in module.modules() if isinstance(m, (BatchRenorm, *NORMS)))


@dataclass(frozen=True)
class RenormLimits:
    """r_max, d_max and the weight of the past at one iteration."""

    r_max: float
    d_max: float
    decay: float


@dataclass(frozen=True)
class RenormSchedule:
    """Section 4. In batch 1: pure batch norm for `startup` iterations, then r_max to 3 and d_max to 5 over as many.

    r_max = 1 + 2 (t - startup + 1) / ramp,  d_max = 5 (t - startup + 1) / ramp,  t from 0; weight of the past 0.99.
    From batch 2 on: fixed r_max and d_max (`table:renormpar`), weight of the past 0.9999. `startup=None` is the half of batch
    1's iterations, rounded up, which on CORe50 (4 epochs of 24) is the paper's 48.

    >>> paper = RenormSchedule(r_max=1.5, d_max=2.5)
    >>> paper.at(1, 47, 96), paper.at(1, 95, 96)
    (RenormLimits(r_max=1.0, d_max=0.0, decay=0.99), RenormLimits(r_max=3.0, d_max=5.0, decay=0.99))
    >>> paper.at(2, 0, 12)
    RenormLimits(r_max=1.5, d_max=2.5, decay=0.9999)
    """

    r_max: float
    d_max: float
    decay: float = 0.9999
    r_max_1: float = 3.0
    d_max_1: float = 5.0
    decay_1: float = 0.99
    startup: int | None = None

    def at(self, i: int, t: int, iterations: int) -> RenormLimits:
        """The limits at iteration `t` (from 0) of the `iterations` of batch `i` (from 1)."""
        if i > 1:
            return RenormLimits(self.r_max, self.d_max, self.decay)
        startup = (iterations + 1) // 2 if self.startup is None else self.startup
        ramp = max(iterations - startup if self.startup is None else startup, 1)
        share = min(max(t - startup + 1, 0) / ramp, 1.0)
        return RenormLimits(1 + (self.r_max_1 - 1) * share, self.d_max_1 * share, self.decay_1)


def set_limits(module: nn.Module, limits: RenormLimits) -> None:
    """Put the schedule's values into every norm layer; batch norm takes the weight of the past alone."""
    buffers = []
    for layer in norm_layers(module):
        if isinstance(layer, BatchRenorm):
            buffers.append(layer.limits)
        else:
            layer.momentum = 1 - limits.decay  # type: ignore[assignment]
    if buffers:
        values = buffers[0].new_tensor([limits.r_max, limits.d_max, limits.decay])
        torch._foreach_copy_(buffers, [values] * len(buffers))
