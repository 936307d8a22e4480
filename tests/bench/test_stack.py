"""A worker learns a batch a few plain calls below its entry point."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FRAMES = 6  # of our own, from the worker's entry point to `learn_batch`, both included

# The real function of a worker, in a process of its own, with a `learn_batch` that records.
WORKER = """
import inspect
import json
import os
import sys
from multiprocessing import Pipe
from pathlib import Path

import primavista
from primavista.bench.cell import CellJob, RunSettings
from primavista.bench.local import work
from primavista.bench.plan import load_plan
from primavista.strategies.dslda import DSLDA
from primavista.strategies.naive import Naive

PACKAGE = str(Path(primavista.__file__).parent)
plan, out, cache = sys.argv[1:]
found = []


def recording(learn_batch):
    def record(self, batch):
        stack, frame = [], sys._getframe(1)
        while frame is not None:
            stack.insert(0, frame)
            frame = frame.f_back
        ours = [frame.f_code for frame in stack if frame.f_code.co_filename.startswith(PACKAGE)]
        generators = [code.co_name for code in ours if code.co_flags & inspect.CO_GENERATOR]
        found.append({"frames": [code.co_name for code in ours], "generators": generators})
        return learn_batch(self, batch)

    return record


for strategy in (DSLDA, Naive):
    strategy.learn_batch = recording(strategy.learn_batch)
here, there = Pipe()
for number, planned in enumerate(load_plan(plan).planned()):
    here.send(CellJob(number, planned.cell, Path(out) / planned.folder))
here.send(None)
work(there, RunSettings(Path(cache)), os.getppid(), {})
print(json.dumps([found, "torch._dynamo" in sys.modules]))
"""
PLAN = """
name = "stack"
device = "cpu"
test_thin = 1
limit = 2
data = { kind = "rendered", categories = 3, objects = 2, frames = 2, size = 32 }
backbone = { weights = "random", options = { width = 0.0625 } }
groups = [{ name = "all", strategies = ["naive", "dslda"], protocols = ["nicv2"] }]
"""


@pytest.mark.slow
def test_few_calls_lead_to_learn_batch_and_the_compiler_is_not_imported(cache, tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    command = [sys.executable, "-c", WORKER, tmp_path / "plan.toml", tmp_path / "out", cache]
    answer = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=120, check=True
    )
    found, has_compiler = json.loads(answer.stdout)
    assert not has_compiler  # two seconds and 150 MB, and nothing is compiled
    # a copy learns the last batch once more, where operations are counted
    stacks = [stack for stack in found if "count_flops" not in stack["frames"]]
    assert len(stacks) == 2 * 2
    for stack in stacks:
        assert stack["frames"][0] == "work"
        assert len(stack["frames"]) + 1 <= FRAMES, stack  # the recording one stands for the last
        assert len(stack["generators"]) <= 1, stack
