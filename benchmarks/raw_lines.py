"""Condense a folder of benchmark results into one JSON line per finished cell, for docs/results.

python benchmarks/raw_lines.py results/claims > docs/results/claims.jsonl
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from primavista.report.read import StoredCell, read_results


def condense(cell: StoredCell) -> dict[str, Any]:
    """Return the figures of one finished cell, the curve rounded to a thousandth of a percent."""
    assert cell.result is not None
    saturated = [step.saturated for step in cell.steps if step.saturated is not None]
    return {
        "protocol": cell.protocol,
        "strategy": cell.strategy,
        "changed": cell.cell.changed_options,
        "run": cell.run,
        "precision": cell.cell.precision,
        "test_thin": cell.cell.test_thin,
        "groups": [group.name for group in cell.groups],
        "final": asdict(cell.result.final),
        "saturated": [saturated[0], saturated[-1]] if saturated else None,
        "learn_seconds": cell.result.learn_seconds,
        "test_seconds": cell.result.test_seconds,
        "state_bytes": cell.result.state_bytes,
        "stored_bytes": cell.result.stored_bytes,
        "order": cell.order,
        "machine": cell.result.machine,
        "curve": [[batch, round(accuracy, 3)] for batch, accuracy in cell.curve.items()],
    }


def main() -> None:
    """Print the lines of the folder on the command line, in the order of the cells' folders."""
    for cell in read_results(Path(sys.argv[1])).cells:
        if cell.status == "done":
            print(json.dumps(condense(cell)))


if __name__ == "__main__":
    main()
