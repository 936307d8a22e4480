"""The page in headless Chromium, with a camera that shows a film of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from live_parts.process import Frames

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
]


def film(path: Path, frames: Frames) -> Path:
    """Write frames as a camera of 640 x 480 would show them, forwards and backwards (.mjpeg)."""
    with open(path, "wb") as file:
        for frame in [*frames, *frames[-2:0:-1]]:
            picture = Image.fromarray(frame)
            wide = picture.resize((640, 640)).crop((0, 80, 640, 560))
            wide.paste(picture.resize((480, 480)), (80, 0))
            wide.save(file, "JPEG", quality=90)
    return path


@contextmanager
def page(playwright: Any, url: str, shown: Path, **context: Any) -> Iterator[Any]:
    flags = [*FLAGS, f"--use-file-for-fake-video-capture={shown}"]
    browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
    try:
        opened = browser.new_context(permissions=["camera"], **context).new_page()
        opened.goto(url)
        opened.locator("#link[data-state=live]").wait_for()
        opened.locator("#stage[data-ready=true]").wait_for()
        yield opened
    finally:
        browser.close()


def hold(opened: Any, name: str, seconds: float) -> str:
    """Hold the button while the camera shows the object; returns what the page says then."""
    opened.fill("#name", name)
    opened.locator("#hold").hover()
    opened.mouse.down()
    time.sleep(seconds)
    opened.mouse.up()
    opened.locator("#hint[data-kind=good], #hint[data-kind=bad]").wait_for(timeout=60_000)
    return str(opened.inner_text("#hint"))
