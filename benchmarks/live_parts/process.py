"""Run `primavista teach` in its own process, with drawn objects to show it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from primavista import Learner
from primavista.streams.rendered.renderer import Scene, render

Frames = np.ndarray[Any, Any]
New = Mapping[str, Any]  # the arguments of a new learner; without them, the service chooses
# a learner that takes no time
TINY: New = {"weights": "random", "width": 0.0625, "size": 32}
DEFAULT: New = {}


def jpeg(image: Frames, quality: int = 92) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return file.getvalue()


def drawn(object: int, session: int = 1, frames: int = 20, size: int = 160) -> Frames:
    """Draw a short video of one of fifty objects."""
    return np.asarray(render(Scene(frames=frames, size=size), object, session))


class Service:
    """A running service. `new` are the arguments of its learner, which is created here.

    It has no token unless the options say otherwise, and runs in this environment unless `python`
    belongs to another.
    """

    def __init__(
        self, model: Path, *options: str, new: New = DEFAULT, python: str = sys.executable
    ) -> None:
        if new and not model.exists():
            Learner(**new).save(model)
        command = [
            python,
            "-m",
            "primavista",
            "teach",
            str(model),
            "--no-browser",
            "--port",
            "0",
            *options,
        ]
        if "--token" not in options:
            command.append("--no-token")
        self.log = model.with_suffix(".log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment()
            )
        self.url = self._address()

    def _address(self) -> str:
        while self.process.poll() is None:
            for line in self.said().splitlines()[:-1]:  # the last line may be incomplete
                if "://" in line:
                    return line.split("#")[0].strip().rstrip("/")
            time.sleep(0.05)
        raise SystemExit(f"the service did not start:\n{self.said()}")

    def said(self) -> str:
        """Return the output of the process."""
        return self.log.read_text()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return json.load(response)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON and return the answer."""
        answer = httpx.post(self.url + path, json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def file(self) -> bytes:
        """Return the bytes of the current model."""
        with urllib.request.urlopen(f"{self.url}/api/model/file", timeout=60) as response:
            return bytes(response.read())

    def counts(self) -> dict[str, int]:
        return {known["label"]: known["frames"] for known in self.get("/api/model")["objects"]}

    def teach(self, label: str, frames: Frames | list[bytes], wait: float = 60) -> Any:
        """Teach one lesson over HTTP and return its status."""
        coded = [frame if isinstance(frame, bytes) else jpeg(frame) for frame in frames]
        files = [("frames", ("frame.jpg", frame, "image/jpeg")) for frame in coded]
        answer = httpx.post(
            f"{self.url}/api/lessons",
            params={"wait": wait, "again": True},
            data={"label": label},
            files=files,
            timeout=90,
        )
        answer.raise_for_status()
        return answer.json()

    def memory(self) -> float:
        """Return the memory of its process in MiB."""
        return memory_of(self.process.pid)

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


def memory_of(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    return status_of(process, "VmRSS")


def status_of(process: int, what: str) -> float:
    """Return a size that Linux keeps of a process, such as its largest resident memory, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def children(pid: int) -> list[int]:
    """Return the running child processes of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(one) for one in (task / "children").read_text().split()]
    return [one for one in found if "VmRSS" in _status(one)]


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and its running children have taken so far."""
    ticks = 0
    for one in (pid, *children(pid)):
        with suppress(OSError):
            user, system = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}


@contextmanager
def service(
    model: Path, *options: str, new: New = DEFAULT, python: str = sys.executable
) -> Iterator[Service]:
    running = Service(model, *options, new=new, python=python)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
