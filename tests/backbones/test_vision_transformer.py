"""Vision transformers: the network itself, its weights' names, its tokens as places, its export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from primavista.backbones.spec import Spec
from primavista.backbones.weights import WeightsError
from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.errors import InputError
from primavista.learner.learner import Learner
from primavista.networks.base import build, rebuild
from primavista.networks.places import (
    MiddleBackbone,
    as_map,
    blocks_with_maps,
)
from primavista.networks.vision_transformer import VisionTransformer
from primavista.nn.freezing import set_freezing
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.creation import create

TINY = {"patch": 8, "dim": 24, "depth": 6, "heads": 3, "grid": 4}


def tiny(size: int = 32, seed: int = 0, **options: int | str):  # type: ignore[no-untyped-def]
    return build("vit", "random", size=size, seed=seed, **{**TINY, **options})


def frames(count: int, size: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator)


def reference(body: VisionTransformer, x: Tensor) -> Tensor:
    """The same network from torch's own encoder layers and an explicit loop over the patches."""
    dim, patch = body.norm.normalized_shape[0], body.patch_embed.proj.kernel_size[0]
    kernel = body.patch_embed.proj.weight.flatten(1)
    tokens = [body.cls_token.expand(len(x), -1, -1)]
    for top in range(0, x.shape[2], patch):
        for left in range(0, x.shape[3], patch):
            cut = x[:, :, top : top + patch, left : left + patch].flatten(1)
            tokens.append((cut @ kernel.T + body.patch_embed.proj.bias)[:, None])
    z = torch.cat(tokens, 1) + body.pos_embed
    if body.first_patch > 1:
        z = torch.cat([z[:, :1], body.register_tokens.expand(len(x), -1, -1), z[:, 1:]], 1)
    for block in body.blocks:
        layer = nn.TransformerEncoderLayer(
            dim, block.attn.heads, 4 * dim, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True
        )
        own = {
            "self_attn.in_proj_weight": block.attn.qkv.weight,
            "self_attn.in_proj_bias": block.attn.qkv.bias,
            "self_attn.out_proj.weight": block.attn.proj.weight,
            "self_attn.out_proj.bias": block.attn.proj.bias,
            "linear1.weight": block.mlp.fc1.weight,
            "linear1.bias": block.mlp.fc1.bias,
            "linear2.weight": block.mlp.fc2.weight,
            "linear2.bias": block.mlp.fc2.bias,
            "norm1.weight": block.norm1.weight,
            "norm1.bias": block.norm1.bias,
            "norm2.weight": block.norm2.weight,
            "norm2.bias": block.norm2.bias,
        }
        # layer scale is linear, so its factors can be part of the projection before it
        for scale, last in ((block.ls1, "self_attn.out_proj"), (block.ls2, "linear2")):
            if not isinstance(scale, nn.Identity):
                own[f"{last}.weight"] = scale.gamma[:, None] * own[f"{last}.weight"]
                own[f"{last}.bias"] = scale.gamma * own[f"{last}.bias"]
        layer.load_state_dict(own)
        z = layer.eval()(z)
    return body.norm(z)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_it_computes_what_torchs_encoder_computes(pool: str) -> None:
    body = tiny(pool=pool).body.eval()
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = reference(body, x), body(x)
    expected = expected[:, 0] if pool == "token" else expected[:, 1:].mean(1)
    assert torch.allclose(found, expected, atol=1e-5)
    assert found.std() > 0.1


def dinov2_state(registers: int = 4) -> dict[str, Tensor]:
    """Random weights under the names and with the shapes of DINOv2's files, smaller."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, 24),
        "pos_embed": (1, 1 + 5 * 5, 24),
        "mask_token": (1, 24),
        "patch_embed.proj.weight": (24, 3, 14, 14),
        "patch_embed.proj.bias": (24,),
        "norm.weight": (24,),
        "norm.bias": (24,),
    }
    if registers:
        shapes["register_tokens"] = (1, registers, 24)
    for k in range(6):
        shapes |= {
            f"blocks.{k}.norm1.weight": (24,),
            f"blocks.{k}.norm1.bias": (24,),
            f"blocks.{k}.attn.qkv.weight": (72, 24),
            f"blocks.{k}.attn.qkv.bias": (72,),
            f"blocks.{k}.attn.proj.weight": (24, 24),
            f"blocks.{k}.attn.proj.bias": (24,),
            f"blocks.{k}.ls1.gamma": (24,),
            f"blocks.{k}.norm2.weight": (24,),
            f"blocks.{k}.norm2.bias": (24,),
            f"blocks.{k}.mlp.fc1.weight": (96, 24),
            f"blocks.{k}.mlp.fc1.bias": (96,),
            f"blocks.{k}.mlp.fc2.weight": (24, 96),
            f"blocks.{k}.mlp.fc2.bias": (24,),
            f"blocks.{k}.ls2.gamma": (24,),
        }
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) / 4 for name, shape in shapes.items()}


DINOV2 = {"patch": 14, "dim": 24, "depth": 6, "heads": 3, "grid": 5, "layer_scale": True}


@pytest.mark.parametrize("registers", [0, 4])
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_the_files_of_dinov2_load(tmp_path: Path, registers: int, pool: str) -> None:
    torch.save(dinov2_state(registers), tmp_path / "dinov2.pth")
    options = {**DINOV2, "registers": registers, "pool": pool}
    body = build("vit", tmp_path / "dinov2.pth", size=70, **options).body.eval()
    x = torch.randn(2, 3, 70, 70, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = reference(body, x), body(x)
    expected = expected[:, 0] if pool == "token" else expected[:, 1 + registers :].mean(1)
    assert torch.allclose(found, expected, atol=1e-5)
    assert found.std() > 0.1
    with pytest.raises(WeightsError, match=r"keys missing|unknown"):
        build("vit", tmp_path / "dinov2.pth", size=70, **{**options, "layer_scale": False})
    with pytest.raises(WeightsError, match=r"keys missing|unknown|shape"):
        build("vit", tmp_path / "dinov2.pth", size=70, **{**options, "registers": 2})


def test_a_learner_with_dinov2_reads_the_patches_and_comes_back(tmp_path: Path) -> None:
    torch.save(dinov2_state(), tmp_path / "dinov2.pth")
    options = {**DINOV2, "registers": 4, "positions": "antialias"}
    backbone = build("vit", tmp_path / "dinov2.pth", size=70, **options)
    deep = MiddleBackbone(backbone).eval()
    assert [shape for _, shape in blocks_with_maps(deep)] == [(24, 5, 5)] * 6
    kept: list[Tensor] = []
    deep.body.blocks[5].register_forward_hook(lambda m, i, out: kept.append(out))
    with torch.no_grad():
        z = deep(frames(1, 70))
    x = kept[0][:, 5:].reshape(5, 5, 24)
    shares = torch.tensor([0.0, 0.3, 0.4, 0.3, 0.0])  # half of five patches
    middle = torch.einsum("h,w,hwd->d", shares, shares, x)
    assert torch.allclose(z[0, 24:48], middle / (middle.abs() + 1e-3).sqrt(), atol=1e-5)
    learner = Learner(backbone=backbone)
    learner.learn(frames(4, 70, 1).numpy() // 2, "dark")
    learner.learn(frames(4, 70, 2).numpy() // 2 + 127, "bright")
    learner.save(tmp_path / "learner.pv")
    again = Learner.load(tmp_path / "learner.pv")
    asked = frames(2, 70, 3).numpy()
    assert [p.scores for p in again.predict(asked)] == [p.scores for p in learner.predict(asked)]


def cubic(row: np.ndarray, count: int, scale: float) -> np.ndarray:
    """A line of numbers at (i + 1/2) / scale - 1/2, by Keys' cubic with a = -0.75."""
    found = np.zeros(count)
    for i in range(count):
        at = (i + 0.5) / scale - 0.5
        first = int(np.floor(at)) - 1
        for k in range(first, first + 4):
            d, a = abs(at - k), -0.75
            near = (a + 2) * d**3 - (a + 3) * d**2 + 1
            far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            found[i] += (near if d <= 1 else far) * row[min(max(k, 0), len(row) - 1)]
    return found


@pytest.mark.parametrize("positions", ["plain", "offset", "antialias"])
@pytest.mark.parametrize("side", [3, 7])
def test_positions_are_interpolated_as_the_publishers_do(positions: str, side: int) -> None:
    body = tiny(grid=5, positions=positions).body
    grid = body.pos_embed[0, 1:, 0].detach().reshape(5, 5).numpy()
    if positions == "antialias":
        small = Image.fromarray(grid).resize((side, side), Image.Resampling.BICUBIC)
        expected = np.asarray(small)
    else:
        scale = (side + (0.1 if positions == "offset" else 0)) / 5
        across = np.stack([cubic(row, side, scale) for row in grid])
        expected = np.stack([cubic(column, side, scale) for column in across.T], axis=1)
    with torch.no_grad():
        found = body._positions(side, side)[0, 1:, 0].reshape(side, side).numpy()
    assert np.allclose(found, expected, atol=1e-5)


def test_it_has_the_size_of_the_published_ones() -> None:
    """DeiT-Tiny has 5.5 million weights without its classifier (5.7 with 1,000 classes)."""
    body = VisionTransformer()
    assert sum(p.numel() for p in body.parameters()) == 5_717_416 - 192 * 1000 - 1000
    assert tuple(body.pos_embed.shape) == (1, 197, 192)


def test_random_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first, state = tiny(), torch.get_rng_state()
    torch.manual_seed(2)
    again = tiny()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert not torch.equal(tiny(seed=1)(frames(1)), first(frames(1)))
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_frames_of_another_size_than_that_of_the_weights() -> None:
    body = tiny().body
    x = torch.randn(1, 3, 48, 48)
    assert body(x).shape == (1, 24)
    with torch.no_grad():
        body.pos_embed.fill_(0.25)  # constants stay what they are when they are interpolated
        assert torch.allclose(body._positions(6, 6)[:, 1:], torch.tensor(0.25), atol=1e-5)


def test_published_names_are_understood(tmp_path: Path) -> None:
    source = tiny(seed=3)
    state = {key: value.contiguous() for key, value in source.body.state_dict().items()}
    classifier = {"head.weight": torch.zeros(10, 24), "head.bias": torch.zeros(10)}
    save_file({**state, **classifier}, tmp_path / "vit.safetensors")
    loaded = build("vit", tmp_path / "vit.safetensors", size=32, **TINY)
    assert torch.equal(loaded(frames(2)), source(frames(2)))
    with pytest.raises(WeightsError, match="keys missing"):
        build("vit", tmp_path / "vit.safetensors", size=32, **{**TINY, "depth": 7})
    with pytest.raises(WeightsError, match="Give the options that these weights were made with"):
        build("vit", tmp_path / "vit.safetensors", size=32, **{**TINY, "grid": 5})


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 25},
        {"dim": 10**6},
        {"depth": 10**6},
        {"heads": 0},
        {"patch": 8.0},
        {"grid": "x"},
        {"pool": "max"},
        {"registers": 5},
        {"layer_scale": 1},
        {"positions": "bilinear"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    words = r"whole number from [01]|multiple of heads|True or False|positions is plain, offset"
    with pytest.raises(InputError, match=words):
        tiny(**options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="vit has no option colour"):
        tiny(colour=3)
    with pytest.raises(InputError, match="vit has no weights 'imagenet': choose from random"):
        build("vit", "imagenet", size=32)


def test_a_file_cannot_ask_for_more_than_it_holds() -> None:
    spec = Spec("vit", 224, (0.5,) * 3, (0.5,) * 3, {"dim": 4096, "depth": 64, "heads": 64})
    with pytest.raises(InputError, match="which is not in the file"):
        rebuild(spec, {"pos_embed": (1, 197, 192)})


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
@pytest.mark.parametrize("kind", ["plain", "mean", "middle", "registers"])
def test_onnx_runtime_computes_the_same(size: int, kind: str) -> None:
    options = {"registers": 4, "layer_scale": True} if kind == "registers" else {}
    backbone = tiny(size, pool="mean" if kind == "mean" else "token", **options)
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


def coloured(red: int, blue: int) -> np.ndarray:  # type: ignore[type-arg]
    noise = np.random.default_rng(red).integers(0, 60, (12, 32, 32, 3), np.uint8)
    return noise + np.array([red, 0, blue], np.uint8)


REDS, BLUES = coloured(180, 0), coloured(0, 180)


@pytest.fixture
def learner() -> Learner:
    made = Learner("prima", backbone=tiny())
    made.learn(REDS[:8], "red")
    made.learn(BLUES[:8], "blue")
    return made


def test_a_learner_with_a_transformer_comes_back_from_its_file(
    learner: Learner, tmp_path: Path
) -> None:
    assert [one.label for one in learner.predict(BLUES[8:])] == ["blue"] * 4
    learner.save(tmp_path / "learner.pv")
    again = Learner.load(tmp_path / "learner.pv")
    assert [p.scores for p in again.predict(REDS)] == [p.scores for p in learner.predict(REDS)]
