"""What people give to a learner by mistake, and what they may give: paths, BGR, copies."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from primavista import InputError, Learner, LessonReport, open_frames
from primavista.errors import FileError
from primavista.learner.prediction import Prediction

SIZE = 32


@pytest.fixture(scope="module")
def taught():
    """Knows a red and a blue object, which differ in the order of the colours alone."""
    learner = Learner("ncm", weights="random", size=SIZE, width=0.25, threshold=0)
    learner.learn(plain(200, 20, 20), "red")
    learner.learn(plain(20, 20, 200), "blue")
    return learner


@pytest.fixture
def learner(taught):
    """A copy of it, which a test may change."""
    return taught.copy()


def plain(red, green, blue, count=4, side=40):
    """Frames of one colour with a little noise."""
    noise = np.random.default_rng(red + blue).integers(0, 20, (count, side, side, 3))
    return (noise + np.array([red, green, blue])).astype(np.uint8)


def refusal(call, *arguments, **named):
    """The message of a call that is refused."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    return str(caught.value)


@pytest.mark.parametrize("method", ["learn", "predict"])
@pytest.mark.parametrize(
    ("frames", "right"),
    [
        ((frame for frame in plain(1, 2, 3)), "list(frames)"),
        (None, "got None"),
        (np.zeros((3, 40, 40), np.uint8), "frame.transpose(1, 2, 0)"),
        (np.zeros((4, 3, 40, 40), np.uint8), "frames.transpose(0, 2, 3, 1)"),
        (torch.zeros(3, 40, 40, dtype=torch.uint8), "frame.permute(1, 2, 0)"),
        (torch.zeros(4, 3, 40, 40, dtype=torch.uint8), "frames.permute(0, 2, 3, 1)"),
        (np.full((4, 40, 40, 3), 200, np.int64), '.astype("uint8")'),
        (np.full((40, 40, 3), 200.0), '.round().astype("uint8")'),
        (np.full((40, 40, 3), 0.5), '(frame * 255).round().astype("uint8")'),
        (np.ones((40, 40), bool), 'frame.astype("uint8") * 255'),
        (torch.full((4, 40, 40, 3), 0.5), "(frames * 255).round().to(torch.uint8)"),
        ({"frames": 1}, "got dict"),
        (b"JPEG", "got bytes"),
    ],
)
def test_advice_for_what_are_no_frames_is_a_call_that_works(learner, method, frames, right):
    arguments = ["mug"] if method == "learn" else []
    message = refusal(getattr(learner, method), frames, *arguments)
    assert right in message
    assert "strategy.learn" not in message
    assert learner.labels == ["red", "blue"]


def test_whole_numbers_are_not_multiplied(learner):
    message = refusal(learner.predict, np.full((40, 40, 3), 200, np.int64))
    assert "* 255" not in message


def test_a_list_of_paths_is_one_lesson_and_one_answer_each(learner, tmp_path):
    """F11: `open_frames` takes lists, so a learner does."""
    paths = [tmp_path / "1.png", str(tmp_path / "2.png"), tmp_path / "3.png"]
    for path, colour in zip(paths, [(20, 200, 20), (30, 190, 20), (200, 20, 20)], strict=True):
        Image.fromarray(plain(*colour)[0]).save(path)
    report = learner.learn(paths[:2], "green")
    assert report.frames == {"green": 2}
    answers = learner.predict(paths)
    assert [one.label for one in answers] == ["green", "green", "red"]
    assert [one.scores for one in answers] == [learner.predict(path).scores for path in paths]
    assert learner.predict_video(paths[:2]).label == "green"
    with pytest.raises(FileError, match=r"4\.png"):
        learner.learn([*paths, tmp_path / "4.png"], "green")
    assert "RGB" in refusal(learner.predict, paths, bgr=True)
    assert "[image," in refusal(learner.learn, [plain(1, 2, 3)[0], "1.png"], "green")


def test_the_text_of_a_prediction_has_three_digits():
    """F11."""
    told = Prediction("mug", 0.123456789, "likely", {}, 0.987654321)
    assert repr(told) == (
        "Prediction(label='mug', confidence=0.123, answer='likely', familiarity=0.988)"
    )


@pytest.mark.parametrize("name", ["mug", "mug.mp4"])
def test_frames_and_name_in_the_wrong_order(learner, name):
    message = refusal(learner.learn, name, plain(1, 2, 3))
    assert f'learner.learn(frames, "{name}")' in message
    assert "open_frames" not in message


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("thresold", "threshold"), ("treshold", "threshold"), ("devise", "device")],
)
def test_a_misspelt_argument_is_recognised(typed, meant):
    message = refusal(Learner, "prima", weights="random", **{typed: 0.5})
    assert f"did you mean {meant}?" in message


@pytest.mark.parametrize("device", ["mps", "xpu", "cuda:63"])
def test_a_device_that_is_not_here(device):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has it")
    assert "choose" in refusal(Learner, "ncm", weights="random", device=device)


def test_a_copy_of_a_learner_goes_its_own_way(learner):
    for made in (
        copy.copy(learner),
        copy.deepcopy(learner),
        copy.deepcopy({"one": learner})["one"],
    ):
        made.forget("red")
        assert made.labels == ["blue"]
        assert learner.labels == ["red", "blue"]


def test_a_learner_is_not_pickled(learner):
    message = refusal(pickle.dumps, learner)
    assert "to_bytes" in message
    assert "from_bytes" in message


def test_the_report_of_a_lesson_speaks_of_names(learner):
    report = learner.learn(plain(90, 90, 90, count=3), ["grey", "red", "grey"])
    assert isinstance(report, LessonReport)
    assert report.frames == {"grey": 2, "red": 1}
    assert report.new == ("grey",)
    assert report.id == learner.lessons[-1]
    assert repr(report) == "LessonReport(frames={'grey': 2, 'red': 1}, new=('grey',))"


def test_the_report_of_a_lesson_has_its_losses():
    learner = Learner("cwr*", weights="random", size=SIZE, width=0.25)
    report = learner.learn(plain(200, 20, 20), "red")
    assert len(report.losses) == learner.options["epochs"]
    assert "losses=" in repr(report)


# ------------------------------------------------------------------------------ paths


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "thing.png"
    Image.fromarray(plain(200, 20, 20)[0]).save(path)
    return path


def test_a_file_gets_one_answer(learner, picture):
    one = learner.predict(str(picture))
    assert one.label == "red"
    assert learner.predict(picture) == one
    frames = open_frames(picture, size=SIZE)
    assert learner.predict(frames) == [one]
    assert learner.predict_video(picture) == one


def test_a_folder_of_frames_gets_the_answer_of_the_clip(learner, tmp_path):
    for number, image in enumerate(plain(20, 20, 200)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    frames = open_frames(tmp_path, size=SIZE)
    assert learner.predict(tmp_path) == learner.predict_video(frames)


def test_a_video_gets_one_answer(learner, tmp_path):
    av = pytest.importorskip("av")
    path = tmp_path / "thing.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10, width=48, height=48, pix_fmt="yuv420p")
        for image in plain(20, 20, 200, count=8, side=48):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        container.mux(stream.encode(None))
    assert learner.predict(path).label == "blue"
    report = learner.learn(path, "sky")
    assert report.frames == {"sky": 8}


def test_a_file_that_is_missing_is_named(learner):
    with pytest.raises(FileError, match=r"no_such\.mp4"):
        learner.predict("no_such.mp4")
    with pytest.raises(FileError, match=r"no_such\.mp4"):
        learner.learn(Path("no_such.mp4"), "mug")
    assert learner.labels == ["red", "blue"]


# ------------------------------------------------------------------------------ BGR


def bgr(frames):
    """The same pictures with the colours in the order of OpenCV."""
    return np.ascontiguousarray(frames[..., ::-1])


def test_bgr_frames_are_those_in_the_other_order(learner):
    frames = plain(200, 20, 20)
    assert learner.predict(bgr(frames), bgr=True) == learner.predict(frames)
    assert learner.predict(bgr(frames[0]), bgr=True) == learner.predict(frames[0])
    assert learner.predict(bgr(frames))[0].label == "blue"
    clip = learner.predict_video(list(bgr(frames)), bgr=True)
    assert clip == learner.predict_video(frames)
    assert learner.watch(bgr=True).predict(bgr(frames[0])) == learner.predict(frames[0])
    assert learner.predict(torch.from_numpy(bgr(frames)), bgr=True) == learner.predict(frames)


def test_bgr_lessons_are_those_in_the_other_order(learner):
    frames = plain(20, 200, 120)
    other = learner.copy()
    learner.learn(frames, "green")
    other.learn(bgr(frames), "green", bgr=True)
    assert other.to_bytes() == learner.to_bytes()
    alpha = np.concatenate([bgr(frames), np.full((4, 40, 40, 1), 9, np.uint8)], -1)
    assert other.predict(alpha, bgr=True) == learner.predict(frames)


def test_bgr_frames_of_an_open_lesson(learner):
    frames = plain(20, 200, 120)
    lesson, swapped = learner.open_lesson(), learner.open_lesson()
    for frame in frames:
        lesson.add(frame)
        swapped.add(bgr(frame), bgr=True)
    every = torch.arange(len(frames))
    assert (lesson[every] == swapped[every]).all()


def test_bgr_is_refused_where_the_order_is_known(learner, picture):
    right = "leave out bgr"
    image = Image.fromarray(plain(1, 2, 3)[0])
    assert right in refusal(learner.predict, image, bgr=True)
    assert right in refusal(learner.predict, [image], bgr=True)
    assert right in refusal(learner.predict, picture, bgr=True)
    assert right in refusal(learner.predict, open_frames(picture), bgr=True)
    assert right in refusal(learner.learn, learner.open_lesson(), "mug", bgr=True)


# ------------------------------------------------------------------------------ names


@pytest.mark.parametrize("name", ["unknown", "Unknown", " UNKNOWN "])
def test_the_word_unknown_is_not_a_name(learner, name):
    message = refusal(learner.learn, plain(1, 2, 3), name)
    assert "strangers" in message
    assert "strangers" in refusal(learner.rename, "red", name)
    assert learner.labels == ["red", "blue"]
