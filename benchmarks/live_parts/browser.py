"""The page in headless Chromium, with a camera that shows a film of ours."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator
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
            wide(frame).save(file, "JPEG", quality=90)
    return path


# A camera whose film can be changed while the page is open: a canvas in the page of the browser.
SCREEN = """
(() => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [640, 480];
  let film = [], at = 0;
  window.moved = 0; // to the right, in pixels
  window.showFilm = async (urls) => {
    film = await Promise.all(urls.map(async (src) => {
      const image = Object.assign(new Image(), { src });
      await image.decode();
      return image;
    }));
    at = 0;
  };
  setInterval(() => {
    const context = canvas.getContext("2d");
    if (film.length) context.drawImage(film[at++ % film.length], window.moved, 0, 640, 480);
    else context.fillRect(0, 0, 640, 480);
  }, 50);
  if (navigator.mediaDevices) {
    navigator.mediaDevices.getUserMedia = async () => canvas.captureStream(20);
  }
})();
"""


def screened(
    browser: Any, url: str, prepare: Callable[[Any], object] = lambda page: None, **context: Any
) -> Any:
    """Open the page in a running browser, with a camera whose film `show_film` changes."""
    opened = browser.new_context(**context).new_page()
    opened.add_init_script(SCREEN)
    prepare(opened)
    opened.goto(url)
    opened.locator("#link[data-state=live]").wait_for()
    opened.locator("#stage[data-ready=true]").wait_for()
    return opened


def show_film(opened: Any, pictures: list[Image.Image]) -> None:
    """Let the camera of a screened page show pictures of 4 to 3, one after the other."""
    urls = []
    for picture in pictures:
        file = io.BytesIO()
        picture.convert("RGB").save(file, "JPEG", quality=88)
        urls.append("data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode())
    opened.evaluate("(urls) => showFilm(urls)", urls)


def wide(frame: Frames) -> Image.Image:
    """Widen a square frame to 640 x 480, blurred at the sides, as a camera would show it."""
    picture = Image.fromarray(frame)
    around = picture.resize((640, 640)).crop((0, 80, 640, 560))
    around.paste(picture.resize((480, 480)), (80, 0))
    return around


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
    """Hold the button while the camera shows the object; return the text of the page after it."""
    opened.fill("#name", name)
    opened.locator("#hold").hover()
    opened.mouse.down()
    time.sleep(seconds)
    opened.mouse.up()
    opened.locator("#hint[data-kind=good], #hint[data-kind=bad]").wait_for(timeout=60_000)
    return str(opened.inner_text("#hint"))
