"""Kill the service during lessons: acknowledged lessons must be complete, none may be torn."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from live_parts.process import drawn, jpeg

from primavista import Learner
from primavista.serve.server import open_for_teaching, serve
from strains.endure import Step, Tally
from strains.forked import Forked, forget_garbage, left_of_sessions

START_SECONDS = 60.0
LABELS = 7


class ForkedService:
    """The service of `primavista teach`, in a fork of this process."""

    def __init__(self, model: Path, log: Path) -> None:
        reading, writing = os.pipe()

        def call() -> None:
            os.close(reading)
            with open_for_teaching(model, "cpu") as learner:
                serve(learner, model, port=0, ready=lambda url, *_: _tell(writing, url))

        self.process = Forked(call, log)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            self.url = pipe.readline().strip()
        if not self.url:
            raise SystemExit(f"the service did not start:\n{log.read_text()[-3000:]}")

    def counts(self, http: httpx.Client) -> dict[str, int]:
        objects = http.get(f"{self.url}/api/model").raise_for_status().json()["objects"]
        return {known["label"]: known["frames"] for known in objects}

    def teach(self, http: httpx.Client, label: str, frames: list[bytes]) -> bool:
        """Teach one lesson; return True if the service reports it as done."""
        answer: Any = http.post(
            f"{self.url}/api/lessons",
            params={"wait": 60, "again": True},
            data={"label": label},
            files=[("frames", ("frame.jpg", frame, "image/jpeg")) for frame in frames],
        )
        return bool(answer.raise_for_status().json()["state"] == "done")


def _tell(pipe: int, url: str) -> None:
    os.write(pipe, f"{url}\n".encode())
    os.close(pipe)


@contextmanager
def lesson_kills(folder: Path, tally: Tally) -> Iterator[Step]:
    torch.set_num_threads(1)
    model, log = folder / "kills.pv", folder / "lesson_kills.log"
    warm = Learner(weights="random", width=0.0625, size=32)
    if not model.exists():
        warm.save(model)
    still = np.zeros((1, 32, 32, 3), np.uint8)
    warm.learn(still, "warm")  # so that forks of this process have everything imported
    warm.predict(still)
    forget_garbage()
    videos = [[jpeg(frame) for frame in drawn(k, frames=4, size=48)] for k in (9, 17, 31)]
    taught: dict[str, int] = tally.state.get("taught", {})
    sessions: set[int] = set()
    usual = 0.1

    def step(number: int, draw: random.Random) -> None:
        nonlocal taught, usual
        running = ForkedService(model, log)
        sessions.add(running.process.pid)
        with httpx.Client(timeout=90) as http:
            found = running.counts(http)
            tally.check(found == taught, f"start {number}: {found}, but {taught} was saved")
            began = time.monotonic()
            sure, other = f"sure {number % LABELS}", f"other {number % LABELS}"
            tally.check(running.teach(http, sure, videos[0]), f"lesson {number} was not learned")
            usual = 0.5 * usual + 0.5 * (time.monotonic() - began)
            before = {**taught, sure: taught.get(sure, 0) + 4}
            done = threading.Event()
            lesson = threading.Thread(
                target=_teach, args=(running, other, draw.choice(videos), done)
            )
            lesson.start()
            # the first lesson took longer: it started the decoders
            time.sleep(draw.uniform(0.0, 0.5) * usual)
            tally.check(running.process.kill(), f"kill {number}: the service had ended before")
            lesson.join()
        after = {**before, other: before.get(other, 0) + 4}
        found = Learner.load(model, device="cpu").counts
        allowed = [after] if done.is_set() else [before, after]
        tally.check(found in allowed, f"kill {number}: {found} is none of {allowed}")
        tally.outcomes["acknowledged" if done.is_set() else "not acknowledged"] += 1
        tally.outcomes["lesson there" if found == after else "lesson not there"] += 1
        taught = tally.state["taught"] = found

    yield step
    time.sleep(3)
    left = left_of_sessions(sessions)
    tally.check(not left, f"{len(left)} processes were left behind")
    strays = [path.name for path in folder.iterdir() if path.name.startswith(".kills.pv")]
    strays = [name for name in strays if name.endswith(".part")]
    tally.check(len(strays) <= 1, f"{len(strays)} parts of files were left behind")
    tally.outcomes["kills"] = tally.done


def _teach(running: ForkedService, label: str, frames: list[bytes], done: threading.Event) -> None:
    try:
        with httpx.Client(timeout=90) as http:
            if running.teach(http, label, frames):
                done.set()
    except (httpx.HTTPError, OSError):
        pass
