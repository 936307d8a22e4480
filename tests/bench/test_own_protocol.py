"""A protocol of the user's own in a plan: batches of one frame whose classes drift."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import primavista as pv
from primavista.bench.local import Inline
from primavista.bench.plan import Plan, make_plan
from primavista.bench.run import Suite
from primavista.report import write_report
from primavista.streams.dataset import DataSet, Session
from primavista.streams.open import stream

DRIFT = """
from dataclasses import replace

from drift_help_of_a_test import FIRST


def drifting(data, run, step=1):
    frames = [
        replace(session, start=start, stop=min(start + step, session.stop))
        for session in data.train
        for start in range(session.start, session.stop, step)
    ]
    frames.sort(key=lambda frame: (frame.start * 7 + run) % 11)
    return [frames[:FIRST], *([frame] for frame in frames[FIRST:])]


def broken(data, run, kind="test"):
    if kind == "none":
        return []
    if kind == "empty":
        return [data.train, []]
    if kind == "other":
        return [[session.label for session in data.train]]
    if kind == "label":
        return [[replace(data.train[0], label=1 - data.train[0].label)]]
    if kind == "longer":
        return [[replace(data.train[0], stop=data.train[0].stop + 1)]]
    return [data.test]
"""
PROTOCOL = "drift_of_a_test:drifting"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "drift_of_a_test.py").write_text(DRIFT)
    (folder / "drift_help_of_a_test.py").write_text("FIRST = 2\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("drift_of_a_test", "drift_help_of_a_test"):
        sys.modules.pop(name, None)


def plan_with(protocol: str) -> Plan:
    table: dict[str, Any] = {
        "name": "drift",
        "device": "cpu",
        "runs": 2,
        "data": {"kind": "rendered", "objects": 1, "frames": 2, "size": 32},
        "backbone": {"weights": "random", "options": {"width": 0.0625}},
        "groups": [{"name": "main", "strategies": ["ncm"], "protocols": [protocol]}],
    }
    return make_plan(table)


def test_a_plan_runs_a_protocol_of_ones_own(site: Path, tmp_path: Path) -> None:
    plan = plan_with(f"{PROTOCOL}:step=1")
    assert "drift_of_a_test" not in sys.modules  # a plan imports nothing
    assert plan.own_code == [PROTOCOL]
    pv.register(PROTOCOL)
    out = tmp_path / "out"
    suite = Suite(plan, out)
    assert not suite.run(Inline())
    state, other = suite.states
    assert (state.status, other.status) == ("done", "done")
    record = json.loads((out / state.planned.folder / "run.json").read_text())
    assert record["protocol"] == f"{PROTOCOL}:step=1"
    lines = (out / state.planned.folder / "metrics.jsonl").read_text().splitlines()
    # 10 objects with 8 videos of 2 frames to learn from: two frames in batch 1, then one by one
    assert len(lines) == 10 * 8 * 2 - 2 + 1
    assert len({line.planned.cell.key for line in suite.states}) == 2
    page = write_report(out, figures=["svg"])
    assert "drifting, step=1" in page.read_text("utf-8")

    # the function and what it imports belong to the identity of the cell
    key = plan.planned()[0].cell.key
    (site / "drift_help_of_a_test.py").write_text("FIRST = 3\n")
    assert plan.planned()[0].cell.key != key
    page = write_report(out, figures=["svg"])
    assert "the code that computes it has changed" in page.read_text("utf-8")


def test_a_plan_with_wrong_parameters_of_ones_own_protocol_is_refused(site: Path) -> None:
    plan = plan_with(f"{PROTOCOL}:stride=1")
    pv.register(PROTOCOL)
    with pytest.raises(
        pv.InputError, match=r"group 'main': .* unexpected keyword argument 'stride'"
    ):
        plan.planned()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("none", "must return a list of batches, none of them empty"),
        ("empty", "must return a list of batches, none of them empty"),
        ("other", "batch 1 of .*drift_of_a_test:broken has 0, which is neither"),
        ("label", "neither a training session"),
        ("longer", "nor a part of one"),
        ("test", "neither a training session"),
    ],
)
def test_batches_are_of_training_frames(site: Path, kind: str, message: str) -> None:
    pv.register("drift_of_a_test:broken")
    train = (Session(0, 1, 0, 4), Session(1, 1, 4, 8))
    data = DataSet("toy", [], train, (Session(0, 2, 8, 9),), ("a", "b"), (0, 1))  # type: ignore[arg-type]
    with pytest.raises(pv.InputError, match=message):
        stream(data, f"drift_of_a_test:broken:kind={kind}")
