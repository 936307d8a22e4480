"""What the tests of the service share: a service in a process, drawn objects as a camera, a browser."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from primavista.streams.rendered import Scene, render

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
]  # fmt: skip


def jpeg(image: np.ndarray, quality: int = 92) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return file.getvalue()


def drawn(object: int, session: int = 1, frames: int = 20, size: int = 160) -> np.ndarray:
    """A short video of one of fifty drawn objects."""
    return render(Scene(frames=frames, size=size), object, session).numpy()


def camera(path: Path, frames: np.ndarray) -> Path:
    """Frames as what a camera of 640 x 480 shows, forwards and backwards: JPEGs one after the other (.mjpeg)."""
    with open(path, "wb") as file:
        for frame in [*frames, *frames[-2:0:-1]]:
            picture = Image.fromarray(frame)
            wide = picture.resize((640, 640)).crop((0, 80, 640, 560))
            wide.paste(picture.resize((480, 480)), (80, 0))
            wide.save(file, "JPEG", quality=90)
    return path


class Service:
    """`primavista teach` in a process of its own."""

    def __init__(self, model: Path, *options: str, new: str = "") -> None:
        if new:
            code = f"from primavista import Learner; Learner({new}).save({str(model)!r})"
            subprocess.run([sys.executable, "-c", code], check=True, env=_environment())
        command = [sys.executable, "-m", "primavista", "teach", str(model), "--no-browser", "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment())
        self.said: list[str] = []
        self.url = self._address()

    def _address(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if "://" in line:
                return line.split("#")[0].strip().rstrip("/")
        raise AssertionError("the service did not start:\n" + "".join(self.said))

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return json.load(response)

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=60)
        self.said.append(rest)
        return self.process.returncode


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}


@contextmanager
def service(model: Path, *options: str, new: str = "") -> Iterator[Service]:
    running = Service(model, *options, new=new)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


@contextmanager
def page(playwright, url: str, film: Path | None, **context):
    """The page in a browser whose camera shows `film`."""
    flags = [*FLAGS, f"--use-file-for-fake-video-capture={film}"] if film else FLAGS
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
    try:
        opened = browser.new_context(permissions=["camera"] if film else [], **context).new_page()
        opened.goto(url)
        yield opened
    finally:
        browser.close()


def hold(opened, name: str, seconds: float) -> None:
    """Show the object for so long with the button held, let go, and wait until it is learned."""
    opened.fill("#name", name)
    button = opened.locator("#hold")
    button.hover()
    opened.mouse.down()
    time.sleep(seconds)
    opened.mouse.up()
    opened.locator("#hint[data-kind=good], #hint[data-kind=bad]").wait_for(timeout=60_000)
    said = opened.inner_text("#hint")
    assert "learned" in said, said
