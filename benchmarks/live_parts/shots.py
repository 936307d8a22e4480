"""Pictures of the page for the documentation: taught as a person would, then tested."""

from __future__ import annotations

from pathlib import Path

from live_parts.browser import film, hold, page
from live_parts.process import drawn, service

OBJECTS = {"polka-dot cup": 44, "striped ball": 31, "sunglasses": 26, "light bulb": 16}
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def shots(folder: Path, out: Path) -> None:
    """Write teach.png, teach-dark.png, teach-phone-light.png and teach-phone.png (dark)."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, service(folder / "kitchen.pv") as running:
        thumbnails: list[dict[str, str]] = []
        for name, number in OBJECTS.items():
            with page(
                playwright, running.url, film(folder / "taught.mjpeg", drawn(number, 1, 20, 240))
            ) as opened:
                opened.evaluate(
                    "(kept) => kept.forEach("
                    "({ name, value }) => localStorage.setItem(name, value))",
                    thumbnails,
                )
                opened.reload()
                opened.locator("#stage[data-ready=true]").wait_for()
                opened.locator("#thumbs").check()
                hold(opened, name, 4.0)
                thumbnails = opened.context.storage_state()["origins"][0]["localStorage"]
        looks = [
            ("teach.png", "polka-dot cup", DESK, "light", 1),
            ("teach-phone-light.png", "polka-dot cup", PHONE, "light", 2),
            ("teach-dark.png", "striped ball", DESK, "dark", 1),
            ("teach-phone.png", "striped ball", PHONE, "dark", 2),
        ]
        for picture, name, size, scheme, scale in looks:
            shown = film(folder / "other.mjpeg", drawn(OBJECTS[name], 5, 8, 480))
            kept = {"cookies": [], "origins": [{"origin": running.url, "localStorage": thumbnails}]}
            how = {
                "viewport": size,
                "color_scheme": scheme,
                "device_scale_factor": scale,
                "storage_state": kept,
            }
            with page(playwright, running.url, shown, **how) as opened:
                opened.locator("#verdict-name", has_text=name).wait_for()
                opened.wait_for_timeout(1500)  # the bars settle
                opened.screenshot(path=out / picture)
                print(f"{picture}: {opened.inner_text('#verdict')!r}", flush=True)
