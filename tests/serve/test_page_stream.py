"""The frames that the page sends, each once however slow the camera, and the errors of frames."""

from __future__ import annotations

import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from live_parts.browser import screened, show_film
from page_support import (
    DESK,
    SECONDS,
    StreamTap,
    captured,
    in_a_browser,
    note_verdicts,
    noted,
    says,
    served,
    until,
)
from PIL import Image
from serve_support import COLOURS, picture

from primavista import Learner
from primavista.serve.learner_service import LearnerService

from ..streams.camera_servers import MjpegCamera

pytestmark = in_a_browser

# A camera of this device that gives two and a half frames per second, or none while `stands` is
# true; `filmed` counts them.
SLOW_CAMERA = """
(() => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [64, 48];
  const context = canvas.getContext("2d");
  window.filmed = 0;
  window.stands = false;
  const draw = () => {
    if (stands) return;
    context.fillStyle = `hsl(${37 * filmed} 80% 50%)`;
    context.fillRect(0, 0, 64, 48);
    filmed += 1;
  };
  draw();
  setInterval(draw, 400);
  navigator.mediaDevices.getUserMedia = async () => canvas.captureStream();
})();
"""
NO_CALLBACKS = "delete HTMLVideoElement.prototype.requestVideoFrameCallback;"
NO_CAMERA = "delete Navigator.prototype.mediaDevices;"
ON_THE_WAY = 3  # frames that were filmed before the count began, and come after it
BUSY = "too many frames wait to be recognised"


@contextmanager
def opened_page(browser, url, tap, *scripts):
    """The page of a service, with scripts that run before its own; none of those may fail."""

    def prepare(page) -> None:
        tap.install(page)
        for script in scripts:
            page.add_init_script(script)

    page = screened(browser, url, prepare, **DESK)
    page.set_default_timeout(SECONDS)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.context.close()
    assert problems == []


def teach(url: str, *names: str) -> None:
    for name in names:
        frames = [("frames", (f"{k}.png", picture(name, k))) for k in range(6)]
        form = {"data": {"label": name}, "files": frames}
        answer = httpx.post(f"{url}/api/lessons", params={"wait": 30}, **form)
        assert answer.json()["state"] == "done"
    httpx.post(f"{url}/api/threshold", json={"threshold": 0.0}).raise_for_status()


def each_frame_counts_once(page, tap, filmed) -> None:
    """Check that a frame is recognised once, and taught once; `filmed` counts those there were."""
    until(page, lambda: tap.count >= 1, "no frame was recognised")
    answers, frames = tap.count, filmed()
    page.wait_for_timeout(3000)
    answers, frames = tap.count - answers, filmed() - frames
    assert 3 <= answers <= frames + ON_THE_WAY
    page.fill("#name", "mug")
    page.locator("#hold").hover()
    frames = filmed()
    page.mouse.down()
    until(page, lambda: captured(page) >= 10, "no frames")
    taken, frames = captured(page), filmed() - frames
    page.mouse.up()
    assert taken <= frames + ON_THE_WAY
    page.locator("#hint[data-kind=good]").wait_for()


@pytest.mark.parametrize("scripts", [(), (NO_CALLBACKS,)], ids=["callbacks", "counts"])
def test_a_frame_of_a_slow_camera_is_sent_and_taught_once(browser, tmp_path, scripts):
    """Both in browsers that tell of each new frame and in those that only count frames."""
    tap = StreamTap()
    with (
        served(tmp_path / "kitchen.pv") as (url, _),
        opened_page(browser, url, tap, SLOW_CAMERA, *scripts) as page,
    ):
        each_frame_counts_once(page, tap, lambda: page.evaluate("filmed"))


def test_a_frame_of_a_slow_camera_of_the_service_is_sent_and_taught_once(browser, tmp_path):
    """The page asks for its newest frame ten times per second, and there are three."""

    def draw(number: int) -> np.ndarray:
        return np.random.default_rng(number).integers(0, 255, (48, 64, 3)).astype(np.uint8)

    tap = StreamTap()
    with (
        MjpegCamera(draw, fps=3) as camera,
        served(tmp_path / "kitchen.pv", camera=camera.url) as (url, _),
        opened_page(browser, url, tap, NO_CAMERA) as page,
    ):
        each_frame_counts_once(page, tap, lambda: camera.sent)


def test_a_picture_that_stands_still_is_recognised_again_when_the_model_changes(browser, tmp_path):
    """It is sent once per version of the model; the third one here knows it, and no other does."""
    tap = StreamTap()

    def by_version(number: int, said: dict) -> None:
        said["recent"]["answer"] = "known" if said["version"] == 3 else "unknown"

    tap.change = by_version
    with (
        served(tmp_path / "kitchen.pv") as (url, made),
        opened_page(browser, url, tap, SLOW_CAMERA) as page,
    ):
        teach(url, "mug", "kettle")
        assert made.snapshot.version == 3
        page.locator("#verdict[data-state=known]").wait_for()
        page.evaluate("stands = true")
        page.wait_for_timeout(1000)
        before = tap.count
        page.focus("#threshold")
        page.keyboard.press("End")
        page.locator("#verdict[data-state=unknown]").wait_for()
        assert tap.count == before + 1


def test_an_error_is_shown_and_no_verdict_stays_beside_it(browser, tmp_path):
    tap = StreamTap()

    def refused(number: int, said: dict) -> None:
        said.clear()
        said.update(frame=number, error=BUSY)

    with (
        served(tmp_path / "kitchen.pv") as (url, _),
        opened_page(browser, url, tap) as page,
    ):
        teach(url, "mug", "kettle")
        show_film(page, [Image.new("RGB", (640, 480), COLOURS["mug"])])
        says(page, "mug")
        tap.change = refused
        page.locator("#verdict[data-state=failed]", has_text=BUSY).wait_for()
        assert "mug" not in page.inner_text("#verdict")
        assert page.locator("#objects .best").count() == 0
        tap.change = lambda number, said: None
        says(page, "mug")
        assert BUSY not in page.inner_text("body")
        # an error that comes once is no reason to flicker
        tap.change = lambda number, said: refused(number, said) if number % 10 == 0 else None
        start = tap.count
        until(page, lambda: tap.count >= start + 20, "the stream has stopped")
        assert page.locator("#verdict").get_attribute("data-state") == "known"
        # such an error does not mean that the model cannot find objects
        tap.change = lambda number, said: None
        page.locator("#find").click()
        page.locator(".box", has_text="mug").first.wait_for()
        tap.change = refused
        page.locator("#verdict[data-state=failed]", has_text=BUSY).wait_for()
        assert page.locator(".box").count() == 0
        page.wait_for_timeout(500)
        assert page.get_attribute("#find", "aria-pressed") == "true"
        assert "cannot find objects" not in page.inner_text("#hint")
        tap.change = lambda number, said: None
        page.locator(".box", has_text="mug").first.wait_for()


def test_a_model_that_cannot_find_objects_says_so(browser, tmp_path):
    model = tmp_path / "kitchen.pv"
    learner = Learner("naive", weights="random", width=0.0625, size=32, device="cpu", epochs=1)
    learner.learn(np.zeros((4, 32, 32, 3), np.uint8), "dark")
    learner.save(model)
    tap = StreamTap()
    with (
        served(model) as (url, _),
        opened_page(browser, url, tap) as page,
    ):
        show_film(page, [Image.new("RGB", (640, 480))])
        says(page, "dark")
        page.locator("#find").click()
        page.locator("#hint[data-kind=bad]", has_text="cannot find objects").wait_for()
        assert page.get_attribute("#find", "aria-pressed") == "false"
        says(page, "dark")


def test_no_answer_that_is_older_than_a_second_is_shown(browser, tmp_path, monkeypatch):
    """While answers take longer the page says so; the late ones themselves never appear."""
    delay = 0.0
    answer = LearnerService._answer

    def slow(self, requests) -> None:
        time.sleep(delay)
        answer(self, requests)

    monkeypatch.setattr(LearnerService, "_answer", slow)
    tap = StreamTap()
    with (
        served(tmp_path / "kitchen.pv") as (url, _),
        opened_page(browser, url, tap, SLOW_CAMERA) as page,
    ):
        teach(url, "mug", "kettle")
        page.locator("#verdict[data-state=known]").wait_for()
        delay = 1.5
        late = page.locator("#verdict[data-state=failed]", has_text="more than a second")
        late.wait_for()
        note_verdicts(page)
        start = tap.count
        until(page, lambda: tap.count >= start + 3, "the stream has stopped")
        assert {said.split()[0] for said in noted(page)["verdicts"]} == {"failed"}
        delay = 0.0
        page.locator("#verdict[data-state=known]").wait_for()
