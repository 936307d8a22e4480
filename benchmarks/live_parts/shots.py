"""Take pictures of the page for the documentation, taught and tested as by a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from live_parts.browser import CHROMIUM, FLAGS, hold, screened, show_film, wide
from live_parts.process import drawn, service

OBJECTS = {"polka-dot cup": 44, "striped ball": 31, "sunglasses": 26, "light bulb": 16}
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "device_scale_factor": 1}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}


def shots(folder: Path, out: Path) -> None:
    """Write teach.png, teach-dark.png, teach-phone-light.png, teach-phone.png (dark), and a doubt.

    The objects are taught on one page, by holding the button, each in a place of its own. Each page
    of which a picture is taken has a small picture of each object in its storage, as if the user
    had ticked the box for it. The doubt, teach-likely.png, is the first likely answer in places
    where nothing was taught.
    """
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, service(folder / "kitchen.pv") as running:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        opened = screened(browser, running.url, **DESK)
        opened.locator("#thumbs").check()
        for place, (name, number) in enumerate(OBJECTS.items(), 1):
            show_film(opened, [wide(frame) for frame in drawn(number, place, 20, 240)])
            opened.wait_for_timeout(300)
            hold(opened, name, 4.0)
        kept = opened.context.storage_state()
        opened.context.close()
        looks = [
            ("teach.png", "polka-dot cup", DESK, "light"),
            ("teach-phone-light.png", "polka-dot cup", PHONE, "light"),
            ("teach-dark.png", "striped ball", DESK, "dark"),
            ("teach-phone.png", "striped ball", PHONE, "dark"),
        ]
        for picture, name, device, scheme in looks:
            how = {**device, "color_scheme": scheme, "storage_state": kept}
            opened = screened(browser, running.url, **how)
            opened.set_default_timeout(60_000)
            show_film(opened, [wide(frame) for frame in drawn(OBJECTS[name], 5, 8, 480)])
            opened.locator("#verdict-name", has_text=name).wait_for()
            opened.wait_for_timeout(1500)  # the bars settle
            opened.screenshot(path=out / picture)
            print(f"{picture}: {opened.inner_text('#verdict')!r}", flush=True)
            opened.context.close()
        opened = screened(browser, running.url, **DESK, storage_state=kept)
        name = doubtful(opened)
        opened.screenshot(path=out / "teach-likely.png")
        print(f"teach-likely.png: {name!r}", flush=True)
        browser.close()


def doubtful(opened: Any) -> str:
    """Show objects in one place after the other until the page asks about one; return its name."""
    for place in range(5, 12):
        for number in OBJECTS.values():
            show_film(opened, [wide(frame) for frame in drawn(number, place, 1, 480)])
            opened.wait_for_timeout(2500)  # until the last second shows this place alone
            if opened.locator("#verdict[data-state=likely]").is_visible():
                opened.locator("#answers").wait_for()
                return str(opened.inner_text("#verdict-name"))
    raise SystemExit("every object is surely known everywhere")
