"""The report says nothing that is not in the results, and its numbers are what they say."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.folder import write_result
from primavista.report import write_report
from primavista.report.read import read_results
from primavista.report.result_tables import (
    accuracy_table,
    efficiency_table,
    pairwise_table,
    parity_table,
    ranked,
)
from primavista.report.series import MeanStd, build_series
from primavista.report.table import format_value

from .test_report import CORE50_FACTS, change_metrics, make_cell, read

FACTS = {**CORE50_FACTS, "core50": None, "test_frames": 40, "order": "generated", "size": 64}
TOYS: dict[str, Any] = {
    "data": {"kind": "folder", "name": "toys", "path": "/toys", "size": 64},
    "backbone": {"name": "mobilenet_v1", "weights": "imagenet"},
    "facts": FACTS,
}


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def words(path: Path) -> str:
    return " ".join(read(path).words)


def test_nothing_is_said_of_a_choice_that_nobody_made(tmp_path: Path) -> None:
    for run in (0, 1):
        make_cell(tmp_path, run=run, hyperparameters_chosen_on_run=None, **TOYS)
    text = words(write_report(tmp_path, figures=["svg"]))
    assert "Hyperparameters were chosen" not in text
    assert "without run" not in text
    assert "upper bound" not in text


def test_the_test_frames_are_in_the_text_the_table_and_the_figures(tmp_path: Path) -> None:
    make_cell(tmp_path, test_thin=20, **TOYS)
    text = words(write_report(tmp_path, figures=["svg"]))
    assert "40 test frames (one in 20 of each test session)" in text
    assert "whole test set" not in text
    assert rows(tmp_path / "tables" / "final.csv")[0]["test frames"] == "40"
    for name in ("accuracy-nicv2-3", "confusion-nicv2-3-naive"):
        assert "40 test frames" in (tmp_path / "figures" / f"{name}.svg").read_text("utf-8"), name


def test_the_test_frames_are_in_the_tables_of_comparisons(tmp_path: Path) -> None:
    for run in (0, 1):
        for strategy in ("naive", "cwr*"):
            make_cell(tmp_path, strategy, "nicv2-79", run, facts=FACTS)
    series = build_series(read_results(tmp_path).cells)
    pairs = pairwise_table("pairwise", series)
    assert pairs.notes[0].startswith("Final accuracy on 40 test frames, paired by run")
    parity = parity_table(series, {("nicv2-79", "naive", "brn"): MeanStd(20.0, 1.0, 10)})
    assert parity.rows[0][parity.columns.index("test frames")] == "40"


def test_the_test_frames_are_below_the_tables_of_claims(tmp_path: Path) -> None:
    for strategy in ("ar1*", "dslda"):
        for run in (0, 1):
            make_cell(tmp_path, strategy, "nicv2-391", run, facts=FACTS, group="claim:x")
    write_report(tmp_path, figures=["svg"])
    for name in ("claims", "comparisons"):
        assert "Accuracy on 40 test frames" in (tmp_path / "tables" / f"{name}.tex").read_text()


def test_it_says_what_was_run(tmp_path: Path) -> None:
    make_cell(tmp_path, **TOYS)
    group = {"name": "toys", "strategies": ["naive"], "protocols": ["nicv2"]}
    plan = {"title": "My toys, compared", "name": "mine", "groups": [group]}
    record = {"format": 1, "base": {}, "groups": [], "plans": {"mine": plan}}
    (tmp_path / "plan.json").write_text(json.dumps(record))
    text = words(write_report(tmp_path, figures=["svg"]))
    assert "My toys, compared" in text
    found = {row[""]: row["in these results"] for row in rows(tmp_path / "tables" / "run.csv")}
    assert found["data"] == "toys (folder)"
    assert found["network"] == "mobilenet_v1 with the weights imagenet"
    assert found["side of the frames"] == "64 px"
    assert found["test frames"] == "40 test frames (the whole test set)"
    assert found["split into training and test sessions"] == "the same in all runs"


def test_it_says_what_varies_between_runs(tmp_path: Path) -> None:
    for run in (0, 1):
        make_cell(tmp_path / "seeds", run=run, **TOYS)
        make_cell(tmp_path / "orders", run=run, seed=7, **TOYS)
        split = {**TOYS, "data": {**TOYS["data"], "split": "run"}}
        make_cell(tmp_path / "splits", run=run, **split)
    text = words(write_report(tmp_path / "seeds", figures=["svg"]))
    same = "the split into training and test sessions is the same in all"
    assert f"in the order of the batches and in the seed of the strategy; {same}" in text
    text = words(write_report(tmp_path / "orders", figures=["svg"]))
    assert "Runs differ in the order of the batches; the seed of the strategy and" in text
    text = words(write_report(tmp_path / "splits", figures=["svg"]))
    assert "and in the split into training and test sessions. A deviation" in text


def test_classes_that_come_later_are_mentioned_if_there_are_any(tmp_path: Path) -> None:
    place = make_cell(tmp_path, **TOYS)
    assert "not been taught yet" not in words(write_report(tmp_path, figures=["svg"]))
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    lines[1]["new_classes"] = [3]
    change_metrics(place, lines)
    assert "not been taught yet" in words(write_report(tmp_path, figures=["svg"]))


def test_the_measures_of_the_field_are_columns(tmp_path: Path) -> None:
    make_cell(tmp_path, **TOYS)
    write_report(tmp_path, figures=["svg"])
    (row,) = rows(tmp_path / "tables" / "final.csv")
    assert float(row["on the classes seen (%)"]) == 50.0
    assert float(row["average over tasks (%)"]) == 40.0
    assert float(row["average anytime (%)"]) == 45.0
    assert float(row["forgetting"]) == 5.0
    assert float(row["backward transfer"]) == -4.0


def test_strategies_are_compared_pairwise(tmp_path: Path) -> None:
    for run in range(3):
        make_cell(tmp_path, "cwr*", run=run, accuracies=(10.0, 50.0 + run), **TOYS)
        make_cell(tmp_path, "naive", run=run, accuracies=(10.0, 49.0 - run), **TOYS)
    text = words(write_report(tmp_path, figures=["svg"]))
    (row,) = rows(tmp_path / "tables" / "pairwise.csv")
    assert (row["first"], row["second"], row["runs"]) == ("CWR*", "Naive", "3")
    assert float(row["first − second (points)"]) == 3.0  # 1, 3, 5
    assert float(row["effect d_z"]) == 1.5
    assert float(row["p"]) == float(row["p, Holm"]) == 0.25
    assert "With 3 runs p cannot be below 0.25, so that no pair here can reach 0.05." in text
    (first, _) = rows(tmp_path / "tables" / "final.csv")
    found = [first[f"final accuracy (%){part}"] for part in ("", ", std", ", runs")]
    assert list(map(float, found)) == [51.0, 1.0, 3.0]


def test_stale_cells_are_listed(tmp_path: Path) -> None:
    make_cell(tmp_path, "cwr*", code="0" * 16, **TOYS)
    make_cell(tmp_path, "naive", **TOYS)
    text = words(write_report(tmp_path, figures=["svg"]))
    assert "Stale cells: 1 of 2. The code or the data has changed since." in text
    (row,) = rows(tmp_path / "tables" / "cells.csv")
    assert (row["strategy"], row["state"], row["shown"]) == ("CWR*", "stale", "yes")
    assert row["reason"] == "the code that computes it has changed"


def test_of_unknown_code_the_cell_that_was_begun_last_holds(tmp_path: Path) -> None:
    """Without the code of an own strategy its cells of every version were shown side by side."""
    for run in range(2):
        for version in range(3):
            code, found = str(version) * 16, (1.0, 40.0 + version)
            place = make_cell(tmp_path, "mine:Own", run=run, accuracies=found, code=code, **TOYS)
            begun = 1_000_000 + {0: 1, 1: 3, 2: 2}[version]  # version 1 is the last one
            os.utime(place / "run.json", (begun, begun))
    results = read_results(tmp_path)
    assert [cell.final() for cell in results.cells] == [41.0, 41.0]
    assert len(results.superseded) == 4
    write_report(tmp_path, figures=["svg"])
    listed = rows(tmp_path / "tables" / "cells.csv")
    assert {(row["reason"], row["shown"]) for row in listed} == {
        ("it was run again with other code or data", "no")
    }


def test_time_and_memory_are_counted_once_and_as_named(tmp_path: Path) -> None:
    place = make_cell(tmp_path, "cwr*", seconds=60.0, stored=1_000_000, **TOYS)
    result = json.loads((place / "result.json").read_text())
    result.update(peak_bytes=7_000_000)
    result.update(operations={"forward": 1e6, "predicting": 2e6, "learning": 3e6})
    write_result(place, result)
    write_report(tmp_path, figures=["svg"])
    (row,) = rows(tmp_path / "tables" / "efficiency.csv")
    seconds = [float(row[f"{what} (s)"]) for what in ("learning", "solving", "testing")]
    assert seconds == pytest.approx([45.0, 3.0, 12.0])
    sizes = [float(row[f"{what} (MB)"]) for what in ("data", "state", "peak memory")]
    assert sizes == [3.0, 2.0, 7.0]
    assert float(row["learning (MFLOP per frame)"]) == 3.0


def test_little_stored_data_is_not_shown_as_none(tmp_path: Path) -> None:
    """31 kB were shown as 0.0 MB beside the accuracy."""
    make_cell(tmp_path, "er", stored=10_400, **TOYS)  # after three batches 31,200 bytes
    make_cell(tmp_path, "naive", **TOYS)
    series = build_series(read_results(tmp_path).cells)
    table = accuracy_table("accuracy", series)
    column = table.columns.index("stored data (MB)")
    shown = {one.strategy: row[column] for one, row in zip(ranked(series), table.rows, strict=True)}
    assert format_value(shown["er"], table.digits) == "0.031"
    assert shown["naive"] is None


def test_a_strategy_without_a_finished_run_is_not_in_the_table_to_publish(tmp_path: Path) -> None:
    make_cell(tmp_path, "naive", **TOYS)
    make_cell(tmp_path, "cwr*", accuracies=(10.0, 22.0), done=False, **TOYS)
    write_report(tmp_path, figures=["svg"])
    assert [row["strategy"] for row in rows(tmp_path / "tables" / "accuracy.csv")] == ["Naive"]
    assert [row["strategy"] for row in rows(tmp_path / "tables" / "final.csv")] == ["Naive", "CWR*"]
    (protocols,) = [r for r in rows(tmp_path / "tables" / "run.csv") if r[""] == "protocols"]
    assert protocols["in these results"] == "NICv2-3 (3 batches)"  # once
    figure = (tmp_path / "figures" / "accuracy-nicv2-3.svg").read_text("utf-8")
    assert "CWR* 22.0 at batch 2" in figure  # not as if that were its end


def test_measures_over_other_tests_are_said_to_be(tmp_path: Path) -> None:
    make_cell(tmp_path, "naive", **TOYS)
    make_cell(tmp_path, "gdumb", accuracies=(None, 1.0, 2.0), retrain=2, **TOYS)
    text = words(write_report(tmp_path, figures=[]))
    when = "and tested, after 2 evenly spaced batches."
    assert text.count("Not all had the same. GDumb (rehearses) was trained") == 2  # in two tables
    assert when in text


def test_what_solves_nothing_has_no_time_of_solving(tmp_path: Path) -> None:
    for strategy, seconds in (("naive", 0.0), ("dslda", 2.0)):
        place = make_cell(tmp_path, strategy, **TOYS)
        result = json.loads((place / "result.json").read_text())
        write_result(place, {**result, "solve_seconds": seconds})
    table = efficiency_table("times", build_series(read_results(tmp_path).cells))
    column = table.columns.index("solving (s)")
    found = {row[1]: row[column] for row in table.rows}
    assert found == {"Naive": None, "DSLDA": MeanStd(2.0, None, 1)}
    assert not [place for place in table.bold if place[1] == column]
