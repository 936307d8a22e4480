"""Kill a small plan at random moments and resume it: the results must be the same bits."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from primavista.bench.cell import RunSettings
from primavista.bench.local import Inline
from primavista.bench.plan import Plan, make_plan
from primavista.bench.run import Suite
from strains.endure import Step, Tally
from strains.forked import Forked, forget_garbage

PLAN = {
    "name": "kills",
    "test_every": 2,
    "test_thin": 1,
    "device": "cpu",
    "limit": 4,
    "data": {"kind": "rendered", "categories": 3, "objects": 2, "frames": 2, "size": 32},
    "backbone": {"weights": "random", "options": {"width": 0.0625}},
    "groups": [
        {"name": "all", "strategies": ["dslda", "cwr*"], "protocols": ["nicv2"]},
    ],
}
Results = dict[str, tuple[str, str]]


def results(out: Path) -> Results:
    """Return `metrics.jsonl` of every cell, and the checksum of its final weights."""
    return {
        str(place.parent.relative_to(out)): (
            (place.parent / "metrics.jsonl").read_text(),
            json.loads(place.read_text())["state_sha256"],
        )
        for place in sorted(out.glob("**/result.json"))
    }


def run(plan: Plan, out: Path, cache: Path) -> None:
    """Run the rest of the plan, with a checkpoint every 0.1 s."""
    settings = RunSettings(cache, checkpoint_seconds=0.1)
    failed = Suite(plan, out, (), settings).run(Inline())
    if failed:
        raise SystemExit(f"{len(failed)} cells failed: {failed[0].reason}")


@contextmanager
def bench_kills(folder: Path, tally: Tally) -> Iterator[Step]:
    torch.set_num_threads(1)
    plan = make_plan(PLAN)
    cache, log = folder / "data", folder / "bench_kills.log"
    usual, out = folder / "undisturbed", folder / "round"
    shutil.rmtree(usual, ignore_errors=True)
    run(plan, usual, cache)  # imported here, so that forked processes have everything imported
    forget_garbage()
    began = time.monotonic()
    Forked(lambda: run(plan, folder / f"timed{tally.parts}", cache), log).wait()
    longest = 0.5 * (time.monotonic() - began)
    wanted = results(usual)

    def step(number: int, draw: random.Random) -> None:
        while True:
            process = Forked(lambda: run(plan, out, cache), log)
            if not process.wait(draw.uniform(0.01, longest)) and process.kill():
                tally.outcomes["kills"] += 1
                return
            tally.check(process.code == 0, f"kill {number}: a resumed run ended with an error")
            tally.check(results(out) == wanted, f"kill {number}: the results differ")
            tally.outcomes["rounds with the same bits"] += results(out) == wanted
            shutil.rmtree(out, ignore_errors=True)

    yield step
    last = Forked(lambda: run(plan, out, cache), log)
    last.wait()
    tally.check(last.code == 0, "the last resumed run ended with an error")
    tally.check(results(out) == wanted, "the results differ at the end of a part")
    tally.outcomes["rounds with the same bits"] += results(out) == wanted
    shutil.rmtree(out, ignore_errors=True)
