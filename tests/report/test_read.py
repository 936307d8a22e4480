"""Results that are damaged: each is listed with the reason, and none hides the others."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

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
        ("options", {"layers": [[1], [2]]}),
        ("seed", None),
        ("invented", {"a": 1}),
    ],
)
def test_a_cell_with_an_invalid_field_is_named_with_the_reason_beside_the_others(
    tmp_path: Path, field: str, value: Any
) -> None:
    make_cell(tmp_path, "naive", name="good")
    change(make_cell(tmp_path, "cwr*", name="bad") / "run.json", **{field: value})
    results = read_results(tmp_path)
    assert [cell.strategy for cell in results.cells] == ["naive"]
    (reason,) = results.damaged.values()
    assert list(results.damaged) == ["bad"]
    assert "run.json" in reason
    assert field in reason


def test_settings_of_the_network_and_the_data_tell_series_apart(tmp_path: Path) -> None:
    for run in (0, 1):
        for depth in (3, 4):
            backbone = {"name": "mine", "options": {"depth": depth}}
            make_cell(tmp_path, run=run, backbone=backbone)
        make_cell(tmp_path, run=run, data={"kind": "folder", "path": "/my own"})
    series = build_series(read_results(tmp_path).cells)
    assert [(one.panel.data_name, one.name, len(one.cells)) for one in series] == [
        ("core50", "Naive, backbone options={'depth': 3}", 2),
        ("core50", "Naive, backbone options={'depth': 4}", 2),
        ("my own", "Naive", 2),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [("final", 3), ("confusion", [[1, "x"]]), ("classes", "cup"), ("batches", None)],
)
def test_a_cell_whose_result_is_damaged_failed(tmp_path: Path, field: str, value: Any) -> None:
    change(make_cell(tmp_path) / "result.json", **{field: value})
    cell = read_one(tmp_path)
    assert (cell.status, cell.strategy, cell.final()) == ("failed", "naive", None)
    assert cell.failure is not None
    assert "result.json" in cell.failure
    assert field in cell.failure


def test_metrics_end_at_the_first_damaged_line(tmp_path: Path) -> None:
    place = make_cell(tmp_path, done=False)
    lines = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text(lines[0] + "[]\n" + lines[2])
    assert read_one(tmp_path).curve() == {1: 10.0}
    (place / "metrics.jsonl").unlink()
    (place / "metrics.jsonl").mkdir()
    cell = read_one(tmp_path)
    assert (cell.status, cell.steps) == ("failed", ())


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "run.json"])
def test_a_damaged_bit_changes_no_number_of_a_report(tmp_path: Path, name: str) -> None:
    """The second review flipped bits of results: 44 % were read with another meaning (N4)."""
    path = make_cell(tmp_path) / name
    good = path.read_bytes()
    whole = read_one(tmp_path)
    assert whole.status == "done"
    dice = random.Random(name)
    for _ in range(300):
        bad = bytearray(good)
        bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        found = read_results(tmp_path)
        if found.damaged:
            continue
        (cell,) = found.cells
        if cell.status == "failed":
            assert name in str(cell.failure)
            assert cell.steps == ()
        else:
            assert (cell.cell, cell.result, cell.steps) == (whole.cell, whole.result, whole.steps)


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl"])
def test_a_number_that_was_changed_by_hand_is_refused_and_its_file_named(
    tmp_path: Path, name: str
) -> None:
    path = make_cell(tmp_path, accuracies=(10.0, 20.0, 35.5)) / name
    path.write_text(path.read_text().replace("35.5", "99.9"))
    cell = read_one(tmp_path)
    assert (cell.status, cell.curve()) == ("failed", {})
    assert f"{name} is damaged or was changed" in str(cell.failure)
