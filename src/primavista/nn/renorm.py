"""Batch renormalisation (Ioffe 2017) and the schedule of its limits (paper, sections 2.2 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.engine.renorm_function import (
    HALF,
    RenormFunction,
    can_fuse,
    evaluated,
    fused_renorm,
    limit_values,
    minibatch_moments,
)
from primavista.errors import InputError
from primavista.heads.options import Moments

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class BatchRenorm(nn.Module):
    """y = gamma xhat + beta,  xhat = (x - mu_mb) / sigma_mb * r + d   (equation 2)

    r = sigma_mb / sigma and d = (mu_mb - mu) / sigma (equation 3) are clipped to [1 / r_max, r_max]
    and [-d_max, d_max], are constants for the gradient, and use the moments before this step. Then
    mu <- decay mu + (1 - decay) mu_mb, and sigma likewise. sigma_mb is the biased deviation, with
    eps under the root (equation 1 has it outside). In evaluation xhat = (x - mu) / sigma.

    The limits are a buffer (r_max, d_max, decay), so one captured step serves every batch.

    >>> layer = BatchRenorm(1)
    >>> set_limits(layer, RenormLimits(r_max=3, d_max=5, decay=0.99))
    >>> layer(torch.tensor([[1.0], [3.0]])).flatten().tolist()  # mu = 0, sigma = 1: the identity
    [1.0, 3.0]
    """

    FUSES: ClassVar[bool] = True  # True if the GPU kernels compute the same function
    mu: Tensor
    sigma: Tensor
    limits: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mu", torch.zeros(channels))
        self.register_buffer("sigma", torch.ones(channels))
        self.register_buffer("limits", torch.tensor([1.0, 0.0, 0.99]))

    def start_from(self, mean: Tensor, variance: Tensor) -> None:
        """Start from the moments of a batch norm, its running mean and running variance."""
        self.mu.copy_(mean)
        self.sigma.copy_((variance + self.eps).sqrt())

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the moments mu and sigma; those of the release differ (`strategies/caffe.py`)."""
        return self.mu, self.sigma

    def forward(self, x: Tensor, clip: bool = False) -> Tensor:
        """Normalise each channel of x, N x C, N x C x L or N x C x H x W; `clip` as in `relu6`."""
        if self.FUSES and can_fuse(x):
            settings = (self.mu, self.sigma, self.limits, self.eps, self.training, clip)
            return fused_renorm(x, self.weight, self.bias, *settings)
        if x.dtype in HALF:  # the moments need float32
            y = self.forward(x.float()).to(x.dtype)
        elif self.training:
            return self._normalised_in_training(x, clip)
        else:
            y = evaluated(x, self.weight, self.bias, *self.moments())
        return F.relu6(y) if clip else y

    def relu6(self, x: Tensor) -> Tensor:
        """Return min(max(y, 0), 6), in one pass if possible."""
        return self.forward(x, clip=True)

    def _normalised_in_training(self, x: Tensor, clip: bool) -> Tensor:
        """Compute y from the moments of the minibatch x, and update mu and sigma with them."""
        (mu, sigma), (r_max, d_max, _) = self.moments(), limit_values(self.limits)
        with torch.no_grad():
            mu_mb, sigma_mb, var_mb, invstd = minibatch_moments(x, self.eps)
            r = torch.clamp(sigma_mb / sigma, 1 / r_max, r_max)  # equation 3
            d = torch.clamp((mu_mb - mu) / sigma, -d_max, d_max)
            self._update(mu_mb, sigma_mb, x.numel() // x.shape[1])
        # equation 2: y = gamma ((x - mu_mb) / sigma_mb * r + d) + beta
        y: Tensor = RenormFunction.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, r, d, mu_mb, var_mb, invstd, self.eps, clip
        )
        return y

    @torch.no_grad()
    def _update(self, mu_mb: Tensor, sigma_mb: Tensor, m: int) -> None:
        _, _, decay = limit_values(self.limits)
        self.mu.lerp_(mu_mb, 1 - decay)
        self.sigma.lerp_(sigma_mb, 1 - decay)

    def extra_repr(self) -> str:
        """Return the channels and eps, for `print(module)`."""
        return f"{len(self.mu)}, eps={self.eps}"


@dataclass(frozen=True)
class RenormLimits:
    """The limits r_max and d_max, and the weight `decay` of the past, at one iteration."""

    r_max: float
    d_max: float
    decay: float


@dataclass(frozen=True)
class RenormSchedule:
    """r_max = 1 + 2 (t - startup + 1) / startup,  d_max = 5 (t - startup + 1) / startup

    In batch 1 (section 4) the limits rise up to 3 and 5, after `startup` iterations of pure batch
    norm; t counts from 0. The moments are averaged with decay 0.99 over batch 1 alone and inherited
    by batch 2. The paper leaves open how the limits rise, here linearly, and how the average
    begins: minibatch t has the weight (1 - decay) / (1 - decay^(t + 1)), so the first one replaces
    the old moments. From batch 2 on the limits are those of Table 5.

    >>> paper = RenormSchedule(r_max=1.5, d_max=2.5)
    >>> paper.at(1, 0, 24)
    RenormLimits(r_max=1.0, d_max=0.0, decay=0.0)
    >>> limits = paper.at(1, 95, 24)
    >>> limits.r_max, limits.d_max, round(limits.decay, 3)
    (3.0, 5.0, 0.984)
    >>> paper.at(2, 0, 3)
    RenormLimits(r_max=1.5, d_max=2.5, decay=0.9999)
    """

    r_max: float  # r_max, d_max and decay hold from batch 2 on
    d_max: float
    decay: float = 0.9999  # the weight of the past
    r_max_1: float = 3.0  # the end of the ramp in batch 1
    d_max_1: float = 5.0
    decay_1: float = 0.99
    startup: int | None = None  # None for two epochs, which are the paper's 48 iterations on CORe50
    moments: Moments = "batch_1"  # or `pretrained`, to continue those of the network

    def at(self, i: int, t: int, per_epoch: int) -> RenormLimits:
        """Return the limits at iteration t of batch i; an epoch has `per_epoch` iterations."""
        if i > 1:
            return RenormLimits(self.r_max, self.d_max, self.decay)
        startup = 2 * per_epoch if self.startup is None else self.startup
        share = min(max(t - startup + 1, 0) / max(startup, 1), 1.0)
        decay = self.decay_1
        if self.moments == "batch_1" and decay < 1:
            decay = 1 - (1 - decay) / (1 - decay ** (t + 1))
        return RenormLimits(1 + (self.r_max_1 - 1) * share, self.d_max_1 * share, decay)


def norm_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Return the norm layers of a module tree, batch norm or batch renormalisation, each once."""
    return (m for m in module.modules() if isinstance(m, (BatchRenorm, *BATCH_NORMS)))


def set_limits(module: nn.Module, limits: RenormLimits) -> None:
    """Set the limits of every norm layer; a batch norm uses only the weight of the past."""
    buffers = []
    for layer in norm_layers(module):
        if isinstance(layer, BatchRenorm):
            buffers.append(layer.limits)
        else:
            layer.momentum = 1 - limits.decay  # type: ignore[assignment]
    if buffers:
        values = buffers[0].new_tensor([limits.r_max, limits.d_max, limits.decay])
        torch._foreach_copy_(buffers, [values] * len(buffers))


def replace_batch_norm(module: nn.Module, kind: type[BatchRenorm] = BatchRenorm) -> nn.Module:
    """Replace every batch norm of a module tree; scale, shift, moments and eps stay the same.

    Weights that are fixed stay fixed; a norm without scale and shift gets them, fixed at 1 and 0.
    The tree is changed in place; if `module` itself is a batch norm, its replacement is returned. A
    layer that occurs in several places stays one layer. An InputError is raised if a batch norm
    does more than normalise.

    >>> replace_batch_norm(nn.Sequential(nn.Sequential(nn.BatchNorm2d(4))))[0][0]
    BatchRenorm(4, eps=1e-05)
    """
    made: dict[nn.Module, nn.Module] = {}

    def replaced(old: nn.Module) -> nn.Module:
        if isinstance(old, BATCH_NORMS):
            if old not in made:
                made[old] = _renorm_like(old, kind)
            return made[old]
        # named_children would skip the second occurrence of a layer
        for name, child in list(old._modules.items()):
            if child is not None:
                old._modules[name] = replaced(child)
        return old

    return replaced(module)


def _renorm_like(old: nn.Module, kind: type[BatchRenorm]) -> BatchRenorm:
    assert isinstance(old, BATCH_NORMS)
    _check_plain(old)
    new = kind(old.num_features, old.eps)
    like = old.weight if old.running_mean is None else old.running_mean
    if like is not None:
        new.to(like.device, like.dtype)
    with torch.no_grad():
        if old.affine:
            new.weight.copy_(old.weight)
            new.bias.copy_(old.bias)
        if old.running_mean is not None and old.running_var is not None:
            new.start_from(old.running_mean, old.running_var)
    new.weight.requires_grad_(old.affine and old.weight.requires_grad)
    new.bias.requires_grad_(old.affine and old.bias.requires_grad)
    new.train(old.training)
    return new


def _check_plain(old: nn.Module) -> None:
    name = type(old).__name__
    plain = {kind.forward for kind in (*BATCH_NORMS, nn.modules.batchnorm._BatchNorm)}
    if type(old).forward not in plain:
        raise InputError(
            f"{type(old).__module__}.{name} is a batch norm that does more than normalise, so it "
            "cannot be replaced by batch renormalisation: make it a plain nn.BatchNorm2d and a "
            "layer for the rest, or choose norm='bn'"
        )
