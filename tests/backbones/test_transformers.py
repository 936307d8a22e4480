"""Transformers of the user: their tokens as places, their export, what freezing means for them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.errors import InputError
from primavista.networks.base import Backbone, build
from primavista.networks.middle import (
    MiddleBackbone,
    as_map,
    blocks_with_maps,
)
from primavista.nn.freezing import set_freezing
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.creation import create


class Attention(nn.Module):
    """Written out, as in timm without its fused attention, so that it can be exported."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        count, tokens, dim = x.shape
        each = dim // self.heads

        def split(part: Tensor) -> Tensor:
            own = part.reshape(count, tokens, self.heads, each).transpose(1, 2)
            return own.reshape(count * self.heads, tokens, each)

        qkv = self.qkv(x)
        q, k, v = (split(qkv[:, :, i * dim : (i + 1) * dim]) for i in range(3))
        weights = (torch.bmm(q, k.transpose(1, 2)) * each**-0.5).softmax(-1)
        mixed = torch.bmm(weights, v).reshape(count, self.heads, tokens, each).transpose(1, 2)
        y: Tensor = self.proj(mixed.reshape(count, tokens, dim))
        return y


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Transformer(nn.Module):
    """A vision transformer as a user brings it: patches as tokens, a class token, blocks."""

    def __init__(self, pool: str, depth: int, size: int, patch: int = 8, dim: int = 24) -> None:
        super().__init__()
        self.pool = pool
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, dim))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, dim, patch, stride=patch)})
        self.blocks = nn.ModuleList(Block(dim, 3) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = F.pad(x, (0, 0, 1, 0)) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x[:, :1].flatten(1) if self.pool == "token" else x[:, 1:].mean(1)


def tiny(size: int = 32, pool: str = "token", depth: int = 6) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(Transformer(pool, depth, size), size=size)


def frames(count: int, size: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator)


def test_tokens_are_maps_row_by_row() -> None:
    tokens = torch.arange(2 * 7 * 3.0).reshape(2, 7, 3)  # 3 registers, then 2 x 2 patches
    found = as_map(tokens)
    assert found.shape == (2, 3, 2, 2)
    for row in range(2):
        for column in range(2):
            assert torch.equal(found[:, :, row, column], tokens[:, 3 + 2 * row + column])
    maps = torch.zeros(1, 2, 3, 4)
    assert as_map(maps) is maps


def test_prima_reads_the_depth_of_a_transformer() -> None:
    backbone = tiny().eval()
    assert [shape for _, shape in blocks_with_maps(backbone)] == [(24, 4, 4)] * 6
    deep = MiddleBackbone(backbone).eval()
    assert deep.sizes == (24,) * 7
    kept: list[Tensor] = []
    handle = deep.body.blocks[5].register_forward_hook(lambda m, i, out: kept.append(out))
    z = deep(frames(2))
    handle.remove()
    x = kept[0][:, 1:].reshape(2, 4, 4, 24)  # the last block, without the class token
    middle = x[:, 1:3, 1:3].mean((1, 2))  # half of each side
    rooted = middle / (middle.abs() + 1e-3).sqrt()
    assert torch.allclose(z[:, 24:48], rooted, atol=1e-6)


def test_a_module_of_the_users_own_with_tokens_is_read_too() -> None:
    class Other(nn.Module):
        """As torchvision's: the encoder is a sequence of batch-first layers."""

        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 8, 8)
            self.token = nn.Parameter(torch.zeros(1, 1, 16))
            layers = [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(6)]
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Tensor) -> Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
            y: Tensor = self.layers(x)[:, 0]
            return y

    deep = MiddleBackbone(build(Other(), size=32))
    assert deep.sizes == (16,) * 7


@pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")
@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("kind", ["plain", "mean", "middle"])
def test_onnx_runtime_computes_the_same(size: int, kind: str) -> None:
    backbone = tiny(size, pool="mean" if kind == "mean" else "token")
    if kind == "middle":
        backbone = MiddleBackbone(backbone)
    backbone.eval()
    features = OnnxFeatures()
    for count in (1, 5):
        with torch.no_grad():
            expected = backbone(frames(count, size))
        assert features.session(backbone, frames(count, size)) is not None
        found = features(backbone, frames(count, size))
        assert (found - expected).abs().max() < 1e-3
        assert expected.std() > 1e-2


def test_freezing_of_a_transformer_is_its_patches_or_nothing() -> None:
    backbone = tiny()
    assert set_freezing(backbone, "depthwise") == [
        "body.patch_embed.proj.weight",
        "body.patch_embed.proj.bias",
    ]
    assert set_freezing(backbone, "none") == []
    for freeze in ("pointwise", "all"):
        with pytest.raises(InputError, match=f"freeze='{freeze}' fixes pointwise convolutions"):
            create("naive", backbone, freeze=freeze)


@pytest.mark.filterwarnings("ignore:Cumulative stores every frame")
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_learns_with_a_transformer(name: str) -> None:
    strategy = create(name, tiny(depth=3), seed=0)
    before = {key: value.clone() for key, value in strategy.backbone.state_dict().items()}
    for first in (0, 2):
        labels = torch.tensor([first, first + 1] * 6)
        strategy.learn(frames(12, seed=first), labels)
    scores = strategy.scores(frames(4))
    assert scores.shape == (4, 4)
    assert scores.isfinite().all()
    assert any(isinstance(module, nn.LayerNorm) for module in strategy.backbone.modules())
    moved = [k for k, v in strategy.backbone.state_dict().items() if not torch.equal(v, before[k])]
    if name in ("naive", "ar1*"):
        assert any("blocks.0.attn.qkv" in key for key in moved)
    if name in ("prima", "ridge", "lda", "ncm", "dslda"):
        assert moved == []
