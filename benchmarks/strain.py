"""Run long stress tests of the bench and the service; exit code 1 means a failure.

    python benchmarks/strain.py bench-kills  [--count 1000]     # SIGKILL of a plan, now and then
    python benchmarks/strain.py lesson-kills [--count 1000]     # SIGKILL of the service in lessons
    python benchmarks/strain.py malformed    [--count 100000]   # requests, pictures, videos, files
    python benchmarks/strain.py day          [--count 10000]    # lessons, renames, undos, loads
    python benchmarks/strain.py crowd        [--count 100]      # 20 clients beside 200 slow ones

Give a --folder to run a test in parts: `--minutes 4` ends a part, and the same command resumes
until the count is reached. Every step depends on the seed and its number only; the moment of a kill
also depends on the clock. The networks are tiny and have random weights. The tests need Linux. Do
not change the source meanwhile: the results of a plan belong to the code that made them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from strains.bench_kills import bench_kills
from strains.crowd import crowd
from strains.day import day
from strains.endure import Strain, described, endure
from strains.lesson_kills import lesson_kills
from strains.malformed import malformed

STRAINS: dict[str, tuple[Strain, int]] = {
    "bench-kills": (bench_kills, 1000),
    "lesson-kills": (lesson_kills, 1000),
    "malformed": (malformed, 100_000),
    "day": (day, 10_000),
    "crowd": (crowd, 100),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("strain", choices=list(STRAINS))
    parser.add_argument("--count", type=int, default=0, help="how many steps in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="to go on in another part")
    parser.add_argument("--minutes", type=float, default=0, help="the longest time of this part")
    given = parser.parse_args()
    strain, usual = STRAINS[given.strain]
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)) / given.strain
        tally = endure(
            given.strain, strain, folder, given.count or usual, given.seed, given.minutes
        )
    print(described(given.strain, tally))
    sys.exit(1 if tally.outcomes["wrong"] else 0)


if __name__ == "__main__":
    main()
