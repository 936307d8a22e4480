"""Evaluation: the figures, counted by hand from a learner whose answers are known."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from primavista import DataSet, Evaluation, FileError, InputError, Learner, Session, open_frames
from primavista.learner.evaluation import FrameCounts, VideoOutcome
from primavista.learner.prediction import Prediction

SIZE = 32
COLOURS = {"red": (200, 20, 20), "blue": (20, 20, 200)}


@pytest.fixture(scope="module")
def learner():
    learner = Learner("ncm", weights="random", size=SIZE, width=0.25, threshold=0)
    for name, colour in COLOURS.items():
        learner.learn(plain(colour), name)
    return learner


def plain(colour, count=4):
    noise = np.random.default_rng(0).integers(0, 20, (count, 40, 40, 3))
    return (noise + np.array(colour)).astype(np.uint8)


def write(folder, frames):
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{number}.png")


@pytest.fixture
def data(tmp_path):
    """Red right; blue with one video of blue, one that shows red, one damaged; a stranger."""
    write(tmp_path / "red/kitchen", plain(COLOURS["red"]))
    write(tmp_path / "blue/kitchen", plain(COLOURS["blue"]))
    write(tmp_path / "blue/mixed", [*plain(COLOURS["red"], 3), *plain(COLOURS["blue"], 1)])
    (tmp_path / "blue/broken").mkdir()
    (tmp_path / "blue/broken/0.png").write_bytes(b"no picture")
    write(tmp_path / "reddish/street", plain((190, 30, 30), 2))
    return tmp_path


def test_the_figures_of_a_folder(learner, data):
    told = []
    result = learner.evaluate(data, progress=lambda done, total: told.append((done, total)))
    assert told == [(number, 5) for number in range(1, 6)]
    # taught: red 4 of 4; blue 4 of 4, then 1 of 4
    assert result.frame_accuracy == result.likeliest_accuracy == 9 / 12
    assert result.video_accuracy == 2 / 3
    assert result.unknown_share == 0
    assert result.strangers == ("reddish",)
    assert (result.strangers_unknown, result.strangers_unknown_videos) == (0, 0)
    (failed,) = result.failed
    assert (failed.name, failed.truth) == ("blue/broken", "blue")
    assert "0.png" in failed.problem
    rows, columns, counts = result.confusion()
    assert rows == ["red", "blue", "reddish"]
    assert columns == ["red", "blue", "unknown"]
    assert counts == [[4, 0, 0], [3, 5, 0], [2, 0, 0]]
    blue = result.objects()[1]
    assert (blue.videos, blue.videos_right) == (2, 1)
    assert (blue.frames.total, blue.frames.known, blue.frames.known_right) == (8, 8, 5)
    assert repr(result) == (
        "Evaluation(3 videos of 2 objects, video_accuracy=66.7 %, frame_accuracy=75.0 %, "
        "strangers_unknown=0.0 %, 1 could not be read)"
    )


def test_what_is_not_known_is_unknown(learner, data):
    strict = learner.copy()
    paths = ("red/kitchen", "blue/kitchen", "blue/mixed", "reddish/street")
    seen = {path: learner.predict(open_frames(data / path, size=SIZE)) for path in paths}
    strict.threshold = max(
        one.familiarity for path in paths for one in seen[path] if one.familiarity < 1
    )
    known = {path: [one.familiarity >= strict.threshold for one in seen[path]] for path in paths}
    right = sum(known["red/kitchen"] + known["blue/kitchen"] + known["blue/mixed"][3:])
    taught = known["red/kitchen"] + known["blue/kitchen"] + known["blue/mixed"]
    assert 0 < sum(taught) < 12
    result = strict.evaluate(data)
    assert result.frame_accuracy == right / 12
    assert result.likeliest_accuracy == 9 / 12
    assert result.unknown_share == (12 - sum(taught)) / 12
    assert result.strangers_unknown == (2 - sum(known["reddish/street"])) / 2
    assert [row[-1] for row in result.confusion()[2]] == [
        4 - sum(known["red/kitchen"]),
        8 - sum(known["blue/kitchen"] + known["blue/mixed"]),
        2 - sum(known["reddish/street"]),
    ]


def test_the_test_sessions_of_a_data_set(learner):
    frames = torch.from_numpy(np.concatenate([plain(colour) for colour in COLOURS.values()]))
    red, blue = Session(0, 1, 0, 4), Session(1, 1, 4, 8)
    data = DataSet("two", frames, (red,), (blue,), ("red", "blue"), (0, 1))
    result = learner.evaluate(data)
    assert [(video.name, video.answer.said, video.frames.total) for video in result.videos] == [
        ("blue/1", "blue", 4)
    ]
    assert learner.evaluate(data, max_frames=2).videos[0].frames.total == 2
    empty = DataSet("none", frames, (red,), (), ("red",), (0,))
    with pytest.raises(InputError, match="no test sessions"):
        learner.evaluate(empty)


def test_a_folder_that_cannot_be_evaluated(learner, tmp_path):
    with pytest.raises(InputError, match="named after objects"):
        learner.evaluate(tmp_path)
    with pytest.raises(FileError, match="no_such"):
        learner.evaluate(tmp_path / "no_such")
    with pytest.raises(InputError, match="max_frames"):
        learner.evaluate(tmp_path, max_frames=0)


def outcome(name, truth, taught, answer, known=None, likely=None, unknown=None):
    """A video whose frames have so many of each likeliest name in each answer."""
    label, said = answer
    answers = {"known": known or {}, "likely": likely or {}, "unknown": unknown or {}}
    return VideoOutcome(name, truth, taught, answers, Prediction(label, 0.8, said))


def test_each_of_the_three_answers_has_its_right_ones():
    result = Evaluation(
        ("cup", "mug"),
        (
            outcome("a", "cup", True, ("cup", "known"), {"cup": 3, "mug": 1}, {"cup": 2}),
            outcome("b", "cup", True, ("cup", "likely"), {}, {"cup": 3, "mug": 2}, {"cup": 4}),
            outcome("c", "mug", True, ("mug", "unknown"), {"mug": 1}, {}, {"mug": 3, "cup": 1}),
            outcome("d", "mug", True, ("cup", "likely"), {}, {"cup": 4}),
            outcome("e", "pen", False, ("cup", "unknown"), {"cup": 1}, {"cup": 2}, {"mug": 7}),
            outcome("f", "pen", False, ("cup", "likely"), {}, {"cup": 5}, {"cup": 5}),
            outcome("g", "pen", False, ("cup", "known"), {"cup": 5}),
        ),
    )
    cup, mug, pen = result.objects()
    assert (cup.videos, cup.videos_right) == (2, 2)
    assert cup.frames == FrameCounts(4, 3, 7, 5, 4, 4)
    assert (mug.videos, mug.videos_right) == (2, 0)
    assert mug.frames == FrameCounts(1, 1, 4, 0, 4, 3)
    assert (pen.videos, pen.videos_right) == (3, 1)
    assert pen.frames == FrameCounts(6, 0, 7, 0, 12, 12)
    # 24 frames of taught objects in 4 videos, 25 of strangers in 3
    assert result.frame_accuracy == 9 / 24
    assert result.known_accuracy == 4 / 24
    assert result.likeliest_accuracy == 16 / 24
    assert result.wrong_known_share == 1 / 24
    assert result.unknown_share == 8 / 24
    assert result.video_accuracy == 2 / 4
    assert (result.strangers_known, result.strangers_unknown) == (6 / 25, 12 / 25)
    assert (result.strangers_known_videos, result.strangers_unknown_videos) == (1 / 3, 1 / 3)
    assert [video.answer.said for video in result.videos[:4]] == ["cup", "cup?", "unknown", "cup?"]
    rows, columns, counts = result.confusion()
    assert (rows, columns) == (["cup", "mug", "pen"], ["cup", "mug", "unknown"])
    assert counts == [[8, 3, 4], [4, 1, 4], [13, 0, 12]]
    told = json.loads(json.dumps(result.to_json()))
    assert told["videos"][1]["answer"] == "likely"
    assert told["videos"][1]["label"] == "cup"
    assert told["videos"][1]["answers"]["likely"] == {"cup": 3, "mug": 2}
    assert told["objects"][0]["frames"]["likely_right"] == 5


def test_without_strangers_there_is_no_share_of_them():
    assert Evaluation(("red",), ()).strangers_unknown is None
    assert Evaluation(("red",), ()).frame_accuracy is None
