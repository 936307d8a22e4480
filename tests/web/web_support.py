"""Runs the modules of the page's learner in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LEARNER = HERE.parents[1] / "web" / "learner"


def node(script: str, *arguments: str, given: Any = None, timeout: float = 600) -> Any:
    """Run a script of this folder with JSON on its standard input; return the JSON it prints."""
    program = shutil.which("node")
    assert program, "these tests need Node.js 20 or later (apt-get install nodejs)"
    done = subprocess.run(
        [program, str(HERE / script), *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
