"""Runs side by side give what they give one by one, and share their factorisations."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from primavista.bench import stacked as stacks
from primavista.bench.cell import CellJob, Interrupted, run_cell
from primavista.bench.evaluate import Step, collect
from primavista.bench.features import FeatureCache
from primavista.bench.folder import CHECKPOINT, FAILED
from primavista.bench.stacked import (
    evaluate_stacked,
    lda_updates,
    learn_together,
    solve_together,
    statistics_updates,
)
from primavista.bench.stacked_cells import run_stacked, stack
from primavista.strategies.base import EmbeddingStrategy
from primavista.strategies.creation import create
from primavista.streams.protocols import nicv2


def same(a: Step, b: Step) -> bool:
    measured = (
        "batch",
        "accuracy",
        "class_accuracy",
        "average",
        "forgetting",
        "forward_transfer",
        "state_bytes",
    )
    return all(getattr(a, name) == getattr(b, name) for name in measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dslda", "lda", "ridge", "ncm", "cwr*"])
def test_side_by_side_is_one_by_one_bit_for_bit(name, tiny_backbone, tiny_data):
    """On the CPU. The runs know other classes at any time, and one of them ends earlier."""
    streams = [nicv2(tiny_data, run=run)[: 12 - 4 * (run == 1)] for run in range(3)]
    alone = [create(name, tiny_backbone, seed=run) for run in range(3)]
    wanted = [collect(strategy, stream) for strategy, stream in zip(alone, streams, strict=True)]
    strategies, features = (
        [create(name, tiny_backbone, seed=run) for run in range(3)],
        FeatureCache(),
    )
    found: list[list[Step]] = [[], [], []]
    for number, step in evaluate_stacked(strategies, streams, features=features):
        found[number].append(step)
    for a, b, one, other in zip(wanted, found, alone, strategies, strict=True):
        assert [step.batch for step in b] == list(range(1, len(a) + 1))
        assert all(map(same, a, b))
        assert all(
            tensor.equal(other.state_dict()[key]) for key, tensor in one.state_dict().items()
        )


def steps_of_dslda(backbone, data, runs, batches):
    strategies = [create("dslda", backbone) for _ in range(runs)]
    streams = [nicv2(data, run=run)[:batches] for run in range(runs)]
    return list(evaluate_stacked(strategies, streams))


def test_one_factorisation_serves_all(tiny_backbone, tiny_data, monkeypatch):
    stacks = []
    original = torch.linalg.cholesky_ex
    monkeypatch.setattr(
        torch.linalg, "cholesky_ex", lambda a: (stacks.append(len(a)), original(a))[1]
    )
    monkeypatch.setattr(torch.linalg, "cholesky", lambda a: pytest.fail("one solved by itself"))
    assert len(steps_of_dslda(tiny_backbone, tiny_data, runs=4, batches=5)) == 4 * 5
    assert stacks == [4] * 5


def test_a_pause_is_charged_its_share(tiny_backbone, tiny_data, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr("primavista.bench.stacked.now", lambda strategy: 100.0 * next(clock))
    steps = [step for _, step in steps_of_dslda(tiny_backbone, tiny_data, runs=4, batches=2)]
    first, second = ([step for step in steps if step.batch == batch] for batch in (1, 2))
    assert all(
        25 <= step.test_seconds < 35 for step in first
    )  # 100 s among four, and their own milliseconds
    tried = sum(
        step.forward_transfer is not None for step in second
    )  # 100 s more among those who knew the class before
    assert tried > 1
    for step in second:
        wanted = 25 + (100 / tried if step.forward_transfer is not None else 0)
        assert wanted <= step.test_seconds < wanted + 10


def test_what_cannot_be_factorised_is_left_to_say_so_itself(tiny_backbone):
    good, bad = (create("dslda", tiny_backbone) for _ in range(2))
    z = torch.randn(20, tiny_backbone.dim, generator=torch.Generator().manual_seed(0))
    for strategy in (good, bad):
        strategy.learn_embedded(z, torch.arange(20) % 2)
    wanted = good.scores_embedded(z)
    good.learn_embedded(z, torch.arange(20) % 2)
    bad.statistics.scatter.fill_diagonal_(-1)
    solve_together([good, bad])
    assert good.scores_embedded(z).shape == wanted.shape
    with pytest.raises(RuntimeError, match="positive-definite"):
        bad.scores_embedded(z)


def jobs_of(suite):
    return [CellJob(n, state.planned.cell, state.path) for n, state in enumerate(suite.states)]


def test_cells_side_by_side_write_what_they_write_alone(suite, tmp_path, results):
    one, other = (suite("dslda", runs=3, out=tmp_path / where) for where in ("alone", "together"))
    for job in jobs_of(one):
        run_cell(job, one.settings)
    heard = []
    run_stacked(jobs_of(other), other.settings, heard.append)
    assert len(results(tmp_path / "alone")) == 3
    assert results(tmp_path / "together") == results(tmp_path / "alone")
    assert [event.kind for event in heard].count("done") == 3


def test_asked_to_stop_each_writes_its_checkpoint_and_goes_on(suite, tmp_path, results):
    whole, parts = (suite("dslda", runs=3, out=tmp_path / where) for where in ("whole", "parts"))
    run_stacked(jobs_of(whole), whole.settings, lambda event: None)
    with pytest.raises(Interrupted):
        run_stacked(jobs_of(parts), parts.settings, lambda event: None, lambda: True)
    assert all((state.path / CHECKPOINT).exists() for state in parts.states)
    run_stacked(
        jobs_of(parts)[:2], parts.settings, lambda event: None
    )  # and the company may be another
    run_cell(jobs_of(parts)[2], parts.settings)
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_one_that_fails_is_alone_and_settings_are_put_back(suite, tmp_path):
    threads = torch.get_num_threads()
    three = suite("dslda", runs=3, threads=2)
    jobs = jobs_of(three)
    jobs[1] = replace(
        jobs[1], cell=jobs[1].cell.model_copy(update={"options": {"shrinkage": "much"}})
    )
    seen, heard = set(), []

    def hear(event):
        heard.append((event.job, event.kind))
        seen.add(torch.get_num_threads())

    run_stacked(jobs, three.settings, hear)
    assert [(job, kind) for job, kind in heard if kind in ("done", "failed")] == [
        (1, "failed"),
        (0, "done"),
        (2, "done"),
    ]
    assert (jobs[1].folder / FAILED).exists()
    assert json.loads((jobs[2].folder / "result.json").read_text())["batches"] == 7
    assert seen == {2}  # until the last has ended
    assert torch.get_num_threads() == threads


def test_only_runs_of_one_cell_on_a_gpu_go_side_by_side(suite):
    jobs = jobs_of(suite("dslda", "cwr*", runs=3))
    assert stack(jobs) == jobs[:1]
    on_gpu = [replace(job, cell=job.cell.model_copy(update={"device": "cuda"})) for job in jobs]
    wanted = [job for job in on_gpu if job.cell.strategy == "dslda"]
    first = sorted(on_gpu, key=lambda job: job.cell.strategy != "dslda")
    assert stack(first) == wanted
    assert len(wanted) == 3
    assert stack(first, largest=2) == wanted[:2]
    assert stack(first[::-1]) == first[-1:]  # CWR* has nothing to solve
    exact = [
        replace(job, cell=job.cell.model_copy(update={"deterministic": True})) for job in first
    ]
    assert stack(exact) == exact[:1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("dslda", {}), ("lda", {}), ("ncm", {}), ("ridge", {}), ("prima", {"rule": "frames"})],
)
def test_updates_in_stacks_are_those_of_each(name, options, tiny_backbone):
    """Three runs that know other classes, one of them nothing yet, and have seen other counts."""
    draw = torch.Generator().manual_seed(0)

    def made():
        found = [create(name, tiny_backbone, **options) for _ in range(3)]
        for run, strategy in enumerate(found[:2]):
            z = torch.randn(30, strategy.backbone.dim, generator=torch.Generator().manual_seed(run))
            strategy.learn_embedded(z, torch.arange(30) % (2 + run))
        return found

    one_by_one, in_stacks = made(), made()
    update = lda_updates if name == "dslda" else statistics_updates
    zs = [torch.randn(7, one_by_one[0].backbone.dim, generator=draw) + 3 for _ in range(3)]
    for label in (1, 2, 5):
        labels = torch.full((7,), label)
        for strategy, z in zip(one_by_one, zs, strict=True):
            strategy.learn_embedded(z, labels)
        update([(s, s.begin_batch(z, labels)) for s, z in zip(in_stacks, zs, strict=True)])
    for a, b in zip(one_by_one, in_stacks, strict=True):
        assert a.state_dict().keys() == b.state_dict().keys()
        for key, tensor in a.state_dict().items():
            if key != "batches":  # counted by who calls
                torch.testing.assert_close(b.state_dict()[key], tensor, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            b.scores_embedded(zs[0]), a.scores_embedded(zs[0]), rtol=1e-6, atol=1e-6
        )


def test_what_learns_by_lessons_is_never_learned_as_sums_over_frames(tiny_backbone):
    on_a_gpu = SimpleNamespace(is_cuda=True)
    assert stacks._stacking(create("ridge", tiny_backbone), on_a_gpu) is statistics_updates
    assert stacks._stacking(create("prima", tiny_backbone), on_a_gpu) is None


def test_on_the_cpu_each_learns_by_itself(tiny_backbone):
    z = torch.randn(7, tiny_backbone.dim)
    strategies = [create("dslda", tiny_backbone) for _ in range(2)]
    assert learn_together(
        [(strategy, z, torch.zeros(7, dtype=torch.int64)) for strategy in strategies]
    ) == [None, None]
    assert [len(strategy.classes) for strategy in strategies] == [0, 0]


def test_a_stack_that_finds_no_memory_is_learned_one_by_one_and_nothing_twice(
    tiny_backbone, monkeypatch
):
    """Of two stacks, as their batches have other counts, the second finds none."""

    def moments(lessons):
        if lessons[0][1].count == 6:
            raise torch.OutOfMemoryError
        statistics_updates(lessons)

    monkeypatch.setattr(stacks, "_stacking", lambda strategy, z: moments)
    strategies = [create("lda", tiny_backbone) for _ in range(4)]
    zs = [torch.randn(count, tiny_backbone.dim) for count in (5, 5, 6, 6)]
    reports = learn_together(
        [(s, z, torch.full((len(z),), 3)) for s, z in zip(strategies, zs, strict=True)]
    )
    assert [(report.patterns, report.new_classes) for report in reports] == [
        (5, (3,)),
        (5, (3,)),
        (6, (3,)),
        (6, (3,)),
    ]
    assert [(s.moments.n.tolist(), int(s.batches)) for s in strategies] == [
        ([5], 1),
        ([5], 1),
        ([6], 1),
        ([6], 1),
    ]


def test_strategies_of_two_kinds_make_two_stacks(tiny_backbone, monkeypatch):
    seen = []
    monkeypatch.setattr(
        stacks,
        "_stacking",
        lambda strategy, z: lambda batches: seen.append([type(s) for s, _ in batches]),
    )
    kinds = ["lda", "ncm", "lda", "ncm", "ridge"]
    z, labels = torch.randn(5, tiny_backbone.dim), torch.zeros(5, dtype=torch.int64)
    reports = learn_together([(create(name, tiny_backbone), z, labels) for name in kinds])
    assert [[kind.__name__ for kind in kinds] for kinds in seen] == [["LDA", "LDA"], ["NCM", "NCM"]]
    assert [report is None for report in reports] == [False] * 4 + [True]


def test_solving_that_finds_no_memory_is_left_to_each(tiny_backbone, tiny_data, monkeypatch):
    def none(strategies):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("primavista.bench.stacked.solve_together", none)
    assert len(steps_of_dslda(tiny_backbone, tiny_data, runs=2, batches=3)) == 2 * 3


def test_the_features_of_a_test_are_charged_to_it(tiny_backbone, tiny_data, monkeypatch):
    embed = EmbeddingStrategy.embed

    def slow(self, images):
        time.sleep(0.2)
        return embed(self, images)

    monkeypatch.setattr(EmbeddingStrategy, "embed", slow)
    first, second = collect("dslda", nicv2(tiny_data)[:2], backbone=tiny_backbone)
    assert first.test_seconds >= 0.2
    assert first.learn_seconds >= 0.2
    assert second.test_seconds < 0.2  # they are kept
