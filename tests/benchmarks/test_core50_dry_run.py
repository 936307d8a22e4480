"""The short form of benchmarks/core50_dry_run.py: the plan `paper` on a part of CORe50.

The folder and a store that holds all test frames give the same tests and the same numbers, and
both end in a report.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PART = ("--objects", "4", "--frames", "11", "--limit", "2", "--full-test", "--figures")
PLAN = (
    'protocols=["nicv2-14"]',
    'strategies=["naive", "cumulative", "dslda"]',
    "variants=[{}]",
    "retrain=2",
)


@pytest.mark.slow
def test_the_plan_of_the_paper_runs_on_folder_and_store(shared: Path, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "core50_dry_run.py"
    settings = [text for setting in PLAN for text in ("--set", setting)]
    out = tmp_path / "dry"
    command = [sys.executable, str(script), str(out), "--facts", str(shared / "data")]
    done = subprocess.run([*command, *PART, *settings], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "dry_run.json").read_text())
    assert found["frames"] == 4 * 11 * 11
    assert found["same_numbers"] is True
    for name in ("folder", "store"):
        assert found[name]["cells"] >= 3
        assert found[name]["failed"] == []
        assert found[name]["frames_per_test"] == [7]  # 4 objects x 3 sessions x 11 frames, 1 in 20
        assert "a part of CORe50" in found[name]["not_comparable"][0]
        assert found[name]["orders"] == ["nicv2-14: generated"]
        assert set(found[name]["seconds_per_test"]) == {"naive", "cumulative", "dslda"}
        assert (out / name / "report.html").stat().st_size > 10_000
