"""Run the tests that need a GPU, and add a line with what came of them to docs/lab/tests.md.

    PYTHONPATH=src python benchmarks/gpu_tests.py --commit $(git rev-parse --short HEAD)

The line has the date, the commit, the GPU, the version of torch, and how many tests passed, failed
and were skipped. The exit code is that of pytest.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lab" / "tests.md"
NEEDS_GPU = 'reason="needs a GPU"'


class Counts:
    """A plugin of pytest that counts the outcomes."""

    def __init__(self) -> None:
        self.text = ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        stats = terminalreporter.stats
        failed = len(stats.get("failed", [])) + len(stats.get("error", []))
        self.text = (
            f"{len(stats.get('passed', []))} passed, {failed} failed, "
            f"{len(stats.get('skipped', []))} skipped"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commit", required=True, help="the commit that is tested")
    commit = parser.parse_args().commit
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use")
    files = sorted(map(str, find_tests()))
    counts, start = Counts(), time.monotonic()
    code = pytest.main([*files, "-m", "slow or not slow", "-p", "no:cacheprovider"], [counts])
    seconds = time.monotonic() - start
    add_line(PAGE, commit, counts.text, seconds)
    raise SystemExit(code)


def find_tests() -> list[Path]:
    """Return the files with tests that need a GPU."""
    return [path for path in ROOT.glob("tests/**/test_*.py") if NEEDS_GPU in path.read_text()]


def add_line(page: Path, commit: str, counts: str, seconds: float) -> None:
    """Add a row to the table at the end of a page."""
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    cells = (datetime.date.today().isoformat(), commit, machine, counts, f"{seconds:.0f} s")
    with page.open("a", encoding="utf-8") as file:
        file.write(f"| {' | '.join(cells)} |\n")
    print(f"added to {page}: {counts} in {seconds:.0f} s")


if __name__ == "__main__":
    main()
