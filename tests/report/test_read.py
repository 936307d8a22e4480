"""Results that are damaged or of other programs or versions: one wrong field hides no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primavista.report.accuracy_lookup import find_finals
from primavista.report.read import StoredCell, read_results
from primavista.report.series import build_series

from .test_report import make_cell


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def read_one(folder: Path) -> StoredCell:
    (cell,) = read_results(folder).cells
    return cell


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "my own"),
        ("data", {"kind": "radar", "name": "my own"}),
        ("backbone", {"name": "mine", "depth": 3}),
        ("device", "abacus"),
        ("run", "first"),
        ("options", {"layers": [1, 2]}),
        ("seed", None),
        ("invented", {"a": 1}),
    ],
)
def test_a_foreign_field_of_the_run_is_kept_beside_the_others(
    tmp_path: Path, field: str, value: Any
) -> None:
    place = make_cell(tmp_path, "cwr*", data={"kind": "core50", "path": "/data"})
    assert read_one(tmp_path).foreign == {}
    change(place / "run.json", **{field: value})
    cell = read_one(tmp_path)
    assert cell.foreign == {field: value}
    assert (cell.valid_cell is None) == (field != "invented")
    assert cell.status == "done"
    assert (cell.strategy, cell.protocol, cell.run) == ("cwr*", "nicv2-3", 0)
    assert cell.final() == 30.0
    assert cell.curve == {1: 10.0, 2: 20.0, 3: 30.0}


def test_foreign_settings_tell_series_apart(tmp_path: Path) -> None:
    for run in (0, 1):
        make_cell(tmp_path, run=run, backbone={"name": "mine", "depth": 3})
        make_cell(tmp_path, run=run, backbone={"name": "mine", "depth": 4})
        make_cell(tmp_path, run=run, data={"kind": "radar", "name": "my own"})
    series = build_series(read_results(tmp_path).cells)
    assert [(one.panel.data_name, one.name, len(one.cells)) for one in series] == [
        ("core50", "Naive, backbone depth=3", 2),
        ("core50", "Naive, backbone depth=4", 2),
        ("my own", "Naive", 2),
    ]


def test_a_cell_of_version_0_1_is_named_by_its_rule_with_and_without_a_present_one(
    tmp_path: Path,
) -> None:
    data = {"kind": "core50", "path": "/data"}
    make_cell(tmp_path, "prima", accuracies=(10.0, 20.0), options={"balance": 1.0}, data=data)
    alone = build_series(read_results(tmp_path).cells)
    assert [one.name for one in alone] == ["prima, rule=frames"]
    present = {"balance": 1.0, "rule": "lessons"}
    make_cell(tmp_path, "prima", accuracies=(30.0, 40.0), options=present, data=data)
    both = build_series(read_results(tmp_path).cells)
    names_and_ends = [(one.name, one.finals()) for one in both]
    assert names_and_ends == [("prima", {0: 40.0}), ("prima, rule=frames", {0: 20.0})]


def test_claims_do_not_mix_cells_of_version_0_1_with_present_ones(tmp_path: Path) -> None:
    data = {"kind": "core50", "path": "/data"}
    now = {"moments": "batch_1", "unseen": "negatives"}
    for strategy, options in (("prima", {"rule": "lessons"}), ("ar1*", now)):
        make_cell(tmp_path, strategy, run=0, accuracies=(10.0,), data=data)
        make_cell(tmp_path, strategy, run=1, accuracies=(30.0,), options=options, data=data)
    (finals,) = find_finals(read_results(tmp_path).cells)
    assert sorted(len(cells) for cells in finals.cells.values()) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [("final", 3), ("confusion", [[1, "x"]]), ("classes", "cup"), ("batches", None)],
)
def test_a_wrong_field_of_the_result_is_left_out(tmp_path: Path, field: str, value: Any) -> None:
    place = make_cell(tmp_path)
    change(place / "result.json", **{field: value})
    cell = read_one(tmp_path)
    assert cell.status == "done"
    assert cell.result.learn_seconds == 45.0
    assert cell.final() == (None if field == "final" else 30.0)
    assert cell.batches == 3


def test_metrics_end_at_the_first_damaged_line(tmp_path: Path) -> None:
    place = make_cell(tmp_path, done=False)
    lines = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text(lines[0] + "[]\n" + lines[2])
    assert read_one(tmp_path).curve == {1: 10.0}
    (place / "metrics.jsonl").unlink()
    (place / "metrics.jsonl").mkdir()
    assert read_one(tmp_path).steps == ()
