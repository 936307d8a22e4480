"""Simulate a long day of teaching: lessons, renames, undos, forgotten objects, loaded models.

After every change, the knowledge of the service is compared with a list that is kept here.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from live_parts.process import TINY, Service, drawn, jpeg, service

from primavista import Learner
from strains.endure import Step, Tally

OBJECTS = 20
FRAMES = 3
GROWTH = 64.0  # MiB that the service may grow by in one part, after its first hundred lessons
Counts = dict[str, int]


class Teacher:
    """A client with a list of what the service should know."""

    def __init__(self, running: Service, folder: Path, tally: Tally) -> None:
        self.running, self.folder, self.tally = running, folder, tally
        self.http = httpx.Client(base_url=running.url, timeout=90)
        self.counts: Counts = dict(tally.state.get("counts", {}))
        self.saved: tuple[bytes, Counts] | None = None
        self.videos = [
            [jpeg(frame) for frame in drawn(1 + 2 * k, frames=FRAMES, size=48)]
            for k in range(OBJECTS)
        ]

    def compare(self, after: str) -> None:
        objects = self.http.get("/api/model").raise_for_status().json()["objects"]
        found = {known["label"]: known["frames"] for known in objects}
        self.tally.check(found == self.counts, f"after {after}: {found}, not {self.counts}")
        self.tally.outcomes[after.split()[0]] += 1
        self.tally.state["counts"] = self.counts

    def lesson(self, label: str, which: int) -> None:
        files = [("frames", ("f.jpg", frame, "image/jpeg")) for frame in self.videos[which]]
        answer = self.http.post(
            "/api/lessons", params={"wait": 60, "again": True}, data={"label": label}, files=files
        )
        said = answer.raise_for_status().json()
        self.tally.check(said["state"] == "done", f"a lesson: {said}")
        self.counts = {**self.counts, label: self.counts.get(label, 0) + FRAMES}
        self.compare(f"lesson {label}")

    def change(self, path: str, **content: str) -> None:
        self.http.post(f"/api/{path}", json=content).raise_for_status()

    def undo(self, before: Counts) -> None:
        self.http.post("/api/undo").raise_for_status()
        self.counts = before
        self.compare("undo")

    def rename(self, label: str, to: str) -> None:
        self.change("rename", label=label, to=to)
        self.counts = {(to if name == label else name): n for name, n in self.counts.items()}
        self.compare(f"rename {label}")

    def forget(self, label: str) -> None:
        self.change("forget", label=label)
        self.counts = {name: n for name, n in self.counts.items() if name != label}
        self.compare(f"forget {label}")

    def move_away(self) -> None:
        """Remove the backups of earlier loads: the service keeps 20, then refuses further loads."""
        for old in self.folder.glob("day.pv.before-load*"):
            old.unlink()

    def load(self) -> None:
        """Load a file that was downloaded before, or download one."""
        if self.saved is None:
            self.saved = self.running.file(), self.counts
            return
        data, counts = self.saved
        self.move_away()
        self.http.post("/api/model/file", files={"file": ("m.pv", data)}).raise_for_status()
        self.saved, self.counts = None, counts
        self.compare("load")


@contextmanager
def day(folder: Path, tally: Tally) -> Iterator[Step]:
    model = folder / "day.pv"
    with service(model, new=TINY) as running:
        teacher = Teacher(running, folder, tally)
        teacher.compare("start")
        memory: list[float] = []

        def step(number: int, draw: random.Random) -> None:
            before = teacher.counts
            which = draw.randrange(OBJECTS)
            names = sorted(teacher.counts)
            is_new = len(names) < OBJECTS and draw.random() < 0.3
            label = f"object {number}" if is_new or not names else draw.choice(names)
            teacher.lesson(label, which)
            luck = draw.random()
            if luck < 0.10:
                teacher.undo(before)
            elif luck < 0.20:
                teacher.rename(label, f"renamed {number}")
                if draw.random() < 0.5:
                    teacher.undo({**before, label: before.get(label, 0) + FRAMES})
            elif luck < 0.25:
                teacher.forget(label)
            elif luck < 0.28:
                teacher.load()
            if number % 100 == 99:
                memory.append(running.memory())
                found = Learner.load(model, device="cpu").counts
                tally.check(found == teacher.counts, f"the file after {number}: {found}")

        yield step
        files = len(os.listdir(f"/proc/{running.process.pid}/fd"))
        used = tally.state.setdefault("service MiB and open files", [])
        used.append([round(min(memory, default=0)), round(max(memory, default=0)), files])
        tally.check(files < 200, f"{files} open files")
        tally.check(
            not memory or max(memory) - memory[0] < GROWTH,
            f"the service grew from {memory[:1]} MiB to {max(memory, default=0)} MiB",
        )
        teacher.http.close()
        running.stop()
        said = running.said()
        tally.check("Traceback" not in said, f"a traceback in the log: {said[-500:]}")
