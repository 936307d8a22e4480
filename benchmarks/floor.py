"""Measure the package without torch: its size, its first answer, and the memory of its service.

    python benchmarks/floor.py                 # some minutes, most of them installing
    python benchmarks/floor.py --minutes 60    # the service for an hour

The wheel is built and installed in two fresh environments: the package alone, and with the extras
`live` and `video`. The answer of `primavista predict` is compared with `import torch` in the
environment of this script, in turns, in processor seconds. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import httpx
from live_parts.process import drawn, environment, jpeg, service, status_of
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
OBJECTS = {"cup": 44, "ball": 31, "glasses": 26}
TURNS = 7
PAUSE = 20  # seconds between two lessons of the service


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2, help="how long the service teaches")
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build_wheel(folder)
        floor = install(folder / "floor", str(wheel))
        live = install(folder / "live", f"{wheel}[live,video]")
        first_answer(floor, folder)
        serve(live, folder, given.minutes)


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def install(folder: Path, what: str) -> Path:
    """Install a wheel in an environment of its own, print its size, and return its programs."""
    venv.create(folder, with_pip=True)
    before = size_of(folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "--disable-pip-version-check", what], check=True)
    print(f"installed packages, {folder.name}: {size_of(folder) - before:.0f} MB")
    return folder / "bin"


def size_of(folder: Path) -> float:
    return sum(one.lstat().st_size for one in folder.rglob("*") if not one.is_symlink()) / 1e6


def seconds_of(*command: str) -> float:
    """Run a command and return the processor seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiled = environment() | {"PYTHONDONTWRITEBYTECODE": ""}  # bytecode is kept, as by default
    subprocess.run(command, check=True, capture_output=True, env=compiled)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_answer(programs: Path, folder: Path) -> None:
    """Teach three objects, then compare the answer for one picture with `import torch`."""
    program, model = str(programs / "primavista"), str(folder / "kitchen.pv")
    for name, number in OBJECTS.items():
        pictures = folder / name
        pictures.mkdir()
        for i, frame in enumerate(drawn(number)):
            Image.fromarray(frame).save(pictures / f"{i:02}.png")
        seconds_of(program, "learn", model, "--label", name, str(pictures))
    asked = str(folder / "asked.png")
    Image.fromarray(drawn(OBJECTS["cup"], session=2)[0]).save(asked)
    commands = {
        "import torch": (sys.executable, "-c", "import torch"),
        "predict": (program, "predict", model, asked),
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(TURNS + 1):
        for name, command in commands.items():
            taken = seconds_of(*command)
            if turn:  # the first turn reads the files from the disk
                seconds[name].append(taken)
    for name, all_turns in seconds.items():
        least, most = min(all_turns), max(all_turns)
        middle = statistics.median(all_turns)
        print(f"{name}: {middle:.2f} processor seconds ({least:.2f} to {most:.2f})")
    ratio = statistics.median(seconds["predict"]) / statistics.median(seconds["import torch"])
    print(f"predict / import torch: {ratio:.2f}")


def serve(programs: Path, folder: Path, minutes: float) -> None:
    """Teach and ask a service for some minutes and print its memory."""
    videos = {name: drawn(number) for name, number in OBJECTS.items()}
    model = folder / "service.pv"
    with service(model, python=str(programs / "python")) as running:
        print(f"the service, untaught: {running.memory():.0f} MiB")
        end, lessons, answers = time.monotonic() + 60 * minutes, 0, 0
        while time.monotonic() < end:
            name = list(videos)[lessons % len(videos)]
            running.teach(f"{name} {lessons // len(videos) % 4}", videos[name])
            lessons += 1
            pause = min(end, time.monotonic() + PAUSE)
            while time.monotonic() < pause:
                asked = {"frame": ("frame.jpg", jpeg(videos[name][answers % 20]), "image/jpeg")}
                url = f"{running.url}/api/predict"
                httpx.post(url, files=asked, timeout=60).raise_for_status()
                answers += 1
                time.sleep(0.2)
        largest = status_of(running.process.pid, "VmHWM")
        print(
            f"the service after {minutes:g} minutes, {lessons} lessons and {answers} answers: "
            f"{running.memory():.0f} MiB, at most {largest:.0f} MiB"
        )


if __name__ == "__main__":
    main()
