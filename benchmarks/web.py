"""The page without a server in headless Chromium: bytes, first load, feedback, memory, kills.

make web
python benchmarks/web.py --out results/web.json
python benchmarks/web.py --only kills --kills 50
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_parts.browser import show_film, wide
from live_parts.process import drawn
from live_parts.web_learner import measure
from live_parts.web_page import (
    SECONDS,
    Visit,
    file_server,
    kill_often,
    live,
    objects,
    profile,
    renderers,
    wait_for,
)
from playwright.sync_api import sync_playwright

from primavista import Learner
from primavista.web.pack import write_page

NAMES = {"cup": 44, "ball": 31, "glasses": 26, "scissors": 13}
DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}
SHOWN = [44, 31, 26, 16]
# The names to teach, which of the objects is shown at last, and the browser.
PICTURES: dict[str, tuple[list[str], int, dict[str, Any]]] = {
    "page.png": (["polka-dot cup", "striped ball", "sunglasses", "light bulb"], 0, {}),
    "page-phone.png": (
        ["tazza", "pallina", "occhiali", "lampadina"],
        1,
        {**PHONE, "locale": "it-IT", "color_scheme": "dark"},
    ),
}
# Notes when the page first says that it knows what it sees, after the button is released.
NOTES = """() => {
  window.toldAt = 0;
  const verdict = document.getElementById("verdict");
  const look = () => {
    const released = performance.getEntriesByName("released").at(-1)?.startTime ?? Infinity;
    const known = verdict.dataset.state === "known";
    if (known && performance.now() > released && toldAt < released) toldAt = performance.now();
  };
  new MutationObserver(look).observe(verdict, { subtree: true, childList: true, attributes: true });
}"""
TOLD = "toldAt > performance.getEntriesByName('learned').at(-1).startTime"
FEEDBACK = 'toldAt - performance.getEntriesByName("released").at(-1).startTime'


def film(name: str) -> list[Any]:
    """Pictures of a camera that shows an object, forwards and backwards."""
    frames = list(drawn(NAMES[name], 1, 12))
    return [wide(frame) for frame in [*frames, *frames[-2:0:-1]]]


def bytes_of(folder: Path, file: Path) -> dict[str, Any]:
    """Measure the files of both forms."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return {"folder": sizes, "folder_total": sum(sizes.values()), "file": file.stat().st_size}


class Bench:
    """Measurements of one page, each in a profile of its own."""

    def __init__(self, playwright: Any, place: Path) -> None:
        self.playwright = playwright
        self.place = place
        self.folder = write_page(place / "site")
        self.file = write_page(place / "objects.html")

    def visit(self, url: str, **how: Any) -> Visit:
        """Open a browser with a new profile."""
        self.profile = Path(tempfile.mkdtemp(dir=self.place))
        return Visit(profile(self.playwright, self.profile, **{**DESK, **how}), url)

    def loads(self) -> dict[str, Any]:
        """Measure the bytes and the time of the first and the second load of the folder."""
        found: dict[str, Any] = {}
        sent: list[int] = []
        with file_server(self.folder, sent) as address:
            visit = self.visit(address)
            for which in ("first", "second"):
                sent.clear()
                page = visit.context.new_page()
                began = time.perf_counter()
                page.goto(address)
                live(page)
                found[f"{which}_seconds"] = time.perf_counter() - began
                page.wait_for_timeout(1000)
                found[f"{which}_bytes"] = sum(sent)
                page.close()
            visit.close()
        visit = self.visit(self.file.as_uri())
        began = time.perf_counter()
        visit.open()
        found["file_seconds"] = time.perf_counter() - began
        visit.close()
        return found

    def feedback(self, objects_taught: int, repeats: int = 5) -> dict[str, Any]:
        """Measure the time from letting go to the verdict, with so many objects taught."""
        learner = Learner("prima")
        for number in range(objects_taught):
            learner.learn(list(drawn(1 + number % 50, 3 + number // 50, 6)), f"object {number}")
        model = self.place / f"{objects_taught}.pv"
        learner.save(model)
        page_file = write_page(self.place / f"{objects_taught}.html", model)
        visit = self.visit(page_file.as_uri())
        page = visit.open()
        page.evaluate(NOTES)
        seconds, lessons = [], []
        for number in range(repeats):
            name = list(NAMES)[number % len(NAMES)]
            show_film(page, film(name))
            page.evaluate(f"moved = {number}")  # the same frames are not taught twice
            lessons.append(lesson(page, f"new {name}", 30))
            until(page, TOLD)
            seconds.append(page.evaluate(FEEDBACK) / 1000)
        visit.close()
        spread = [min(seconds), statistics.median(seconds), max(seconds)]
        return {"objects": objects_taught, "let_go_to_known": spread, "lesson": lessons}

    def learner(self, taught: list[tuple[int, int]]) -> dict[str, Any]:
        """Measure the learner in a worker beside Python, with so many objects and lessons each."""
        found = {}
        for count, lessons in taught:
            place = self.place / f"learner-{count}"
            place.mkdir()
            found[f"{count} objects"] = measure(self.playwright, count, lessons, place)
        return found

    def memory(self, lessons: int) -> dict[str, Any]:
        """Measure the memory of the tab's process over many lessons of three objects."""
        visit = self.visit(self.file.as_uri())
        page = visit.open()
        found = []
        each = -(-lessons // 3)  # a new film takes memory, too
        for number in range(lessons):
            name = list(NAMES)[number // each]
            if number % each == 0:
                show_film(page, film(name))
            page.evaluate(f"moved = {number % each}")  # the same frames are not taught twice
            lesson(page, name, 8)
            if number % 10 == 9:
                found.append(round(_resident(self.profile) / 2**20))
                print(found, flush=True)
        visit.close()
        return {"lessons": lessons, "mib_every_10_lessons": found}

    def pictures(self, out: Path) -> dict[str, str]:
        """Take the pictures of the documentation: one file, taught, with objects elsewhere."""
        found = {}
        for picture, (words, shown, how) in PICTURES.items():
            visit = self.visit(self.file.as_uri(), **how)
            page = visit.open()
            page.locator("#thumbs").check()
            for number, name in enumerate(words):
                show_film(page, [wide(one) for one in drawn(SHOWN[number], number + 1, 20, 240)])
                page.wait_for_timeout(500)
                lesson(page, name, 40)
            show_film(page, [wide(one) for one in drawn(SHOWN[shown], 5, 8, 480)])
            page.locator("#verdict-name", has_text=words[shown]).wait_for()
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(3000)  # the bars settle
            page.screenshot(path=out / picture)
            found[picture] = str(page.inner_text("#verdict"))
            visit.close()
        return found

    def kills(self, count: int) -> dict[str, Any]:
        """Kill the tab of each form so often; nothing that was acknowledged may be gone."""
        found: dict[str, Any] = {}
        with file_server(self.folder) as address:
            for form, url in (("folder", address), ("file", self.file.as_uri())):
                visit = self.visit(url)
                films = {name: film(name) for name in NAMES}
                known, others = kill_often(visit, self.profile, films, count)
                kept = sum(objects(visit.context.pages[-1]).values())
                visit.close()
                found[form] = {"acknowledged": known, "not": others, "frames_kept": kept}
        return found


def until(page: Any, condition: str) -> None:
    """Wait until something holds in the page, whose policy forbids that it waits by itself."""
    if not wait_for(lambda: bool(page.evaluate(condition)), SECONDS / 1000):
        raise TimeoutError(condition)


def lesson(page: Any, name: str, frames: int) -> float:
    """Teach by holding the button for so many frames; return how long the learner says it took."""
    page.fill("#name", name)
    page.evaluate("performance.clearMarks('learned')")
    page.locator("#hold").hover()
    page.mouse.down()
    until(page, f"Number(document.getElementById('hold-count').textContent) >= {frames}")
    page.mouse.up()
    until(page, "performance.getEntriesByName('learned').length > 0")
    return float(page.evaluate("performance.getEntriesByName('learned').at(-1).detail.seconds"))


def _resident(folder: Path) -> int:
    """The bytes of the largest process that draws a tab of the browser with this profile."""
    sizes = []
    for process in renderers(folder):
        status = Path(f"/proc/{process}/status").read_text()
        sizes += [int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")]
    return max(sizes) * 1024


def main() -> None:
    """Measure what is asked for, and print or write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=["bytes", "loads", "feedback", "memory"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--lessons", type=int, default=200)
    parser.add_argument("--pictures", type=Path, default=Path("shots"), help="where pictures go")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        bench = Bench(playwright, Path(folder))
        parts: dict[str, Callable[[], Any]] = {
            "bytes": lambda: bytes_of(bench.folder, bench.file),
            "loads": bench.loads,
            "feedback": lambda: [bench.feedback(count) for count in (10, 40)],
            "learner": lambda: bench.learner([(10, 1), (40, 2)]),
            "memory": lambda: bench.memory(given.lessons),
            "kills": lambda: bench.kills(given.kills),
            "pictures": lambda: bench.pictures(given.pictures),
        }
        found = {"machine": platform.processor() or platform.machine()}
        for name in given.only:
            found[name] = parts[name]()
            print(json.dumps({name: found[name]}), flush=True)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
