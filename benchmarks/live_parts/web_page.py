"""The page without a server, for tests and benchmarks: a file server, visits, and tabs that die."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from PIL import Image

from live_parts.browser import CHROMIUM, FLAGS, SCREEN, show_film

SECONDS = 60_000  # until a step gives up, in milliseconds
# Notes what the policy of the page forbids.
WATCHED = """
window.forbidden = [];
addEventListener("securitypolicyviolation", (event) => forbidden.push(event.violatedDirective));
"""


class Handler(SimpleHTTPRequestHandler):
    """A plain file server that writes no lines, and notes the length of each file that it sends."""

    def __init__(self, *request: Any, sent: list[int], **options: Any) -> None:
        self.sent = sent
        super().__init__(*request, **options)

    def log_message(self, *_: Any) -> None:
        pass

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length":
            self.sent.append(int(value))
        super().send_header(keyword, value)


@contextmanager
def file_server(folder: Path, sent: list[int] | None = None) -> Iterator[str]:
    """Serve a folder as any web host does; yields its address.

    Args:
        folder: The folder.
        sent: The length of each file that was sent is appended to it.
    """
    handler = partial(Handler, directory=str(folder), sent=[] if sent is None else sent)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


class Visit:
    """A browser profile that visits one page, as often as it likes.

    Attributes:
        problems: The errors of all scripts.
        asked: The addresses that the pages asked for.
    """

    def __init__(self, context: Any, url: str) -> None:
        self.context = context
        self.url = url
        self.problems: list[str] = []
        self.asked: list[str] = []
        context.add_init_script(SCREEN + WATCHED)

    def open(self) -> Any:
        """Open the page in a new tab, and wait until it is live."""
        page = self.context.new_page()
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(self.url)
        live(page)
        return page

    def close(self) -> None:
        """Check that no script failed and that nothing was asked of anybody else, and leave."""
        for page in self.context.pages:
            if page.url.startswith(self.url):  # a profile has an empty tab, too
                self.problems += page.evaluate("window.forbidden")
        self.context.close()
        own = (self.url, "blob:", "data:")
        assert self.problems == []
        assert [url for url in self.asked if not url.startswith(own)] == []


def profile(playwright: Any, folder: Path, **how: Any) -> Any:
    """Open a browser with a profile on a disk."""
    return playwright.chromium.launch_persistent_context(
        str(folder), executable_path=str(CHROMIUM), args=FLAGS, **how
    )


def live(page: Any) -> None:
    """Wait until a page recognises what its camera shows."""
    page.locator("#link[data-state=live]").wait_for(timeout=SECONDS)
    page.locator("#stage[data-ready=true]").wait_for(timeout=SECONDS)


def objects(page: Any) -> dict[str, int]:
    """Return the frames of each object in the list of a page."""
    rows = page.evaluate(
        """() => [...document.querySelectorAll("#objects > li")].map((row) => [
          row.querySelector(".object-name").textContent,
          parseInt(row.querySelector(".object-count").textContent)])"""
    )
    return dict(rows)


def saved(page: Any, path: Path) -> Path:
    """Save the model of the page as a file."""
    page.locator("#use").click()
    with page.expect_download() as found:
        page.locator("#save").click()
    found.value.save_as(path)
    page.locator("#using button[value=no]").click()
    return path


def kill_often(
    visit: Visit, folder: Path, films: dict[str, list[Image.Image]], kills: int, seed: int = 0
) -> tuple[int, int]:
    """Kill the tab in the middle of lessons and of saves, and look what is there afterwards.

    Args:
        visit: The visitor.
        folder: The profile of its browser.
        films: What the camera shows of each object, by its name.
        kills: How often.
        seed: The seed of the times.

    Returns:
        The numbers of lessons that were acknowledged before a kill, and of those that were not.

    Raises:
        AssertionError: If something that the page had acknowledged is gone.
    """
    chance = random.Random(seed)
    names = list(films)
    known = lost = 0
    page = visit.open()
    for kill in range(kills):
        name = names[kill % len(names)]
        show_film(page, films[name])
        page.fill("#name", name)
        page.locator("#hold").hover()
        page.mouse.down()
        page.wait_for_timeout(chance.uniform(600, 1500))
        if chance.random() < 0.8:
            page.mouse.up()
        learned = wait_for(partial(_learned, page), chance.uniform(0, 3))
        told = objects(page)
        crash(page, folder)
        page = visit.open()
        kept = objects(page)
        assert all(kept.get(label, 0) >= count for label, count in told.items()), (told, kept)
        assert not learned or name in kept, (name, kept)
        known, lost = known + learned, lost + (not learned)
    return known, lost


def _learned(opened: Any) -> bool:
    return str(opened.get_attribute("#hint", "data-kind")) == "good"


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, for a time at most; return whether it did."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def crash(page: Any, folder: Path) -> None:
    """Kill the processes of all tabs of a profile, with their workers."""
    for process in renderers(folder):
        os.kill(process, signal.SIGKILL)
    page.close()


def renderers(folder: Path) -> list[int]:
    """Return the processes that draw the tabs of the browser with this profile."""
    parents, own, drawing = {}, set(), []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes()
            # the name, in brackets, may contain blanks
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            number = int(place.name)
            parents[number] = parent
            if f"--user-data-dir={folder}".encode() in line:
                own.add(number)
            if b"--type=renderer" in line:
                drawing.append(number)
    return [number for number in drawing if own & set(_ancestors(number, parents))]


def _ancestors(number: int, parents: dict[int, int]) -> Iterator[int]:
    while number in parents:
        number = parents[number]
        yield number
