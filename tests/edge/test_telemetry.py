"""ONNX Runtime tells its maker about each process, unless it is told not to: ours is.

Its file `Privacy.md` says so. It keeps an identifier of the machine in the cache of the user, which
is how these tests notice it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from primavista import Learner
from primavista.learner.export import export

pytest.importorskip("onnxruntime")
USE = """
import numpy as np
from {package} import Learner

learner = Learner.load("kitchen.pv"{how})
print(learner.predict(np.zeros((32, 32, 3), np.uint8)).label)
"""


def traces(folder: Path, code: str, path: str = "") -> list[Path]:
    """Run a program in a folder, which is its home too; return what it leaves in the cache."""
    kept = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    places = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / ".cache")}
    places |= {"PYTHONPATH": path} if path else {}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=kept | places,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mug\n"
    return [path for path in (folder / ".cache").rglob("*") if "onnxruntime" in str(path)]


def save(folder: Path, name: str) -> Learner:
    learner = Learner("ncm", weights="random", size=32, width=0.25, engine="onnx", device="cpu")
    learner.learn(np.zeros((4, 32, 32, 3), np.uint8), "mug")
    learner.save(folder / name)
    return learner


@pytest.mark.slow
def test_a_learner_sends_nothing_to_the_maker_of_its_runtime(tmp_path: Path) -> None:
    save(tmp_path, "kitchen.pv")
    code = USE.format(package="primavista", how=', device="cpu"')
    used = "import sys\nassert 'onnxruntime' in sys.modules"
    assert traces(tmp_path, code + used) == []


def test_the_edge_sends_nothing_to_the_maker_of_its_runtime(edge, tmp_path: Path) -> None:
    export(save(tmp_path, "whole.pv"), tmp_path / "kitchen.pv", "edge")
    code = USE.format(package="primavista_edge", how="")
    assert traces(tmp_path, code, str(Path(edge.__file__).parents[1])) == []
