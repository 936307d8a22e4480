"""Both directions of the adapter, with the real Avalanche: `make test-avalanche` installs it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import primavista as pv
from primavista.errors import InputError
from primavista.strategies.conformance import SIDE, tiny_backbone

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("avalanche", reason="Avalanche is not installed: make test-avalanche")
    from primavista.adapters.avalanche import AvalancheStrategy, stream_of, to_frames

from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute
from avalanche.evaluation.metrics import (
    accuracy_metrics,
    bwt_metrics,
    forgetting_metrics,
    loss_metrics,
)
from avalanche.training.plugins import EvaluationPlugin
from torch.utils.data import TensorDataset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "avalanche.md"
pytestmark = pytest.mark.filterwarnings("default")


def dataset(labels: list[int], seed: int) -> AvalancheDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(len(labels), 3, SIDE, SIDE, generator=generator) * 0.5
    x += 0.5 * torch.tensor([[k & 1, k >> 1 & 1, k >> 2] for k in labels])[:, :, None, None]
    tasks = DataAttribute([0] * len(labels), "targets_task_labels", use_in_getitem=True)
    return AvalancheDataset(
        [TensorDataset(x, torch.tensor(labels))],
        data_attributes=[DataAttribute(labels, "targets"), tasks],
    )


@pytest.fixture
def benchmark():
    train = [dataset([0, 3] * 6, 0), dataset([1] * 5 + [0] * 3, 1)]
    return benchmark_from_datasets(train=train, test=[dataset([0, 1, 3] * 4, 2)])


def test_a_benchmark_is_a_stream(benchmark):
    stream = stream_of(benchmark, name="toys")
    assert len(stream) == 2
    assert stream.data.classes == ("0", "1", "2", "3")
    assert [(s.label, s.number, len(s)) for s in stream.batches[1]] == [(0, 2, 3), (1, 1, 5)]
    first, second = stream
    assert sorted(first.labels.tolist()) == [0] * 6 + [3] * 6
    frames = second.images[torch.arange(8)]
    assert frames.shape == (8, SIDE, SIDE, 3)
    assert frames.dtype == torch.uint8
    source = benchmark.train_stream[1].dataset
    expected = torch.stack([source[i][0] for i in (5, 6, 7, 0, 1, 2, 3, 4)])  # class 0 first
    assert (frames == (expected * 255).round().permute(0, 2, 3, 1)).all()
    assert sorted(stream.test().labels.tolist()) == [0] * 4 + [1] * 4 + [3] * 4
    with pytest.raises(InputError, match="4 classes, but there are 2 names"):
        stream_of(benchmark, classes=["a", "b"])


@pytest.mark.parametrize("name", ["lda", "cwr*", "naive"])
def test_avalanches_loop_gives_what_ours_does(benchmark, name):
    """The same batches in both loops: the same accuracy after each, and the same scores."""
    ours = pv.create(name, tiny_backbone(), seed=1)
    stream = stream_of(benchmark)
    steps = list(pv.evaluate(ours, stream))
    metrics = accuracy_metrics(minibatch=True, epoch=True, experience=True, stream=True)
    evaluator = EvaluationPlugin(
        metrics, loss_metrics(stream=True), forgetting_metrics(stream=True), loggers=[]
    )
    theirs = AvalancheStrategy(
        pv.create(name, tiny_backbone(), seed=1), evaluator=evaluator, eval_mb_size=5
    )
    for step, experience in zip(steps, benchmark.train_stream, strict=True):
        theirs.train(experience, shuffle=False)
        found = theirs.eval(benchmark.test_stream)
        accuracy = found["Top1_Acc_Stream/eval_phase/test_stream"]
        assert np.isfinite(found["Loss_Stream/eval_phase/test_stream"])
        if name == "lda":  # the order of the frames within a batch does not matter to it
            assert 100 * accuracy == pytest.approx(step.accuracy)
        assert accuracy > 0.25
    assert theirs.strategy.classes.tolist() == ours.classes.tolist() == [0, 3, 1]
    if name == "lda":
        test = stream.test()
        frames = test.images[torch.arange(len(test.labels))]
        torch.testing.assert_close(theirs.strategy.scores(frames), ours.scores(frames))


def test_the_measures_are_avalanches():
    """Three experiences of two classes each, with a test set each: the same numbers.

    Ours are on all test frames after each batch, whatever was taught; Avalanche is asked about each
    experience. Its average over the classes met is its accuracy on the stream so far.
    """
    pairs = [[0, 3], [1, 4], [2, 5]]
    train = [dataset(pair * 6, k) for k, pair in enumerate(pairs)]
    test = [dataset(pair * 4, 9 + k) for k, pair in enumerate(pairs)]
    benchmark = benchmark_from_datasets(train=train, test=test)
    options = {"lr": 0.05, "epochs": 1}
    steps = list(pv.evaluate(pv.create("naive", tiny_backbone(), **options), stream_of(benchmark)))
    evaluator = EvaluationPlugin(
        accuracy_metrics(experience=True, stream=True),
        forgetting_metrics(stream=True),
        bwt_metrics(stream=True),
        loggers=[],
    )
    ours = pv.create("naive", tiny_backbone(), **options)
    theirs = AvalancheStrategy(ours, evaluator=evaluator, eval_mb_size=100)
    seen = []
    for i, (step, experience) in enumerate(zip(steps, benchmark.train_stream, strict=True), 1):
        theirs.train(experience, shuffle=False)
        found = theirs.eval(benchmark.test_stream)
        names = [name for name in found if name.startswith("Top1_Acc_Exp")]
        each = [100 * found[name] for name in sorted(names)]
        assert step.measures.task_accuracy == pytest.approx(dict(enumerate(each[:i], 1)))
        assert step.accuracy == pytest.approx(100 * found["Top1_Acc_Stream/eval_phase/test_stream"])
        seen.append(sum(each[:i]) / i)  # of tasks of equal size
        assert step.measures.average_incremental == pytest.approx(sum(seen) / i)
    changed = 100 * found["StreamBWT/eval_phase/test_stream"]
    assert changed != 0
    assert steps[-1].measures.backward_transfer == pytest.approx(changed)
    assert -changed == pytest.approx(100 * found["StreamForgetting/eval_phase/test_stream"])


def test_pictures_become_frames():
    x = torch.tensor([0.0, 0.5, 1.0]).reshape(1, 3, 1, 1)
    assert to_frames(x).flatten().tolist() == [0, 128, 255]
    grey = torch.tensor([[[[7]]]], dtype=torch.uint8)
    assert to_frames(grey).tolist() == [[[[7, 7, 7]]]]
    with pytest.raises(InputError, match="without Normalize"):
        to_frames(x - 0.5)
    with pytest.raises(InputError, match="N x 3 x H x W"):
        to_frames(torch.zeros(1, 4, 4, 4))


def test_the_pages_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M):
        exec(compile(block, str(PAGE), "exec"), scope)
