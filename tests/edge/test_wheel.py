"""The wheel of primavista-edge where there is no torch.

Nothing but Python, numpy, onnxruntime and array-api-compat.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from primavista import Learner
from primavista.learner.export import export

EDGE = Path(__file__).resolve().parents[2] / "edge"
LESSON = """
import importlib.util, json, sys
for name in ("torch", "primavista", "safetensors", "PIL", "pydantic", "onnx"):
    assert importlib.util.find_spec(name) is None, name
import numpy as np
from primavista_edge import Learner
learner = Learner.load(sys.argv[1])
frames = np.random.default_rng(3).integers(0, 256, (12, 48, 64, 3), np.uint8)
learner.learn(frames, "plate")
learner.save(sys.argv[2])
print(json.dumps([list(p.scores.values()) for p in learner.predict(frames)]))
"""


def packages(*names: str) -> set[Path]:
    """The top folders and files of distributions, and of those that they need."""
    found: set[Path] = set()
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if not file.parts[0].startswith((".", "__pycache__")) and not file.parts[0].endswith(
                ".dist-info"
            ):
                found.add(Path(str(distribution.locate_file(file.parts[0]))))
        needs = [
            need.split(";")[0] for need in distribution.requires or () if "extra ==" not in need
        ]
        found |= packages(
            *(
                need.strip().split("[")[0].split(">")[0].split("=")[0].split("<")[0].strip()
                for need in needs
            )
        )
    return found


@pytest.mark.slow
def test_the_wheel_learns_without_torch(tmp_path):
    pytest.importorskip("onnxruntime")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "-o",
        str(tmp_path),
        str(EDGE),
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    place = tmp_path / "packages"
    place.mkdir()
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(place)
    for source in packages("array-api-compat", "numpy", "onnxruntime"):
        (place / source.name).symlink_to(source)

    learner = Learner("cwr*", weights="random", width=0.25, size=32)
    for k, name in enumerate(["mug", "kettle"]):
        learner.learn(np.random.default_rng(k).integers(0, 256, (8, 32, 32, 3), np.uint8), name)
    model = export(learner, tmp_path / "a.edge.pv", "edge")
    run = [
        sys.executable,
        "-S",
        "-c",
        LESSON,
        str(model),
        str(tmp_path / "b.pv"),
    ]  # -S: no other packages than those in `place`
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr

    frames = np.random.default_rng(3).integers(0, 256, (12, 48, 64, 3), np.uint8)
    learner.learn(frames, "plate")
    back = Learner.load(tmp_path / "b.pv")
    expected = [list(p.scores.values()) for p in learner.predict(frames)]
    assert np.allclose(json.loads(done.stdout), expected, atol=1e-4)
    assert np.allclose([list(p.scores.values()) for p in back.predict(frames)], expected, atol=1e-4)
    assert back.labels == learner.labels
    assert back.lessons == learner.lessons
