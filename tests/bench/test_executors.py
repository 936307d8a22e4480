"""Cells give the same bits whoever runs them, and one that fails is alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from primavista.bench.cell import (
    CellEvent,
    CellJob,
    Interrupted,
    RunSettings,
    cell_stream,
    run_cell,
    torch_settings,
)
from primavista.bench.evaluate import evaluate
from primavista.bench.folder import CellFolder
from primavista.bench.identity import package_version
from primavista.bench.local import Inline, Processes
from primavista.bench.plan import load_plan
from primavista.bench.ray import _Driver, _Task
from primavista.bench.run import Suite, counts, seconds_left
from primavista.errors import InputError
from primavista.networks.base import build

ALL = ("ar1*", "cwr*", "dslda", "cumulative")


@pytest.mark.slow
def test_inline_and_processes_give_the_same_bits(suite, tmp_path, results):
    inline = suite(*ALL, out=tmp_path / "inline")
    processes = suite(*ALL, out=tmp_path / "processes")
    assert not inline.run(Inline())
    assert not processes.run(Processes(threads=2))
    found = results(tmp_path / "inline")
    assert len(found) == 4
    assert results(tmp_path / "processes") == found
    assert counts(processes.states) == {
        "done": 4,
        "running": 0,
        "failed": 0,
        "stopped": 0,
        "waiting": 0,
    }


def test_done_cells_are_not_run_again(suite):
    one = suite("dslda")
    one.run(Inline())
    heard = []
    suite("dslda").run(Inline(), lambda state, event: heard.append(event))
    assert heard == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", ["naive", "lwf", "ewc", "cwr+", "cwr*", "ar1", "ar1*", "dslda", "cumulative"]
)
def test_stopped_after_any_batch_a_cell_goes_on_to_the_same_bits(
    suite, tmp_path, results, strategy
):
    group = {"retrain": 3} if strategy == "cumulative" else {}
    whole = suite(strategy, out=tmp_path / "whole", group=group)
    whole.run(Inline())
    parts = suite(strategy, out=tmp_path / "parts", group=group)
    state = parts.states[0]
    for _ in range(6):
        job = CellJob(0, state.planned.cell, state.path)
        with pytest.raises(Interrupted):
            run_cell(job, parts.settings, should_stop=lambda: True)
    assert not suite(strategy, out=tmp_path / "parts", group=group).run(Inline())
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    assert len((state.path / "timings.jsonl").read_text().splitlines()) == 7


@pytest.mark.parametrize(("seconds", "written"), [(0.0, 6), (1e9, 0)])
def test_a_checkpoint_is_written_when_its_time_has_passed(suite, monkeypatch, seconds, written):
    """After each of seven batches but the last, or never."""
    one = suite("dslda", seconds=seconds)
    calls = []
    original = CellFolder.checkpoint
    monkeypatch.setattr(CellFolder, "checkpoint", lambda *args: (calls.append(1), original(*args)))
    assert not one.run(Inline())
    assert len(calls) == written


def test_a_cell_draws_from_its_own_seed(suite, tiny_data):
    """Run 1 of a plan with the seed 7 has the seed 8, and the losses of that seed."""
    one = suite("naive", seed=7, limit=1, group={"runs": [1]})
    assert not one.run(Inline())
    (state,) = one.states
    (line,) = (state.path / "metrics.jsonl").read_text().splitlines()
    losses = json.loads(line)["losses"]
    cell = state.planned.cell

    def losses_of(seed: int) -> list[float]:
        backbone = build("mobilenet_v1", "random", width=0.0625, size=32)
        with torch_settings(cell):
            (step,) = evaluate("naive", cell_stream(cell, tiny_data), backbone=backbone, seed=seed)
        return list(step.report.losses)

    assert losses == losses_of(8)
    assert losses != losses_of(1)


def test_the_files_of_a_cell(suite):
    one = suite("ar1*")
    one.run(Inline())
    place = one.states[0].path
    run = json.loads((place / "run.json").read_text())
    assert run["format"] == 1
    assert run["code"] == package_version()  # no code of the user's own
    assert (run["strategy"], run["protocol"], run["run"], run["seed"]) == ("ar1*", "nicv2", 0, 0)
    assert (run["device"], run["threads"], run["precision"], run["engine"]) == (
        "cpu",
        1,
        "float32",
        "torch",
    )
    assert run["options"]["w_1"] == 0.5
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    assert [line["batch"] for line in lines] == list(range(1, 8))
    assert set(lines[0]) == {
        "batch",
        "patterns",
        "new_classes",
        "losses",
        "saturated",
        "state_bytes",
        "stored_bytes",
        "measures",
        "class_accuracy",
    }
    assert set(lines[0]["measures"]) == {
        "accuracy",
        "seen_accuracy",
        "average_incremental",
        "average",
        "average_accuracy",
        "average_anytime",
        "learning_accuracy",
        "forgetting",
        "backward_transfer",
        "forward_transfer",
        "transfer_batches",
        "transfer_frames",
        "task_accuracy",
    }
    assert lines[0]["patterns"] == 6  # one session of 2 frames of 3 classes
    assert 0 <= lines[-1]["saturated"] <= 1
    result = json.loads((place / "result.json").read_text())
    assert result["final"] == lines[-1]["measures"]
    assert sum(map(sum, result["confusion"])) == 6 * 3 * 2
    assert (result["batches"], len(result["classes"])) == (7, 6)
    assert result["machine"]["torch"]
    timings = [json.loads(line) for line in (place / "timings.jsonl").read_text().splitlines()]
    for name in ("learn_seconds", "solve_seconds", "test_seconds"):
        assert result[name] == pytest.approx(sum(line[name] for line in timings))
    peaks = [line["peak_bytes"] for line in timings]  # None after another cell in this process
    assert result["peak_bytes"] == (None if None in peaks else max(peaks))
    assert result["operations"]["learning"] > result["operations"]["forward"] > 0
    assert result["data"]["test_frames"] == 6 * 3 * 2
    rows = [line["measures"]["task_accuracy"] for line in lines]
    assert list(rows[0]) == ["1"]
    assert list(rows[-1]) == [str(line["batch"]) for line in lines if line["new_classes"]]
    averaged = sum(rows[-1].values()) / len(rows[-1])
    assert result["final"]["average_accuracy"] == pytest.approx(averaged)
    assert not (place / "checkpoint.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("where", [Inline(), Processes(threads=1)], ids=["inline", "processes"])
def test_a_failed_cell_is_listed_with_its_reason_and_the_others_go_on(suite, where):
    """Weights that cannot be learned from: 'compat' has no room for label 5 in 4 outputs."""
    one = suite("cwr*", "dslda", group={"options": {"compat": "all_outputs", "capacity": 4}})
    failed = one.run(where)
    assert [state.planned.cell.strategy for state in failed] == ["cwr*"]
    assert "all outputs from the start: labels 0 to 3" in failed[0].reason
    reason = json.loads((failed[0].path / "failed.json").read_text())
    assert reason["reason"] == failed[0].reason
    assert "InputError" in reason["traceback"]
    assert [state.status for state in one.states] == ["failed", "done"]
    again = suite("cwr*", "dslda", group={"options": {"compat": "all_outputs", "capacity": 4}})
    assert [state.status for state in again.states] == ["failed", "done"]
    assert again.states[0].reason == failed[0].reason


class LostError(Exception):
    """An error of a worker, as Ray reports it."""


def driver_of(one, heard):
    """A driver with a cell, of a cluster whose workers fail."""

    def get(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    errors = SimpleNamespace(RayTaskError=LostError, RayError=LostError)
    ray = SimpleNamespace(get=get, exceptions=errors)
    mailbox = SimpleNamespace(collect=SimpleNamespace(remote=list))
    state = one.states[0]
    task = _Task(CellJob(0, state.planned.cell, state.path), attempt=1)
    return _Driver(ray, 1, one.settings, heard.append, mailbox, {0: task}), task, state.path


def test_a_damaged_checkpoint_under_ray_names_the_folder_of_the_cell(suite):
    heard = []
    driver, task, place = driver_of(suite("dslda"), heard)
    place.mkdir(parents=True)
    (place / "checkpoint.safetensors").write_bytes(b"damaged")
    driver.letters.append((1, CellEvent(0, "start"), {}))
    driver.letters.append((1, CellEvent(0, "failed", reason="/tmp/x/checkpoint is damaged"), {}))
    driver._collect()
    (event,) = heard
    assert event.kind == "failed"
    assert f"delete {place} to restart this cell" in event.reason
    assert json.loads((place / "failed.json").read_text())["reason"] == event.reason
    assert task.ended


def test_a_worker_of_ray_that_fails_before_its_cell_starts_leaves_the_reason(suite):
    heard = []
    driver, task, place = driver_of(suite("dslda"), heard)
    failure = LostError("no such package")
    driver.pending[failure] = task
    driver._end(failure)
    assert [event.reason for event in heard] == ["LostError: no such package"]
    assert json.loads((place / "failed.json").read_text())["reason"] == heard[0].reason
    with CellFolder(place, task.job.cell):
        pass  # it was closed


def test_a_protocol_that_the_data_cannot_have_is_said_before_the_first_cell(suite):
    one = suite("dslda", protocol="nicv2-391")
    with pytest.raises(InputError, match="batches must lie from 2 to"):
        one.run(Inline())
    assert not list(one.out.glob("nicv2*"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cells_for_a_gpu_where_there_is_none_fail_with_the_reason_and_nothing_is_drawn(
    suite, tmp_path
):
    one = suite("dslda", device="cuda")
    one.settings = replace(one.settings, cache=tmp_path / "cache")
    (failed,) = one.run(Inline())
    assert failed.reason == "this cell is for a GPU, and there is none: choose --device cpu"
    assert not (tmp_path / "cache").exists()


def test_other_settings_in_the_same_folder_are_refused(suite):
    suite("dslda").run(Inline())
    with pytest.raises(InputError, match="holds results with another seed: choose another folder"):
        suite("dslda", seed=7).run(Inline())


def test_a_refused_plan_does_not_claim_the_folder(suite):
    """Mistype, mend, run again: nothing was run before, so nothing is in the way."""
    wrong = suite("dslda", backbone={"name": "mobilenet_v1", "options": {"wdith": 0.5}})
    with pytest.raises(InputError, match="wdith"):
        wrong.run(Inline())
    right = suite("dslda")
    assert right.out == wrong.out
    assert right.run(Inline()) == []
    with pytest.raises(InputError, match="holds results with another seed"):
        suite("dslda", seed=7).run(Inline())


def test_the_time_left_is_estimated_by_strategy(suite):
    states = suite("dslda", "ar1*", group={"runs": 2}).states
    assert seconds_left(states, 1) is None
    for state in states:
        state.batches = 10
    dslda, ar1 = states[0], states[1]
    assert (dslda.planned.cell.strategy, ar1.planned.cell.strategy) == ("dslda", "ar1*")
    dslda.batch, dslda.seconds, dslda.status = 10, 10.0, "done"
    ar1.batch, ar1.seconds, ar1.status = 5, 20.0, "running"
    # 5 batches of 4 s, then 10 of 1 s and 10 of 4 s
    assert seconds_left(states, 1) == 5 * 4 + 10 * 1 + 10 * 4
    assert seconds_left(states, 2) == 40  # the longest of them
    dslda.batch = 0
    # of DSLDA nothing is known: it is taken to be as slow as AR1*
    assert seconds_left(states, 1) == 5 * 4 + 10 * 4 + 10 * 4


def test_a_cell_of_unknown_length_is_as_long_as_the_others(suite):
    """`bench status` does not open the data: finished cells tell how many batches there are."""
    done, running, waiting = suite("dslda", group={"runs": 3}).states
    for state in (done, running, waiting):
        state.batches = None
    done.batch, done.seconds, done.status = 5, 10.0, "done"
    running.batch, running.seconds, running.status = 1, 2.0, "running"
    assert seconds_left([done, running, waiting], 1) is None
    done.batches = 5
    assert seconds_left([done, running, waiting], 1) == 4 * 2 + 5 * 2


KILLED = """
import sys
from pathlib import Path
from primavista.bench.cell import RunSettings
from primavista.bench.local import Inline, Processes
from primavista.bench.plan import load_plan
from primavista.bench.run import Suite
if __name__ == "__main__":
    plan, out, cache, where = sys.argv[1:]
    settings = RunSettings(Path(cache), checkpoint_seconds=0.2)
    executor = Inline() if where == "inline" else Processes(2)
    Suite(load_plan(plan), Path(out), settings=settings).run(executor)
"""
PLAN = """
name = "kills"
device = "cpu"
test_thin = 1
limit = 12
data = { kind = "rendered", categories = 3, objects = 2, frames = 2, size = 32 }
backbone = { weights = "random", options = { width = 0.0625 } }
groups = [{ name = "all", strategies = ["ar1*", "cwr*", "ewc"], protocols = ["nicv2"] }]
"""


@pytest.mark.slow
def test_killed_at_any_moment_a_plan_goes_on_to_the_same_bits(tmp_path, cache, results):
    """SIGKILL at 5 and at 16 of the 36 lines; benchmarks/strain.py does it at random moments, as
    often as one likes.
    """
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    (tmp_path / "killed.py").write_text(KILLED)
    for lines, where in ((5, "inline"), (16, "processes")):
        command = [sys.executable, tmp_path / "killed.py", plan, tmp_path / "killed", cache, where]
        process = subprocess.Popen(
            [str(part) for part in command], env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        until = time.monotonic() + 60
        while (
            process.poll() is None
            and _lines(tmp_path / "killed") < lines
            and time.monotonic() < until
        ):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    assert len(results(tmp_path / "killed")) < 3
    for out in ("whole", "killed"):
        assert not Suite(load_plan(str(plan)), tmp_path / out, settings=RunSettings(cache)).run(
            Inline()
        )
    assert len(results(tmp_path / "whole")) == 3
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint_and_stops(tmp_path, cache):
    (tmp_path / "plan.toml").write_text(PLAN.replace("limit = 12", "limit = 43"))
    (tmp_path / "killed.py").write_text(
        KILLED.replace("checkpoint_seconds=0.2", "checkpoint_seconds=1e9")
    )
    command = [
        sys.executable,
        tmp_path / "killed.py",
        tmp_path / "plan.toml",
        tmp_path / "out",
        cache,
        "processes",
    ]
    process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while _lines(tmp_path / "out") < 4 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in error
    kept = list((tmp_path / "out").rglob("checkpoint.safetensors"))
    assert kept
    for place in kept:
        assert not (place.parent / "failed.json").exists()


def _lines(out):
    return sum(len(path.read_bytes().splitlines()) for path in out.rglob("metrics.jsonl"))
