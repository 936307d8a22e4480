"""`primavista learn`: sources as lessons, each on disk before the next, and what is said where one
fails.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import primavista as pv
from primavista.cli.learn import find_lessons, learn_shown
from primavista.media import camera
from primavista.storage import learner_file as files
from primavista.storage.disk import BusyError, FileLock, file_lock

from ..streams import media
from .conftest import call, done, on_terminal, renamed

SMALL = ["--size", "32", "--weights", "random", "--option", "width=0.125", "--device", "cpu"]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dslda.pv"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_new_file_is_made_and_the_next_command_goes_on_with_it(
    videos: Path, tmp_path: Path
) -> None:
    model = tmp_path / "kitchen.pv"
    text = done("learn", model, "--label", "plug", videos / "toys/plug/1.mp4", *SMALL)
    assert f"plug: 16 frames of {videos / 'toys/plug/1.mp4'} in" in text
    text = done(
        "learn",
        model,
        "--label",
        "phone",
        videos / "toys/phone/1.mp4",
        videos / "toys/phone/2.mp4",
        "--max-frames",
        8,
    )
    assert "kept 8 of 16 frames (1 in 2)" in text
    assert "kitchen.pv knows 2 objects (frames): plug (16), phone (16)" in text
    learner = pv.Learner.load(model)
    assert (learner.strategy_name, learner.size, len(learner.lessons)) == ("prima", 32, 3)


def test_the_threshold_is_kept_in_the_file_and_another_one_serves_a_single_command(
    videos: Path, tmp_path: Path
) -> None:
    model, clip = tmp_path / "kitchen.pv", videos / "toys/plug/1.mp4"
    lesson = ("learn", model, "--label", "plug", clip)
    done(*lesson, *SMALL, "--threshold", 0.7)
    assert pv.Learner.load(model).threshold == 0.7
    assert call(*lesson, "--threshold", 0.6).exit_code == 1  # there is nothing new to learn
    assert pv.Learner.load(model).threshold == 0.6
    before = model.read_bytes()
    for limit, known in ((0, 4), (1, 0)):
        told = lines(done("predict", model, clip, "--json", "--threshold", limit))[-1]["summary"]
        assert (sum(told["votes"].values()), told["frames"]) == (known, 4)
    assert model.read_bytes() == before
    refused = call(*lesson, "--again", "--option", "threshold=0.5")
    assert refused.exit_code == 1
    assert "say --threshold 0.5" in str(refused.exception)


def test_it_learns_what_the_python_api_learns(videos: Path, tmp_path: Path) -> None:
    done("learn", tmp_path / "a.pv", videos / "toys", *SMALL, "--strategy", "dslda", "--fps", 4)
    learner = pv.Learner("dslda", weights="random", width=0.125, size=32, device="cpu")
    for name in ("phone", "plug", "scissors"):
        for session in (1, 2, 3):
            learner.learn(
                pv.open_frames(videos / "toys" / name / f"{session}.mp4", size=32, fps=4), name
            )
    learner.save(tmp_path / "b.pv")
    assert (tmp_path / "a.pv").read_bytes() == (tmp_path / "b.pv").read_bytes()


def test_each_lesson_is_on_disk_before_the_next_begins(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = tmp_path / "kitchen.pv", []
    learn = pv.Learner.learn

    def watched(self: pv.Learner, *arguments: Any, **options: Any) -> Any:
        seen.append(pv.Learner.load(model).labels if model.exists() else None)
        return learn(self, *arguments, **options)

    monkeypatch.setattr(pv.Learner, "learn", watched)
    done("learn", model, videos / "toys", *SMALL, "--max-frames", 4)
    assert [len(labels or ()) for labels in seen] == [0, 1, 1, 1, 2, 2, 2, 3, 3]


def test_a_failed_source_changes_nothing_and_the_others_go_on(videos: Path, tmp_path: Path) -> None:
    model, bad = tmp_path / "kitchen.pv", tmp_path / "bad.mp4"
    bad.write_bytes((videos / "toys/plug/1.mp4").read_bytes()[:300])
    result = call("learn", model, "--label", "plug", bad, *SMALL)
    assert result.exit_code == 1
    assert "failed: plug: " in result.stdout
    assert "bad.mp4 is damaged or not a video" in result.stdout
    assert not model.exists()
    result = call(
        "learn", model, "--label", "plug", bad, videos / "toys/plug/1.mp4", *SMALL, "--json"
    )
    assert result.exit_code == 1
    first, second, end = lines(result.stdout)
    assert (first["status"], second["status"], second["frames"]) == ("failed", "learned", 16)
    assert [one["kind"] for one in end.pop("advice")] == ["second object"]
    assert end == {
        "file": str(model),
        "learned": 1,
        "already_taught": 0,
        "failed": 1,
        "objects": {"plug": 16},
    }


def test_the_same_lesson_twice_is_noticed(videos: Path, tmp_path: Path) -> None:
    model, clip = tmp_path / "kitchen.pv", videos / "toys/plug/1.mp4"
    done("learn", model, "--label", "plug", clip, *SMALL)
    before = model.read_bytes()
    result = call("learn", model, "--label", "plug", clip)
    assert result.exit_code == 1
    assert "was taught before, left out (--again teaches it once more)" in result.stdout
    assert "there was nothing new to learn" in result.stdout
    assert model.read_bytes() == before
    assert "plug (32)" in done("learn", model, "--label", "plug", clip, "--again")
    first, second, end = lines(
        done("learn", model, "--label", "plug", clip, videos / "toys/plug/3.mp4", "--json")
    )
    assert (first["status"], second["status"]) == ("already taught", "learned")
    assert (end["already_taught"], end["learned"]) == (1, 1)


def test_a_lesson_of_what_was_forgotten_is_left_out_and_says_why(
    videos: Path, tmp_path: Path
) -> None:
    model, clip = tmp_path / "kitchen.pv", videos / "toys/plug/1.mp4"
    done("learn", model, "--label", "plug", clip, *SMALL)
    learner = pv.Learner.load(model)
    learner.forget("plug")
    learner.save(model)
    said = " ".join(call("learn", model, "--label", "plug", clip).stdout.split())
    assert (
        "was taught before, left out (--again teaches it once more) "
        "though no plug is known: it was forgotten" in said
    )
    assert "plug (16)" in done("learn", model, "--label", "plug", clip, "--again")


def test_how_far_a_lesson_is(videos: Path) -> None:
    """Frames read of how many, then frames learned of how many.

    What the bar and the time left are made of.
    """
    learner = pv.Learner("cwr*", weights="random", width=0.125, size=32, device="cpu", epochs=3)
    said: list[tuple[Any, ...]] = []
    (lesson,) = find_lessons([str(videos / "toys/plug/1.mp4")], "plug")
    learn_shown(learner, lesson, lambda *stage: said.append(stage), {"seconds": 5})
    opened = [stage[1:] for stage in said if stage[0].startswith("reading")]
    assert opened == [(), *((k, 16) for k in range(1, 17))]
    # frozen features are computed once, here all at once; then comes what needs all of them
    assert [stage for stage in said if stage[0].endswith(" plug")] == [("finishing plug",)]
    half = pv.open_frames(
        lesson.source, size=32, fps=4, progress=lambda done, of: said.append((done, of))
    )
    assert said[-1] == (8, 8) == (len(half), 8)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_single_lesson_has_a_bar_with_the_time_left(videos: Path, tmp_path: Path) -> None:
    source = videos / "toys/plug/1.mp4"
    shown = on_terminal(120, "learn", tmp_path / "a.pv", "--label", "plug", source, *SMALL)
    assert b"left" in shown
    assert "━".encode() in shown
    assert b"/16" in shown or b"/64" in shown
    # the line of the lesson begins where the bar was taken away, not behind the bar
    begins = rb"[\r\n](\x1b\[[0-9;?]*[A-Za-z])*plug(\x1b\[0m)?: 16 frames"
    assert re.search(begins, shown), shown[-600:]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_lines_on_a_narrow_terminal_are_whole(
    videos: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The bar of a window of 40 columns does not cut the lines that are printed above it."""
    sources = [videos / "toys/plug/1.mp4", videos / "toys/plug/2.mp4"]
    teach = ("learn", tmp_path / "a.pv", "--label", "plug", *sources, *SMALL, *options)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_terminal(40, *teach).decode())
    rows = re.split(r"[\r\n]+", shown)
    if not options:
        for source in sources:
            assert any(row.startswith(f"plug: 16 frames of {source} in ") for row in rows), shown
        return
    told = [json.loads(row) for row in rows if row.startswith("{")]
    assert [one.get("source") for one in told] == [*map(str, sources), None]


def test_options_of_new_files_are_refused_where_they_contradict_the_file(
    videos: Path, tmp_path: Path
) -> None:
    model, clip = tmp_path / "kitchen.pv", videos / "toys/plug/1.mp4"
    done("learn", model, "--label", "plug", clip, *SMALL)
    before = model.read_bytes()
    wrong = call(
        "learn", model, "--label", "plug", videos / "toys/plug/2.mp4", "--strategy", "dslda"
    )
    assert str(wrong.exception) == (
        "kitchen.pv was made with strategy prima, not dslda: "
        "leave that out (it is for new files), or name another file"
    )
    wrong = call(
        "learn", model, "--label", "plug", videos / "toys/plug/2.mp4", "--option", "width=1.0"
    )
    assert "made with width 0.125, not 1.0" in str(wrong.exception)
    assert model.read_bytes() == before
    done(
        "learn", model, "--label", "plug", videos / "toys/plug/2.mp4", "--strategy", "prima", *SMALL
    )


def test_everything_is_looked_up_before_anything_is_taught(videos: Path, tmp_path: Path) -> None:
    clip = videos / "toys/plug/1.mp4"
    for sources, message in {
        (clip, tmp_path / "gone.mp4"): "cannot open .*gone.mp4",
        (clip, Path(__file__)): "not a known kind of file",
        (clip, tmp_path): "holds no images and no videos",
    }.items():
        with pytest.raises(pv.PrimavistaError, match=message):
            find_lessons([str(source) for source in sources], "plug")
        assert (
            call("learn", tmp_path / "kitchen.pv", "--label", "plug", *sources, *SMALL).exit_code
            == 1
        )
    with pytest.raises(pv.InputError, match=r"what does .*1\.mp4 show\? Say it with --label mug"):
        find_lessons([str(clip)], None)
    with pytest.raises(pv.InputError, match="holds no folders named after objects"):
        find_lessons([str(videos / "toys/plug")], None)
    assert not (tmp_path / "kitchen.pv").exists()


def test_folders_as_they_come(tmp_path: Path) -> None:
    media.make_pictures(tmp_path / "toys/cup", [1, 2])
    media.make_pictures(tmp_path / "toys/mug/10", [3])
    media.make_pictures(tmp_path / "toys/mug/2", [4])
    media.make_pictures(tmp_path / "toys/.hidden/2", [4])
    found = find_lessons([str(tmp_path / "toys")], None)
    assert [
        (one.label, one.name.removeprefix(str(tmp_path)), len(one.source)) for one in found
    ] == [
        ("cup", "/toys/cup", 2),
        ("mug", "/toys/mug/2", 1),
        ("mug", "/toys/mug/10", 1),
    ]
    labelled = find_lessons(
        [str(tmp_path / "toys/mug"), str(tmp_path / "toys/cup/1.png"), "camera:0"], "mug"
    )
    assert [one.name.removeprefix(str(tmp_path)) for one in labelled] == [
        "/toys/mug/2",
        "/toys/mug/10",
        "/toys/cup/1.png",
        "camera:0",
    ]
    assert {one.label for one in labelled} == {"mug"}


def test_a_folder_in_the_layout_of_core50_has_its_objects_as_labels(tmp_path: Path) -> None:
    for session in (1, 2):
        for thing in (1, 2):
            place = tmp_path / "core50" / f"s{session}" / f"o{thing}"
            place.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(place / f"C_0{session}_0{thing}_000.png")
    found = find_lessons([str(tmp_path / "core50")], None)
    assert [(one.label, one.name.removeprefix(str(tmp_path))) for one in found] == [
        ("o1", "/core50/s1/o1"),
        ("o1", "/core50/s2/o1"),
        ("o2", "/core50/s1/o2"),
        ("o2", "/core50/s2/o2"),
    ]


def test_a_camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av")
    monkeypatch.setattr(
        camera, "camera_input", lambda av, number: ("testsrc=size=64x48:rate=20", "lavfi", {})
    )
    model = tmp_path / "kitchen.pv"
    assert "camera:0" in done(
        "learn", model, "--label", "screen", "camera:0", "--seconds", 0.5, "--max-frames", 8, *SMALL
    )
    assert pv.Learner.load(model).labels == ["screen"]


@pytest.mark.slow
def test_two_processes_on_one_file(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "kitchen.pv"
    with file_lock(model):
        busy = call("learn", model, "--label", "plug", videos / "toys/plug/1.mp4", *SMALL)
    assert isinstance(busy.exception, BusyError)
    assert f"is at work on {model}: wait for it, or stop it first" in str(busy.exception)
    assert not model.exists()


def test_a_model_that_was_not_made_leaves_nothing_behind(videos: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    assert (
        call(
            "learn", tmp_path / "kitchen.pv", "--label", "plug", tmp_path / "broken.mp4", *SMALL
        ).exit_code
        == 1
    )
    assert call("undo", tmp_path / "kitchen.pv").exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["broken.mp4"]


def test_a_lock_that_its_holder_took_away_is_no_lock(tmp_path: Path) -> None:
    """The first makes no model and so removes its lock, for which the second has waited.

    No third may enter beside it.
    """
    model, held = tmp_path / "kitchen.pv", threading.Event()
    hidden = tmp_path / ".kitchen.pv.lock"  # what `file_lock` locks
    first = FileLock(hidden, remove_if=lambda: not model.exists())
    first.__enter__()
    second = FileLock(hidden, wait=60, remove_if=lambda: not model.exists())
    waiting = threading.Thread(target=lambda: (second.__enter__(), held.set()))
    waiting.start()
    while second._file < 0:
        time.sleep(0.001)
    first.__exit__()
    assert held.wait(60)
    with pytest.raises(BusyError):
        file_lock(model, wait=0.0).__enter__()
    second.__exit__()
    waiting.join()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [1, 31, 513])
def test_sizes_are_those_of_teach(videos: Path, tmp_path: Path, size: int) -> None:
    for command in (
        ("learn", tmp_path / "a.pv", videos / "strange.mp4", "--label", "x"),
        ("teach", tmp_path / "a.pv"),
    ):
        result = call(*command, "--size", size)
        assert (result.exit_code, "Invalid value for '--size'" in result.output) == (2, True), (
            result.output
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mug.mp4", "mug.pv"])
def test_what_is_no_learner_is_never_overwritten(name: str, videos: Path, tmp_path: Path) -> None:
    clip = tmp_path / name
    clip.write_bytes((videos / "toys/plug/1.mp4").read_bytes())
    before = clip.read_bytes()
    wrong = call("learn", clip, videos / "toys/plug/2.mp4", "--label", "plug")
    said = "which comes first" if name == "mug.mp4" else "(is not a primavista file|was cut off)"
    assert re.search(said, str(wrong.exception))
    assert clip.read_bytes() == before


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("norm=bn", "there is no option norm: this strategy has none"),
        ("seed=abc", "seed must be a whole number"),
        ("device=cpu", "device is not an option of a strategy: say --device cpu"),
        ("size=64", "say --size 64"),
        ("foo", "'foo': write key=value, for example balance=0.5"),
    ],
)
def test_options_that_are_none(videos: Path, tmp_path: Path, option: str, words: str) -> None:
    wrong = call(
        "learn",
        tmp_path / "kitchen.pv",
        "--label",
        "x",
        videos / "toys/plug/1.mp4",
        *SMALL,
        "--option",
        option,
    )
    assert isinstance(wrong.exception, pv.InputError), wrong.exception
    assert words in str(wrong.exception)


def test_options_that_are_some_may_be_said_again(videos: Path, tmp_path: Path) -> None:
    model = tmp_path / "kitchen.pv"
    given = ("balance=0.5", "seed=3")
    options = ["--strategy", "ridge", "--threshold", "0.5"]
    options += [word for one in given for word in ("--option", one)]
    for label in ("plug", "phone"):
        done("learn", model, "--label", label, videos / f"toys/{label}/1.mp4", *SMALL, *options)
    other = call("learn", model, "--label", "x", videos / "strange.mp4", "--option", "seed=4")
    assert "kitchen.pv was made with seed 3, not 4" in str(other.exception)


@pytest.mark.parametrize("label", [(), ("--label", "plug")])
def test_an_empty_source_is_not_this_folder(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: tuple[str, ...]
) -> None:
    monkeypatch.chdir(videos / "toys")
    for command in (
        ("learn", tmp_path / "kitchen.pv", "", *label, *SMALL),
        ("predict", GOLDEN, ""),
    ):
        wrong = call(*command)
        assert "the name of a source is empty" in str(wrong.exception)
    assert not (tmp_path / "kitchen.pv").exists()


@pytest.mark.parametrize("label", ["", "  ", "x" * 201, "a\nb"])
def test_names_that_are_none(videos: Path, tmp_path: Path, label: str) -> None:
    wrong = call(
        "learn", tmp_path / "kitchen.pv", "--label", label, videos / "toys/plug/1.mp4", *SMALL
    )
    assert "a name must be a text of 1 to 200 characters" in str(wrong.exception)


def test_a_full_disk_stops_it_and_the_file_is_the_last_lesson_that_fits(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, room = tmp_path / "kitchen.pv", [2]
    write_atomically = files.write_atomically

    def full(path: Path, *parts: bytes | memoryview) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_atomically(path, *parts)

    monkeypatch.setattr(files, "write_atomically", full)
    stopped = call("learn", model, videos / "toys", *SMALL)
    assert "No space left on device. What was there before is untouched" in str(stopped.exception)
    assert len(pv.Learner.load(model).lessons) == 2
    monkeypatch.undo()
    done("learn", model, videos / "toys", *SMALL)
    assert len(pv.Learner.load(model).lessons) == 9


def test_folders_are_named_as_objects_are(videos: Path, tmp_path: Path) -> None:
    for folder in (" mug ", "e\u0301"):
        (tmp_path / "toys" / folder).mkdir(parents=True)
        (tmp_path / "toys" / folder / "1.mp4").write_bytes(
            (videos / "toys/plug/1.mp4").read_bytes()
        )
    assert {lesson.label for lesson in find_lessons([str(tmp_path / "toys")], None)} == {
        "mug",
        "\u00e9",
    }


def test_names_cannot_talk_to_the_terminal(videos: Path, tmp_path: Path) -> None:
    evil = "mug\x1b]0;gone\x07\n[red]"
    place = tmp_path / "toys" / evil
    place.mkdir(parents=True)
    (place / "\x1b[2J.mp4").write_bytes((videos / "toys/plug/1.mp4").read_bytes())
    model = tmp_path / "kitchen.pv"
    refused = call("learn", model, tmp_path / "toys", *SMALL)
    assert "a name must be a text" in str(refused.exception)
    text = str(refused.exception) + done("learn", model, place, "--label", "mug", *SMALL)
    renamed(model, evil)
    text += (
        done("inspect", model)
        + done("predict", model, place)
        + done("predict", model, place / "\x1b[2J.mp4")
    )
    assert pv.Learner.load(model).labels == [evil]
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text
    done("predict", model, place / "\x1b[2J.mp4", "--annotate", tmp_path / "out.mp4")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_at_any_moment_the_same_command_goes_on_to_the_same_bits(
    videos: Path, tmp_path: Path, how: int
) -> None:
    arguments = ["learn", "kitchen.pv", str(videos / "toys"), *SMALL]
    done(*["learn", tmp_path / "undisturbed.pv", *arguments[2:]])
    command = [sys.executable, "-m", "primavista", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 90
    while (
        time.monotonic() < until
        and not (tmp_path / "kitchen.pv").exists()
        and process.poll() is None
    ):
        time.sleep(0.005)
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -how), error
    if how == signal.SIGINT:
        assert "the same command resumes" in error
    kept = len(files.read(tmp_path / "kitchen.pv")[1]["lessons"])
    assert 1 <= kept < 9
    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("was taught before") == kept
    assert (tmp_path / "kitchen.pv").read_bytes() == (tmp_path / "undisturbed.pv").read_bytes()
    assert not list(tmp_path.glob(".*.part")) or how == signal.SIGKILL


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_on_ray_it_learns_what_it_learns_here(videos: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    new = ("--strategy", "ridge", "--weights", "random", "--size", 32)
    toys = tmp_path / "toys"
    shutil.copytree(videos / "toys", toys)
    (toys / "plug" / "broken.mp4").write_bytes(b"no video")
    for place, extra in (("here", ()), ("ray", ("--on", "ray"))):
        command = ("learn", tmp_path / f"{place}.pv", toys, *new, "--json", *extra)
        result = subprocess.run(
            [sys.executable, "-m", "primavista", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 1, result.stderr  # the broken one
        told = lines("\n".join(x for x in result.stdout.splitlines() if x.startswith("{")))
        assert told, (result.stdout, result.stderr)
        assert sorted(line["status"] for line in told[:-1]) == ["failed"] + ["learned"] * 9
    here, there = (pv.Learner.load(tmp_path / f"{place}.pv") for place in ("here", "ray"))
    assert here.lessons == there.lessons
    assert here.counts == there.counts
    assert len(here.labels) == 3
    frames = pv.open_frames(toys / "phone" / "2.mp4", size=32)
    for a, b in zip(here.predict(frames), there.predict(frames), strict=True):
        assert a.scores == pytest.approx(b.scores, rel=1e-3)
        assert a.familiarity == pytest.approx(b.familiarity, rel=1e-3)


def test_on_ray_is_for_what_can_be_merged(videos: Path, tmp_path: Path) -> None:
    video, target = next(videos.glob("*.mp4")), tmp_path / "a.pv"
    for arguments, words in [
        ((video, "--on", "moon"), "--on is here, ray or ray://"),
        (("camera:0", "--on", "ray"), "leave out --on"),
        ((video, "--on", "ray", "--again"), "leave out --on"),
    ]:
        assert words in str(call("learn", target, "--label", "toy", *arguments, *SMALL).exception)
    assert not target.exists()


@pytest.mark.slow
def test_many_lessons_of_an_object_cost_three_tests_and_give_the_same_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command equals one command per lesson, each of which is tested, apart from undo."""
    random, folders = np.random.default_rng(0), []
    for k in range(10):
        folder = tmp_path / "toys" / ("mug" if k < 5 else "cup") / str(k)
        folder.mkdir(parents=True)
        for frame in range(3):
            low = 120 if k < 5 else 100  # alike, so that some answers are wrong
            pixels = random.integers(low, low + 60, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{frame}.png")
        folders.append(folder)
    tested: list[str] = []
    learn = pv.Learner.learn

    def counted(learner: pv.Learner, frames: Any, label: Any, **options: Any) -> Any:
        tested.extend([label] * options["coach"])
        return learn(learner, frames, label, **options)

    monkeypatch.setattr(pv.Learner, "learn", counted)
    for folder in folders[5:] + folders[:5]:  # in alphabetical order, as the command teaches them
        done("learn", tmp_path / "slow.pv", "--label", folder.parent.name, folder, *SMALL)
    assert sorted(tested) == ["cup"] * 5 + ["mug"] * 5
    tested.clear()
    text = done("learn", tmp_path / "fast.pv", tmp_path / "toys", *SMALL, "--json")
    assert sorted(tested) == ["cup"] * 3 + ["mug"] * 3
    fast, slow = (pv.Learner.load(tmp_path / name) for name in ("fast.pv", "slow.pv"))
    assert fast.without_undo().to_bytes() == slow.without_undo().to_bytes()
    advice = lines(text)[-1]["advice"]
    assert sum(one["frames"] for one in advice) == 9  # three tests of mug; cup was known alone
