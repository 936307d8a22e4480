"""`primavista predict` and `primavista inspect`, with real videos and the shipped network."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import primavista as pv
from primavista.cli.annotate import draw
from primavista.cli.recognise import Recogniser, SampledFrame, Sighting
from primavista.learner import watch
from primavista.learner.prediction import Answer, Prediction
from primavista.storage import learner_file as files

from ..streams import media
from .conftest import call, done

av = pytest.importorskip("av")


def lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done(*arguments, "--json").splitlines()]


@pytest.fixture(scope="module")
def model(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "kitchen.pv"
    done("learn", path, videos / "toys", "--size", 64, "--device", "cpu")
    return path


@pytest.mark.slow
def test_a_video_is_looked_at_twice_a_second_and_all_looks_vote(model: Path, videos: Path) -> None:
    *rows, end = lines("predict", model, videos / "toys/phone/1.mp4")  # 16 frames at 8 a second
    assert [row["seconds"] for row in rows] == [0.0, 0.5, 1.0, 1.5]
    frames = pv.open_frames(videos / "toys/phone/1.mp4", size=64, fps=2)
    alone = pv.Learner.load(model).predict(frames)
    for row, prediction in zip(rows, alone, strict=True):
        assert row["known"] is prediction.known
        assert row["label"] == max(row["scores"], key=row["scores"].__getitem__) == prediction.label
        assert row["confidence"] == pytest.approx(prediction.confidence, abs=1e-5)
        assert row["familiarity"] == pytest.approx(prediction.familiarity, abs=1e-5)
        assert sum(row["scores"].values()) == pytest.approx(1, abs=1e-5)
    cells = np.asarray(frames.frames, float).reshape(4, 8, 8, 8, 8, 3)
    pictures = cells.mean((2, 4)).reshape(4, -1)  # the mean colours of 8 x 8 cells
    fused = 0
    for k, row in enumerate(rows):  # two looks per second: this one, and the one before it if alike
        alike = k > 0 and np.corrcoef(pictures[k - 1], pictures[k])[0, 1] > 0.65
        fused += alike
        shares = [list(one["scores"].values()) for one in rows[k - alike : k + 1]]
        mean = np.exp(np.log(np.clip(shares, 1e-6, 1)).mean(0))
        expected = (mean / mean.sum()).tolist()
        recent = row["recent"]
        assert list(recent["scores"].values()) == pytest.approx(expected, abs=1e-5)
        assert recent["confidence"] == recent["scores"][recent["label"]]
    assert 0 < fused < 3  # the object moves fast: one look continues the scene, others do not
    whole = pv.Learner.load(model).predict_video(frames)
    (video,) = end["summary"]["videos"]
    assert (video["source"], video["frames"]) == (str(videos / "toys/phone/1.mp4"), 4)
    assert (video["label"], video["known"]) == (whole.label, whole.known) == ("phone", True)
    assert video["scores"] == pytest.approx(whole.scores, abs=1e-5)
    for answer, field in (("known", "votes"), ("likely", "likely")):
        votes = Counter(row["label"] for row in rows if row["answer"] == answer)
        assert end["summary"][field] == dict(votes)
    assert end["summary"]["unknown"] == sum(row["answer"] == "unknown" for row in rows)
    text = done("predict", model, videos / "toys/phone/1.mp4", "--fps", 8)
    assert len(text.splitlines()) == 17
    assert text.splitlines()[-1].startswith("phone: ")
    assert " of 16 frames" in text.splitlines()[-1]


def test_each_video_of_a_folder_has_its_own_answer(
    model: Path, videos: Path, tmp_path: Path
) -> None:
    """What a video shows is not mixed with the one before, and each has a line at the end."""
    for name in ("phone", "plug"):
        shutil.copy(videos / f"toys/{name}/1.mp4", tmp_path / f"{name}.mp4")
    *rows, end = lines("predict", model, tmp_path)
    assert [row["seconds"] for row in rows] == 2 * [0.0, 0.5, 1.0, 1.5]
    for first in (rows[0], rows[4]):
        assert {name: first[name] for name in first["recent"]} == first["recent"]
    found = [(Path(one["source"]).name, one["label"]) for one in end["summary"]["videos"]]
    assert found == [("phone.mp4", "phone"), ("plug.mp4", "plug")]
    last = done("predict", model, tmp_path).splitlines()[-2:]
    assert [line.split(" of ")[0][:-2] for line in last] == ["phone.mp4: phone:", "plug.mp4: plug:"]


@pytest.mark.slow
def test_images_and_folders(model: Path, videos: Path, tmp_path: Path) -> None:
    frames = pv.open_frames(videos / "toys/plug/1.mp4", size=64).frames
    for i in (2, 10):
        Image.fromarray(frames[i]).save(tmp_path / f"{i}.png")
    (row, end) = lines("predict", model, tmp_path / "2.png")
    assert (row["source"], row["label"]) == (str(tmp_path / "2.png"), "plug")
    assert not {"seconds", "recent"} & set(row)
    assert end["summary"]["videos"] == []
    first, second, end = lines("predict", model, tmp_path)
    assert [Path(row["source"]).name for row in (first, second)] == ["2.png", "10.png"]
    assert end["summary"]["frames"] == 2
    (tmp_path / "3.png").write_bytes(b"no picture")
    result = call("predict", model, tmp_path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1])["summary"]["skipped"] == 1
    assert "3.png is damaged" in str(call("predict", model, tmp_path / "3.png").exception)
    *rows, end = lines("predict", model, tmp_path, "--skip-bad")
    assert (len(rows), end["summary"]["skipped"]) == (2, 1)


@pytest.mark.slow
def test_many_sources_with_one_answer_each_and_a_bad_one_among_them(
    model: Path, videos: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    given = [videos / "toys/phone/1.mp4", tmp_path / "bad.mp4", tmp_path / "gone.mp4"]
    result = call("predict", model, *given, videos / "toys/plug")
    assert result.exit_code == 1
    told = result.stdout.splitlines()
    assert told[0].startswith("1.mp4 0:00.0 ")
    assert [line.split(":")[1].strip() for line in told[-5:-1]] == ["phone", "plug", "plug", "plug"]
    assert told[-1] == "skipped 2 that could not be decoded"
    assert call("predict", model, *given, "--skip-bad").exit_code == 0
    for arguments in (("camera:0", "a.mp4"), ("a.mp4", "b.mp4", "--annotate", "c.mp4")):
        assert call("predict", model, *arguments).exit_code != 0


@pytest.mark.slow
def test_a_folder_as_a_table(model: Path, videos: Path, tmp_path: Path) -> None:
    root = tmp_path / "in"
    shutil.copytree(videos / "toys", root / "toys")
    frames = pv.open_frames(videos / "toys/plug/1.mp4", size=64).frames
    Image.fromarray(frames[2]).save(root / "=cmd.png")
    (root / "toys/broken.mp4").write_bytes(b"no video")
    target = tmp_path / "out.csv"
    result = call("predict", model, root, "--csv", target)
    assert result.exit_code == 1
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11
    found = {Path(row["source"]).relative_to(root).as_posix(): row for row in rows}
    learner = pv.Learner.load(model)
    for path in ("toys/phone/1.mp4", "toys/scissors/3.mp4"):
        answer = learner.predict_video(pv.open_frames(root / path, size=64, fps=2))
        row = found[path]
        assert (row["kind"], row["frames"]) == ("video", "4")
        assert (row["said"], row["answer"], row["label"]) == (
            answer.said,
            answer.answer,
            answer.label,
        )
        assert float(row["confidence"]) == pytest.approx(answer.confidence, abs=1e-4)
        assert float(row["familiarity"]) == pytest.approx(answer.familiarity, abs=1e-4)
    assert (found["=cmd.png"]["kind"], found["=cmd.png"]["label"]) == ("picture", "plug")
    assert "broken.mp4" in found["toys/broken.mp4"]["problem"]
    assert found["toys/broken.mp4"]["label"] == ""
    assert call("predict", model, root, "--csv", target, "--skip-bad").exit_code == 0
    (tmp_path / "empty").mkdir()
    for source, options, reason in (
        ("camera:0", (), "no end"),
        (tmp_path / "empty", (), "holds no"),
        (root, ("--locate",), "leave out --annotate and --locate"),
    ):
        refused = call("predict", model, source, "--csv", target, *options)
        assert reason in str(refused.exception)


def test_an_interrupted_table_has_the_rows_so_far(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        Image.new("RGB", (64, 64)).save(tmp_path / f"{number}.png")
    predictions = [Prediction("mug", 0.7, "likely", {"mug": 0.7}, 0.5)]

    def predict(learner: pv.Learner, image: object) -> Prediction:
        if not predictions:
            raise KeyboardInterrupt
        return predictions.pop()

    monkeypatch.setattr(pv.Learner, "predict", predict)
    result = call("predict", model, tmp_path, "--csv", tmp_path / "out.csv")
    assert result.exit_code == 130
    assert "1 of 3 files" in result.stdout
    assert (tmp_path / "out.csv").read_text() == (
        "source,kind,said,answer,label,confidence,familiarity,frames,problem\n"
        f"{tmp_path / '0.png'},picture,mug?,likely,mug,0.7,0.5,1,\n"
    )


def test_how_many_images_show_what(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*seen: tuple[str, Answer]) -> str:
        printer = Recogniser(pv.Learner("ncm", weights="random", size=32, width=0.25), quiet=True)
        for label, answer in seen:
            one = Prediction(label, 0.5, answer)
            printer.report(Sighting(SampledFrame("a.png", None, np.zeros((1, 1, 3))), one, one))
        printer.close(skipped=0)
        return capsys.readouterr().out

    cup, mug = (("cup", "known"), ("mug", "known"))
    maybe_cup, strange = (("cup", "likely"), ("mug", "unknown"))
    assert printed(*6 * [("cup", "unknown")]) == "6 frames: unknown 6\n"
    assert printed(mug, cup, strange, cup, maybe_cup) == "5 frames: cup 3, mug 1, unknown 1\n"
    assert printed(cup) == ""


def test_a_video_that_is_known_although_its_frames_are_only_likely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = pv.Learner("ncm", weights="random", size=32, width=0.25)
    printer = Recogniser(learner, quiet=True)
    likely = Prediction("cup", 0.7, "likely")
    for at in range(3):
        frame = SampledFrame("a.mp4", float(at), np.zeros((1, 1, 3)))
        printer.report(Sighting(frame, likely, likely))
    monkeypatch.setattr(watch, "fuse", lambda seen, rule: Prediction("cup", 0.9, "known"))
    printer.close(skipped=0)
    assert capsys.readouterr().out == "cup: 3 of 3 frames\n"


def test_the_three_answers_look_different(capsys: pytest.CaptureFixture[str]) -> None:
    """The percentages of an unknown frame are among the taught names alone, so none are shown."""
    learner = pv.Learner("ncm", weights="random", size=32, width=0.25)
    printer = Recogniser(learner)
    for answer in ("known", "likely", "unknown"):
        one = Prediction("cup", 0.96, answer, {"cup": 0.96, "mug": 0.04})
        printer.report(Sighting(SampledFrame("a.png", None, np.zeros((1, 1, 3))), one, one))
    known, likely, unknown = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (known[:4], known[-3:]) == (["a.png", "cup", "96", "%"], ["mug", "4", "%"])
    assert (likely[:4], likely[-3:]) == (["a.png", "cup?", "96", "%"], ["mug", "4", "%"])
    assert unknown == ["a.png", "unknown", "(most", "like", "cup,", "mug)"]


def test_what_it_is_not_sure_of_is_unknown(model: Path, videos: Path, tmp_path: Path) -> None:
    unsure = pv.Learner.load(model)
    unsure.threshold = 1.0
    unsure.save(tmp_path / "unsure.pv")
    *rows, end = lines("predict", tmp_path / "unsure.pv", videos / "strange.mp4")
    assert {row["known"] for row in rows} == {False}
    assert all(row["label"] == max(row["scores"], key=row["scores"].__getitem__) for row in rows)
    assert end["summary"]["unknown"] == end["summary"]["frames"] == len(rows)
    text = done("predict", tmp_path / "unsure.pv", videos / "strange.mp4")
    assert text.count("unknown") == 3
    assert "unknown: 2 of 2 frames" in text
    ranked = sorted(rows[0]["scores"].items(), key=lambda item: -item[1])
    likeliest = ", ".join(name for name, share in ranked)
    assert text.splitlines()[0].split() == f"0:00.0 unknown (most like {likeliest})".split()


def video_facts(path: Path) -> tuple[Fraction, tuple[int, int], list[float], int]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(video=0))
        return (
            stream.average_rate,
            (stream.width, stream.height),
            [frame.time for frame in frames],
            frames[0].rotation,
        )


@pytest.mark.parametrize(("rotation", "size"), [(0, (64, 48)), (90, (48, 64)), (180, (64, 48))])
def test_an_annotated_video_has_the_rate_and_the_orientation_of_its_source(
    model: Path, tmp_path: Path, rotation: int, size: tuple[int, int]
) -> None:
    source = media.make_video(
        tmp_path / "in.mp4", 12, (64, 48), 12, frame=lambda i: media.corners(), rotation=rotation
    )
    text = done("predict", model, source, "--annotate", tmp_path / "out.mp4")
    assert f"wrote {tmp_path / 'out.mp4'}" in text
    rate, shape, times, turned = video_facts(tmp_path / "out.mp4")
    assert (rate, shape, turned) == (12, size, 0)
    assert times == pytest.approx([i / 12 for i in range(12)], abs=1e-3)
    with av.open(str(tmp_path / "out.mp4")) as container:
        shown = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
    truth = np.rot90(media.corners(), rotation // 90).astype(int)
    height, width = truth.shape[:2]
    places = ((height - 5, 4), (height - 5, width - 5), (height // 2 + 2, 4))  # below the name
    for row, column in places:
        assert np.abs(shown[row, column] - truth[row, column]).max() < 60
    assert not list(tmp_path.glob(".*"))


def test_a_picture_is_annotated_whole_and_predicted_as_ever(
    model: Path, videos: Path, tmp_path: Path
) -> None:
    frame = pv.open_frames(videos / "toys/plug/1.mp4", size=64).frames[2]
    wide = np.pad(frame, ((0, 0), (16, 16), (0, 0)))
    Image.fromarray(wide).save(tmp_path / "in.png")
    (plain, _) = lines("predict", model, tmp_path / "in.png")
    (row, _) = lines("predict", model, tmp_path / "in.png", "--annotate", tmp_path / "out.png")
    assert row == plain
    assert row["label"] == "plug"
    drawn = np.asarray(Image.open(tmp_path / "out.png"))
    assert drawn.shape == (64, 96, 3)
    assert (drawn[:40, :15] == 0).all()  # beside the centre square nothing is drawn
    assert (drawn[-1, 16:80] == (0x3D, 0xDC, 0x97)).all() == row["known"]


def test_frames_that_come_at_odd_times_stay_there(model: Path, tmp_path: Path) -> None:
    times = [0, 40, 120, 160, 400, 440]  # milliseconds
    with av.open(str(tmp_path / "in.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for at in times:
            frame = av.VideoFrame.from_ndarray(
                np.full((64, 64, 3), at // 4, np.uint8), format="rgb24"
            )
            frame.pts, frame.time_base = at, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    *_, end = lines("predict", model, tmp_path / "in.mkv", "--annotate", tmp_path / "out.mkv")
    assert end["summary"]["frames"] == 3  # ten looks a second: the first frame of each tenth
    assert video_facts(tmp_path / "out.mkv")[2] == pytest.approx(
        [at / 1000 for at in times], abs=2e-3
    )


def test_the_input_is_never_overwritten(model: Path, videos: Path, tmp_path: Path) -> None:
    clip = tmp_path / "in.mp4"
    shutil.copy(videos / "toys/plug/1.mp4", clip)
    (tmp_path / "link.mp4").symlink_to(clip)
    (tmp_path / "hard.mp4").hardlink_to(clip)
    (tmp_path / "other.mp4").write_bytes(b"mine")
    before = clip.read_bytes()
    for name in ("in.mp4", "link.mp4", "hard.mp4", "../" + tmp_path.name + "/in.mp4"):
        assert "is the source itself: give another name" in str(
            call("predict", model, clip, "--annotate", tmp_path / name).exception
        )
    assert "exists: give another name" in str(
        call("predict", model, clip, "--annotate", tmp_path / "other.mp4").exception
    )
    assert "ends in .mp4, .mkv, .mov" in str(
        call("predict", model, clip, "--annotate", tmp_path / "out.txt").exception
    )
    assert "is for one picture or one video file" in str(
        call("predict", model, tmp_path, "--annotate", tmp_path / "out.mp4").exception
    )
    assert clip.read_bytes() == before
    assert (tmp_path / "other.mp4").read_bytes() == b"mine"


def test_a_video_that_breaks_off_leaves_no_half_annotated_one(
    model: Path, videos: Path, tmp_path: Path
) -> None:
    data = (videos / "toys/plug/1.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) * 2 // 3])
    wrong = call("predict", model, tmp_path / "cut.mp4", "--annotate", tmp_path / "out.mp4")
    assert isinstance(wrong.exception, pv.FileError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.mp4"]


def test_where_nothing_can_be_written_nothing_is_drawn(
    model: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pv.Learner, "predict", lambda *_: pytest.fail("it has begun to draw"))
    gone = call(
        "predict", model, videos / "toys/plug/1.mp4", "--annotate", tmp_path / "no/where.mp4"
    )
    assert f"cannot write in {tmp_path / 'no'}: there is no such folder" in str(gone.exception)
    system = SimpleNamespace(access=lambda *_: False, W_OK=os.W_OK)
    monkeypatch.setattr(sys.modules["primavista.cli.arguments"], "os", system)
    mine = call("predict", model, videos / "toys/plug/1.mp4", "--annotate", tmp_path / "where.mp4")
    assert f"cannot write in {tmp_path}: permission denied" in str(mine.exception)


def test_what_is_drawn() -> None:
    grey = Image.new("RGB", (80, 60), (100, 100, 100))
    drawn = np.asarray(draw(grey, Prediction("mug", 0.5, "known")))
    assert (drawn[:, :10] == 100).all()  # beside the centre square nothing is drawn
    assert (drawn[20:57, 13:67] == 100).all()  # nor in it, below the name
    for edge in (drawn[-1, 10:70], drawn[20:, 10], drawn[:, 69]):
        assert (edge == (0x3D, 0xDC, 0x97)).all()
    sure = np.asarray(draw(grey, Prediction("mug", 0.9, "known")))
    assert not np.array_equal(drawn, sure)
    likely = np.asarray(draw(grey, Prediction("mug", 0.5, "likely")))
    assert (likely[-1, 10:70] == (0xFF, 0xB0, 0x00)).all()  # amber
    unknown = np.asarray(draw(grey, Prediction("mug", 0.5, "unknown")))
    assert (unknown[-1, 10:70] == 0xB0).all()
    # no percentage: it would read as how sure the unknown is
    assert np.array_equal(unknown, np.asarray(draw(grey, Prediction(None, 0.9, "unknown"))))
    for width, height in ((7, 3), (2, 200), (500, 20)):
        assert draw(
            Image.new("RGB", (width, height)), Prediction("a long name", 1.0, "known")
        ).size == (width, height)


def test_inspect_says_what_is_in_the_file(model: Path, videos: Path) -> None:
    facts = json.loads(done("inspect", model, "--json"))
    _, manifest = files.read(model)
    assert facts["lessons"] == manifest["lessons"]
    assert len(facts["lessons"]) == 9
    assert [(one["name"], one["frames"]) for one in facts["classes"]] == [
        ("phone", 48),
        ("plug", 48),
        ("scissors", 48),
    ]
    assert (
        facts["strategy"]["name"],
        facts["backbone"]["size"],
        facts["format"],
        facts["undo"],
    ) == ("prima", 64, 1, True)
    assert facts["bytes"] == model.stat().st_size
    header = json.loads(
        model.read_bytes()[8 : 8 + int.from_bytes(model.read_bytes()[:8], "little")]
    )
    assert facts["sha256"] == json.loads(header["__metadata__"]["primavista"])["sha256"]
    assert facts["tensor_bytes"]["undo"] == sum(
        end - begin
        for name, entry in header.items()
        if name.startswith("undo/")
        for begin, end in [entry["data_offsets"]]
    )
    learner = pv.Learner.load(model)
    assert facts["engine"] == learner.engine
    assert [one["text"] for one in facts["advice"]] == [one.text for one in learner.advice()]
    assert sum(one["lessons"] for one in facts["advice"] if len(one["labels"]) == 1) <= 6
    text = " ".join(done("inspect", model).split())
    for part in (
        "scissors │ 48",
        "strategy prima",
        "lessons 9",
        "64 x 64 pixels",
        "the last change can be taken back",
    ):
        assert part in text


def test_inspect_of_what_is_no_learner(tmp_path: Path, videos: Path) -> None:
    assert isinstance(call("inspect", tmp_path / "gone.pv").exception, pv.FileError)
    assert isinstance(call("inspect", videos / "strange.mp4").exception, pv.FileError)


def test_no_torch_to_inspect_or_to_help(model: Path) -> None:
    code = "import sys; from primavista.__main__ import main; sys.argv = sys.argv[1:]\n"
    code += "try: main()\nfinally: assert 'torch' not in sys.modules"
    for arguments in (["inspect", str(model)], ["learn", "--help"], ["predict", "--help"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, "primavista", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
