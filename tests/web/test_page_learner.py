"""The page's learner against Python's: the same frames, files and answers, in Node.js."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from web_support import call_page, node, opened

from primavista import Learner
from primavista.backbones.reference import generic_frames
from primavista.media.images import centre_square
from primavista.storage import learner_file as files

pytestmark = pytest.mark.slow
SIZE = 192
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "core50_frames.tar"


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    """48 frames of different objects; those of one clip are shifted by a few pixels each."""
    return generic_frames(SIZE)


def clip(frames: np.ndarray, k: int, shift: int, count: int = 6) -> np.ndarray:
    """Return a clip of frame k: it moves sideways and gets brighter."""
    moved = [np.roll(frames[k], 2 * i + shift, axis=1) for i in range(count)]
    light = [np.clip(one * (0.8 + 0.05 * i + shift / 40), 0, 255) for i, one in enumerate(moved)]
    return np.stack(light).astype(np.uint8)


LESSONS = [("mug", 0, 0), ("kettle", 5, 0), ("ball", 9, 0), ("mug", 0, 7), ("kettle", 5, 9)]
SHOWN = [(0, 4), (5, 3), (9, 6), (20, 0), (33, 2)]


@pytest.fixture(scope="module")
def both(frames, tmp_path_factory) -> dict[str, Any]:
    """The same lessons and frames, in Python and in the page."""
    folder = tmp_path_factory.mktemp("both")
    clips = [clip(frames, k, shift) for _, k, shift in LESSONS]
    shown = [clip(frames, k, shift, 4) for k, shift in SHOWN]
    images = np.concatenate([*clips, *shown])
    learner = Learner("prima", engine="onnx", device="cpu")
    calls: list[dict[str, Any]] = [opened()]
    at = 0
    for (label, _, _), one in zip(LESSONS, clips, strict=True):
        learner.learn(one, label)
        calls.append({"call": "teach", "args": [label, {"frames": list(range(at, at + len(one)))}]})
        at += len(one)
    watch = learner.watch()
    answers, at_seconds = [], 0.0
    first = at
    for one in shown:
        for image in one:
            at_seconds += 0.1
            answers.append((learner.predict(image), watch.predict(image, at=at_seconds)))
            calls.append({"call": "recognise", "args": [{"frame": at}]})
            at += 1
    whole = [{"frames": list(range(first + 4 * k, first + 4 * k + 4))} for k in range(len(shown))]
    calls += [{"call": "predict", "args": [one]} for one in whole]
    calls += [{"call": "model"}, {"call": "file", "save": str(folder / "page.pv")}]
    results = call_page(calls, folder, images)
    learner.save(folder / "python.pv")
    return {
        "learner": learner,
        "answers": answers,
        "clips": [learner.predict_video(one) for one in shown],
        "results": results,
        "folder": folder,
        "images": images,
        "lessons": clips,
    }


def same_answer(found: dict[str, Any], expected: Any) -> None:
    assert found["label"] == expected.label
    assert found["answer"] == expected.answer
    assert found["confidence"] == pytest.approx(expected.confidence, abs=1e-3)
    assert found["familiarity"] == pytest.approx(expected.familiarity, abs=1e-3)
    assert {one["label"]: one["share"] for one in found["scores"]} == pytest.approx(
        expected.scores, abs=1e-3
    )


def test_frames_and_clips_get_the_answers_of_python(both):
    results = both["results"][1 + len(LESSONS) :]
    for found, (alone, recent) in zip(results, both["answers"], strict=False):
        same_answer(found, alone)
        same_answer(found["recent"], recent)
    count = len(both["answers"])
    for found, expected in zip(results[count : count + len(SHOWN)], both["clips"], strict=True):
        same_answer(found, expected)
    assert {one.answer for one, _ in both["answers"]} >= {"known", "unknown"}  # it is a real test


def test_lessons_say_what_python_says(both):
    learner, model = both["learner"], both["results"][-2]
    assert model["objects"] == [{"label": n, "frames": k} for n, k in learner.counts.items()]
    expected = [
        {**vars(one), "labels": list(one.labels), "taken_for": one.taken_for}
        for one in learner.advice()
    ]
    assert model["advice"] == expected
    assert model["can_undo"]
    assert model["version"] == len(LESSONS)


def test_the_state_is_that_of_python(both):
    """Statistics within 1e-5, equal manifests, equal weights of the network to the bit."""
    found, manifest = files.read(both["folder"] / "page.pv")
    expected, own = files.read(both["folder"] / "python.pv")
    assert manifest == own
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        if name.startswith("backbone.") or (array.dtype == np.int64 and "key" not in name):
            np.testing.assert_array_equal(found[name], array, err_msg=name)
    ours = Learner.load(both["folder"] / "page.pv").strategy.head
    theirs = both["learner"].strategy.head
    for name in ("n", "s", "gram"):
        array = theirs.statistics.arrays[name]
        scale = 1e-5 * float(np.abs(array).max())
        np.testing.assert_allclose(
            ours.statistics.arrays[name], array, rtol=1e-5, atol=scale, err_msg=name
        )


def test_a_file_goes_to_python_and_back(both, frames, tmp_path):
    """Equal bytes: what Python loads and saves is what the page wrote, and the reverse."""
    path = both["folder"] / "page.pv"
    in_python = Learner.load(path)
    assert in_python.to_bytes() == path.read_bytes()
    in_python.learn(clip(frames, 9, 8), "ball")
    in_python.save(tmp_path / "further.pv")
    results = call_page(
        [
            opened(file={"bytes": str(tmp_path / "further.pv")}),
            {"call": "file", "save": str(tmp_path / "again.pv")},
            {"call": "change", "args": ["undo", {}]},
            {"call": "file", "save": str(tmp_path / "undone.pv")},
        ],
        tmp_path,
    )
    assert results[0]["objects"][2] == {"label": "ball", "frames": 12}
    assert (tmp_path / "again.pv").read_bytes() == (tmp_path / "further.pv").read_bytes()
    assert results[2]["objects"][2] == {"label": "ball", "frames": 6}
    in_python.undo()
    close(Learner.load(tmp_path / "undone.pv"), in_python, both["images"][::5])


def test_changes_are_those_of_python(both, tmp_path):
    """Rename, forget, undo, merge, threshold and removing a lesson, and what is refused."""
    images = np.concatenate(both["lessons"])
    second = Learner("prima", engine="onnx", device="cpu")
    second.learn(both["lessons"][1], "teapot")
    second.learn(both["lessons"][2], "cup")
    second.save(tmp_path / "second.pv")
    merging = {"file": {"bytes": str(tmp_path / "second.pv")}, "name": "second.pv"}

    def lesson(k: int, label: str) -> dict[str, Any]:
        return {"call": "teach", "args": [label, {"frames": list(range(6 * k, 6 * k + 6))}]}

    def change(kind: str, **fields: Any) -> dict[str, Any]:
        return {"call": "change", "args": [kind, fields]}

    results = call_page(
        [
            opened(),
            lesson(0, "mug"),
            lesson(0, "mug"),
            lesson(3, "cup"),
            change("rename", label="mug", to="unknown"),
            change("rename", label="mug", to="cup"),
            change("rename", label=" mug", to=" beaker "),
            change("merge", **merging),
            change("merge", **merging),
            change("forget", label="cup"),
            {"call": "file", "save": str(tmp_path / "forgotten.pv")},
            change("undo"),
            change("undo"),
            change("threshold", threshold=0.75),
            change("threshold", threshold=2),
            change("forget", label="nobody"),
            {"call": "lesson", "args": ["\u200b"]},
            {"call": "check", "args": ["teapot", {"frames": [6, 7, 8]}]},
            {"call": "file", "save": str(tmp_path / "merged.pv")},
        ],
        tmp_path,
        images,
    )
    first = Learner("prima", engine="onnx", device="cpu")
    first.learn(both["lessons"][0], "mug")
    first.learn(both["lessons"][3], "cup")
    first.rename("mug", "beaker")
    first.merge(second)
    names = [[one["label"] for one in (r or {}).get("objects", [])] for r in results[4:16]]
    assert results[1]["already_taught"] is False
    assert results[2]["already_taught"] is True
    assert names[2] == ["beaker", "cup"]
    assert names[3] == ["beaker", "cup", "teapot"] == first.labels
    assert names[5] == ["beaker", "teapot"]
    assert names[7] == ["beaker", "cup", "teapot"]
    refused = [one for one in results if one and "refused" in one]
    words = ["strangers", "already", "twice", "only the last", "threshold", "nobody", "characters"]
    assert [word in one["refused"] for word, one in zip(words, refused, strict=True)] == [True] * 7
    assert [one["status"] for one in refused] == [422, 409, 409, 409, 422, 409, 422]
    merged = Learner.load(tmp_path / "merged.pv")
    assert merged.threshold == 0.75
    close(merged, first, images[::5])
    first.forget("cup")
    close(Learner.load(tmp_path / "forgotten.pv"), first, images[::5])


def close(one: Learner, two: Learner, images: np.ndarray) -> None:
    """Two learners know the same and score alike."""
    assert one.counts == two.counts
    assert one.lessons == two.lessons
    assert one.advice() == two.advice()
    judged = [learner.strategy.judge(images) for learner in (one, two)]
    np.testing.assert_allclose(judged[0].scores, judged[1].scores, atol=1e-3)
    np.testing.assert_allclose(judged[0].familiarity, judged[1].familiarity, atol=1e-3)


def test_one_lesson_is_taken_out_of_the_middle(both, tmp_path):
    images = np.concatenate(both["lessons"])
    calls = [opened()]
    for k, (label, _, _) in enumerate(LESSONS):
        wanted = {"frames": list(range(6 * k, 6 * k + 6))}
        calls.append({"call": "teach", "args": [label, wanted]})
    calls += [{"call": "model"}, {"call": "change", "args": ["remove", {"lesson": {"of": 4}}]}]
    calls += [{"call": "file", "save": str(tmp_path / "removed.pv")}]
    calls += [{"call": "change", "args": ["undo", {}]}]
    *_, model, removed, _, undone = call_page(calls, tmp_path, images)
    assert [one["label"] for one in model["lessons"]] == [label for label, _, _ in LESSONS]
    left = [{"label": "mug", "frames": 6}, *model["objects"][1:]]
    assert removed["objects"] == left
    assert undone["objects"] == model["objects"]
    learner = Learner("prima", engine="onnx", device="cpu")
    for k in (0, 1, 2, 4):
        learner.learn(both["lessons"][k], LESSONS[k][0])
    close(Learner.load(tmp_path / "removed.pv"), learner, images[::5])


def test_ncm_likewise(both, tmp_path):
    learner = Learner("ncm", engine="onnx", device="cpu")
    learner.save(tmp_path / "ncm.pv")
    calls = [opened(file={"bytes": str(tmp_path / "ncm.pv")})]
    images = both["images"]
    for k, (label, _, _) in enumerate(LESSONS[:4]):
        learner.learn(both["lessons"][k], label)
        wanted = {"frames": list(range(6 * k, 6 * k + 6))}
        calls.append({"call": "teach", "args": [label, wanted]})
    calls += [{"call": "recognise", "args": [{"frame": k}]} for k in range(30, 40)]
    calls.append({"call": "file", "save": str(tmp_path / "page.pv")})
    results = call_page(calls, tmp_path, images)
    for k in range(30, 40):
        same_answer(results[5 + k - 30], learner.predict(images[k]))
    saved = Learner.load(tmp_path / "page.pv")
    assert saved.to_bytes() == (tmp_path / "page.pv").read_bytes()
    close(saved, learner, images[30:])


@pytest.mark.parametrize(("width", "height"), [(192, 192), (480, 360), (333, 500), (100, 130)])
def test_pictures_are_resized_to_the_last_bit(width, height, tmp_path):
    draw = np.random.default_rng(width)
    small = draw.integers(0, 256, (height // 9 + 1, width // 9 + 1, 3), np.uint8)
    picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    rgba = np.dstack([np.asarray(picture), np.full((height, width), 255, np.uint8)])
    given = {"width": width, "height": height, "data": rgba.ravel().tolist(), "size": SIZE}
    found = np.array(node("cases.mjs", "square", given=given), np.uint8)
    expected = centre_square(np.asarray(picture), SIZE)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def core50_clips() -> dict[str, list[np.ndarray]]:
    clips: dict[str, list[np.ndarray]] = {}
    with tarfile.open(SHARED) as archive:
        for member in archive:
            if member.name.endswith(".jpg") and "mosaic" not in member.name:
                file = archive.extractfile(member)
                assert file is not None
                image = centre_square(Image.open(BytesIO(file.read())), SIZE)
                clips.setdefault(str(Path(member.name).parent), []).append(image)
    return clips


@pytest.mark.skipif(not SHARED.exists(), reason="needs the genuine CORe50 frames of the project")
def test_genuine_frames_get_the_answers_of_python(tmp_path):
    clips = core50_clips()
    objects = sorted({name.split("/")[0] for name in clips})
    sessions = {o: sorted(n for n in clips if n.startswith(f"{o}/"))[:3] for o in objects}
    taught = [(o, sessions[o][k]) for k in range(2) for o in objects[:6]]
    shown = [sessions[o][-1] for o in objects]
    images = np.stack([image for _, name in taught for image in clips[name]])
    tests = np.stack([clips[name][0] for name in shown])
    learner = Learner("prima", engine="onnx", device="cpu")
    calls, at = [opened()], 0
    for label, name in taught:
        learner.learn(np.stack(clips[name]), label)
        wanted = {"frames": list(range(at, at + len(clips[name])))}
        calls.append({"call": "teach", "args": [label, wanted]})
        at += len(clips[name])
    calls += [{"call": "recognise", "args": [{"frame": at + k}]} for k in range(len(tests))]
    results = call_page(calls, tmp_path, np.concatenate([images, tests]))[1 + len(taught) :]
    for found, image in zip(results, tests, strict=True):
        same_answer(found, learner.predict(image))
