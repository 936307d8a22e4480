"""The engine of a cell is part of its plan, recorded, and gives the same bits after a stop."""

from __future__ import annotations

import json

import pytest

from primavista.bench.cell import CellJob, Interrupted, run_cell
from primavista.bench.local import Inline
from primavista.engine.representation import onnx_installed
from primavista.errors import InputError

pytestmark = pytest.mark.skipif(not onnx_installed(), reason="the extra onnx is not installed")


def test_only_strategies_whose_representation_freezes_have_it(plan):
    engines = {
        p.cell.strategy: p.cell.engine
        for p in plan("cwr*", "dslda", "ar1*", "naive", engine="onnx").planned()
    }
    assert engines == {"cwr*": "onnx", "dslda": "onnx", "ar1*": "torch", "naive": "torch"}
    assert {p.cell.engine for p in plan("cwr*").planned()} == {"torch"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cwr*", "dslda"])
def test_stopped_cells_go_on_to_the_same_bits(suite, tmp_path, results, strategy):
    whole = suite(strategy, out=tmp_path / "whole", engine="onnx")
    assert not whole.run(Inline())
    parts = suite(strategy, out=tmp_path / "parts", engine="onnx")
    state = parts.states[0]
    for _ in range(3):
        job = CellJob(0, state.planned.cell, state.path)
        with pytest.raises(Interrupted):
            run_cell(job, parts.settings, should_stop=lambda: True)
    assert not suite(strategy, out=tmp_path / "parts", engine="onnx").run(Inline())
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    assert json.loads((state.path / "run.json").read_text())["engine"] == "onnx"


def test_a_folder_of_results_is_of_one_engine(suite, tmp_path):
    suite("dslda", engine="onnx").run(Inline())
    with pytest.raises(InputError, match="another engine"):
        suite("dslda").run(Inline())
