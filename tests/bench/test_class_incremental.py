"""A class-incremental plan of five tasks and three runs: its table, by three ways to compute it.

The table is computed once more from the lines of `metrics.jsonl`, by formulas of this file, and
from predictions of a loop of its own by Avalanche's formulas, which count patterns as its metrics
do. `tests/adapters/test_avalanche.py` compares with Avalanche itself where it is installed.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
import torch

from primavista.bench.cell import cell_strategy, cell_stream, torch_settings
from primavista.bench.local import Inline
from primavista.bench.plan import Cell
from primavista.report.read import read_results
from primavista.report.result_tables import accuracy_table
from primavista.report.series import build_series
from primavista.report.table import to_csv, to_latex
from primavista.streams.rendered.dataset import rendered

TASKS, RUNS = 5, 3
STRATEGIES = ("naive", "ncm")
Row = dict[str, float]


class Accuracy:
    """Avalanche's mean accuracy: patterns that are right, of all that were counted."""

    def __init__(self) -> None:
        self.right = self.count = 0

    def update(self, predicted: torch.Tensor, y: torch.Tensor) -> None:
        self.right += int(sum(int(a == b) for a, b in zip(predicted, y, strict=True)))
        self.count += len(y)

    def result(self) -> float:
        return self.right / self.count


class Forgetting:
    """Avalanche's forgetting of an experience: its first accuracy less its last one."""

    def __init__(self) -> None:
        self.initial: dict[int, float] = {}
        self.last: dict[int, float] = {}

    def update(self, experience: int, value: float, trained_on: int) -> None:
        if experience == trained_on:
            self.initial[experience] = value
        elif experience in self.initial:
            self.last[experience] = value

    def stream(self) -> float:
        """Return the mean over the experiences that were trained before the last one."""
        return fmean(self.initial[k] - self.last[k] for k in self.last)


def as_avalanche_measures(cell: Cell) -> Row:
    """Learn the stream of a cell in a loop, and evaluate all experiences after each."""
    with torch_settings(cell):
        data = rendered(cell.data.scene)
        stream, strategy = cell_stream(cell, data), cell_strategy(cell, data)
        test = stream.test()
        experiences = [sorted(set(batch.labels.tolist())) for batch in stream]
        forgetting, incremental, fresh = Forgetting(), [], []
        for now, batch in enumerate(stream):
            strategy.learn(batch.images, batch.labels, batch.sessions)
            scores = strategy.scores(test.images)
            predicted = strategy.classes[scores.argmax(1)]
            whole, met = Accuracy(), Accuracy()
            for experience, classes in enumerate(experiences):
                own = torch.tensor([label in classes for label in test.labels.tolist()])
                alone = Accuracy()
                for meter in (alone, whole, *([met] if experience <= now else [])):
                    meter.update(predicted[own], test.labels[own])
                forgetting.update(experience, alone.result(), now)
            incremental.append(met.result())
            fresh.append(forgetting.initial[now])
    return {
        "final accuracy (%)": 100 * whole.result(),
        "average incremental (%)": 100 * fmean(incremental),
        "learning accuracy (%)": 100 * fmean(fresh),
        "backward transfer": -100 * forgetting.stream(),
    }


def as_the_lines_say(folder: Path) -> Row:
    """Compute the row from the accuracy of each class after each batch, and the new classes."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    confusion = json.loads((folder / "result.json").read_text())["confusion"]
    frames = [sum(row) for row in confusion]
    tasks = [line["new_classes"] for line in lines]
    right = [
        {int(k): v / 100 * frames[int(k)] for k, v in line["class_accuracy"].items()}
        for line in lines
    ]

    def percent(i: int, classes: list[int]) -> float:
        return 100 * sum(right[i][k] for k in classes) / sum(frames[k] for k in classes)

    R = [[percent(i, task) for task in tasks] for i in range(TASKS)]
    seen = [percent(i, [k for task in tasks[: i + 1] for k in task]) for i in range(TASKS)]
    old = range(TASKS - 1)
    best = [max(R[i][j] for i in range(j, TASKS - 1)) for j in old]
    return {
        "final accuracy (%)": percent(TASKS - 1, list(range(len(frames)))),
        "average incremental (%)": fmean(seen),
        "learning accuracy (%)": fmean(R[j][j] for j in range(TASKS)),
        "forgetting": fmean(best[j] - R[-1][j] for j in old),
        "backward transfer": fmean(R[-1][j] - R[j][j] for j in old),
    }


def test_the_table_is_that_of_the_literature(suite, tmp_path):
    small = {"categories": 5, "objects": 2, "frames": 3, "sessions": 5, "size": 32}
    one = suite(
        *STRATEGIES,
        protocol="class-incremental:classes_per_batch=2",
        data={"kind": "rendered", **small},
        limit=None,
        runs=RUNS,
    )
    assert not one.run(Inline())
    series = build_series(read_results(tmp_path / "out").cells)
    published = accuracy_table("accuracy", series)
    table = {row["strategy"]: row for row in csv.DictReader(to_csv(published).splitlines())}
    final = {}
    for name, title in zip(STRATEGIES, ("Naive", "ncm"), strict=True):
        states = [state for state in one.states if state.planned.cell.strategy == name]
        assert len(states) == RUNS
        for compute in (
            [as_the_lines_say(state.path) for state in states],
            [as_avalanche_measures(state.planned.cell) for state in states],
        ):
            for measure in compute[0]:
                values = [row[measure] for row in compute]
                shown = table[title]
                assert float(shown[measure]) == pytest.approx(fmean(values), abs=1e-9)
                assert float(shown[f"{measure}, std"]) == pytest.approx(stdev(values), abs=1e-9)
        final[name] = float(table[title]["final accuracy (%)"])
        # the mean over all classes, of 2, 4, ..., 10 of 10, cannot exceed 60
        assert float(table[title]["average incremental (%)"]) > final[name]
    latex = to_latex(published)
    assert f"{final['ncm']:.1f} " in latex
    assert "the classes seen so far (Rebuffi et al. 2017)" in latex
    for one in series:  # every class is met at the end, and there only
        (*earlier, (last, seen)), (*_, (_, overall)) = one.curve("seen_accuracy"), one.curve()
        assert one.brings_new_classes
        assert (last, seen.mean) == (TASKS, overall.mean)
        assert all(mean.mean > dict(one.curve())[i].mean for i, mean in earlier)
