"""Kill a small plan at random moments and resume it: the results must stay the same bit for bit.

    python benchmarks/kills.py [--kills 50] [--seed 0] [--folder DIR]

The signal is SIGKILL. Each round runs the plan from its start to its end, and prints one line. The
exit code is 1 if a bit differs from an undisturbed run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLAN = """
name = "kills"
test_every = 2
test_thin = 1
device = "cpu"
limit = 40
data = { kind = "rendered", categories = 4, objects = 2, frames = 2, size = 32 }
backbone = { weights = "random", options = { width = 0.0625 } }
[[groups]]
name = "all"
strategies = ["ar1*", "ewc", "cwr*", "dslda"]
protocols = ["nicv2"]
[[groups]]
name = "bound"
strategies = ["cumulative"]
protocols = ["nicv2"]
retrain = 5
"""
COMMAND = [sys.executable, "-c", "from primavista.cli.bench import app; app()", "run"]
Results = dict[str, tuple[bytes, str]]


def start(plan: Path, out: Path, on: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, str(plan), "--out", str(out), "--on", on, "--threads", "2"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, error = process.communicate()
    if process.returncode:
        raise SystemExit(f"a run ended with exit code {process.returncode}:\n{error.decode()}")


def results(out: Path) -> Results:
    """`metrics.jsonl` of every cell, and the checksum of its final weights."""
    return {
        str(place.parent.relative_to(out)): (
            (place.parent / "metrics.jsonl").read_bytes(),
            json.loads(place.read_text())["weights_sha256"],
        )
        for place in sorted(out.glob("**/result.json"))
    }


def run(kills: int, seed: int, folder: Path) -> int:
    draw = random.Random(seed)
    plan = folder / "kills.toml"
    plan.write_text(PLAN)
    began = time.monotonic()
    finish(start(plan, folder / "undisturbed", "local"))
    alone = time.monotonic() - began
    wanted = results(folder / "undisturbed")
    print(f"undisturbed: {len(wanted)} cells in {alone:.1f} s", flush=True)
    done, rounds, wrong = 0, 0, 0
    while done < kills:
        out, killed = folder / f"round{rounds}", 0
        while True:
            began_again = time.monotonic()
            process = start(plan, out, draw.choice(["local", "inline"]))
            try:
                process.wait(draw.uniform(0.2, 1.2) * alone if done + killed < kills else None)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                killed += 1
            else:
                finish(process)
                if not killed:
                    alone = min(alone, time.monotonic() - began_again)
                break
        found = results(out)
        same = found == wanted
        done, rounds, wrong = done + killed, rounds + 1, wrong + (not same)
        outcome = "the same bit for bit" if same else "DIFFERENT"
        print(f"round {rounds}: {killed} kills, {outcome}", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{done} kills in {rounds} rounds of {len(wanted)} cells, {seconds:.0f} s: "
        f"{wrong} rounds differ"
    )
    return 1 if wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(run(arguments.kills, arguments.seed, arguments.folder or Path(temporary)))


if __name__ == "__main__":
    main()
