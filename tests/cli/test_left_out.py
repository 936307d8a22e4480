"""What a command leaves out of a folder is counted in one line (F3), and animations are videos."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import primavista as pv

from .conftest import call, done

INSTALL = 'pip install "primavista[heic]"'


def grey(shade: int) -> Image.Image:
    return Image.new("RGB", (64, 48), (shade,) * 3)


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two objects; beside their pictures lie HEIC pictures, and the extra is not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for name, shade in (("coal", 10), ("snow", 245)):
        folder = tmp_path / "toys" / name / "monday"
        folder.mkdir(parents=True)
        for number in range(2):
            grey(shade + number).save(folder / f"{number}.png")
        (folder / "2.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(12))
    (tmp_path / "toys" / "notes.txt").write_text("x")
    return tmp_path / "toys"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    learner = pv.Learner("ncm", weights="random", size=32, width=0.25, threshold=0.0)
    for name, shade in (("coal", 10), ("snow", 245)):
        learner.learn([grey(shade)] * 4, name)
    learner.save(tmp_path / "hut.pv")
    return tmp_path / "hut.pv"


LEFT = f"2 .heic ({INSTALL}), 1 .txt"


def test_learn_predict_and_evaluate_say_it_once(
    toys: Path, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = f"left out of {toys}: {LEFT}"
    options = ("--strategy", "ncm", "--size", 32, "--weights", "random")
    for arguments in (
        ("learn", tmp_path / "new.pv", toys, *options),
        ("evaluate", model, toys),
        ("predict", model, toys, "--csv", tmp_path / "answers.csv"),
    ):
        caplog.clear()
        done(*arguments)
        assert caplog.messages == [said]
    caplog.clear()
    monday = toys / "coal" / "monday"
    done("predict", model, monday)
    assert caplog.messages == [f"left out of {monday}: 1 .heic ({INSTALL})"]


def test_data_pack_says_it(toys: Path, tmp_path: Path) -> None:
    result = call("data", "pack", toys, tmp_path / "toys.store", "--size", 32)
    assert result.exit_code == 0, result.output
    assert f"left out: {LEFT}" in result.stderr


def test_if_nothing_could_be_read_the_exit_code_says_so(toys: Path, model: Path) -> None:
    for path in toys.rglob("*.png"):
        path.unlink()
    for arguments in (
        ("learn", model, toys),
        ("learn", model, toys / "coal" / "monday", "--label", "coal"),
        ("predict", model, toys / "coal" / "monday"),
        ("predict", model, toys, "--csv", toys / "answers.csv"),
        ("evaluate", model, toys),
    ):
        result = call(*arguments)
        assert result.exit_code == 1
        assert f".heic ({INSTALL})" in str(result.exception)


def test_the_line_is_on_standard_error_and_not_among_the_answers(model: Path, toys: Path) -> None:
    for path in toys.rglob("*.heic"):  # in another process, the extra may be installed
        path.unlink()
    command = [sys.executable, "-m", "primavista", "evaluate", model, toys, "--json"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    assert json.loads(run.stdout)["frame_accuracy"] == 1
    assert run.stderr == f"left out of {toys}: 1 .txt\n"


def test_what_is_logged_cannot_command_the_terminal(model: Path, tmp_path: Path) -> None:
    for name in ("a\x1b[2J.png", "b.t\x1b[2Jxt"):
        (tmp_path / name).write_text("x")
    grey(10).save(tmp_path / "c.png")
    command = [sys.executable, "-m", "primavista", "predict", model, tmp_path, "--skip-bad"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0
    assert "\x1b[2J" not in run.stdout + run.stderr
    assert "skipped: " in run.stderr
    assert "1 of no known kind" in run.stderr


def test_an_animation_is_recognised_like_a_video(model: Path, tmp_path: Path) -> None:
    wave = tmp_path / "wave.gif"
    frames = [grey(shade) for shade in (10, 11, 10, 245)]
    frames[0].save(wave, save_all=True, append_images=frames[1:], duration=500)
    *rows, end = map(json.loads, done("predict", model, wave, "--json").splitlines())
    assert [row["seconds"] for row in rows] == [0.0, 0.5, 1.0, 1.5]
    assert [row["label"] for row in rows] == ["coal", "coal", "coal", "snow"]
    assert [video["frames"] for video in end["summary"]["videos"]] == [4]
    done("predict", model, wave, "--csv", tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["label"], row["frames"]) == ("coal", "4")
    assert pv.Learner.load(model).predict(wave).label == "coal"


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (("predict", "cup.mp4", "kitchen.pv"), "write kitchen.pv cup.mp4"),
        (("predict", "cup.HEIC", "mug.jpg"), "write kitchen.pv cup.HEIC"),
        (("learn", "cup.mp4", "kitchen.pv", "--label", "cup"), "write kitchen.pv cup.mp4"),
        (("watch", "camera:0", "hall.pv"), "write hall.pv camera:0"),
        (("evaluate", ".", "kitchen.pv"), "write kitchen.pv ."),
    ],
)
def test_a_source_in_the_place_of_the_model_is_refused_with_the_right_order(
    arguments: tuple[str, ...], right: str
) -> None:
    """F11."""
    result = call(*arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, pv.InputError)
    assert result.exception.args[0].endswith(right)
    assert "which comes first" in str(result.exception)
