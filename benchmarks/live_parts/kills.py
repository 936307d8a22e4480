"""SIGKILL in the middle of a lesson: what was acknowledged is there, and nothing is half done."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path

import httpx

from live_parts.process import Service, drawn, jpeg
from primavista import Learner


def kills(folder: Path, count: int = 30, new: str = "", seed: int = 0, frames: int = 30) -> int:
    """Prints a line a kill; how many states were wrong."""
    draw, model = random.Random(seed), folder / "kills.pv"
    video = [jpeg(frame) for frame in drawn(9, frames=frames, size=96)]
    taught: dict[str, int] = {}
    wrong = whole = untouched = 0
    usual = 0.5
    for number in range(count):
        running = Service(model, new=new)
        wrong += _differs(f"start {number + 1}", running.counts(), [taught])
        began = time.monotonic()
        running.teach(f"acknowledged {number % 5}", video)
        usual = 0.5 * usual + 0.5 * (time.monotonic() - began)
        taught[f"acknowledged {number % 5}"] = taught.get(f"acknowledged {number % 5}", 0) + len(
            video
        )
        acknowledged = threading.Event()
        interrupted = f"interrupted {number % 3}"
        lesson = threading.Thread(target=_teach, args=(running, interrupted, video, acknowledged))
        lesson.start()
        time.sleep(draw.uniform(0.1, 1.2) * usual)
        running.stop(signal.SIGKILL)
        lesson.join()
        after = {**taught, interrupted: taught.get(interrupted, 0) + len(video)}
        found = Learner.load(
            model, device="cpu"
        ).counts  # refuses what is not whole to the last bit
        allowed = [after] if acknowledged.is_set() else [taught, after]
        wrong += _differs(f"kill {number + 1}", found, allowed)
        whole, untouched = whole + (found == after), untouched + (found == taught)
        said = "acknowledged" if acknowledged.is_set() else "not acknowledged"
        there = "there, whole" if found == after else "not there"
        print(f"kill {number + 1}: the lesson was {said}, and is {there}", flush=True)
        taught = found
    print(f"{count} kills: {untouched} lessons were not there, {whole} whole, {wrong} states wrong")
    return wrong


def _teach(running: Service, label: str, video: list[bytes], acknowledged: threading.Event) -> None:
    try:
        if running.teach(label, video)["state"] == "done":
            acknowledged.set()
    except (httpx.HTTPError, OSError):
        pass


def _differs(when: str, found: dict[str, int], allowed: list[dict[str, int]]) -> bool:
    if found in allowed:
        return False
    print(f"WRONG at {when}: {found}, but should be one of {allowed}", flush=True)
    return True
