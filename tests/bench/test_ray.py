"""Cells on a Ray cluster of two nodes on this machine."""

from __future__ import annotations

import pytest

from primavista.bench.cell import CellJob, run_cell
from primavista.bench.folder import CellFolder
from primavista.bench.local import Inline
from primavista.bench.ray import RayCluster
from primavista.errors import InputError

ray = pytest.importorskip("ray")
# one cluster at a time: two on one machine get in each other's way
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore"),
]
ALL = ("ar1*", "cwr*", "dslda", "naive")


def test_a_node_killed_in_the_middle_costs_only_time(cluster, suite, tmp_path, results):
    suite(*ALL, out=tmp_path / "inline", limit=40).run(Inline())
    distributed = suite(*ALL, out=tmp_path / "ray", limit=40, seconds=0.0)
    kinds = []
    learned: dict[int, int] = {}

    def kill(state, event):
        kinds.append(event.kind)
        learned[event.job] = max(learned.get(event.job, 0), event.line.get("batch", 0))
        if cluster.second and len(learned) >= 2 and min(sorted(learned.values())[-2:]) >= 4:
            cluster.remove_node(cluster.second, allow_graceful=False)
            cluster.second = None

    assert not distributed.run(RayCluster(), kill)
    assert cluster.second is None
    assert "restarted" in kinds
    found = results(tmp_path / "inline")
    assert len(found) == 4
    assert results(tmp_path / "ray") == found


def test_a_stopped_plan_goes_on_and_a_failed_cell_is_alone(cluster, suite, tmp_path, results):
    suite(*ALL[:2], out=tmp_path / "inline", limit=20).run(Inline())
    out = tmp_path / "ray"

    def stop(state, event):
        if event.kind == "batch" and event.line["batch"] >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite(*ALL[:2], out=out, limit=20).run(RayCluster(), stop)
    assert list(out.rglob("checkpoint.safetensors"))
    heard = []
    assert not suite(*ALL[:2], out=out, limit=20).run(
        RayCluster(), lambda state, event: heard.append(event)
    )
    begun = {event.job: event.line["batch"] for event in reversed(heard) if event.kind == "batch"}
    assert max(begun.values()) > 3  # not from the start
    assert results(out) == results(tmp_path / "inline")
    bad = suite(
        "cwr*",
        "dslda",
        out=tmp_path / "bad",
        group={"options": {"compat": "all_outputs", "capacity": 4}},
    )
    failed = bad.run(RayCluster())
    assert [state.planned.cell.strategy for state in failed] == ["cwr*"]
    assert "all outputs from the start" in failed[0].reason
    assert (failed[0].path / "failed.json").exists()


def test_what_was_begun_here_goes_on_there(cluster, suite, tmp_path, results, monkeypatch):
    """Killed after its checkpoint, with more lines in its files than the checkpoint has seen."""
    suite("ewc", out=tmp_path / "inline", limit=12).run(Inline())
    begun = suite("ewc", out=tmp_path / "ray", limit=12, seconds=0.0)
    state = begun.states[0]

    def die(event):
        if event.kind == "batch" and event.line["batch"] == 5:
            monkeypatch.setattr(CellFolder, "checkpoint", lambda *_: None)
        if event.kind == "batch" and event.line["batch"] == 6:
            raise SystemExit

    with pytest.raises(SystemExit):
        run_cell(CellJob(0, state.planned.cell, state.path), begun.settings, die)
    assert len((state.path / "metrics.jsonl").read_text().splitlines()) == 6
    heard = []
    assert not suite("ewc", out=tmp_path / "ray", limit=12).run(
        RayCluster(), lambda state, event: heard.append(event)
    )
    assert [event.line["batch"] for event in heard if event.kind == "batch"] == list(range(5, 13))
    assert results(tmp_path / "ray") == results(tmp_path / "inline")


def test_cells_that_no_node_has_room_for(cluster, suite):
    with pytest.raises(
        InputError, match="cells have 64 threads, and no node of the cluster has more than 1"
    ):
        suite("dslda", threads=64).run(RayCluster())
