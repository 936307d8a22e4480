"""An exported learner scores as the strategy does, in another runtime, and says what its columns
are.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from primavista import InputError, Learner
from primavista.cli.app import app
from primavista.engine.representation import onnx_installed
from primavista.learner.export import export
from primavista.learner.with_torch import equal_strategy
from primavista.strategies.builtin import STRATEGIES

pytestmark = pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")


def frames(seed: int, count: int = 5) -> np.ndarray:
    base = np.random.default_rng(seed).integers(0, 200, 3)
    noise = np.random.default_rng(seed + 100).integers(0, 55, (count, 32, 32, 3))
    return (base + noise).astype(np.uint8)


def taught(strategy: str, **options: object) -> Learner:
    learner = Learner(strategy, weights="random", width=0.25, size=32, **options)
    for k, name in enumerate(["mug", "kettle", "тарелка"]):
        learner.learn(frames(k), name)
    return learner


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "cumulative"])
def test_scores_are_those_of_the_strategy(strategy, tmp_path):
    learner = taught(strategy, engine="torch")
    model = session(export(learner, tmp_path / "a.onnx"))
    for count in (1, 7):
        given = np.concatenate([frames(k, count) for k in range(3)])
        right = learner.strategy.judge(given).scores
        z, scores = model.run(["z", "scores"], {"frames": given})
        assert scores.shape == (3 * count, 3)
        assert np.abs(scores - right).max() <= 1e-4 * max(1, np.abs(right).max())
        features = equal_strategy(learner.strategy).representation.features(
            torch.from_numpy(given), frozen=False
        )
        assert np.abs(z - features.numpy()).max() < 1e-4
    best = model.run(["scores"], {"frames": given})[0].argmax(1)
    assert best.tolist() == right.argmax(1).tolist()


def test_columns_of_classes_not_taught_are_left_out(tmp_path):
    learner = taught("cwr*", compat="caffe", capacity=10, engine="torch")
    model = session(export(learner, tmp_path / "a.onnx"))
    assert model.run(["scores"], {"frames": frames(0)})[0].shape == (5, 3)


def test_the_metadata_says_all_that_is_needed(tmp_path):
    about = session(export(taught("cwr*"), tmp_path / "a.onnx")).get_modelmeta().custom_metadata_map
    told = json.loads(about["primavista"])
    assert told["classes"] == ["mug", "kettle", "тарелка"]
    assert told["preprocessing"]["size"] == 32
    assert told["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert told["strategy"] == "cwr*"


@pytest.mark.parametrize(
    ("strategy", "threshold_of"),
    [("prima", "familiarity"), ("dslda", "familiarity"), ("naive", "confidence")],
)
def test_scores_become_the_shares_of_predict(strategy, threshold_of, tmp_path):
    learner = taught(strategy, engine="torch")
    model = session(export(learner, tmp_path / "a.onnx"))
    told = json.loads(model.get_modelmeta().custom_metadata_map["primavista"])
    assert [output.name for output in model.get_outputs()] == ["z", "scores"]
    x = model.run(["scores"], {"frames": frames(1)})[0] / told["temperature"]
    shares = np.exp(x - x.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    for row, prediction in zip(shares, learner.predict(frames(1)), strict=True):
        assert dict(zip(told["classes"], row, strict=True)) == pytest.approx(
            prediction.scores, abs=1e-3
        )
    assert (told["threshold"], told["threshold_of"]) == (learner.threshold, threshold_of)
    assert (learner.predict(frames(1))[0].familiarity is None) == (threshold_of == "confidence")


def test_equal_learners_give_equal_bytes(tmp_path):
    learner = taught("dslda")
    for kind in ("onnx", "portable"):
        one, two = (export(learner, tmp_path / name, kind).read_bytes() for name in ("one", "two"))
        assert one == two


def test_nothing_taught_nothing_written(tmp_path):
    learner = Learner("cwr*", weights="random", width=0.25, size=32)
    with pytest.raises(InputError, match="teach it"):
        export(learner, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d, nn.BatchNorm2d])
@pytest.mark.parametrize("kind", ["onnx", "portable"])
def test_a_network_that_cannot_be_written_is_refused(norm, kind, tmp_path):
    own = nn.Sequential(nn.Conv2d(3, 6, 3), norm(6, track_running_stats=False), nn.ReLU())
    learner = Learner("dslda", backbone=own, size=32, engine="torch")
    learner.learn(frames(0), "mug")
    with pytest.raises(InputError, match="written as ONNX: a batch norm in training mode"):
        export(learner, tmp_path / "a", kind)
    assert not list(tmp_path.iterdir())


WITHOUT_TORCH = """
import sys
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, package=None: None if name == "torch" else find(name, package)
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
import numpy as np
import primavista as pv
learner = pv.Learner.load(sys.argv[1])
frames = np.load(sys.argv[2])
print([list(one.scores.values()) for one in learner.predict(frames)])
"""


@pytest.mark.parametrize("strategy", ["prima", "cwr*", "dslda"])
def test_a_portable_file_is_read_without_torch(strategy, tmp_path):
    """Of any network; what learns from features learns there too."""
    learner = taught(strategy, engine="torch")
    np.save(tmp_path / "frames.npy", frames(1))
    export(learner, tmp_path / "a.pv", "portable")
    more = "learner.learn(frames, 'mug'); learner.save(sys.argv[1])"
    command = [sys.executable, "-c", WITHOUT_TORCH + more]
    done = subprocess.run(
        [*command, str(tmp_path / "a.pv"), str(tmp_path / "frames.npy")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = [list(one.scores.values()) for one in learner.predict(frames(1))]
    assert np.allclose(json.loads(done.stdout), expected, atol=1e-3)
    again = Learner.load(tmp_path / "a.pv", engine="torch")
    assert again.counts["mug"] == learner.counts["mug"] + 5


def test_a_strategy_that_trains_its_network_is_not_portable(tmp_path):
    with pytest.raises(InputError, match=r"ar1\* trains its network.*onnx"):
        export(taught("ar1*"), tmp_path / "a.pv", "portable")
    assert not list(tmp_path.iterdir())


def test_from_the_terminal(tmp_path):
    taught("cwr*").save(tmp_path / "kitchen.pv")
    runner = CliRunner()
    done = runner.invoke(app, ["export", str(tmp_path / "kitchen.pv")])
    assert done.exit_code == 0, done.output
    assert session(tmp_path / "kitchen.onnx").run(["scores"], {"frames": frames(0)})[0].shape == (
        5,
        3,
    )
    assert "kettle" in done.output
    shutil.rmtree(tmp_path)
