"""Draw the coverage of each package of src, and print it as a table: `make coverage`.

python tools/coverage_figure.py         # from .coverage to docs/images/coverage.svg
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "coverage.svg"
FIELDS = ("covered_lines", "num_statements", "covered_branches", "num_branches")
Shares = dict[str, tuple[float, float]]  # percent of the lines and of the branches, by package


def shares_of(report: dict[str, Any]) -> Shares:
    """Return what is covered of each package and of all, from coverage.py's JSON."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(FIELDS))
    for file, facts in report["files"].items():
        path = Path(file).parts
        inside = path[path.index("primavista") + 1 :]
        package = inside[0] if len(inside) > 1 else "(root)"
        for name in (package, "all"):
            for k, field in enumerate(FIELDS):
                sums[name][k] += facts["summary"][field]
    return {
        name: (100 * lines / max(of_lines, 1), 100 * branches / max(of_branches, 1))
        for name, (lines, of_lines, branches, of_branches) in sorted(sums.items())
    }


def table(shares: Shares) -> str:
    """Return the shares as a Markdown table, the whole last."""
    rows = [(name, *own) for name, own in shares.items() if name != "all"]
    rows.append(("**all**", *shares["all"]))
    lines = [f"| {name} | {lines:.1f} | {branches:.1f} |" for name, lines, branches in rows]
    return "\n".join(["| package | lines (%) | branches (%) |", "|---|---|---|", *lines])


def draw(shares: Shares, path: Path) -> None:
    """Draw a bar for the lines and one for the branches of each package."""
    names = [name for name in reversed(shares) if name != "all"]
    names.insert(0, "all")
    figure, axes = plt.subplots(figsize=(6.5, 0.32 * len(names) + 0.8), layout="constrained")
    for offset, which, colour, label in (
        (0.2, 0, "#0072b2", "lines"),
        (-0.2, 1, "#e69f00", "branches"),
    ):
        places = [place + offset for place in range(len(names))]
        axes.barh(places, [shares[name][which] for name in names], 0.38, color=colour, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(50, 100)
    axes.set_xlabel("reached by the tests (%)")
    axes.legend(loc="lower left", ncols=2, bbox_to_anchor=(0, 1), frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw and print what the data of coverage.py say."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(file)]
        subprocess.run(command, cwd=ROOT, check=True)
        shares = shares_of(json.loads(file.read_text()))
    draw(shares, PICTURE)
    print(table(shares))


if __name__ == "__main__":
    main()
