"""A measure that is defined is also recorded, read and shown: no place forgets one."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from primavista.bench.evaluate import Step
from primavista.bench.folder import BatchMetrics, CellResult
from primavista.bench.metrics import MEASURES, Measures
from primavista.report.result_tables import MEASURES as COLUMNS
from primavista.strategies.base import LearnReport

VALUES = {name: 10.25 + number for number, name in enumerate(MEASURES)}
STEP = Step(
    batch=1,
    batches=1,
    confusion=None,
    learn_seconds=0.0,
    solve_seconds=0.0,
    test_seconds=0.0,
    state_bytes=0,
    report=LearnReport(1, 1, ()),
    measures=Measures(**VALUES),
)


def test_the_keys_of_files_and_records_are_these():
    assert MEASURES == (
        "accuracy",
        "seen_accuracy",
        "average_incremental",
        "average",
        "average_accuracy",
        "average_anytime",
        "learning_accuracy",
        "forgetting",
        "backward_transfer",
        "forward_transfer",
    )


@pytest.mark.parametrize("measure", MEASURES)
def test_every_place_has_every_measure(measure):
    assert measure in {one.name for one in fields(Measures)}
    assert measure == "accuracy" or measure in COLUMNS
    line = BatchMetrics.from_step(STEP).model_dump_json()
    read = BatchMetrics.model_validate_json(line)
    assert getattr(read.measures, measure) == VALUES[measure]
    assert CellResult(batches=1, final=read.measures).model_dump()["final"] == asdict(STEP.measures)
