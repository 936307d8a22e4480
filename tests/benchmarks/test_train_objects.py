"""benchmarks/train_objects.py: its losses by hand, and weights that our loader reads."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import plates
import train_objects

from primavista.backbones.weights import SOURCES, load_source
from primavista.networks.base import build
from primavista.networks.places import MiddleBackbone
from primavista.networks.resnet50 import ResNet50


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_place_loss_is_the_mean_over_cells():
    found, told = random(2, 3, 2, 2), random(2, 3, 2, 2, seed=1)
    each = [
        1 - cosine(found[n, :, y, x], told[n, :, y, x])
        for n in range(2)
        for y in range(2)
        for x in range(2)
    ]
    assert float(train_objects.place_loss(found, told)) == pytest.approx(sum(each) / 8, abs=1e-5)


def test_matrix_loss_compares_the_cosines_of_different_frames():
    found, told = random(4, 3), random(4, 5, seed=1)
    above = below = 0.0
    for i in range(4):
        for j in range(4):
            if i != j:
                s, t = (cosine(z[i] - z.mean(0), z[j] - z.mean(0)) for z in (found, told))
                above, below = above + (s - t) ** 2, below + t**2
    assert float(train_objects.matrix_loss(found, told)) == pytest.approx(above / below, rel=1e-4)
    assert float(train_objects.matrix_loss(3 * told, told)) == pytest.approx(0, abs=1e-9)


def test_nearest_loss_is_small_only_if_the_same_object_is_nearest():
    """Two objects at -1 and 1: the cosines are 1 and -1, and log(1 + exp(-2 / 0.1)) is the loss."""
    one = torch.tensor([[1.0], [-1.0]])
    right = math.log(1 + math.exp(-20))
    assert float(train_objects.nearest_loss(one, one)) == pytest.approx(right, abs=1e-6)
    assert float(train_objects.nearest_loss(one, -one)) == pytest.approx(20 + right, rel=1e-5)


def test_a_teacher_that_is_linear_in_the_student_is_matched_from_the_start():
    found = [random(8, 5, 4, 4, seed=s) for s in range(3)]
    mixing = random(7, 5, seed=9)
    told = [torch.einsum("dc,nchw->ndhw", mixing, x) + 2 for x in found]
    match = train_objects.Match(found, told)
    with torch.no_grad():
        assert float(match(found[0], told[0])[0]) < 1e-3
        assert float(match(found[0], random(8, 7, 4, 4, seed=5))[0]) > 0.5


def test_eight_bits_round_to_half_a_step_of_each_channel():
    kernel = random(4, 3, 2, 2).numpy() * np.array([1, 10, 0.1, 0])[:, None, None, None]
    arrays = {"conv.weight": kernel, "bn.bias": np.array([1e6, 1e-6])}
    packed = train_objects.in_eight_bits(arrays)
    assert packed["conv.weight"].dtype == np.int8
    state = train_objects.from_eight_bits(packed)
    assert list(state) == ["conv.weight", "bn.bias"]
    steps = np.abs(kernel).max((1, 2, 3)) / 127
    errors = np.abs(state["conv.weight"].numpy() - kernel).max((1, 2, 3))
    assert (errors <= steps / 2 + 1e-6).all()
    assert state["bn.bias"].tolist() == pytest.approx([1e6, 1e-6])


def test_maps_are_those_that_prima_reads_in_the_trained_half():
    deep = MiddleBackbone(build("mobilenet_v1", size=64)).eval()
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    x = train_objects.normalised(deep, frames.permute(0, 3, 1, 2).float())
    with torch.no_grad():
        begun = train_objects.early(deep.body, x)
        maps = [*train_objects.late(deep.body, begun), begun]
        places = deep(frames).split(deep.sizes, 1)
    read = [(0, 1.0), (0, 1 / 2), (0, 1 / 3), (1, 1 / 3), (2, 1 / 3), None, (3, 1 / 3)]
    for place, what in zip(places, read, strict=True):
        if what is None:  # the quarters, which the training does not compare
            continue
        number, share = what
        assert torch.allclose(train_objects.features(maps[number], share), place, atol=1e-4)


def test_the_last_map_of_resnet_is_that_of_its_features_before_and_after_its_norms_are_folded():
    body = ResNet50()
    for k, buffer in enumerate(body.buffers()):
        if buffer.ndim:
            buffer.copy_(random(len(buffer), seed=k).abs() + 0.5)
    body.eval()
    x = random(1, 3, 64, 64)
    with torch.no_grad():
        z = body(x)
        for fold in (False, True):
            if fold:
                train_objects.fuse_norms(body)
                assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in body.modules())
            maps = train_objects.resnet_maps(body, x)
            assert torch.allclose(maps[0].mean((2, 3)), z, rtol=1e-3, atol=1e-5)
    assert [tuple(y.shape[1:]) for y in maps] == [(2048, 2, 2), *2 * [(1024, 4, 4)]]


def test_plates_of_a_family_differ_in_their_symbols_alone():
    colours = []
    for number in (0, 1, plates.FAMILY):
        pixels = np.asarray(plates.plate(5, number))
        assert pixels.shape == (plates.SIDE, plates.SIDE, 4)
        colours.append(set(map(tuple, pixels[:, plates.SIDE // 2])))
    assert colours[0] & colours[1] - {(0, 0, 0, 0)}
    sheets = [np.asarray(plates.plate(5, number)) for number in (0, 1)]
    assert np.array_equal(sheets[0][:30], sheets[1][:30])  # above the symbol
    assert not np.array_equal(*sheets)


def test_a_plate_is_filmed_in_two_sessions_the_same_way_each_time():
    pictures = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), np.uint8)
    found = plates.film(3, 1, pictures, 2, 32)
    assert found.shape == (2, 2, 32, 32, 3)
    assert np.array_equal(found, plates.film(3, 1, pictures, 2, 32))
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found, plates.film(3, 2, pictures, 2, 32))


def test_variations_follow_their_seed_and_stay_pixels():
    frames = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (24, 40, 40, 3), np.uint8))
    found = []
    for seed in (0, 0, 1):
        vary = train_objects.Variations(seed, "cpu")
        cropped = vary.cropped(frames, 32, 0.2, 0.5)
        found.append(vary.relit(vary.mixed(cropped)))
        assert found[-1].shape == (24, 3, 32, 32)
        assert 0 <= float(found[-1].min()) < float(found[-1].max()) <= 255
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    mixed = vary.mixed(cropped)
    assert any(torch.equal(a, b) for a, b in zip(mixed, cropped, strict=True))
    assert not torch.equal(mixed, cropped)


def test_the_learning_rate_rises_and_falls():
    assert train_objects.rate_at(0.0) < 0.01
    assert train_objects.rate_at(train_objects.WARM_UP) == 1
    assert train_objects.rate_at((1 + train_objects.WARM_UP) / 2) == pytest.approx(0.5)
    assert train_objects.rate_at(1.0) == pytest.approx(0)


@pytest.fixture
def tiny(monkeypatch) -> None:
    """Small frames, and a teacher with random weights."""
    monkeypatch.setattr(train_objects, "TEACHER_SIZE", 64)
    torch.manual_seed(0)
    resnet = build(ResNet50(), size=64).eval()
    monkeypatch.setattr(train_objects, "read_teacher", lambda path: resnet)

    def read(args: object) -> train_objects.Data:
        random = np.random.default_rng(0)

        def frames(*shape: int) -> torch.Tensor:
            return torch.from_numpy(random.integers(0, 256, (*shape, 64, 64, 3), np.uint8))

        objects, shown = frames(4, 2, 2), frames(8, 2, 2)
        return train_objects.Data(frames(8), objects, shown, frames(5), frames(3, 2, 2))

    monkeypatch.setattr(train_objects.Data, "read", read)


@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_two_steps_write_weights_that_our_loader_reads(tmp_path, monkeypatch, capsys):
    options = ["train", "--steps", "2", "--minibatch", "8", "--fit", "1", "--sizes", "64"]
    options += ["--object-share", "0.5", "--plate-share", "0.25"]
    options += ["--device", "cpu", "--precision", "float32", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["train_objects.py", *options, "--keep", "0", "0.5", "1"])
    train_objects.main()
    assert "step 1: place " in capsys.readouterr().out
    old = load_source(SOURCES["mobilenet_v1/imagenet"], "mobilenet_v1/imagenet")
    made = {}
    for keep in ("00", "50", "100"):
        path = tmp_path / f"objects_{keep}.safetensors"
        made[keep] = train_objects.load_file(path)
        assert {k: (x.shape, x.dtype) for k, x in made[keep].items()} == {
            k: (x.shape, x.dtype) for k, x in old.items()
        }
        assert build("mobilenet_v1", path, size=64).dim == 1024
    assert all(np.array_equal(made["100"][name], x) for name, x in old.items())
    for name, x in old.items():
        if "running" in name:
            assert np.array_equal(made["00"][name], x), name
        half = (made["00"][name].astype(np.float32) + x.astype(np.float32)) / 2
        assert np.allclose(made["50"][name], half, rtol=2e-3, atol=1e-4), name
    assert not np.array_equal(made["00"]["blocks.7.1.conv.weight"], old["blocks.7.1.conv.weight"])
    assert np.array_equal(made["00"]["blocks.6.1.conv.weight"], old["blocks.6.1.conv.weight"])
    mixing = ["mix", *(str(tmp_path / f"objects_{keep}.safetensors") for keep in ("00", "50"))]
    mixing += ["--keep", "0.5", "--out", str(tmp_path / "mixed.safetensors")]
    monkeypatch.setattr(sys, "argv", ["train_objects.py", *mixing])
    train_objects.main()
    mixed = train_objects.load_file(tmp_path / "mixed.safetensors")
    for name, x in old.items():  # three eighths new, the rest ImageNet's
        new = 0.375 * made["00"][name].astype(np.float32) + 0.625 * x.astype(np.float32)
        assert np.allclose(mixed[name], new, rtol=2e-3, atol=1e-4), name
    card = json.loads((tmp_path / "card.json").read_text())
    assert (card["steps"], card["frames"], card["seed"]) == (2, 16, 0)
    assert set(card["checks"]) == {"imagenet", *(f"objects_{k}.safetensors" for k in made)}
