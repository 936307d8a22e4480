"""A plain vision transformer (Dosovitskiy et al. 2021); its weights have the names of timm.

With layer scale and registers it is the network of DINOv2 (Oquab et al. 2023, Darcet et al. 2024),
whose own names of weights are the same.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.errors import InputError

EPS = 1e-6  # eps of the layer norms in the published weights
MLP_RATIO = 4
OFFSET = 0.1  # cells that DINO and DINOv2 add to the side of the grid of positions
MAX_REGISTERS = 4
LIMITS = {"patch": 64, "dim": 4096, "depth": 64, "heads": 64, "grid": 128}


Positions = Literal["plain", "offset", "antialias"]


class Attention(nn.Module):
    """Multi-head self-attention: softmax(q k / sqrt(d)) v over all tokens, then a projection.

    Args:
        dim: Number of features of a token.
        heads: Number of heads; `dim` must be a multiple of it.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x T x D to N x T x D."""
        count, tokens, dim = x.shape
        each = dim // self.heads

        # Written out, with the frames always in the first dimension, so that it can be exported.
        def split(part: Tensor) -> Tensor:
            own = part.reshape(count, tokens, self.heads, each).transpose(1, 2)
            return own.reshape(count * self.heads, tokens, each)

        qkv = self.qkv(x)
        q, k, v = (split(qkv[:, :, i * dim : (i + 1) * dim]) for i in range(3))
        weights = (torch.bmm(q, k.transpose(1, 2)) * each**-0.5).softmax(-1)
        mixed = torch.bmm(weights, v).reshape(count, self.heads, tokens, each).transpose(1, 2)
        y: Tensor = self.proj(mixed.reshape(count, tokens, dim))
        return y


class Mlp(nn.Module):
    """Two linear layers with GELU between them.

    Args:
        dim: Number of features of a token; the hidden layer has four times as many.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, MLP_RATIO * dim)
        self.fc2 = nn.Linear(MLP_RATIO * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map N x T x D to N x T x D."""
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y


class LayerScale(nn.Module):
    """gamma x, with one factor per feature.

    Args:
        dim: Number of features of a token.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map N x T x D to N x T x D."""
        return x * self.gamma


class TransformerBlock(nn.Module):
    """x + ls1(attention(norm(x))), and then the same with the two linear layers.

    Args:
        dim: Number of features of a token.
        heads: Number of heads.
        layer_scale: Whether ls1 and ls2 are learned factors; otherwise they are 1.
    """

    def __init__(self, dim: int, heads: int, layer_scale: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = Attention(dim, heads)
        self.ls1 = LayerScale(dim) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = Mlp(dim)
        self.ls2 = LayerScale(dim) if layer_scale else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map N x T x D to N x T x D."""
        x = x + self.ls1(self.attn(self.norm1(x)))
        y: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return y


class VisionTransformer(nn.Module):
    """N x 3 x H x W to N x `dim`: patches as tokens, a class token, and `depth` blocks.

    Its weights have the names of timm (`patch_embed.proj`, `blocks.0.attn.qkv`, ...), like those of
    DeiT, DINO and DINOv2. Frames may have another size than that of the weights, because the
    positions are interpolated; pixels to the right of the last whole patch and below it are not
    read. The defaults are those of ViT-Tiny/16.

    Args:
        patch: Side of a patch in pixels.
        dim: Number of features of a token: 192, 384, 768 for Tiny, Small, Base.
        depth: Number of blocks.
        heads: Number of heads: 3, 6, 12 for Tiny, Small, Base.
        grid: Number of patches per side that the weights have positions for: 14 for 224 px.
        pool: "token" to return the class token, "mean" to return the mean of the patches.
        registers: Number of tokens without a position after the class token, 0 to 4.
        layer_scale: Whether the blocks have learned factors, as those of DINOv2.
        positions: The interpolation of positions: "plain", "offset" as in DINO and DINOv2 (the grid
            is taken for a tenth of a cell larger), or "antialias" as in DINOv2 with registers.

    Raises:
        InputError: If an argument is out of range.

    >>> VisionTransformer(patch=8, dim=24, depth=2, grid=4)(torch.zeros(2, 3, 48, 48)).shape
    torch.Size([2, 24])
    """

    # keys of a file that are ignored: classifiers, and what hides patches when DINOv2 trains
    CLASSIFIER = ("head.", "head_dist.", "pre_logits.", "mask_token")

    def __init__(
        self,
        patch: int = 16,
        dim: int = 192,
        depth: int = 12,
        heads: int = 3,
        grid: int = 14,
        pool: Literal["token", "mean"] = "token",
        registers: int = 0,
        layer_scale: bool = False,
        positions: Positions = "plain",
    ) -> None:
        super().__init__()
        _check(patch=patch, dim=dim, depth=depth, heads=heads, grid=grid)
        _check_dinov2(registers, layer_scale, positions)
        if dim % heads or pool not in ("token", "mean"):
            raise InputError(
                f"dim must be a multiple of heads, and pool token or mean; got dim {dim}, "
                f"heads {heads}, pool {pool!r}"
            )
        self.pool, self.positions = pool, positions
        self.first_patch = 1 + registers
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid * grid, dim))
        # a dictionary gives its weights the names of timm
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, dim, patch, stride=patch)})
        blocks = (TransformerBlock(dim, heads, layer_scale) for _ in range(depth))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim, eps=EPS)
        tokens = [self.cls_token, self.pos_embed]
        if registers:
            self.register_tokens = nn.Parameter(torch.zeros(1, registers, dim))
            tokens.append(self.register_tokens)
        for tensor in tokens:
            nn.init.trunc_normal_(tensor, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of N x 3 x H x W images."""
        x = self.patch_embed["proj"](x)
        positions = self._positions(x.shape[2], x.shape[3])
        # The class token and the registers are rows of zeros, to which their values are added.
        x = F.pad(x.flatten(2).transpose(1, 2), (0, 0, self.first_patch, 0)) + positions
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x[:, :1].flatten(1) if self.pool == "token" else x[:, self.first_patch :].mean(1)

    def _positions(self, height: int, width: int) -> Tensor:
        """Return the positions to add to the tokens, 1 x T x D, for a grid of any size."""
        own = self.pos_embed[:, 1:]
        side = round(own.shape[1] ** 0.5)
        if (height, width) != (side, side):
            grid = own.reshape(1, side, side, -1).permute(0, 3, 1, 2)
            own = self._interpolated(grid, height, width).flatten(2).transpose(1, 2)
        registers = [self.register_tokens] if self.first_patch > 1 else []
        return torch.cat([self.cls_token + self.pos_embed[:, :1], *registers, own], 1)

    def _interpolated(self, grid: Tensor, height: int, width: int) -> Tensor:
        """Return positions, 1 x D x side x side, for a grid of another size."""
        to: dict[str, Any] = {"size": (height, width)}
        if self.positions == "offset":
            side = grid.shape[2]
            to = {"scale_factor": ((height + OFFSET) / side, (width + OFFSET) / side)}
        smooth = self.positions == "antialias"
        return F.interpolate(grid, mode="bicubic", antialias=smooth, align_corners=False, **to)


def _check(**values: int) -> None:
    for name, value in values.items():
        if type(value) is not int or not 1 <= value <= LIMITS[name]:
            raise InputError(
                f"{name} of a vision transformer must be a whole number from 1 to {LIMITS[name]}; "
                f"got {value!r}"
            )


def _check_dinov2(registers: int, layer_scale: bool, positions: str) -> None:
    if type(registers) is not int or not 0 <= registers <= MAX_REGISTERS:
        raise InputError(f"registers must be a whole number from 0 to {MAX_REGISTERS}")
    if not isinstance(layer_scale, bool):
        raise InputError(f"layer_scale must be True or False; got {layer_scale!r}")
    if positions not in get_args(Positions):
        raise InputError(f"positions is {', '.join(get_args(Positions))}; got {positions!r}")
