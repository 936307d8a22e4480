"""The page without a server, in a browser: from a plain file server, and from one file."""

from __future__ import annotations

import itertools
import pickle
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tests/serve", "benchmarks", "tools")]

import build_web  # noqa: E402
from live_parts.browser import CHROMIUM, FLAGS, show_film, wide  # noqa: E402
from live_parts.process import drawn  # noqa: E402
from live_parts.web_page import (  # noqa: E402
    Visit,
    file_server,
    kill_often,
    live,
    objects,
    profile,
    saved,
)
from page_support import (  # noqa: E402
    DESK,
    NUMBERS,
    PHONE,
    SECONDS,
    film_of,
    hold,
    in_a_browser,
    keeps_saying,
    look_first,
    other_film_of,
    rendered,
    says,
    taught_frames,
    until,
)
from PIL import Image  # noqa: E402

from primavista import Learner  # noqa: E402
from primavista.web.pack import write_page  # noqa: E402

pytestmark = [
    *in_a_browser,
    pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed: apt-get install npm"),
]
FORMS = ("folder", "file")


@pytest.fixture(scope="module")
def playwright():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright):
    made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The page as a folder and as one file, built from the present sources."""
    build_web.build()
    place = tmp_path_factory.mktemp("page")
    return {"folder": write_page(place / "site"), "file": write_page(place / "objects.html")}


@pytest.fixture(scope="module")
def addresses(packed):
    with file_server(packed["folder"]) as address:
        yield {"folder": address, "file": packed["file"].as_uri()}


@pytest.fixture
def visit(browser, addresses):
    """Visit the page in one of its forms; no script of it may fail, and it asks nobody else."""
    visits: list[Visit] = []

    def begin(form: str, **how: Any) -> Visit:
        visits.append(Visit(browser.new_context(**{**DESK, **how}), addresses[form]))
        return visits[-1]

    yield begin
    for one in visits:
        one.close()


def teach(page: Any, *names: str) -> None:
    for name in names:
        show_film(page, film_of(name))
        assert "learned" in hold(page, name, frames=12)


def elsewhere(name: str, session: int) -> Image.Image:
    """A picture of a camera that shows an object in another place."""
    return wide(drawn(NUMBERS[name], session, 6)[0])


def give(page: Any, path: Path, button: str = "#ask-yes") -> str:
    """Open a file in the page, in place of its model or beside it; returns what it says."""
    page.locator("#toast").evaluate("(toast) => (toast.hidden = true)")
    page.locator("#use").click()
    page.locator("#load-file").set_input_files(str(path))
    page.locator(button).click()
    page.locator("#toast").wait_for()
    return str(page.inner_text("#toast-text"))


@pytest.mark.parametrize("form", FORMS)
def test_what_is_taught_is_recognised_elsewhere_and_a_stranger_is_unknown(visit, form):
    page = visit(form).open()
    teach(page, "cup", "ball", "glasses")
    until(page, lambda: list(objects(page)) == ["cup", "ball", "glasses"], "not all are listed")
    for name in ("cup", "ball", "glasses"):
        show_film(page, other_film_of(name))  # other sides of it
        keeps_saying(page, name)
    show_film(page, film_of("scissors"))
    keeps_saying(page, "Unknown")


@pytest.mark.parametrize("form", FORMS)
def test_rename_forget_undo_and_reload(visit, form):
    page = visit(form).open()
    teach(page, "cup", "ball")
    before = objects(page)
    row = page.locator("#objects > li", has_text="cup")
    row.locator("[aria-expanded]").click()
    row.get_by_role("button", name="Rename cup").click()
    page.locator("#ask-value").fill("mug")
    page.locator("#ask-yes").click()
    until(page, lambda: list(objects(page)) == ["mug", "ball"], "not renamed")
    page.locator("#objects > li", has_text="ball").locator("[aria-expanded]").click()
    page.get_by_role("button", name="Forget ball").click()
    until(page, lambda: list(objects(page)) == ["mug"], "not forgotten")
    page.locator("#undo").click()
    until(page, lambda: list(objects(page)) == ["mug", "ball"], "not taken back")
    page.reload()
    live(page)
    assert objects(page) == {"mug": before["cup"], "ball": before["ball"]}
    show_film(page, film_of("cup"))
    says(page, "mug")


def test_a_lesson_is_removed_and_a_check_counts(visit):
    page = visit("folder").open()
    teach(page, "cup", "ball", "ball")
    frames = objects(page)["ball"]
    page.locator("#objects > li", has_text="ball").locator("[aria-expanded]").click()
    page.get_by_role("button", name="Remove lesson 2 of ball").click()
    until(page, lambda: objects(page)["ball"] < frames, "the lesson is still there")
    page.locator("input[value=check]").locator("..").click()
    page.locator("#which").select_option("ball")
    page.locator("#hold").hover()
    page.mouse.down()
    page.wait_for_timeout(1500)
    page.mouse.up()
    page.locator("#hint[data-kind=good]", has_text="“ball”:").wait_for()


@pytest.mark.parametrize("form", FORMS)
def test_a_likely_answer_is_confirmed_by_one_tap(visit, form, tmp_path):
    page = visit(form).open()
    teach(page, "cup", "ball")
    learner = Learner.load(saved(page, tmp_path / "objects.pv"))
    name, picture = next(
        (name, shown)
        for name, session in itertools.product(("cup", "ball"), range(2, 8))
        if (said := learner.predict(shown := elsewhere(name, session))).label == name
        and 0.2 < said.familiarity < 0.95
    )
    threshold = learner.predict(picture).familiarity + 0.04
    page.locator("#threshold").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('change')); }",
        threshold,
    )
    show_film(page, [picture])
    page.locator("#verdict[data-state=likely]", has_text=f"{name}?").wait_for()
    page.locator("#answers").wait_for()
    look_first(page)
    before = objects(page)[name]
    page.locator("#yes").click()
    page.locator("#hint", has_text=f"these seconds are “{name}” now").wait_for()
    until(page, lambda: objects(page)[name] >= before + 5, "nothing was taught")
    keeps_saying(page, name)


def test_a_wrong_answer_is_corrected(visit):
    page = visit("folder").open()
    teach(page, "cup", "ball")
    show_film(page, film_of("scissors"))
    keeps_saying(page, "Unknown", looks=5)
    page.locator("#wrong:not([aria-disabled=true])").click()
    page.locator("#correct-picture[src^='data:image/jpeg']").wait_for()
    look_first(page)
    page.locator("#correct-name").fill("scissors")
    page.locator("#correct-yes").click()
    page.locator("#hint", has_text="these seconds are “scissors” now").wait_for()
    keeps_saying(page, "scissors")


def test_it_works_when_the_server_has_stopped(browser, packed):
    with file_server(packed["folder"]) as address:
        visit = Visit(browser.new_context(**DESK), address)
        page = visit.open()
        teach(page, "cup")
        first = len(visit.asked)
    page.reload()
    live(page)
    assert list(objects(page)) == ["cup"]
    show_film(page, film_of("cup"))
    says(page, "cup")
    teach(page, "ball")
    assert first <= 20
    visit.close()


@pytest.mark.parametrize("form", FORMS)
def test_python_goes_on_with_the_file_and_the_page_with_pythons(visit, form, tmp_path):
    page = visit(form).open()
    teach(page, "cup", "ball")
    learner = Learner.load(saved(page, tmp_path / "objects.pv"))
    assert learner.counts == objects(page)
    assert learner.predict(rendered("cup")[1]).label == "cup"
    learner.learn(list(taught_frames("scissors")), "scissors")
    learner.save(tmp_path / "more.pv")
    give(page, tmp_path / "more.pv")
    until(page, lambda: objects(page) == learner.counts, "the file was not loaded")
    show_film(page, other_film_of("scissors"))
    keeps_saying(page, "scissors")
    page.locator("#undo").click()
    until(page, lambda: list(objects(page)) == ["cup", "ball"], "not taken back")
    other = Learner("prima")
    other.learn(list(taught_frames("glasses")), "glasses")
    other.save(tmp_path / "other.pv")
    assert "other.pv" in give(page, tmp_path / "other.pv", "#ask-other")
    until(page, lambda: list(objects(page)) == ["cup", "ball", "glasses"], "not merged")
    show_film(page, other_film_of("glasses"))
    keeps_saying(page, "glasses")
    page.reload()
    live(page)
    assert list(objects(page)) == ["cup", "ball", "glasses"]


def altered(data: bytes) -> dict[str, bytes]:
    """Files that are not what a learner saves."""
    middle = len(data) // 2
    length = int.from_bytes(data[:8], "little")
    manifest = data[8 : 8 + length].replace(b'\\"threshold\\":0.', b'\\"threshold\\":9.')
    return {
        "empty": b"",
        "noise": random.Random(0).randbytes(5000),
        "pickle": pickle.dumps(["objects"]),
        "cut": data[:-1000],
        "longer": data + b"more",
        "one byte": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "threshold": data[:8] + manifest + data[8 + length :],
        "huge header": (2**62).to_bytes(8, "little") + data[8:],
    }


def test_hostile_files_are_refused_and_change_nothing(visit, tmp_path):
    page = visit("folder").open()
    teach(page, "cup")
    before = objects(page)
    good = saved(page, tmp_path / "objects.pv").read_bytes()
    for name, data in altered(good).items():
        path = tmp_path / f"{name}.pv"
        path.write_bytes(data)
        assert data != good
        for button in ("#ask-yes", "#ask-other"):
            said = give(page, path, button)
            assert "is loaded" not in said, name
            assert "added" not in said, name
            assert objects(page) == before, name
    page.reload()
    live(page)
    assert objects(page) == before


@pytest.mark.parametrize("form", FORMS)
def test_a_tab_that_is_killed_loses_nothing_acknowledged(playwright, addresses, form, tmp_path):
    """`benchmarks/web.py --kills 50` is the long form."""
    folder = tmp_path / "profile"
    visit = Visit(profile(playwright, folder, **DESK), addresses[form])
    films = {name: film_of(name) for name in ("cup", "ball", "scissors")}
    kill_often(visit, folder, films, kills=3)
    page = visit.context.pages[-1]
    assert Learner.load(saved(page, tmp_path / "objects.pv")).counts == objects(page)
    visit.close()


def test_a_page_with_a_model_inside_begins_with_it(browser, packed, tmp_path):
    learner = Learner("prima")
    learner.learn(list(taught_frames("cup")), "cup")
    learner.save(tmp_path / "kitchen.pv")
    path = write_page(tmp_path / "kitchen.html", tmp_path / "kitchen.pv")
    visit = Visit(browser.new_context(**DESK), path.as_uri())
    page = visit.open()
    assert page.inner_text("#model-name") == "kitchen.pv"
    page.locator(".privacy summary").click()
    with page.expect_download() as found:
        page.locator("#licences").click()
    assert "Microsoft Corporation" in found.value.path().read_text(encoding="utf-8")
    assert objects(page) == learner.counts
    show_film(page, other_film_of("cup"))
    says(page, "cup")
    visit.close()


def test_a_second_tab_waits_for_the_first(visit):
    visit = visit("folder")
    first = visit.open()
    second = visit.context.new_page()
    second.goto(visit.url)
    second.locator("#ask-title", has_text="Already open").wait_for(timeout=SECONDS)
    first.close()
    second.locator("#ask-yes").click()
    live(second)


@pytest.mark.parametrize(
    ("form", "look", "size"),
    [
        ("folder", "light", DESK),
        ("folder", "dark", PHONE),
        ("file", "dark", DESK),
        ("file", "light", PHONE),
    ],
    ids=["folder", "folder dark phone", "file dark", "file phone"],
)
def test_it_is_accessible(visit, form, look, size):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(form, color_scheme=look, **size).open()
    assert [one["id"] for one in axe.run(page).response["violations"]] == []
    teach(page, "cup")
    page.locator("#objects [aria-expanded]").click()
    says(page, "cup")
    assert [one["id"] for one in axe.run(page).response["violations"]] == []
    page.locator("#use").click()
    assert page.locator("#export").is_hidden()
    assert [one["id"] for one in axe.run(page).response["violations"]] == []


def test_it_speaks_italian(visit):
    page = visit("file", locale="it-IT").open()
    assert page.inner_text("#hold-text") == "Tieni premuto per insegnare"
    assert page.evaluate("document.documentElement.lang") == "it"
    show_film(page, film_of("cup"))
    assert "imparato" in hold(page, "tazza", frames=12)
    assert page.inner_text("#advice").startswith("Ora: insegna un secondo oggetto")
