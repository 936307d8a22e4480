"""Test the live service under stress; exit code 1 means that a requirement was not met.

    python benchmarks/live.py timing                   # from releasing the button to recognised
    python benchmarks/live.py fuzz  [--count 10000]    # malformed bodies, images, models, messages
    python benchmarks/live.py load  [--seconds 300] [--clients 20]  # many predict, one teaches
    python benchmarks/live.py crowd --seconds 20 --out docs/images   # 1, 5, 20 and 60 cameras
    python benchmarks/live.py all
    python benchmarks/live.py show --out shots         # taught once, elsewhere, strangers; pictures
    python benchmarks/live.py shots --out docs/images  # pictures of the page for the documentation

`timing`, `show` and `shots` need Chromium. Longer stress tests are in benchmarks/strain.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from live_parts.crowd import crowds
from live_parts.fuzz import fuzz
from live_parts.load import load
from live_parts.shots import shots
from live_parts.show import show
from live_parts.timing import timing

GOAL = 3.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["timing", "fuzz", "load", "crowd", "all", "show", "shots"])
    parser.add_argument("--count", type=int, default=None, help="of malformed things")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds that a client rests between two frames"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("shots"), help="where pictures go")
    given = parser.parse_args()
    wrong = 0
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.what in ("timing", "all"):
            wrong += timing(folder) > GOAL
        if given.what in ("fuzz", "all"):
            wrong += fuzz(folder, given.count or 10_000, given.seed)
        if given.what in ("load", "all"):
            wrong += load(folder, given.seconds, given.clients, given.pause)
        if given.what == "crowd":
            wrong += crowds(folder, given.seconds, given.out)
        if given.what == "show":
            wrong += show(folder, given.out)
        if given.what == "shots":
            shots(folder, given.out)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
