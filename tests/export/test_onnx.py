"""An exported learner scores as the strategy does, in another runtime, and says what its columns
are.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from primavista import InputError, Learner
from primavista.cli.app import app
from primavista.engine.representation import onnx_installed
from primavista.learner.export import export
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
        right = learner.strategy.scores(torch.from_numpy(given)).numpy()
        z, scores = model.run(["z", "scores"], {"frames": given})
        assert scores.shape == (3 * count, 3)
        assert np.abs(scores - right).max() <= 1e-4 * max(1, np.abs(right).max())
        features = learner.strategy.representation.features(torch.from_numpy(given), frozen=False)
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
    for kind in ("onnx", "edge"):
        one, two = (export(learner, tmp_path / name, kind).read_bytes() for name in ("one", "two"))
        assert one == two


def test_nothing_taught_nothing_written(tmp_path):
    learner = Learner("cwr*", weights="random", width=0.25, size=32)
    with pytest.raises(InputError, match="teach it"):
        export(learner, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def test_the_file_for_the_edge_is_a_learner_too(tmp_path):
    learner = taught("cwr*")
    export(learner, tmp_path / "a.edge.pv", "edge")
    again = Learner.load(tmp_path / "a.edge.pv")
    assert again.predict(frames(1)) == learner.predict(frames(1))
    learner.save(tmp_path / "a.pv")
    again.save(tmp_path / "b.pv")
    assert (tmp_path / "a.pv").read_bytes() == (tmp_path / "b.pv").read_bytes()


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
