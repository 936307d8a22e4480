"""Time each change of a learner of prima, and measure its file.

    OMP_NUM_THREADS=1 python benchmarks/changes.py                # 5, 10, 40 objects; 5 minutes
    OMP_NUM_THREADS=1 python benchmarks/changes.py --objects 5

Every object has two lessons of 30 frames, made of one generic frame that is moved, relit and given
noise. Times are CPU milliseconds of one thread, the median of the repeats. A time after a change
begins when the button is let go (the features of a lesson have been computed by then) and ends with
the next prediction. "loaded" begins after the file is read and the network is built, "load" before
that. Each lesson writes the whole file.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from primavista import Learner
from primavista.backbones.reference import generic_frames

Image: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]

FRAMES, LESSONS = 30, 2
CHANGES = ("learn", "forget", "undo", "rename", "loaded", "load")


def lesson(k: int, number: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw one lesson of object k, in its own light, with a slightly moved object per frame."""
    random = np.random.default_rng([k, number])
    frame = generic_frames(size)[k % 48].astype(np.float32)
    light, found = random.uniform(0.7, 1.3), []
    for _ in range(FRAMES):
        moved = np.roll(frame, random.integers(-size // 8, size // 8, 2), (0, 1))
        found.append(moved * light + random.normal(0, 6, frame.shape))
    return np.stack(found).clip(0, 255).astype(np.uint8)


def milliseconds(work: Callable[[], object]) -> float:
    """Measure CPU time, which other work of the machine hardly lengthens."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


class Measured:
    """A learner, and the time of its changes.

    Args:
        size: The side of the frames in pixels.
        folder: Where to save.
    """

    def __init__(self, size: int, folder: Path) -> None:
        self.size, self.file = size, folder / "learner.pv"
        self.learner = Learner("prima", size=size, device="cpu")
        self.lessons = 0
        self.first: float | None = None

    def teach(self, objects: int) -> None:
        """Teach two lessons of each object, up to a number of objects."""
        while self.lessons < objects * LESSONS:
            k, number = divmod(self.lessons, LESSONS)
            took = milliseconds(lambda: self._learn(k, number))  # noqa: B023
            self.first = self.first or took
            self.lessons += 1

    def _learn(self, k: int, number: int) -> None:
        self.learner.learn(lesson(k, number, self.size), f"object {k}", coach=False)

    def time(self, name: str, frame: Image) -> float:
        """Measure the time of predicting a frame, of saving, or after a change."""
        if name == "frame":
            return milliseconds(lambda: self.learner.predict(frame))
        if name == "save":
            return milliseconds(lambda: self.learner.save(self.file))
        return self.after(name, frame)

    def after(self, change: str, frame: Image) -> float:
        """Measure the time from a change of a copy to the end of the next prediction."""
        learner = self.learner.copy()
        learner.predict(frame)
        buffer = learner.open_lesson()
        if change == "learn":
            for image in lesson(0, 9, self.size):
                buffer.add(image)
            buffer.features_for(learner.strategy)
        elif change == "undo":
            learner.forget("object 1")
            learner.predict(frame)
            learner.free_undo_cache()  # as the service does
        elif change in ("load", "loaded"):
            learner.save(self.file)
        if change == "loaded":
            learner = Learner.load(self.file, device="cpu")

        def work() -> None:
            answering = learner
            if change == "learn":
                learner.learn(buffer, "object 0")
            elif change == "forget":
                learner.forget("object 1")
            elif change == "undo":
                learner.undo()
            elif change == "rename":
                learner.rename("object 1", "mug")
            elif change == "load":
                answering = Learner.load(self.file, device="cpu")
            answering.free_undo_cache()
            answering.predict(frame)

        return milliseconds(work)

    def sizes(self) -> dict[str, int]:
        """Measure file sizes: after a lesson, after forgetting, without undo."""
        learner = self.learner.copy()
        learner.learn(lesson(0, 8, self.size), "object 0", coach=False)
        learner.save(self.file)
        found = {"after a lesson": self.file.stat().st_size}
        learner.forget("object 1")
        learner.save(self.file)
        found["after forgetting"] = self.file.stat().st_size
        found["without undo"] = len(learner.without_undo().to_bytes())
        return found


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure at all numbers of objects."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        measured = Measured(args.size, Path(folder))
        frame = lesson(2, 5, args.size)[0]
        for objects in args.objects:
            measured.teach(objects)
            times: dict[str, list[float]] = {}
            for _ in range(args.repeats):
                measured.learner.predict(frame)
                for name in ("frame", "save", *CHANGES):
                    times.setdefault(name, []).append(measured.time(name, frame))
            medians = {name: statistics.median(values) for name, values in times.items()}
            found.append(
                {
                    "objects": objects,
                    "first lesson": measured.first,
                    "milliseconds": medians,
                    "bytes": measured.sizes(),
                }
            )
            print_row(found[-1])
    return found


def print_row(row: dict[str, Any]) -> None:
    """Print one row of the table."""
    times = " | ".join(f"{row['milliseconds'][name]:.0f}" for name in ("frame", *CHANGES, "save"))
    sizes = " | ".join(f"{count / 1e6:.1f}" for count in row["bytes"].values())
    print(f"| {row['objects']} | {times} | {sizes} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--objects", type=int, nargs="+", default=[5, 10, 40])
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write all of it as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread\n")
    print(
        "| objects | frame, ms | learn | forget | undo | rename | loaded | load | save | "
        "after a lesson, MB | after forgetting | without undo |"
    )
    print("|---" * 12 + "|")
    rows = measure(args)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
