"""Show three objects taught once, in another place, and strangers, in a real browser.

Chromium's camera shows rendered videos. The script holds the button for each object in one place.
Then it shows the same objects in another place, and two objects that were never taught in both
places. It prints the verdicts of the page and takes screenshots: desktop (1280 x 800), dark, and
phone (390 x 844).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from live_parts.browser import film, hold, page
from live_parts.process import drawn, service

Films = dict[tuple[str, int], Path]  # by the object and the place
TAUGHT = {"cup": 44, "ball": 31, "glasses": 26}
STRANGERS = {"scissors": 13, "plug": 3}
HERE, ELSEWHERE = 1, 9
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
DARK = DESKTOP | {"color_scheme": "dark"}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}


def looks(opened: Any, what: str, wanted: str, count: int = 20) -> int:
    """Print the verdicts of the page by frequency; return 1 unless most are the wanted one."""
    opened.locator("#verdict:not([data-state=none])").wait_for(timeout=60_000)
    opened.wait_for_timeout(1500)  # until the last second shows only this film
    said: Counter[str] = Counter()
    for _ in range(count):
        opened.wait_for_timeout(150)
        said[" ".join(opened.inner_text("#verdict").split())] += 1
    text = ", ".join(f"{text} ({n} of {count})" for text, n in said.most_common())
    right = sum(n for text, n in said.items() if text.startswith(wanted))
    print(f"{what}: {text}", flush=True)
    return int(2 * right < count)


def shoot(opened: Any, path: Path) -> None:
    opened.screenshot(path=path)


def teach(playwright: Any, url: str, films: Films, out: Path) -> None:
    for number, name in enumerate(TAUGHT, 1):
        with page(playwright, url, films[name, HERE], **DESKTOP) as opened:
            if number == 1:
                shoot(opened, out / "0-first.png")
            print(f"taught {name}: {hold(opened, name, 2.5)}")
            opened.wait_for_timeout(1500)
            shoot(opened, out / f"{number}-taught-{name}.png")


def see(playwright: Any, url: str, films: Films, out: Path) -> int:
    """Count taught objects that are not named, and strangers that are not called unknown."""
    wrong = 0
    for name in TAUGHT:
        with page(playwright, url, films[name, ELSEWHERE], **DESKTOP) as opened:
            wrong += looks(opened, f"{name} in another place", name)
            shoot(opened, out / f"4-elsewhere-{name}.png")
    for name in STRANGERS:
        for where in (HERE, ELSEWHERE):
            with page(playwright, url, films[name, where], **DESKTOP) as opened:
                wrong += looks(opened, f"{name}, never taught, in place {where}", "Unknown")
                shoot(opened, out / f"5-stranger-{name}-{where}.png")
    for kind, context in (("dark", DARK), ("phone", PHONE)):
        with page(playwright, url, films["cup", ELSEWHERE], **context) as opened:
            wrong += looks(opened, f"cup in another place, {kind}", "cup")
            shoot(opened, out / f"6-{kind}.png")
            opened.screenshot(path=out / f"6-{kind}-whole.png", full_page=True)
            if kind == "dark":
                print(f"advice: {opened.inner_text('#advice')}")
                slide(opened)
    return wrong


def slide(opened: Any) -> None:
    """Set the threshold by keyboard."""
    opened.focus("#threshold")
    for _ in range(20):
        opened.keyboard.press("ArrowLeft")
    opened.wait_for_timeout(1000)
    print(f"threshold, 20 steps down by keyboard: {opened.inner_text('#threshold-text')}")


def show(folder: Path, out: Path) -> int:
    """Teach, show and print; return the number of wrong verdicts."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    films = {
        (name, where): film(folder / f"{name}{where}.mjpeg", drawn(number, where))
        for name, number in (TAUGHT | STRANGERS).items()
        for where in (HERE, ELSEWHERE)
    }
    with sync_playwright() as playwright, service(folder / "kitchen.pv") as running:
        teach(playwright, running.url, films, out)
        return see(playwright, running.url, films, out)
