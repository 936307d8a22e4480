"""Teach objects once, each in a place of its own, and carry them elsewhere, in a real browser.

The script holds the button for each object in its place. Then it shows every object in three other
places; if the page asks about it, it presses *Yes* once and looks at the two other places again.
Last come two objects that were never taught. It prints the verdicts of the page and takes
screenshots: desktop (1280 x 800), dark, and phone (390 x 844).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from live_parts.browser import CHROMIUM, FLAGS, hold, screened, show_film, wide
from live_parts.process import drawn, service

TAUGHT = {"cup": 44, "ball": 31, "glasses": 26, "light bulb": 16, "remote": 48}  # each in its place
STRANGERS = {"scissors": 13, "plug": 3}
ELSEWHERE = (7, 8, 9)
LOOKS = 15
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
DARK = DESKTOP | {"color_scheme": "dark"}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}


def point_at(opened: Any, number: int, place: int) -> None:
    """Show an object in a place, and wait until the last second shows nothing else."""
    show_film(opened, [wide(frame) for frame in drawn(number, place, 8, 240)])
    opened.wait_for_timeout(1200)
    opened.locator("#verdict:not([data-state=none])").wait_for(timeout=60_000)


def look(opened: Any, what: str) -> str:
    """Print the verdicts of the page by frequency; return the one that it says most often."""
    said: Counter[str] = Counter()
    for _ in range(LOOKS):
        opened.wait_for_timeout(150)
        state = opened.get_attribute("#verdict", "data-state")
        said[f"{opened.inner_text('#verdict-name')} ({state})"] += 1
    print(f"{what}: {', '.join(f'{text} {n}' for text, n in said.most_common())}", flush=True)
    return said.most_common(1)[0][0]


def confirm(opened: Any) -> bool:
    """Press *Yes* if the page asks within some seconds; wait until it has learned."""
    try:
        opened.locator("#yes").wait_for(timeout=5000)
    except Exception:  # a time-out of Playwright: the answer was not likely for long enough
        return False
    opened.wait_for_timeout(600)  # presses at once are ignored
    opened.locator("#yes").click()
    opened.locator("#hint[data-kind=good]").wait_for(timeout=60_000)
    return True


def carry(opened: Any, name: str, out: Path) -> None:
    """Show a taught object elsewhere; after one *Yes*, look at the other places once more."""
    number = TAUGHT[name]
    for place in ELSEWHERE:
        point_at(opened, number, place)
        if look(opened, f"{name}, place {place}").endswith("(likely)"):
            opened.screenshot(path=out / f"2-likely-{name}.png")
            if confirm(opened):
                print(f"{name}: Yes, in place {place}", flush=True)
                for other in set(ELSEWHERE) - {place}:
                    point_at(opened, number, other)
                    look(opened, f"{name}, place {other}, after Yes")
                opened.screenshot(path=out / f"3-after-{name}.png")
                return


def show(folder: Path, out: Path) -> int:
    """Teach, show and print; return the number of strangers that are called known."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with sync_playwright() as playwright, service(folder / "kitchen.pv") as running:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        opened = screened(browser, running.url, **DESKTOP)
        opened.screenshot(path=out / "0-first.png")
        for place, (name, number) in enumerate(TAUGHT.items(), 1):
            show_film(opened, [wide(frame) for frame in drawn(number, place, 20, 240)])
            opened.wait_for_timeout(300)
            print(f"taught {name} in place {place}: {hold(opened, name, 3.0)}", flush=True)
        opened.screenshot(path=out / "1-taught.png")
        for name in TAUGHT:
            carry(opened, name, out)
        for name, number in STRANGERS.items():
            for place in (1, *ELSEWHERE):
                point_at(opened, number, place)
                said = look(opened, f"{name}, never taught, place {place}")
                wrong += said.endswith("(known)")
            opened.screenshot(path=out / f"4-stranger-{name}.png")
        opened.context.close()
        for kind, context in (("dark", DARK), ("phone", PHONE)):
            opened = screened(browser, running.url, **context)
            point_at(opened, TAUGHT["cup"], ELSEWHERE[0])
            look(opened, f"cup, place {ELSEWHERE[0]}, {kind}")
            opened.screenshot(path=out / f"5-{kind}.png", full_page=True)
            opened.context.close()
        browser.close()
    return wrong
