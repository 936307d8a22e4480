"""The page with one service and one browser: verdicts, corrections, boxes, lessons.

The camera is a canvas whose film each test changes; `test_browser.py` has the browser's own one.
"""

from __future__ import annotations

import pytest
from live_parts.browser import screened, show_film
from live_parts.process import jpeg, service
from page_support import (
    DESK,
    LANDSCAPE,
    PHONE,
    SECONDS,
    StreamTap,
    captured,
    film_of,
    in_a_browser,
    keeps_saying,
    look_first,
    note_verdicts,
    noted,
    other_film_of,
    said_in_the_end,
    says,
    taught_frames,
    until,
)
from PIL import Image

pytestmark = in_a_browser


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(tmp_path_factory.mktemp("page") / "kitchen.pv") as made:
        for name in ("cup", "ball"):
            made.teach(name, taught_frames(name))
        yield made


@pytest.fixture
def visit(browser, running):
    """Open the page, as often as a test likes; no script of it may fail."""
    opened, problems = [], []

    def open_page(**how):
        page = screened(browser, running.url, **{**DESK, **how})
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        show_film(page, film_of("cup"))
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.context.close()
    assert problems == []


@pytest.fixture
def page(visit):
    return visit()


def undo(page, running, before) -> None:
    page.locator("#undo").click()
    until(page, lambda: running.counts() == before, "the lesson was not taken back")


def test_no_verdict_is_stale_and_none_flickers(visit, running, tmp_path):
    tap = StreamTap()
    tap.waiting = []
    page = visit(prepare=tap.install)
    # before the first answer it says that there will be one
    assert page.inner_text("#verdict[data-state=waiting]") == "Getting ready"
    tap.release()
    says(page, "cup")
    # an answer that changes with every frame does not reach the page
    note_verdicts(page)
    tap.change = lambda number, said: said["recent"].update(
        answer="known" if number % 2 == 0 else "unknown"
    )
    start = tap.count
    until(page, lambda: tap.count >= start + 30, "the stream has stopped")
    assert noted(page) == {"verdicts": ["known cup"], "marked": ["cup"]}
    # one that stays does
    tap.change = lambda number, said: said["recent"].update(answer="unknown")
    page.locator("#verdict[data-state=unknown]", has_text="Unknown").wait_for()
    assert noted(page)["marked"] == ["cup", ""]
    tap.change = lambda number, said: None
    says(page, "cup")
    # a file that cannot be played has no verdict
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"this is no video")
    page.set_input_files("#files", broken)
    page.locator("#cover", has_text="cannot play that video").wait_for()
    assert page.locator("#verdict").get_attribute("data-state") == "none"
    assert page.locator("#objects .best").count() == 0
    assert page.inner_text("#link-text") == "No picture"
    # images of another object are never called by the name of what was there before
    images = []
    for k, frame in enumerate(taught_frames("ball")[:3]):
        images.append(tmp_path / f"{k}.jpg")
        images[-1].write_bytes(jpeg(frame))
    note_verdicts(page)
    page.set_input_files("#files", images)
    says(page, "ball")
    assert not any("cup" in one for one in noted(page)["verdicts"])
    # a camera that is pulled out leaves its last frame behind, which is not recognised for ever
    page.locator("#camera").click()
    says(page, "cup")
    page.evaluate("video.srcObject.getVideoTracks()[0].dispatchEvent(new Event('ended'))")
    page.locator("#cover", has_text="disconnected").wait_for()
    start = tap.count
    page.wait_for_timeout(400)
    assert tap.count <= start + 1
    assert page.locator("#verdict").get_attribute("data-state") == "none"
    page.locator("#cover-button").click()
    # while it learns it says so, not that it does not know the object
    before = running.counts()
    show_film(page, film_of("scissors"))
    page.locator("#verdict:not([data-state=known])").wait_for()
    page.fill("#name", "scissors")
    page.locator("#hold").hover()
    page.mouse.down()
    until(page, lambda: captured(page) >= 12, "no frames")
    note_verdicts(page)
    page.mouse.up()
    assert "learned" in said_in_the_end(page)
    says(page, "scissors")
    assert noted(page)["verdicts"][1] == "learning Learning scissors ..."
    undo(page, running, before)


def test_the_confidence_is_said_in_words(visit):
    tap = StreamTap()
    page = visit(prepare=tap.install)
    says(page, "cup")
    # each word differs from the one before, so that what was there is never taken for an answer
    for confidence, words in (
        (1.0, "sure"),
        (0.59, "perhaps"),
        (0.6, "fairly sure"),
        (0.9, "sure"),
        (0.89, "fairly sure"),
    ):
        tap.change = lambda number, said, confidence=confidence: said["recent"].update(
            answer="known", label="cup", confidence=confidence
        )
        page.locator("#verdict-share").get_by_text(words, exact=True).wait_for()


def test_of_many_objects_the_best_is_on_top_and_the_others_can_be_filtered(visit):
    """The service has two objects; forty more are in the list alone."""

    def with_more(route):
        answer = route.fetch()
        model = answer.json()
        others = [{"label": f"object {k}", "frames": 1} for k in range(40)]
        route.fulfill(response=answer, json={**model, "objects": others + model["objects"]})

    page = visit(prepare=lambda opened: opened.route("**/api/model", with_more))
    says(page, "cup")
    listed = page.locator("#objects").bounding_box()
    assert listed["y"] + listed["height"] <= 800
    for scrolled in (0, 10_000):
        page.evaluate(f"objects.scrollTop = {scrolled}")
        best = page.locator("#objects > li.best").bounding_box()
        assert best["y"] == pytest.approx(listed["y"], abs=2)
        assert best["height"] <= 50
    rows = page.locator("#objects > li:visible .object-name")
    page.fill("#filter", "OBJECT 3")
    assert rows.all_inner_texts() == ["object 3", *(f"object {k}" for k in range(30, 40))]
    page.fill("#filter", "no such thing")
    assert rows.count() == 0
    assert page.locator("#no-match").is_visible()
    page.fill("#filter", "")
    assert rows.count() == 42
    page.set_viewport_size(PHONE["viewport"])
    page.locator("#objects > li.best").wait_for()
    tops = page.evaluate(
        "[...document.querySelectorAll('#objects > li')].map((one) => one.offsetTop)"
    )
    best = page.evaluate("document.querySelector('#objects > li.best').offsetTop")
    assert best == min(tops)


def test_a_wrong_answer_is_corrected_and_right_from_then_on(page, running):
    """Scissors are surely taken for something that was taught if the threshold is 0."""
    before = running.counts()
    threshold = running.get("/api/model")["threshold"]
    running.post("/api/threshold", {"threshold": 0.0})
    show_film(page, film_of("scissors"))
    wrong = until(page, lambda: _known(page), "scissors were not mistaken")
    assert wrong in ("cup", "ball")
    until(page, lambda: _known(page) == wrong and _remembered(page) >= 8, "nothing is remembered")
    page.fill("#correct-name", "scissors")
    assert f"called “{wrong}”" in page.inner_text("#correct-text")
    others = [name for name in ("cup", "ball") if name != wrong]
    assert page.locator("#correct-names button").all_inner_texts() == others
    page.focus("#correct-name")
    page.keyboard.press("Enter")
    page.locator("#hint", has_text="these seconds are “scissors” now").wait_for()
    assert page.evaluate("document.activeElement.id") == "wrong"
    keeps_saying(page, "scissors")
    show_film(page, other_film_of("scissors"))
    keeps_saying(page, "scissors")
    show_film(page, film_of("cup"))
    keeps_saying(page, "cup")
    assert running.counts()["scissors"] >= 8
    undo(page, running, before)
    running.post("/api/threshold", {"threshold": threshold})


def _known(page) -> str:
    """The object that the page knows, or ""."""
    if page.locator("#verdict").get_attribute("data-state") != "known":
        return ""
    return page.inner_text("#verdict-name")


def _remembered(page) -> int:
    """Ask for a correction; returns the number of frames, or cancels it if there are few."""
    page.locator("#wrong:not([aria-disabled=true])").click()
    page.locator("#correct[open]").wait_for()
    told = page.inner_text("#correct-text")
    frames = 1 if "last frame" in told else int(told.partition("(")[2].split()[0])
    if frames < 8:
        page.keyboard.press("Escape")
    return frames


def test_none_of_them_teaches_nothing_and_a_cancelled_correction_changes_nothing(page, running):
    before = running.counts()
    show_film(page, film_of("scissors"))
    page.locator("#verdict[data-state=unknown]").wait_for()
    for _ in range(9):  # the service keeps 8 clips per page, and none that was cancelled
        page.locator("#wrong:not([aria-disabled=true])").click()
        page.locator("#correct[open]").wait_for()
        page.keyboard.press("Escape")
    assert running.counts() == before
    until(page, lambda: _remembered(page) >= 8, "nothing is remembered")
    look_first(page)
    page.locator("#correct-none").click()
    page.locator("#hint", has_text="these seconds are “nothing” now").wait_for()
    assert list(running.counts()) == ["cup", "ball", "nothing"]
    undo(page, running, before)


def test_objects_are_found_and_boxed_in_the_camera_picture(visit):
    """Two at once, each in its half of the picture. It says that it searches until it has."""
    tap = StreamTap()
    page = visit(prepare=tap.install)
    says(page, "cup")
    pictures = []
    for left, right in zip(taught_frames("cup"), taught_frames("ball"), strict=True):
        picture = Image.new("RGB", (640, 480), (128, 128, 128))
        for frame, x in ((left, 0), (right, 320)):
            picture.paste(Image.fromarray(frame).resize((320, 320)), (x, 80))
        pictures.append(picture)
    show_film(page, pictures)
    tap.waiting = []
    page.locator("#find").click()
    assert page.inner_text("#verdict[data-state=waiting]") == "Searching"
    tap.release()
    middles = until(page, lambda: _middles(page), "cup and ball were not found")
    assert 0.05 < middles["cup"] < 0.45
    assert 0.55 < middles["ball"] < 0.95
    names = [text.split()[0] for text in page.locator(".box").all_inner_texts()]
    assert len(names) == len(set(names))  # one box per name
    assert page.locator("#guide").is_hidden()
    assert page.get_attribute("#wrong", "aria-disabled") == "true"
    assert page.locator("#verdict").get_attribute("data-state") == "none"
    page.locator("#find").click()
    page.locator(".box").first.wait_for(state="detached")
    show_film(page, film_of("ball"))
    says(page, "ball")


def _middles(page) -> dict[str, float]:
    """The middles of the boxes of cup and ball, across the picture, if both are found."""
    found = page.evaluate(
        """Object.fromEntries([...document.querySelectorAll(".box")].map((box) => {
          const [stage, one] = [document.getElementById("stage"), box].map((element) =>
            element.getBoundingClientRect());
          const name = box.querySelector("span").firstChild.textContent;
          return [name, ((one.left + one.right) / 2 - stage.left) / stage.width];
        }))"""
    )
    return found if {"cup", "ball"} <= found.keys() else {}


def test_a_lesson_has_pictures_and_is_removed_and_the_focus_stays(page, running):
    before = running.counts()
    page.get_by_role("button", name="Teach more of cup").click()
    assert page.input_value("#name") == "cup"
    assert page.evaluate("document.activeElement.id") == "hold"
    page.keyboard.down("Space")
    until(page, lambda: captured(page) >= 12, "no frames")
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
    # undo brings it back, with its pictures
    page.locator("#undo").click()
    page.locator("#toast-text", has_text="Undone").wait_for()
    assert 2 <= pictures.count() <= 4
    page.get_by_role("button", name="Remove lesson 2 of cup").click()
    until(page, lambda: running.counts() == before, "the lesson was not removed")


def test_the_square_is_drawn_and_reset_and_follows_what_moves(page):
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
    # a patch that moves in the right lower quarter of a still picture: its middle is 0.78 down
    patch = Image.new("RGB", (90, 90), (250, 250, 250))
    pictures = [film_of("cup")[0].copy() for _ in range(8)]
    for k, picture in enumerate(pictures):
        picture.paste(patch, (460 + 12 * (k % 4), 320 + 10 * (k % 3)))
    show_film(page, pictures)
    page.locator("#follow").click()

    def is_there() -> bool:
        box = guide.bounding_box()
        middle = (box["x"] + box["width"] / 2 - stage["x"]) / stage["width"]
        down = (box["y"] + box["height"] / 2 - stage["y"]) / stage["height"]
        return box["width"] < 0.6 * stage["height"] and middle > 0.6 and 0.7 < down < 0.86

    until(page, is_there, "the square did not follow")


LOOKS = {
    "desk": (DESK, "light"),
    "desk, dark": (DESK, "dark"),
    "phone": (PHONE, "light"),
    "phone, dark": (PHONE, "dark"),
    "landscape": (LANDSCAPE, "light"),
}
QUESTIONS = """() => {
  document.getElementById("question-text").textContent = "What is this?";
  for (const id of ["answers", "question", "keep"]) document.getElementById(id).hidden = false;
}"""
LONG_HINT = (
    "“polka-dot cup” learned from 100 frames in 1.3 s. The frames were deleted. "
    "Next: show polka-dot cup once more, somewhere else."
)


@pytest.mark.parametrize("look", LOOKS)
def test_everything_that_teaches_is_above_the_fold_and_accessible(visit, look):
    """The page with each answer, an open row and all questions, and its dialogs, by axe-core."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size, scheme = LOOKS[look]
    tap = StreamTap()
    page = visit(bypass_csp=True, color_scheme=scheme, prepare=tap.install, **size)
    says(page, "cup")
    page.evaluate("(text) => { hint.textContent = text; }", LONG_HINT)
    for name in ("#stage", "#hint", "#name", "#hold"):
        box = page.locator(name).bounding_box()
        assert box["y"] + box["height"] <= size["viewport"]["height"], name
    assert page.evaluate("document.documentElement.scrollWidth") <= size["viewport"]["width"]
    page.get_by_role("button", name="Lessons and name of cup").click()
    page.locator("summary").click()
    tap.change = lambda number, said: said["recent"].update(answer="unknown")
    page.locator("#verdict-share", has_text="looks most like cup").wait_for()
    assert violations(axe, page) == []
    tap.change = lambda number, said: said["recent"].update(answer="likely")
    page.locator("#verdict[data-state=likely]", has_text="cup?").wait_for()
    page.evaluate(QUESTIONS)
    if size is not DESK:
        small = page.evaluate(
            "[...document.querySelectorAll('button, summary')]"
            ".filter((one) => one.offsetParent && one.getBoundingClientRect().height < 43.5)"
            ".map((one) => one.id || one.ariaLabel)"
        )
        assert small == []
    assert violations(axe, page) == []
    for button, opens in (("#use", "#using[open]"), ("#wrong", "#correct[open]")):
        page.locator(button).click()
        page.locator(opens).wait_for()
        assert violations(axe, page) == []
        page.keyboard.press("Escape")


def violations(axe, page) -> list[tuple[str, list[str]]]:
    """The rules that the page breaks, and where; older versions did not understand its colours."""
    found = axe.run(page, options=None).response
    assert "color-contrast" in {one["id"] for one in found["passes"] + found["violations"]}
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]


def test_an_object_of_almost_the_same_name_is_asked_about(page, running):
    before = running.counts()
    page.fill("#name", "Cup")
    page.locator("#hold").press("Enter")
    page.get_by_role("button", name="That one: cup").click()
    until(page, lambda: page.input_value("#name") == "cup", "the other name is not taken")
    assert running.counts() == before
