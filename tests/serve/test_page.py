"""The page with one service and one browser: corrections, boxes, lessons, focus and sizes.

The camera is a canvas whose film each test changes; `test_browser.py` has the browser's own one.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from live_parts.browser import CHROMIUM, FLAGS, hold, screened, show_film, wide
from live_parts.process import drawn, service

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason="there is no Chromium: apt-get install chromium"
    ),
]
DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LANDSCAPE = {"viewport": {"width": 844, "height": 390}, "has_touch": True, "is_mobile": True}
SECONDS = 60_000  # until a test gives up, in milliseconds


@pytest.fixture(scope="module")
def films():
    """A cup and a ball as they are taught, and scissors, which are not; forwards and backwards."""
    found = {}
    for name, number in {"cup": 44, "ball": 31, "scissors": 13}.items():
        frames = drawn(number, frames=16)
        found[name] = [wide(frame) for frame in np.concatenate([frames, frames[::-1]])]
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory, films):
    with service(tmp_path_factory.mktemp("page") / "kitchen.pv") as made:
        for name in ("cup", "ball"):
            made.teach(name, drawn({"cup": 44, "ball": 31}[name], frames=16))
        yield made


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def page(browser, running, films):
    opened = screened(browser, running.url, **DESK)
    opened.set_default_timeout(SECONDS)
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    show_film(opened, films["cup"])
    yield opened
    assert opened.problems == []
    opened.context.close()


def says(opened, known: str) -> None:
    opened.locator("#verdict[data-state=known] #verdict-name", has_text=known).wait_for()


def test_a_wrong_answer_is_corrected_and_right_from_then_on(page, running, films):
    before = running.counts()
    says(page, "cup")
    show_film(page, films["scissors"])
    page.locator("#verdict:not([data-state=known])").wait_for()
    page.wait_for_timeout(1500)  # some frames of the scene are remembered
    page.locator("#wrong").click()
    page.locator("#correct[open]").wait_for()
    assert page.locator("#correct-names button").all_inner_texts() == ["cup", "ball"]
    page.fill("#correct-name", "scissors")
    page.keyboard.press("Enter")
    page.locator("#hint", has_text="these seconds are “scissors” now").wait_for()
    assert page.evaluate("document.activeElement.id") == "wrong"
    says(page, "scissors")
    assert running.counts()["scissors"] >= 2
    page.locator("#undo").click()
    page.get_by_role("button", name="Teach more of scissors").wait_for(state="detached")
    assert running.counts() == before


def test_none_of_them_teaches_the_background_and_a_cancelled_correction_nothing(
    page, running, films
):
    before = running.counts()
    show_film(page, films["scissors"])
    page.locator("#verdict:not([data-state=known])").wait_for()
    page.wait_for_timeout(1000)
    page.locator("#wrong").click()
    page.locator("#correct[open]").wait_for()
    page.keyboard.press("Escape")
    assert running.counts() == before
    page.locator("#wrong").click()
    page.locator("#correct-none").click()
    page.locator("#hint", has_text="count as background now").wait_for()
    assert "nothing" in running.counts()
    page.locator("#undo").click()
    page.locator("#toast-text", has_text="Undone").wait_for()
    assert running.counts() == before


def test_objects_are_found_and_boxed_in_the_camera_picture(page, films):
    show_film(page, films["ball"])
    page.locator("#find").click()
    page.locator(".box", has_text="ball").wait_for()
    stage = page.locator("#stage").bounding_box()
    box = page.locator(".box", has_text="ball").first.bounding_box()
    middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    shares = [
        (middle[0] - stage["x"]) / stage["width"],
        (middle[1] - stage["y"]) / stage["height"],
    ]
    assert 0.25 < shares[0] < 0.75  # the hand holds it near the middle
    assert 0.15 < shares[1] < 0.85
    assert page.locator("#guide").is_hidden()
    page.locator("#find").click()
    page.locator(".box").first.wait_for(state="detached")
    says(page, "ball")


def test_a_lesson_has_pictures_and_is_removed_and_the_focus_stays(page, running):
    before = running.counts()
    page.get_by_role("button", name="Teach more of cup").click()
    assert page.input_value("#name") == "cup"
    assert page.evaluate("document.activeElement.id") == "hold"
    page.keyboard.down("Space")
    page.wait_for_timeout(1500)
    page.keyboard.up("Space")
    page.locator("#hint[data-kind=good]").wait_for()
    assert page.evaluate("document.activeElement.id") == "hold"
    page.get_by_role("button", name="Lessons and name of cup").click()
    pictures = page.locator(".lessons li").nth(1).locator("canvas")
    assert 2 <= pictures.count() <= 4
    assert running.counts()["cup"] > before["cup"]
    page.get_by_role("button", name="Remove lesson 2 of cup").click()
    page.locator("#toast-text", has_text="One lesson of “cup” is removed").wait_for()
    assert running.counts() == before
    focus = "document.activeElement.ariaLabel"
    assert page.evaluate(focus) == "Lessons and name of cup"


def test_a_box_is_drawn_and_reset(page):
    guide = page.locator("#guide")
    whole = guide.bounding_box()
    stage = page.locator("#stage").bounding_box()
    page.mouse.move(stage["x"] + 40, stage["y"] + 60)
    page.mouse.down()
    page.mouse.move(stage["x"] + 140, stage["y"] + 160, steps=4)
    page.mouse.up()
    drawn_box = guide.bounding_box()
    assert drawn_box["width"] == pytest.approx(100, abs=3)
    assert drawn_box["x"] == pytest.approx(stage["x"] + 40, abs=3)
    page.locator("#recentre").click()
    assert guide.bounding_box() == whole


def test_motion_finds_what_is_held(page, films):
    """A patch that moves in the right upper quarter of a still picture."""
    from PIL import Image

    ground = films["cup"][0].convert("RGB")
    patch = Image.new("RGB", (90, 90), (250, 250, 250))
    pictures = []
    for k in range(8):
        picture = ground.copy()
        picture.paste(patch, (460 + 12 * (k % 4), 60 + 10 * (k % 3)))
        pictures.append(picture)
    show_film(page, pictures)
    page.locator("#follow").click()
    stage = page.locator("#stage").bounding_box()
    end = time.monotonic() + SECONDS / 1000
    while time.monotonic() < end:
        page.wait_for_timeout(200)
        box = page.locator("#guide").bounding_box()
        middle = (box["x"] + box["width"] / 2 - stage["x"]) / stage["width"]
        if box["width"] < 0.6 * stage["height"] and middle > 0.6:
            return
    raise AssertionError(f"the guide stayed at {box}")


@pytest.mark.parametrize("size", [DESK, PHONE, LANDSCAPE], ids=["desk", "phone", "landscape"])
def test_everything_that_teaches_is_above_the_fold(browser, running, films, size):
    opened = screened(browser, running.url, **size)
    try:
        show_film(opened, films["cup"])
        opened.locator("#verdict[data-state=known]").wait_for(timeout=SECONDS)
        high = size["viewport"]["height"]
        for name in ("#stage", "#hint", "#name", "#hold"):
            box = opened.locator(name).bounding_box()
            assert box["y"] + box["height"] <= high, name
        assert opened.evaluate("document.documentElement.scrollWidth") <= size["viewport"]["width"]
        if size is not DESK:
            small = opened.evaluate(
                "[...document.querySelectorAll('button, summary')]"
                ".filter((one) => one.offsetParent && one.getBoundingClientRect().height < 43.5)"
                ".map((one) => one.id || one.ariaLabel)"
            )
            assert small == []
    finally:
        opened.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_no_violation_of_accessibility(browser, running, size, scheme):
    """By axe-core, if the package that brings it is installed."""
    script = pytest.importorskip("axe_core_python.sync_playwright", reason="no axe-core-python")
    opened = screened(browser, running.url, bypass_csp=True, color_scheme=scheme, **size)
    try:
        opened.get_by_role("button", name="Lessons and name of cup").click()
        for button in (None, "#use"):
            if button:
                opened.locator(button).click()
            found = script.Axe().run(opened)["violations"]
            assert [one["id"] for one in found] == []
    finally:
        opened.context.close()


def test_an_object_of_almost_the_same_name_is_asked_about(page, running):
    before = running.counts()
    page.fill("#name", "Cup")
    page.locator("#hold").press("Enter")
    page.get_by_role("button", name="That one: cup").click()
    assert page.input_value("#name") == "cup"
    assert running.counts() == before


def test_the_first_visit_shows_three_steps_and_a_lesson_hides_them(browser, tmp_path, films):
    with service(tmp_path / "new.pv") as made:
        opened = screened(browser, made.url, **DESK)
        try:
            show_film(opened, films["cup"])
            assert opened.locator("#empty svg").count() == 3
            assert opened.locator("#wrong").is_hidden()
            assert "learned" in hold(opened, "cup", 1.5)
            assert opened.locator("#empty").is_hidden()
        finally:
            opened.context.close()
