"""Measure primavista-edge in its own environment without torch: sizes, lessons, predictions.

    python benchmarks/edge.py --out edge.json

It builds the wheel, makes a virtual environment and installs from the package registry. The same
lessons are learned by primavista with torch and with ONNX Runtime, each in a fresh process, and the
weights are compared at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

from primavista.bench.cell import machine
from primavista.learner.export import export
from primavista.learner.learner import Learner
from primavista.storage import learner_file as files

ROOT = Path(__file__).resolve().parents[1]
SIDE, FRAMES, LESSONS = 128, 300, 3
WORK = """
import json, statistics, sys, time
import numpy as np
from {package} import Learner
began = time.perf_counter()
learner = Learner.load(sys.argv[1]{more})
loaded = time.perf_counter() - began
draw = np.random.default_rng(0)
frames = draw.integers(0, 256, ({frames}, {side}, {side}, 3), np.uint8)
lessons, singles = [], []
for k in range({lessons}):
    began = time.perf_counter()
    learner.learn(frames + np.uint8(k), f"object {{k}}")
    lessons.append(time.perf_counter() - began)
learner.predict(frames[0])
for k in range(50):
    began = time.perf_counter()
    learner.predict(frames[k])
    singles.append(time.perf_counter() - began)
learner.save(sys.argv[2])
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({{
    "load_ms": 1e3 * loaded,
    "lesson_s": statistics.median(lessons),
    "predict_ms": 1e3 * statistics.median(singles),
    "memory_mb": int(peak[0]) / 1e3, "torch": "torch" in sys.modules,
}}))
"""


def size_of(
    folder: Path,
    without: tuple[str, ...] = ("pip", "setuptools", "wheel", "_distutils_hack", "distutils"),
) -> float:
    """Return the megabytes of an environment's packages, without those of the installer."""
    parts = (p for p in folder.iterdir() if p.name.split("-")[0].lower() not in without)
    every = (f for p in parts for f in ([p] if p.is_file() else p.rglob("*")))
    return sum(f.stat().st_size for f in every if f.is_file()) / 1e6


def installed_edge(folder: Path) -> tuple[Path, float, float]:
    """Make an environment with the wheel; return its Python, and the MB of the wheel and of all."""
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "-o",
        str(folder),
        str(ROOT / "edge"),
    ]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(folder.glob("*.whl"))
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)],
        check=True,
    )
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    return python, wheel.stat().st_size / 1e6, size_of(packages)


def lessons(
    python: str | Path, package: str, model: Path, saved: Path, more: str = ""
) -> dict[str, Any]:
    code = WORK.format(package=package, more=more, frames=FRAMES, side=SIDE, lessons=LESSONS)
    done = subprocess.run(
        [str(python), "-c", code, str(model), str(saved)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def apart(one: Path, two: Path) -> float:
    """Return the largest difference between the tensors of two files, relative to the largest."""
    a, b = files.read(one)[0], files.read(two)[0]
    common = [name for name in a if name in b and a[name].dtype.kind == "f"]
    return max(
        float(np.abs(a[n] - b[n]).max(initial=0) / max(1, np.abs(a[n]).max(initial=0)))
        for n in common
    )


def measure() -> dict[str, Any]:
    """Measure the sizes, and for each strategy the lessons of the three engines."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python, wheel, install = installed_edge(folder)
        found: dict[str, Any] = {
            "machine": machine("cpu"),
            "wheel_mb": wheel,
            "install_mb": install,
            "rows": [],
        }
        for strategy in ("cwr*", "dslda"):
            learner = Learner(strategy, size=SIDE, engine="torch")
            learner.learn(np.zeros((8, SIDE, SIDE, 3), np.uint8), "nothing")
            model = export(learner, folder / f"{strategy[:3]}.edge.pv", "edge")
            here = sys.executable
            row = {
                "edge": lessons(python, "primavista_edge", model, folder / "edge.pv"),
                "torch": lessons(
                    here, "primavista", model, folder / "torch.pv", ", engine='torch'"
                ),
                "onnx": lessons(here, "primavista", model, folder / "onnx.pv", ", engine='onnx'"),
            }
            found["rows"].append(
                {
                    "strategy": strategy,
                    **row,
                    "apart": apart(folder / "edge.pv", folder / "torch.pv"),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = measure()
    print(
        f"wheel {found['wheel_mb'] * 1e3:.0f} kB; "
        f"with numpy and onnxruntime {found['install_mb']:.0f} MB"
    )
    print(f"{'':24} {'load':>9} {'lesson':>9} {'predict':>10} {'memory':>9}")
    for row in found["rows"]:
        for engine in ("edge", "torch", "onnx"):
            r = row[engine]
            print(
                f"{row['strategy']:6} {engine:17} {r['load_ms']:6.0f} ms {r['lesson_s']:7.2f} s "
                f"{r['predict_ms']:7.2f} ms {r['memory_mb']:6.0f} MB"
            )
        print(f"{row['strategy']:6} weights of edge and torch differ by {row['apart']:.1e} at most")
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
