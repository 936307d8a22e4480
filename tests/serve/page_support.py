"""The page in a browser: films for its camera, a service in this process, and readers of the page.

The modules that use this are in one group, so that one worker draws the films.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from live_parts.browser import CHROMIUM, wide
from live_parts.process import Frames, drawn
from PIL import Image
from serve_support import tiny

from primavista import Learner
from primavista.serve.asgi import create_app
from primavista.serve.connections import BoundedSocketProtocol
from primavista.serve.learner_service import LearnerService
from primavista.serve.service_camera import ServiceCamera

in_a_browser = [
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason="there is no Chromium: apt-get install chromium"
    ),
]
DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LANDSCAPE = {"viewport": {"width": 844, "height": 390}, "has_touch": True, "is_mobile": True}
SECONDS = 60_000  # until a test gives up, in milliseconds
NUMBERS = {"cup": 44, "ball": 31, "glasses": 26, "scissors": 13, "a plug": 3}  # of drawn objects
FRAMES = 12  # of a film


@cache
def rendered(name: str, session: int = 1, frames: int = 2 * FRAMES) -> Frames:
    """Draw an object, by default twice as often as it is taught: for other sides of it."""
    return drawn(NUMBERS[name], session, frames)


def taught_frames(name: str) -> Frames:
    """The frames of an object that are for teaching."""
    return rendered(name)[::2]


def there_and_back(frames: Frames) -> list[Image.Image]:
    """Pictures of a camera that shows frames forwards and backwards."""
    return [wide(frame) for frame in [*frames, *frames[-2:0:-1]]]


def film_of(name: str) -> list[Image.Image]:
    """Pictures of a camera that shows an object as it is taught."""
    return there_and_back(taught_frames(name))


def other_film_of(name: str) -> list[Image.Image]:
    """Pictures of a camera that shows the same object from the sides in between."""
    return there_and_back(rendered(name)[1::2])


@contextmanager
def served(
    model: Path,
    *,
    token: str | None = None,
    camera: str | None = None,
    port: int = 0,
) -> Iterator[tuple[str, LearnerService]]:
    """Serve a tiny learner from a thread of this process; yields its address and the service."""
    if not model.exists():
        tiny().save(model)
    made = LearnerService(Learner.load(model, device="cpu"), model)
    app = create_app(made, token=token, camera=None if camera is None else ServiceCamera(camera))
    config = uvicorn.Config(
        app,
        port=port,
        log_level="error",
        ws=BoundedSocketProtocol,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    bound = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{bound}", made
    finally:
        server.should_exit = True
        thread.join(30)


def until(opened: Any, condition: Callable[[], Any], what: str) -> Any:
    """Wait until something holds, while the page goes on."""
    end = time.monotonic() + SECONDS / 1000
    while not (found := condition()):
        assert time.monotonic() < end, what
        opened.wait_for_timeout(50)
    return found


def says(opened: Any, known: str) -> None:
    """Wait until the page says that it knows what it sees."""
    verdict = opened.locator("#verdict[data-state=known] #verdict-name", has_text=known)
    verdict.wait_for(timeout=SECONDS)


def keeps_saying(opened: Any, wanted: str, looks: int = 10) -> None:
    """Check what the page says, from the first time on, at most looks."""
    opened.locator("#verdict-name").get_by_text(wanted, exact=True).wait_for(timeout=SECONDS)
    said = []
    for _ in range(looks):
        opened.wait_for_timeout(100)
        said.append(opened.inner_text("#verdict-name"))
    assert said.count(wanted) >= 0.8 * looks, said


def hold(opened: Any, name: str, frames: int = 20) -> str:
    """Hold the button until there are enough frames; returns what the page says then."""
    opened.fill("#name", name)
    opened.locator("#hold").hover()
    opened.mouse.down()
    until(opened, lambda: captured(opened) >= frames, f"no {frames} frames of {name}")
    opened.mouse.up()
    return said_in_the_end(opened)


def captured(opened: Any) -> int:
    """The number of frames of the lesson so far."""
    return int(opened.inner_text("#hold-count") or 0)


def said_in_the_end(opened: Any) -> str:
    """The hint of the page when a lesson or a check has ended."""
    opened.locator("#hint[data-kind=good], #hint[data-kind=bad]").wait_for(timeout=SECONDS)
    return str(opened.inner_text("#hint"))


def look_first(opened: Any) -> None:
    """Wait for longer than a page ignores the clicks on a question that has just appeared."""
    opened.wait_for_timeout(600)


class StreamTap:
    """Stands between a page and the stream of its service: holds answers back, or changes them.

    It is installed by `screened(..., prepare=tap.install)`.
    """

    def __init__(self) -> None:
        self.count = 0  # of the answers to frames
        self.change: Callable[[int, dict[str, Any]], None] = lambda number, answer: None
        self.waiting: list[str] | None = None  # answers that are held back, if any are
        self._page: Any = None

    def install(self, opened: Any) -> None:
        opened.route_web_socket(lambda url: "/api/stream" in url, self._connect)

    def release(self) -> None:
        """Send what was held back, and hold nothing back from now on."""
        waiting, self.waiting = self.waiting or [], None
        for message in waiting:
            self._page.send(message)

    def _connect(self, page: Any) -> None:
        self._page = page
        page.connect_to_server().on_message(self._pass)

    def _pass(self, message: str) -> None:
        said = json.loads(message)
        if "frame" in said:
            self.count += 1
            self.change(self.count, said)
        text = json.dumps(said)
        if self.waiting is None:
            self._page.send(text)
        else:
            self.waiting.append(text)


# Notes every verdict that the page shows from now on, and every row that it marks.
NOTES = """() => {
  const verdict = document.getElementById("verdict");
  const last = { verdicts: [], marked: [] };
  const note = (list, text) => text === list.at(-1) || list.push(text);
  const look = () => {
    const name = document.getElementById("verdict-name").textContent;
    note(last.verdicts, `${verdict.dataset.state} ${name}`);
    note(last.marked, document.querySelector("#objects .best .object-name")?.textContent ?? "");
  };
  const every = { subtree: true, childList: true, characterData: true, attributes: true };
  window.noted?.observer.disconnect();
  const observer = new MutationObserver(look);
  for (const part of [verdict, document.getElementById("objects")]) observer.observe(part, every);
  window.noted = { ...last, observer };
  look();
}"""


def note_verdicts(opened: Any) -> None:
    """Note from now on what the page shows."""
    opened.evaluate(NOTES)


def noted(opened: Any) -> dict[str, list[str]]:
    """The verdicts ("known cup") and the marked rows since `note_verdicts`, each change once."""
    found: dict[str, list[str]] = opened.evaluate(
        "({ verdicts: noted.verdicts, marked: noted.marked })"
    )
    return found
