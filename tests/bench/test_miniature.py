"""The shipped plans whole, in miniature."""

from __future__ import annotations

import pytest

from primavista.bench.cell import RunSettings
from primavista.bench.folder import METRICS, read_json, read_lines
from primavista.bench.local import Inline, Processes
from primavista.bench.plan import load_plan
from primavista.bench.run import Suite
from primavista.report import write_report

SMALL = [
    "data.frames=1",
    "data.size=32",
    "runs=2",
    "limit=4",
    "device=cpu",
    "backbone.weights=random",
]
TINY = [*SMALL, "backbone.options.width=0.0625"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "claims", "quick"])
def test_a_shipped_plan_in_miniature(name, cache, tmp_path):
    # several runs and processes in the smallest plan; of the others one run of each cell and two
    # batches are enough, in this process, where Cumulative takes few steps
    settings, batches = (TINY, 4) if name == "quick" else ([*TINY, "runs=1", "limit=2"], 2)
    suite = Suite(load_plan(name, settings), tmp_path / name, settings=RunSettings(cache))
    assert not suite.run(Processes(threads=2) if name == "quick" else Inline())
    assert {state.status for state in suite.states} == {"done"}
    record = read_json(tmp_path / name / "plan.json")
    for group in record["groups"]:
        for cell in group["cells"]:
            assert read_json(tmp_path / name / cell / "result.json")["batches"] == batches
            last = read_lines(tmp_path / name / cell / METRICS)[-1]
            assert last["measures"]["accuracy"] is not None
    # the figures of `claims` are those of `paper`; here those on the page are enough
    report = write_report(tmp_path / name, figures=[] if name == "claims" else ["svg"])
    assert report is None or report.stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "claims", "quick"])
def test_a_shipped_plan_is_valid(name):
    planned = load_plan(name).planned()
    assert len({one.folder for one in planned}) == len(planned)
    assert {group.name for group in load_plan(name).groups} == {
        group for one in planned for group in one.groups
    }
