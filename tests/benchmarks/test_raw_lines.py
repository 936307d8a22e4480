"""One JSON line per finished cell, with everything that the pages of results need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..report.test_report import make_cell

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "raw_lines.py"


@pytest.mark.slow
def test_finished_cells_become_lines(tmp_path: Path) -> None:
    make_cell(tmp_path, "ar1*", run=1, accuracies=(10.00049, None, 30.0), saturated=(0.5, 0.6, 0.7))
    make_cell(tmp_path, "naive", done=False)
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=True
    )
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["strategy"], line["protocol"], line["run"]) == ("ar1*", "nicv2-3", 1)
    assert line["curve"] == [[1, 10.0], [3, 30.0]]
    assert line["saturated"] == [0.5, 0.7]
    assert line["final"]["accuracy"] == 30.0
    assert (line["learn_seconds"], line["order"]) == (45.0, "official")
