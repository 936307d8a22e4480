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
    """Write teach.png, teach-dark.png, teach-phone-light.png and teach-phone.png (dark).

    The objects are taught on one page, by holding the button. Each page of which a picture is taken
    has a small picture of each object in its storage, as if the user had ticked the box for it.
    """
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, service(folder / "kitchen.pv") as running:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        opened = screened(browser, running.url, **DESK)
        opened.locator("#thumbs").check()
        for name, number in OBJECTS.items():
            show_film(opened, [wide(frame) for frame in drawn(number, 1, 20, 240)])
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
        browser.close()
