"""benchmarks/reality_check.py: the choices and the drops, worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import reality_check


def result(strategy, point, data, run, accuracy):
    return {
        "strategy": strategy,
        "point": [list(pair) for pair in point],
        "data": data,
        "run": run,
        "accuracy": accuracy,
    }


def test_the_drop_is_the_own_choice_minus_the_choice_of_the_other_data_set():
    points = reality_check.points("dslda")
    assert points[1] == (("shrinkage", 1e-3),)
    accuracies = {  # two runs of each point
        "rendered": [(10, 20), (70, 50), (40, 40), (59, 60)],  # the second has the best mean
        "signs": [(30, 30), (20, 40), (80, 60), (1, 99)],  # the third has
    }
    results = [
        result("dslda", point, name, run, accuracy)
        for name, of_points in accuracies.items()
        for point, both in zip(points, of_points, strict=True)
        for run, accuracy in enumerate(both)
    ]
    results += [result("prima", (), name, 0, 55.5) for name in accuracies]
    rows = reality_check.table(results).splitlines()[2:]
    assert rows == [
        "| prima | 1 | 1, 1 | 55.5 | 55.5 | 0.0 | 55.5 | 55.5 | 0.0 |",
        "| dslda | 4 | 2, 2 | 70.0 ± 14.1 | 30.0 ± 14.1 | 40.0 ± 28.3 | "
        "60.0 ± 14.1 | 40.0 ± 0.0 | 20.0 ± 14.1 |",
    ]
    chosen = "rendered: {'shrinkage': 0.001}; signs: {'shrinkage': 0.01}"
    assert reality_check.choices(results) == f"dslda: {chosen}"


def test_a_run_has_sessions_of_its_own_and_a_few_frames_of_each(tmp_path):
    spans = [(c, c % 2, 10 * k, 10 * k + 10) for c in range(22) for k in range(6 * c, 6 * c + 6)]
    spans += [(22, 0, 0, 10)]  # a class with too few sessions
    frames = np.repeat(np.arange(1320, dtype=np.uint16)[:, None], 2, axis=1)
    np.save(tmp_path / "frames.npy", frames)
    copied, (train, test), categories = reality_check.small(tmp_path / "frames.npy", spans, 0)
    assert (len(train), len(test)) == (20 * 4, 20 * 2)
    assert len(copied) == 8 * 120
    assert sorted(set(categories)) == [0, 1]
    label, _, start, stop = test[-1]
    found = copied[start:stop, 0]
    assert (stop - start, label) == (8, 19)
    assert found[0] % 10 == 0
    assert found[-1] - found[0] == 9
    other, *_ = reality_check.small(tmp_path / "frames.npy", spans, 1)
    assert not np.array_equal(copied, other)
