"""`primavista evaluate`, `merge`, `--version`, and CSV files."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

import primavista as pv
from primavista.storage.csv_file import write_csv

from .conftest import call, done

pytest.importorskip("av")


@pytest.fixture(scope="module")
def parts(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two learners of two objects each; both know the plug, from other videos."""
    folder = tmp_path_factory.mktemp("parts")
    for file, lessons in {
        "a.pv": {"plug": ["plug/1.mp4"], "phone": ["phone/1.mp4", "phone/2.mp4"]},
        "b.pv": {"plug": ["plug/2.mp4"], "scissors": ["scissors/1.mp4"]},
    }.items():
        options = ("--size", 32, "--weights", "random", "--strategy", "ncm", "--no-coach")
        for label, paths in lessons.items():
            given = [videos / "toys" / path for path in paths]
            done("learn", folder / file, "--label", label, *given, "--device", "cpu", *options)
    return folder / "a.pv", folder / "b.pv"


def test_the_version_is_printed() -> None:
    assert done("--version") == f"primavista {pv.__version__}\n"


@pytest.mark.slow
def test_merged_files_know_what_both_know(parts: tuple[Path, Path], tmp_path: Path) -> None:
    text = done("merge", *parts, "-o", tmp_path / "all.pv")
    assert "all.pv knows 3 objects" in text
    merged = pv.Learner.load(tmp_path / "all.pv")
    by_hand = pv.Learner.load(parts[0])
    by_hand.merge(parts[1])
    assert merged.to_bytes() == by_hand.without_undo().to_bytes()
    assert merged.counts == {"plug": 32, "phone": 32, "scissors": 16}


@pytest.mark.slow
def test_what_cannot_be_merged_leaves_no_file(parts: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "all.pv"
    for given, reason in (
        ((parts[0],), "two or more"),
        ((parts[0], parts[0]), "would count twice"),
        ((parts[0], tmp_path / "no_such.pv"), "no_such.pv"),
    ):
        result = call("merge", *given, "-o", target)
        assert result.exit_code != 0
        assert reason in str(result.exception)
        assert not target.exists()
    taken = call("merge", *parts, "-o", parts[0])
    assert "exists" in str(taken.exception)


@pytest.mark.slow
def test_evaluate_prints_and_writes(parts: tuple[Path, Path], videos: Path, tmp_path: Path) -> None:
    result = pv.Learner.load(parts[0]).evaluate(videos / "toys")
    told = json.loads(done("evaluate", parts[0], videos / "toys", "--json"))
    assert told["frame_accuracy"] == result.frame_accuracy
    assert told["strangers"] == ["scissors"]
    table = tmp_path / "videos.csv"
    text = done("evaluate", parts[0], videos / "toys", "--csv", table)
    assert "scissors (not taught)" in text
    assert "videos of taught objects that were given their name, known or likely" in text
    assert "frames by answer, and how many of them are right" in text
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert {row["video"] for row in rows} >= {"plug/1.mp4", "scissors/3.mp4"}
    taught = [row for row in rows if row["taught"] == "true"]
    right = sum(int(row["known_right"]) + int(row["likely_right"]) for row in taught)
    frames = sum(int(row["frames"]) for row in taught)
    assert right / frames == result.frame_accuracy
    assert {row["answer"] for row in rows} <= {"known", "likely", "unknown"}
    for row in rows:
        words = {"known": row["label"], "likely": f"{row['label']}?", "unknown": "unknown"}
        assert row["said"] == words[row["answer"]]


def test_one_bad_video_does_not_end_an_evaluation(
    parts: tuple[Path, Path], videos: Path, tmp_path: Path
) -> None:
    (tmp_path / "test/plug").mkdir(parents=True)
    shutil.copy(videos / "toys/plug/3.mp4", tmp_path / "test/plug/good.mp4")
    (tmp_path / "test/plug/bad.mp4").write_bytes(b"not a video")
    result = call("evaluate", parts[0], tmp_path / "test")
    assert result.exit_code == 1
    assert "could not be read" in result.stdout
    assert "bad.mp4" in result.stdout
    assert "of 1" in result.stdout


def test_targets_that_cannot_be_written_are_refused_before_the_work(
    parts: tuple[Path, Path], videos: Path, tmp_path: Path
) -> None:
    target = tmp_path / "no_such" / "videos.csv"
    result = call("evaluate", parts[0], videos / "toys", "--csv", target)
    assert "there is no such folder" in str(result.exception)


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20A"],
)
def test_no_cell_of_a_csv_file_is_a_formula(name: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", ("name", "share"), [(name, 0.5), ('a "quoted", name', None)])
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["name", "share"], ["'" + name, "0.5"], ['a "quoted", name', ""]]
