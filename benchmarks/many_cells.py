"""Processor seconds of a plan with many tiny cells, and of its report.

    python benchmarks/many_cells.py
    python benchmarks/many_cells.py --src OTHER_CHECKOUT/src      # the same of another version

300 cells are run and reported, and then the same plan is continued to 1,000 cells. A cell learns
three batches of rendered objects at 32 px with a tiny network, so that bookkeeping is what counts.
All cells run in one worker of the command `primavista bench`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

STRATEGIES = ("ncm", "lda", "ridge", "dslda")
PLAN = f"""
name = "many"
device = "cpu"
[data]
kind = "rendered"
objects = 1
frames = 2
size = 32
[backbone]
weights = "random"
options = {{ width = 0.0625 }}
[[groups]]
name = "main"
strategies = {list(STRATEGIES)}
protocols = ["class-incremental:classes_per_batch=4"]
"""


def processor_seconds(src: Path, folder: Path, *arguments: str) -> float:
    """Run `primavista bench` of a checkout, and return its processor seconds."""
    environment = os.environ | {
        "PYTHONPATH": str(src.resolve()),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "primavista", "bench", *arguments, "--out", "out"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--src", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    parser.add_argument("--cells", nargs="+", type=int, default=[300, 1000])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, spent = Path(name), 0.0
        (folder / "plan.toml").write_text(PLAN)
        for cells in args.cells:
            runs = f"runs={cells // len(STRATEGIES)}"
            run = ("run", "plan.toml", "--set", runs, "--threads", "1")
            spent += processor_seconds(args.src, folder, *run)
            print(f"{cells} cells: {spent:.1f} s, {spent / cells:.3f} s per cell", flush=True)
            report = processor_seconds(args.src, folder, "report", "plan.toml")
            print(f"report of {cells} cells: {report:.1f} s", flush=True)


if __name__ == "__main__":
    main()
