"""The page in headless Chromium, with a camera that shows drawn objects."""

from __future__ import annotations

import re
import time

import pytest
from live_parts.browser import CHROMIUM, film, hold, page
from live_parts.process import TINY, drawn, jpeg, service

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason="there is no Chromium: apt-get install chromium"
    ),
]
TAUGHT = {"cup": 44, "ball": 31, "glasses": 26}
# In the place of the lessons. Most objects are told from the taught ones: docs/guides/unknown.md.
NEVER = {"scissors": 13, "a plug": 3}


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Films for the camera.

    Each object as it is taught, and from other sides; one in another place; and objects that are
    not taught.
    """
    folder = tmp_path_factory.mktemp("films")
    shown = {"elsewhere": drawn(TAUGHT["ball"], 5)}  # another place, light, hand and camera path
    for name, number in TAUGHT.items():
        shown[name], shown[f"other {name}"] = (drawn(number, frames=40)[k::2] for k in (0, 1))
    shown |= {name: drawn(number) for name, number in NEVER.items()}
    return {name: film(folder / f"{name}.mjpeg", frames) for name, frames in shown.items()}


def verdict(opened, wanted: str, seconds: float = 20) -> None:
    """Check what the page says of the frames that it sees, most of the time."""
    right = total = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        opened.wait_for_timeout(150)
        said = opened.inner_text("#verdict-name")
        if said:
            total, right = total + 1, right + (said == wanted)
        if total >= 15 and right >= 0.7 * total:
            return
    raise AssertionError(f"{wanted!r} was seen in {right} of {total} frames")


def listed(opened) -> dict[str, int]:
    names = opened.locator(".object-name").all_inner_texts()
    counts = opened.locator(".object-count").all_inner_texts()
    return {
        name: int(re.match(r"\d+", count)[0]) for name, count in zip(names, counts, strict=True)
    }


def test_three_objects_are_taught_recognised_changed_and_found_again(films, tmp_path):
    model = tmp_path / "kitchen.pv"
    with sync_api.sync_playwright() as playwright:
        with service(model) as running:
            for name in TAUGHT:
                with page(playwright, running.url, films[name]) as opened:
                    assert "learned" in hold(opened, name, 2.5)
                    assert name in listed(opened)
            taught = running.counts()
            assert list(taught) == list(TAUGHT)
            assert min(taught.values()) >= 10
            for name in TAUGHT:
                with page(playwright, running.url, films[f"other {name}"]) as opened:
                    verdict(opened, name)
            with page(playwright, running.url, films["elsewhere"]) as opened:
                verdict(opened, "ball")
            for name in NEVER:
                with page(playwright, running.url, films[name]) as opened:
                    verdict(opened, "Unknown")
            with page(playwright, running.url, films["ball"]) as opened:
                change(opened, taught)
                opened.reload()
                opened.locator(".object-name").first.wait_for()
                assert listed(opened) == renamed(taught)
            before = running.file()
            assert running.stop() == 0
        with service(model) as running:
            assert running.file() == before
            with page(playwright, running.url, films["other ball"]) as opened:
                assert listed(opened) == renamed(taught)
                verdict(opened, "<b>football</b>")


def test_the_page_says_what_to_show_next(films, tmp_path):
    """One object, two, and a lesson of a known one: the hint is about it, the list about all."""
    with sync_api.sync_playwright() as playwright, service(tmp_path / "kitchen.pv") as running:
        with page(playwright, running.url, films["cup"]) as opened:
            hold(opened, "cup", 1.5)
            opened.locator("#hint", has_text="Next: teach a second object").wait_for()
        with page(playwright, running.url, films["ball"]) as opened:
            hold(opened, "ball", 1.5)
            opened.locator(
                "#hint", has_text="Next: show ball once more, somewhere else."
            ).wait_for()
        with page(playwright, running.url, films["other cup"]) as opened:
            hold(opened, "cup", 1.5)
            opened.locator("#hint", has_text="Next: cup is good enough: 10 of 10").wait_for()
            assert opened.inner_text("#advice") == "Next: show ball once more, somewhere else."
            opened.locator("#undo").click()
            opened.locator("#advice", has_text="show cup once more, somewhere else.").wait_for()


def test_the_slider_sets_the_threshold_of_the_model_by_keyboard(films, tmp_path):
    model = tmp_path / "kitchen.pv"
    with (
        sync_api.sync_playwright() as playwright,
        service(model, new=TINY) as running,
        page(playwright, running.url, films["cup"]) as opened,
    ):
        hold(opened, "cup", 1.5)
        opened.focus("#threshold")
        for _ in range(10):
            opened.keyboard.press("ArrowLeft")
        assert opened.inner_text("#threshold-text") == "0.80"
        end = time.monotonic() + 30
        while running.get("/api/model")["threshold"] != 0.8:
            assert time.monotonic() < end
            time.sleep(0.2)
        opened.reload()
        opened.locator("#threshold-text", has_text="0.80").wait_for()
        assert "%" not in opened.inner_text(".known")


def test_objects_may_be_called_like_properties_of_javascript(films, tmp_path):
    """`{}["constructor"]` is a function, which was taken for the picture of an object."""
    with (
        sync_api.sync_playwright() as playwright,
        service(tmp_path / "kitchen.pv", new=TINY) as running,
        page(playwright, running.url, films["cup"]) as opened,
    ):
        hold(opened, "constructor", 1.5)
        opened.evaluate("localStorage.setItem('primavista-thumbnails', 'yes')")
        opened.reload()
        opened.get_by_role("button", name="Lessons and name of constructor").wait_for()
        assert opened.locator("#objects img").count() == 0
        hold(opened, "__proto__", 1.5)  # with a picture, as pictures are allowed now
        opened.get_by_role("button", name="Lessons and name of __proto__").wait_for()
        opened.reload()
        opened.get_by_role("button", name="Lessons and name of __proto__").wait_for()
        pictures = opened.locator("#objects img")
        assert pictures.count() == 1
        assert pictures.first.get_attribute("src").startswith("data:image/jpeg")


def renamed(taught: dict[str, int]) -> dict[str, int]:
    return {"<b>football</b>" if name == "ball" else name: count for name, count in taught.items()}


def change(opened, taught: dict[str, int]) -> None:
    """Rename one object (to what looks like HTML), forget another, undo that.

    It uses the keyboard and the mouse.
    """
    opened.get_by_role("button", name="Lessons and name of ball").click()
    opened.get_by_role("button", name="Rename ball").click()
    opened.fill("#ask-value", "<b>football</b>")
    opened.keyboard.press("Enter")
    opened.get_by_role("button", name="Lessons and name of <b>football</b>").wait_for()
    assert listed(opened) == renamed(taught)
    opened.get_by_role("button", name="Lessons and name of cup").click()
    opened.get_by_role("button", name="Forget cup").click()
    opened.get_by_role("button", name="Forget cup").wait_for(state="detached")
    assert "cup" not in listed(opened)
    opened.locator("#undo").click()
    opened.get_by_role("button", name="Lessons and name of cup").wait_for()
    assert listed(opened) == renamed(taught)


def test_the_same_images_twice_and_a_load_that_is_taken_back(films, tmp_path):
    images = []
    for k, image in enumerate(drawn(31, frames=3)):
        (tmp_path / f"{k}.jpg").write_bytes(jpeg(image))
        images.append(tmp_path / f"{k}.jpg")
    with (
        sync_api.sync_playwright() as playwright,
        service(tmp_path / "kitchen.pv", new=TINY) as running,
        page(playwright, running.url, films["cup"]) as opened,
    ):
        empty = tmp_path / "empty.pv"
        empty.write_bytes(running.file())
        opened.set_input_files("#files", images)

        def teach() -> None:
            opened.fill("#name", "ball")
            opened.locator("#whole").click()

        teach()
        opened.locator("#hint[data-kind=good]").wait_for()
        teach()
        opened.get_by_role("button", name="Cancel").click()
        opened.get_by_text("taught before, so they were left out: nothing was changed").wait_for()
        assert running.counts() == {"ball": 3}
        teach()
        opened.get_by_role("button", name="Teach it again").click()
        opened.locator("#hint[data-kind=good]").wait_for()
        assert running.counts() == {"ball": 6}
        opened.set_input_files("#load-file", empty)
        opened.locator("#ask-yes").click()
        opened.locator("#toast-undo").click()
        opened.locator(".object-name").first.wait_for()
        assert running.counts() == {"ball": 6}


def test_by_keyboard_alone_with_errors_that_help(films, tmp_path):
    with (
        sync_api.sync_playwright() as playwright,
        service(tmp_path / "kitchen.pv") as running,
        page(playwright, running.url, films["cup"]) as opened,
    ):
        problems = []
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.locator("#hold").press("Enter")
        assert "Enter a name first" in opened.inner_text("#hint")
        opened.locator("#name").focus()
        opened.keyboard.type("cup")
        opened.keyboard.press("Enter")  # leads to the button
        opened.keyboard.down("Space")
        time.sleep(2)
        opened.keyboard.up("Space")
        opened.locator("#hint[data-kind=good]").wait_for()
        assert list(running.counts()) == ["cup"]
        opened.locator("#hint[data-kind=good]").wait_for()
        opened.locator("input[value=teach]").focus()
        opened.keyboard.press("ArrowRight")
        opened.locator("#hold").focus()
        opened.keyboard.down("Space")
        time.sleep(1.5)
        opened.keyboard.up("Space")
        opened.get_by_text("frames recognised").wait_for()
        running.stop()
        opened.locator("#link[data-state=gone]").wait_for()
        assert "not answering" in opened.inner_text("#banner")
        assert problems == []
