"""The page from the first visit to the restart of the service, in headless Chromium.

One test has the whole story with real objects, in a process of its own; the others have a tiny
learner in this process, for which a colour is an object.
"""

from __future__ import annotations

import contextlib
import io
import re

import httpx
import numpy as np
import pytest
from live_parts.browser import CHROMIUM, FLAGS, film, screened, show_film
from live_parts.process import service
from page_support import (
    DESK,
    FRAMES,
    SECONDS,
    captured,
    film_of,
    hold,
    in_a_browser,
    keeps_saying,
    other_film_of,
    rendered,
    said_in_the_end,
    says,
    served,
    there_and_back,
    until,
)
from PIL import Image
from serve_support import COLOURS, picture

from primavista import Learner

from ..streams.camera_servers import MjpegCamera

pytestmark = in_a_browser
TAUGHT = ("cup", "ball", "glasses")
# In the place of the lessons. Most objects are told from the taught ones: docs/guides/unknown.md.
NEVER = ("scissors", "a plug")
TOKEN = "a-token-that-is-long-enough"


def listed(opened) -> dict[str, int]:
    names = opened.locator(".object-name").all_inner_texts()
    counts = opened.locator(".object-count").all_inner_texts()
    return {
        name: int(re.match(r"\d+", count)[0]) for name, count in zip(names, counts, strict=True)
    }


def test_objects_are_taught_recognised_changed_and_found_again(browser, tmp_path):
    model = tmp_path / "kitchen.pv"
    with service(model) as running:
        opened = screened(browser, running.url, **DESK)
        opened.set_default_timeout(SECONDS)
        assert opened.locator("#empty svg").count() == 3  # the steps of a first visit
        assert opened.locator("#wrong").is_hidden()
        for name in TAUGHT:
            show_film(opened, film_of(name))
            assert "learned" in hold(opened, name)
            assert name in listed(opened)
            assert opened.locator("#empty").is_hidden()
            next_one = "teach a second object" if name == "cup" else f"show {name} once more, "
            opened.locator("#advice", has_text=f"Next: {next_one}").wait_for()
            assert opened.inner_text("body").count("Next:") == 1
        taught = running.counts()
        assert list(taught) == list(TAUGHT)
        assert min(taught.values()) >= 10
        for name in TAUGHT:
            show_film(opened, other_film_of(name))
            keeps_saying(opened, name)
        show_film(opened, there_and_back(rendered("ball", 5, 10)))  # another place, light and hand
        keeps_saying(opened, "ball")
        for name in NEVER:
            show_film(opened, there_and_back(rendered(name, 1, FRAMES)))
            keeps_saying(opened, "Unknown")
        # a second lesson of a known object tests it
        show_film(opened, other_film_of("cup"))
        hold(opened, "cup")
        opened.locator("#hint", has_text="Tested before: cup is good enough: 10 of 10").wait_for()
        assert opened.inner_text("#advice") == "Next: show ball once more, somewhere else."
        opened.locator("#undo").click()
        opened.locator("#advice", has_text="show glasses once more, somewhere else.").wait_for()
        change(opened, taught)
        opened.reload()
        opened.locator(".object-name").first.wait_for()
        assert listed(opened) == renamed(taught)
        before = running.file()
        assert running.stop() == 0
        opened.context.close()
    with service(model) as running:
        assert running.file() == before
        opened = screened(browser, running.url, **DESK)
        show_film(opened, other_film_of("ball"))
        says(opened, "<b>football</b>")
        assert listed(opened) == renamed(taught)
        opened.context.close()


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


def coloured(name: str) -> list[Image.Image]:
    """A film of something that has one colour."""
    images = (Image.open(io.BytesIO(picture(name, seed))) for seed in range(6))
    return [image.resize((640, 480)) for image in images]


def coloured_files(folder, name: str, count: int = 3) -> list:
    files = [folder / f"{name} {k}.png" for k in range(count)]
    for k, file in enumerate(files):
        file.write_bytes(picture(name, k))
    return files


@pytest.fixture
def tiny_page(browser, tmp_path):
    """A tiny learner that knows a mug and a kettle, and its page."""
    with served(tmp_path / "kitchen.pv") as (url, made):
        for name in ("mug", "kettle"):
            frames = [("frames", (f"{k}.png", picture(name, k))) for k in range(6)]
            answer = httpx.post(
                f"{url}/api/lessons", params={"wait": 30}, data={"label": name}, files=frames
            )
            assert answer.json()["state"] == "done"
        opened = screened(browser, url, **DESK)
        opened.set_default_timeout(SECONDS)
        problems = []
        opened.on("pageerror", lambda error: problems.append(str(error)))
        show_film(opened, coloured("mug"))
        yield opened, made
        opened.context.close()
        assert problems == []


def test_the_slider_sets_the_threshold_and_names_may_be_properties_of_javascript(tiny_page):
    """`{}["constructor"]` is a function, which was taken for the picture of an object."""
    opened, made = tiny_page
    before = made.learner.threshold
    opened.focus("#threshold")
    for _ in range(10):
        opened.keyboard.press("ArrowLeft")
    wanted = f"{before - 0.1:.2f}"
    assert opened.inner_text("#threshold-text") == wanted
    until(opened, lambda: f"{made.learner.threshold:.2f}" == wanted, "it was not set")
    opened.locator("#thumbs").check()
    assert "learned" in hold(opened, "constructor", 6)
    opened.reload()
    opened.get_by_role("button", name="Lessons and name of constructor").wait_for()
    opened.locator("#threshold-text", has_text=wanted).wait_for()
    assert "%" not in opened.inner_text(".known")
    assert opened.locator("#objects img").count() == 1
    opened.locator("#thumbs").uncheck()
    assert opened.locator("#objects img").count() == 0
    show_film(opened, coloured("kettle"))
    assert "learned" in hold(opened, "__proto__", 6)
    opened.reload()
    opened.get_by_role("button", name="Lessons and name of __proto__").wait_for()
    assert opened.locator("#objects img").count() == 0


# The objects whose pictures the browser keeps.
STORED = """() => Object.keys(localStorage)
  .filter((key) => key.startsWith("primavista-pictures-"))
  .flatMap((key) => Object.keys(JSON.parse(localStorage.getItem(key))))
"""


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_after_the_first_lesson_it_asks_once_if_it_may_keep_pictures(tiny_page, answer):
    opened, _ = tiny_page
    assert opened.locator("#keep").is_hidden()
    assert "learned" in hold(opened, "mug", 6)
    opened.locator("#keep").wait_for()
    assert opened.locator("#thumbs").is_hidden()
    assert opened.evaluate("Object.keys(localStorage)") == []
    opened.locator(f"#keep-{answer}").click()
    assert opened.locator("#keep").is_hidden()
    assert opened.locator("#thumbs").is_checked() == (answer == "yes")
    where = (
        "in its storage until you untick" if answer == "yes" else "in this browser’s memory only"
    )
    assert where in opened.text_content("#privacy")
    opened.reload()
    opened.get_by_role("button", name="Lessons and name of mug").wait_for()
    pictures = opened.locator("#objects li", has_text="mug").locator("img")
    assert pictures.count() == (1 if answer == "yes" else 0)
    assert opened.locator("#thumbs").is_checked() == (answer == "yes")
    show_film(opened, coloured("kettle"))
    assert "learned" in hold(opened, "kettle", 6)
    assert opened.locator("#keep").is_hidden()
    assert opened.evaluate(STORED) == (["mug", "kettle"] if answer == "yes" else [])
    opened.get_by_role("button", name="Lessons and name of mug").click()
    opened.get_by_role("button", name="Forget mug").click()
    opened.locator("#toast-text", has_text="“mug” is forgotten").wait_for()
    until(opened, lambda: "mug" not in opened.evaluate(STORED), "its picture is still kept")


def test_the_picture_of_an_object_is_kept_as_long_as_the_object(tiny_page):
    opened, _ = tiny_page
    for name, shown in (("cup", "cup"), ("bowl", "kettle")):
        show_film(opened, coloured(shown))
        assert "learned" in hold(opened, name, 6)
        if name == "cup":
            opened.locator("#keep-yes").click()
    assert opened.evaluate(STORED) == ["cup", "bowl"]
    opened.locator("#undo").click()
    until(opened, lambda: opened.evaluate(STORED) == ["cup"], "undone, and still kept")
    opened.get_by_role("button", name="Lessons and name of cup").click()
    opened.get_by_role("button", name="Rename cup").click()
    opened.fill("#ask-value", "glass")
    opened.keyboard.press("Enter")
    until(opened, lambda: opened.evaluate(STORED) == ["glass"], "not renamed")
    opened.get_by_role("button", name="Lessons and name of glass").click()
    opened.get_by_role("button", name="Remove lesson 1 of glass").click()
    until(opened, lambda: opened.evaluate(STORED) == [], "removed, and still kept")


def test_a_file_that_cannot_be_shown_offers_what_can_help(tiny_page, tmp_path):
    """MPEG-4 part 2, which the service decodes and browsers do not; then images of an iPhone."""
    av = pytest.importorskip("av")
    opened, made = tiny_page
    film_file = tmp_path / "pan.avi"
    with av.open(str(film_file), "w") as container:
        stream = container.add_stream("mpeg4", rate=10, width=64, height=64, pix_fmt="yuv420p")
        for shade in range(100, 112):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), shade, np.uint8), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    opened.set_input_files("#files", film_file)
    opened.locator("#cover", has_text="cannot play that video").wait_for()
    button = opened.locator("#cover-button")
    assert button.inner_text() == "Teach the whole video"
    assert opened.get_by_role("button", name="Teach the whole video").count() == 1
    assert opened.get_by_role("button", name="Try again").count() == 0
    button.click()
    assert "Enter a name first" in opened.inner_text("#hint")
    opened.keyboard.type("pan")
    button.click()
    assert "“pan” learned from 12 frames" in said_in_the_end(opened)
    assert made.learner.counts["pan"] == 12
    phone = tmp_path / "IMG_1.HEIC"
    phone.write_bytes(b"ftypheic")
    opened.set_input_files("#files", phone)
    opened.locator("#cover", has_text="cannot open HEIC images").wait_for()
    assert button.is_hidden()
    assert opened.locator("#cover-open").is_visible()
    opened.set_input_files("#files", [phone, *coloured_files(tmp_path, "cup", 2)])
    opened.locator("#toast-text", has_text="cannot open IMG_1.HEIC").wait_for()
    opened.fill("#name", "cup")
    opened.get_by_role("button", name="Teach all 2 images").click()
    assert "“cup” learned from 2 frames" in said_in_the_end(opened)
    opened.locator("#camera").click()
    opened.locator("#stage[data-ready=true]").wait_for()


def test_changes_say_that_they_wait_and_the_model_can_be_used(tiny_page, tmp_path, monkeypatch):
    opened, made = tiny_page
    # forget, undo, rename: each says so until the service has answered
    held = []
    for path in ("forget", "undo", "rename"):
        opened.route(f"**/api/{path}", lambda route: held.append(route))
    row = opened.locator("#objects > li", has_text="mug")
    opened.get_by_role("button", name="Lessons and name of mug").click()
    opened.get_by_role("button", name="Forget mug").click()
    until(opened, lambda: held, "the service was not asked")
    assert row.get_attribute("aria-busy") == "true"
    assert row.locator(".object-share").inner_text() == "forgetting ..."
    held.pop().continue_()
    opened.locator("#toast-text", has_text="“mug” is forgotten").wait_for()
    assert row.count() == 0
    opened.locator("#toast-undo").click()
    until(opened, lambda: held, "the service was not asked")
    assert opened.inner_text("#undo") == "Undoing"
    assert opened.get_attribute("#undo", "aria-disabled") == "true"
    assert opened.locator("#toast").is_hidden()
    held.pop().continue_()
    opened.locator("#toast-text", has_text="Undone").wait_for()
    assert opened.inner_text("#undo") == "Undo"
    assert opened.get_attribute("#undo", "aria-disabled") == "true"  # one change can be undone
    assert row.get_attribute("aria-busy") is None
    opened.get_by_role("button", name="Lessons and name of mug").click()
    opened.get_by_role("button", name="Rename mug").click()
    opened.fill("#ask-value", 'a "mug"')
    opened.keyboard.press("Enter")
    until(opened, lambda: held, "the service was not asked")
    assert row.locator(".object-share").inner_text() == "renaming ..."
    held.pop().abort()  # a change that fails says why, and the row is as it was
    opened.locator("#toast-text", has_text="not answering").wait_for()
    assert row.get_attribute("aria-busy") is None
    # save and export
    opened.route("**/api/export*", lambda route: held.append(route))
    opened.locator("#use").click()
    with opened.expect_download() as saved:
        opened.locator("#save").click()
    assert saved.value.suggested_filename == "kitchen.pv"
    with open(saved.value.path(), "rb") as file:
        assert file.read() == made.path.read_bytes()
    with opened.expect_download() as exported:
        opened.locator("#export-onnx").click()
        until(opened, lambda: held, "the service was not asked")
        assert opened.inner_text("#export-onnx") == "Exporting ..."
        held.pop().continue_()
    assert exported.value.suggested_filename == "kitchen.onnx"
    runtime = pytest.importorskip("onnxruntime")
    assert runtime.InferenceSession(exported.value.path()).get_inputs()[0].name == "frames"
    until(opened, lambda: opened.inner_text("#export-onnx").startswith("ONNX"), "still exporting")
    with opened.expect_download() as exported:
        opened.locator("#export-edge").click()
        until(opened, lambda: held, "the service was not asked")
        held.pop().continue_()
    assert exported.value.suggested_filename == "kitchen.portable.pv"
    assert Learner.load(exported.value.path(), device="cpu").labels == ["mug", "kettle"]
    # the program runs as it is, beside the model
    program = opened.inner_text("#snippet")
    assert 'primavista watch "kitchen.pv" camera:0' in program
    made.learner.threshold = 0.0
    made.learner.save(tmp_path / "kitchen.pv")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(picture("kettle", 50, kind="JPEG"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "snippet", "exec"), {})
    assert said.getvalue() == "kettle\n"
    opened.locator("#copy").click()
    until(opened, lambda: opened.inner_text("#copy") == "Copied", "it is not copied")


def test_the_same_images_twice_and_a_load_that_is_taken_back(tiny_page, tmp_path):
    opened, made = tiny_page
    empty = tmp_path / "empty.pv"
    Learner("dslda", weights="random", width=0.0625, size=32, device="cpu").save(empty)
    opened.set_input_files("#files", coloured_files(tmp_path, "cup"))

    def teach() -> None:
        opened.fill("#name", "cup")
        opened.locator("#whole").click()

    teach()
    opened.locator("#hint[data-kind=good]").wait_for()
    teach()
    opened.get_by_role("button", name="Cancel").click()
    opened.get_by_text("taught before, so they were left out: nothing was changed").wait_for()
    assert made.learner.counts["cup"] == 3
    teach()
    opened.get_by_role("button", name="Teach it again").click()
    opened.locator("#hint[data-kind=good]").wait_for()
    assert made.learner.counts["cup"] == 6
    opened.set_input_files("#load-file", empty)
    opened.locator("#ask-yes").click()
    opened.locator("#toast-undo").click()
    opened.locator(".object-name").first.wait_for()
    assert made.learner.counts["cup"] == 6


# Lets go of the button as soon as one frame of the lesson is counted.
LET_GO = """() => {
  const count = document.getElementById("hold-count");
  const observer = new MutationObserver(() => {
    observer.disconnect();
    window.counted = count.textContent;
    document.getElementById("hold").dispatchEvent(new Event("blur"));
  });
  observer.observe(count, { childList: true });
}"""


def test_a_button_that_is_let_go_at_once_teaches_nothing(tiny_page):
    opened, made = tiny_page
    before = made.learner.counts
    opened.fill("#name", "cup")
    opened.evaluate(LET_GO)
    opened.locator("#hold").hover()
    opened.mouse.down()
    assert said_in_the_end(opened) == "Hold the button longer, for a few seconds."
    opened.mouse.up()
    assert opened.evaluate("counted") == "1"
    assert made.learner.counts == before


def test_a_camera_that_is_lost_while_the_button_is_held_teaches_nothing(tiny_page, tmp_path):
    opened, made = tiny_page
    before = dict(made.learner.counts)

    def hold_until_lost(lose) -> None:
        """The hint comes although the button is still held."""
        opened.fill("#name", "cup")
        opened.locator("#hold").hover()
        opened.mouse.down()
        until(opened, lambda: captured(opened) >= 8, "no frames")
        lose()
        opened.locator("#hint[data-kind=bad]", has_text="so nothing was taught").wait_for()
        assert captured(opened) == 0
        opened.mouse.up()
        opened.wait_for_timeout(300)
        assert "so nothing was taught" in opened.inner_text("#hint")
        assert opened.inner_text("#hold-text") == "Hold to teach"
        assert made.learner.counts == before

    def happens(event: str):
        track = "video.srcObject.getVideoTracks()[0]"
        return lambda: opened.evaluate(f"{track}.dispatchEvent(new Event('{event}'))")

    hold_until_lost(happens("mute"))  # the camera is covered, or taken by the system
    opened.locator("#cover", has_text="gives no pictures at the moment").wait_for()
    assert opened.inner_text("#link-text") == "No picture"
    assert opened.locator("#verdict").get_attribute("data-state") == "none"
    happens("unmute")()
    opened.locator("#cover").wait_for(state="hidden")
    hold_until_lost(happens("ended"))
    opened.locator("#cover", has_text="disconnected").wait_for()
    opened.locator("#cover-button").click()
    opened.locator("#stage[data-ready=true]").wait_for()
    # another source in the middle of a lesson, by dropping a file
    hold_until_lost(
        lambda: opened.set_input_files("#files", coloured_files(tmp_path, "kettle")),
    )
    opened.locator("#camera").click()
    opened.locator("#cover").wait_for(state="hidden")
    assert "learned" in hold(opened, "cup", 6)
    assert made.learner.counts["cup"] >= 6


def test_a_token_a_denied_camera_and_a_service_that_goes_away(browser, tmp_path):
    refuse = (
        "navigator.mediaDevices.getUserMedia = async () => {"
        " throw new DOMException('no', 'NotAllowedError'); }"
    )
    model = tmp_path / "kitchen.pv"
    with contextlib.ExitStack() as stack:
        url, _ = stack.enter_context(served(model, token=TOKEN))
        opened = browser.new_context(**DESK).new_page()
        opened.set_default_timeout(SECONDS)
        opened.add_init_script(refuse)
        opened.goto(url)
        # a wrong token is called wrong
        opened.locator("#ask-text", has_text="It was printed in the terminal").wait_for()
        opened.fill("#ask-value", "wrong")
        opened.keyboard.press("Enter")
        opened.locator("#ask-text", has_text="That token is not right").wait_for()
        opened.fill("#ask-value", f" {TOKEN} ")
        opened.keyboard.press("Enter")
        opened.locator("#link[data-state=live]").wait_for()
        # without a camera there is no square and no "Live"; files are one press away
        opened.locator("#cover", has_text="may not use the camera").wait_for()
        assert opened.locator("#cover-button").is_visible()
        assert opened.locator("#guide").is_hidden()
        assert opened.inner_text("#link-text") == "No picture"
        with opened.expect_file_chooser() as chooser:
            opened.locator("#cover-open").click()
        chooser.value.set_files(coloured_files(tmp_path, "mug"))
        opened.locator("#cover").wait_for(state="hidden")
        assert opened.inner_text("#link-text") == "Live"
        assert "learned" in hold(opened, "mug", 6)
        # the service goes away while the button is held, and is away when it is held again
        opened.fill("#name", "kettle")
        opened.locator("#hold").hover()
        opened.mouse.down()
        until(opened, lambda: captured(opened) >= 6, "no frames")
        stack.close()
        opened.locator("#link[data-state=gone]").wait_for()
        opened.mouse.up()
        assert "The service is not answering, so nothing was taught" in said_in_the_end(opened)
        assert "nothing that was learned is lost" in opened.inner_text("#banner")
        opened.fill("#name", "kettle")
        opened.locator("#hold").press("Enter")
        assert "The service is not answering, so nothing" in opened.inner_text("#hint")
        assert opened.locator("#verdict").get_attribute("data-state") == "none"
        # it comes back at the same address: the page finds it by itself
        port = int(url.rpartition(":")[2])
        with served(model, token=TOKEN, port=port) as (_, again):
            opened.locator("#link[data-state=live]").wait_for()
            assert opened.locator("#banner").is_hidden()
            assert again.learner.labels == ["mug"]
            # other images: the same frames as before would be left out
            opened.set_input_files("#files", coloured_files(tmp_path, "kettle"))
            opened.locator("#stage[data-ready=true]").wait_for()
            assert "learned" in hold(opened, "kettle", 6)
        opened.context.close()


def test_the_services_own_camera_is_shown_taught_and_lost(browser, tmp_path):
    """A real MJPEG camera with a password, a service with a token, a browser without a camera."""
    shown = {"colour": COLOURS["mug"]}

    def draw(number: int) -> np.ndarray:
        noise = np.random.default_rng(number).integers(-30, 30, (48, 64, 3))
        return (np.array(shown["colour"]) + noise).clip(0, 255).astype(np.uint8)

    camera = MjpegCamera(draw, fps=20, login="ann:secret")
    model = tmp_path / "kitchen.pv"
    with camera, served(model, token=TOKEN, camera=camera.url) as (url, made):
        opened = browser.new_context(**DESK).new_page()
        opened.set_default_timeout(SECONDS)
        opened.add_init_script("delete Navigator.prototype.mediaDevices")
        opened.goto(f"{url}/#token={TOKEN}")
        opened.locator("#stage[data-ready=true]").wait_for()
        assert opened.inner_text("#link-text") == "Live"
        privacy = opened.text_content("#privacy")
        assert f"the service’s camera, http://127.0.0.1:{camera.port}/" in privacy
        assert "secret" not in opened.content()
        colour = "[...picture.getContext('2d').getImageData(20, 20, 16, 16).data]"
        for name in ("mug", "kettle"):
            shown["colour"] = COLOURS[name]
            until(
                opened,
                lambda: _near(opened.evaluate(colour), shown["colour"]),
                "the page does not show what the camera shows",
            )
            assert "learned" in hold(opened, name, 6)
        assert list(made.learner.counts) == ["mug", "kettle"]
        httpx.post(
            f"{url}/api/threshold",
            json={"threshold": 0.0},
            headers={"Authorization": f"Bearer {TOKEN}"},
        ).raise_for_status()
        says(opened, "kettle")
        shown["colour"] = COLOURS["mug"]
        says(opened, "mug")
        taught = dict(made.learner.counts)
        opened.fill("#name", "cup")
        opened.locator("#hold").hover()
        opened.mouse.down()
        until(opened, lambda: captured(opened) >= 6, "no frames")
        camera.stop()
        assert "so nothing was taught" in said_in_the_end(opened)
        opened.mouse.up()
        assert made.learner.counts == taught
        opened.locator("#cover", has_text="the camera gives no frame").wait_for()
        assert opened.inner_text("#link-text") == "No picture"
        assert opened.locator("#verdict").get_attribute("data-state") == "none"
        assert "secret" not in opened.content()
        camera.start()
        says(opened, "mug")
        assert opened.locator("#cover").is_hidden()
        # this device has no camera, which is said; the other one is one press away
        opened.locator("#camera", has_text="This device’s camera").click()
        opened.locator("#cover", has_text="Browsers allow the camera only on https").wait_for()
        opened.locator("#service-camera").click()
        says(opened, "mug")
        opened.context.close()
    assert sorted(one.suffix for one in tmp_path.iterdir() if one.is_file()) == [".pv"]


def _near(pixels: list[int], colour: tuple[int, int, int]) -> bool:
    mean = np.array(pixels).reshape(-1, 4)[:, :3].mean(0)
    return bool(np.abs(mean - colour).max() < 15)


def test_by_keyboard_alone_with_the_browsers_own_camera(playwright, tmp_path):
    frames = np.stack([np.asarray(image) for image in coloured("mug")])[:, :480, :480]
    shown = film(tmp_path / "mug.mjpeg", frames)
    flags = [*FLAGS, f"--use-file-for-fake-video-capture={shown}"]
    own = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
    with served(tmp_path / "kitchen.pv") as (url, made):
        opened = own.new_context(permissions=["camera"]).new_page()
        opened.set_default_timeout(SECONDS)
        problems = []
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.goto(url)
        opened.locator("#stage[data-ready=true]").wait_for()
        opened.locator("#link[data-state=live]").wait_for()
        opened.locator("#hold").press("Enter")
        assert "Enter a name first" in opened.inner_text("#hint")
        opened.locator("#name").focus()
        opened.keyboard.type("mug")
        opened.keyboard.press("Enter")  # leads to the button
        opened.keyboard.down("Space")
        until(opened, lambda: captured(opened) >= 10, "no frames")
        opened.keyboard.up("Space")
        opened.locator("#hint[data-kind=good]").wait_for()
        assert made.learner.labels == ["mug"]
        opened.locator("#which option").wait_for(state="attached")  # the page knows the object
        opened.locator("input[value=teach]").focus()
        opened.keyboard.press("ArrowRight")
        opened.locator("#hold").focus()
        opened.keyboard.down("Space")
        until(opened, lambda: captured(opened) >= 5, "no frames")
        opened.keyboard.up("Space")
        opened.get_by_text("frames recognised").wait_for()
    opened.locator("#link[data-state=gone]").wait_for()
    assert "not answering" in opened.inner_text("#banner")
    assert problems == []
    own.close()
