"""Helpers for the tests of the service: a small learner, coloured frames, small limits."""

from __future__ import annotations

import io
import threading

import numpy as np
from PIL import Image

from primavista import Learner
from primavista.serve.journal import ChangeJob
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import ServiceLimits

COLOURS = {"mug": (200, 60, 60), "kettle": (60, 200, 60), "cup": (60, 60, 200)}
SMALL = ServiceLimits(
    body_bytes=300_000,
    frame_bytes=40_000,
    frame_pixels=40_000,
    lesson_frames=10,
    queued_jobs=2,
    concurrent_requests=20,
    concurrent_sockets=2,
    messages_per_second=50,
    idle_seconds=5.0,
)


def tiny() -> Learner:
    """Return a learner that takes no time.

    A network with random weights separates colours by exact statistics, but not in four epochs.
    """
    return Learner("dslda", weights="random", width=0.0625, size=32, device="cpu")


def picture(
    colour: str | tuple[int, int, int], seed: int = 0, side: int = 40, kind: str = "PNG"
) -> bytes:
    """A noisy image of one colour."""
    base = np.array(COLOURS[colour] if isinstance(colour, str) else colour)
    noise = np.random.default_rng(seed).integers(-30, 30, (side, side, 3))
    file = io.BytesIO()
    Image.fromarray((base + noise).clip(0, 255).astype(np.uint8)).save(file, kind)
    return file.getvalue()


def frames(colour: str, count: int = 6) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("frames", (f"{k}.png", picture(colour, k), "image/png")) for k in range(count)]


class Gate:
    """Blocks the writer thread: jobs that are submitted wait until `open()`."""

    def __init__(self, service: LearnerService) -> None:
        self.begun, self._open = threading.Event(), threading.Event()
        self.job = service.submit(ChangeJob("lesson", self._work, "gate"))
        assert self.begun.wait(30)

    def _work(self, learner: Learner, report_progress) -> None:
        self.begun.set()
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()
        self.job.ended.result(30)
