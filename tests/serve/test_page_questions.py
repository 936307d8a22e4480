"""Doubt becomes a lesson: a likely answer with Yes and No, and questions about strangers.

The service is a real one. Its threshold is set just above the familiarity of a known object in
another place, so that the answer there is likely.
"""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from live_parts.browser import screened, show_film, wide
from live_parts.process import drawn, jpeg, service
from page_support import (
    DESK,
    NUMBERS,
    PHONE,
    SECONDS,
    StreamTap,
    film_of,
    in_a_browser,
    keeps_saying,
    look_first,
    says,
    taught_frames,
    until,
)
from PIL import Image

pytestmark = in_a_browser
ABOVE = 0.03  # from the familiarity of a frame to the threshold
ELSEWHERE = [("cup", 2), ("ball", 3), ("ball", 8)]  # objects in places that are unlike the lessons
PLACES = """() => [...document.querySelectorAll("button, input, select, summary")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest("#answers"))
  .map((one) => [one.id || one.ariaLabel || one.textContent, one.getBoundingClientRect().toJSON()])
"""


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    with service(tmp_path_factory.mktemp("page") / "kitchen.pv") as made:
        for name in ("cup", "ball"):
            made.teach(name, taught_frames(name))
        yield made


@pytest.fixture
def running(taught):
    """The service with two objects; what a test teaches is taken back."""
    before = taught.counts()
    threshold = taught.get("/api/model")["threshold"]
    yield taught
    while taught.counts() != before:
        taught.post("/api/undo", {})
    taught.post("/api/threshold", {"threshold": threshold})


@pytest.fixture
def visit(browser, running):
    """Open the page, as often as a test likes; no script of it may fail."""
    opened, problems = [], []

    def open_page(**how):
        page = screened(browser, running.url, **{**DESK, **how})
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        show_film(page, film_of("cup"))
        says(page, "cup")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.context.close()
    assert problems == []


@pytest.fixture
def doubtful(running) -> tuple[str, int]:
    """An object and a place in which the answer is likely, by the threshold that is set here."""
    for name, session in ELSEWHERE:
        picture = np.asarray(film_elsewhere(name, session)[0])
        frame = {"frame": ("frame.jpg", jpeg(picture), "image/jpeg")}
        said = httpx.post(f"{running.url}/api/predict", files=frame).json()
        if said["label"] == name and said["confidence"] > 0.6 and said["familiarity"] < 0.95:
            running.post("/api/threshold", {"threshold": said["familiarity"] + ABOVE})
            return name, session
    raise AssertionError("every object is surely known everywhere")


def film_elsewhere(name: str, session: int, first: int = 0, count: int = 1) -> list[Image.Image]:
    """Pictures of a camera that shows an object in another place; one stands still."""
    return [wide(frame) for frame in drawn(NUMBERS[name], session, 6)[first : first + count]]


def asked(page, name: str) -> None:
    """Wait until the page asks if it sees an object."""
    page.locator("#verdict[data-state=likely]", has_text=f"{name}?").wait_for()
    page.locator("#answers").wait_for()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_likely_answer_is_confirmed_by_one_tap_and_known_from_then_on(
    visit, running, doubtful, size
):
    name, session = doubtful
    before = running.counts()
    page = visit(**size)
    places = dict(page.evaluate(PLACES))
    stage = page.locator("#stage").bounding_box()
    assert page.locator("#answers").is_hidden()
    show_film(page, film_elsewhere(name, session))
    asked(page, name)
    page.locator("#announce", has_text=f"Is this {name}? Press Yes or No.").wait_for()
    # nothing has moved, and no button was where the answers are
    assert dict(page.evaluate(PLACES)) == places
    assert page.locator("#stage").bounding_box() == stage
    for button in ("#yes", "#no"):
        box = page.locator(button).bounding_box()
        assert min(box["width"], box["height"]) >= 44
        for other, there in places.items():
            assert not overlap(box, there), other
    look_first(page)
    page.locator("#yes").click()
    page.locator("#hint", has_text=f"these seconds are “{name}” now").wait_for()
    assert page.locator("#answers").is_hidden()
    keeps_saying(page, name)
    assert running.counts()[name] >= before[name] + 5
    show_film(page, film_elsewhere(name, session, 2, 4))  # from other sides
    keeps_saying(page, name)
    page.locator("#undo").click()
    until(page, lambda: running.counts() == before, "the lesson was not taken back")


def overlap(one: dict[str, float], two: dict[str, float]) -> bool:
    return all(
        one[at] < two[at] + two[size] and two[at] < one[at] + one[size]
        for at, size in (("x", "width"), ("y", "height"))
    )


def test_another_scene_ends_the_question_even_if_its_answer_has_the_same_name(
    visit, running, doubtful
):
    """No would teach the earlier scene under the name of the later one."""
    name, session = doubtful
    tap = StreamTap()
    page = visit(prepare=tap.install)
    show_film(page, film_elsewhere(name, session))
    asked(page, name)
    tap.change = lambda number, said: said["recent"].update(answer="likely", label=name)
    show_film(page, film_of("scissors"))
    page.locator("#answers").wait_for(state="hidden")
    assert page.inner_text("#verdict-name") == f"{name}?"


# Clicks on Yes when it appears, and on the first name in the dialog when that opens.
EARLY_CLICKS = """() => {
  window.clicked = [];
  const click = (button) => {
    button.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
    clicked.push(button.textContent);
  };
  new MutationObserver(() => answers.hidden || click(yes)).observe(answers, { attributes: true });
  const first = () => correct.open && click(correct.querySelector("#correct-names button"));
  new MutationObserver(first).observe(correct, { attributes: true, attributeFilter: ["open"] });
}"""


def test_a_click_that_was_aimed_at_what_was_there_before_teaches_nothing(visit, running, doubtful):
    name, session = doubtful
    before = running.counts()
    page = visit()
    page.evaluate(EARLY_CLICKS)
    show_film(page, film_elsewhere(name, session))
    asked(page, name)
    look_first(page)
    assert page.locator("#answers").is_visible()
    page.locator("#no").click()
    page.locator("#correct[open]").wait_for()
    other = "ball" if name == "cup" else "cup"
    assert page.evaluate("clicked") == ["Yes", other]
    page.wait_for_timeout(500)
    assert page.locator("#correct").is_visible()
    assert running.counts() == before


def test_no_asks_for_the_name_by_keyboard_and_there_is_one_question_per_minute(
    visit, running, doubtful
):
    name, session = doubtful
    before = running.counts()
    page = visit()
    show_film(page, film_elsewhere(name, session))
    asked(page, name)
    focus = "document.activeElement.id"
    page.keyboard.press("Tab")
    assert page.evaluate(focus) == "yes"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#correct[open]").wait_for()
    assert f"called “{name}?”" in page.inner_text("#correct-text")
    other = "ball" if name == "cup" else "cup"
    assert page.locator("#correct-names button").all_inner_texts() == [other]
    page.keyboard.press("Escape")
    page.locator("#correct").wait_for(state="hidden")
    assert page.evaluate(focus) == "see"
    page.wait_for_timeout(2500)  # it is still likely, and not asked about
    assert page.locator("#verdict[data-state=likely]").is_visible()
    assert page.locator("#answers").is_hidden()
    assert running.counts() == before
    # another page has not been asked: another verdict ends the question
    page = visit()
    show_film(page, film_elsewhere(name, session))
    asked(page, name)
    show_film(page, film_of(other))
    page.locator("#verdict[data-state=known]").wait_for()
    assert page.locator("#answers").is_hidden()
    # and a third one is told another name
    page = visit()
    show_film(page, film_elsewhere(name, session))
    asked(page, name)
    look_first(page)
    page.locator("#no").click()
    page.fill("#correct-name", "bowl")
    page.keyboard.press("Enter")
    page.locator("#hint", has_text="these seconds are “bowl” now").wait_for()
    assert page.evaluate(focus) == "see"
    keeps_saying(page, "bowl")
    assert running.counts()["bowl"] >= 5


def test_about_a_stranger_it_asks_for_the_name_if_it_may(visit, running):
    """The guess is no more than one of the names."""
    before = running.counts()
    page = visit()
    places = dict(page.evaluate(PLACES))
    show_film(page, film_of("scissors"))
    page.locator("#verdict[data-state=unknown]").wait_for()
    page.wait_for_timeout(2500)
    assert page.locator("#question").is_hidden()
    assert page.locator("#answers").is_hidden()
    page.locator("#asking").click()
    page.locator("#question").wait_for()
    box = page.locator("#question").bounding_box()
    for other, there in places.items():
        assert not overlap(box, there), other
    assert page.inner_text("#question") == "What is this?"
    assert page.get_attribute("#question-picture", "src").startswith("data:image/jpeg")
    page.locator("#question").click()
    page.locator("#correct[open]").wait_for()
    assert page.evaluate("document.activeElement.id") == "correct-name"
    assert page.locator("#correct .primary").all_inner_texts() == ["Teach"]
    assert page.locator("#correct-names button").count() == 2
    page.keyboard.type("scissors")
    page.keyboard.press("Enter")
    page.locator("#hint", has_text="these seconds are “scissors” now").wait_for()
    assert page.locator("#question").is_hidden()
    keeps_saying(page, "scissors")
    page.locator("#undo").click()
    until(page, lambda: running.counts() == before, "the lesson was not taken back")
    # a stranger that has gone still waits for its name; cancelled, it is dropped
    page = visit()
    page.locator("#asking").click()
    show_film(page, film_of("scissors"))
    page.locator("#question").wait_for()
    show_film(page, film_of("cup"))
    says(page, "cup")
    page.locator("#question").click()
    page.locator("#correct[open]").wait_for()
    page.keyboard.press("Escape")
    page.locator("#question").wait_for(state="hidden")
    assert running.counts() == before
