"""Teach, recognise, change, save and load over HTTP, and what is refused."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from serve_support import COLOURS, SMALL, Gate, frames, picture, tiny
from starlette.testclient import TestClient
from torch import nn

from primavista import Learner
from primavista.learner.history import History
from primavista.serve.asgi import create_app
from primavista.serve.learner_service import LearnerService


def teach(client, label: str, files, wait: int = 30):
    return client.post(f"/api/lessons?wait={wait}", data={"label": label}, files=files)


def known(client) -> dict[str, int]:
    return {one["label"]: one["frames"] for one in client.get("/api/model").json()["objects"]}


def test_what_is_taught_is_recognised_and_on_disk(taught, service):
    assert known(taught) == {"mug": 6, "kettle": 6, "cup": 6}
    for name in COLOURS:
        said = taught.post("/api/predict", files={"frame": picture(name, 99)}).json()
        assert said["label"] == name
        assert [score["label"] for score in said["scores"]] == list(COLOURS)
        assert sum(score["share"] for score in said["scores"]) == pytest.approx(1, abs=1e-5)
        assert said["version"] == 3
    assert Learner.load(service.path, device="cpu").counts == known(taught)


def test_the_service_says_what_the_learner_says(taught, service):
    """One frame over HTTP, and the same one through the file that the service keeps."""
    image = np.array(Image.open(io.BytesIO(picture("cup", 7, side=60))))
    expected = Learner.load(service.path, device="cpu").predict(image)
    said = taught.post("/api/predict", files={"frame": picture("cup", 7, side=60)}).json()
    assert {s["label"]: s["share"] for s in said["scores"]} == pytest.approx(
        expected.scores, abs=1e-5
    )
    assert (said["label"], said["known"]) == (expected.label, expected.known)


def test_a_lesson_over_http_is_the_lesson_of_the_library(client, service):
    """The same frames given to a learner directly lead to the same scores."""
    teach(client, "mug", frames("mug"))
    teach(client, "cup", frames("cup"))
    alone = tiny()
    for name in ("mug", "cup"):
        alone.learn([np.array(Image.open(io.BytesIO(picture(name, k)))) for k in range(6)], name)
    image = np.array(Image.open(io.BytesIO(picture("mug", 50))))
    served = service.learner.predict(image).scores
    assert served == pytest.approx(alone.predict(image).scores, abs=1e-4)


def test_what_was_taught_as_nothing_is_not_known(client):
    teach(client, "mug", frames("mug"))
    teach(client, "nothing", frames("cup"))
    said = client.post("/api/predict", files={"frame": picture("cup", 99)}).json()
    assert (said["label"], said["known"]) == ("nothing", False)
    assert client.post("/api/predict", files={"frame": picture("mug", 99)}).json()["known"]


def test_the_same_lesson_twice_is_left_out_unless_it_is_asked_for_again(taught, service):
    before = service.path.read_bytes()
    said = teach(taught, "mug", frames("mug")).json()
    assert (said["state"], said["already_taught"], said["version"], said["error"]) == (
        "done",
        True,
        3,
        None,
    )
    assert teach(taught, "beaker", frames("mug")).json()["already_taught"]  # by another name too
    assert service.path.read_bytes() == before
    again = taught.post(
        "/api/lessons?wait=30&again=true", data={"label": "mug"}, files=frames("mug")
    ).json()
    assert (again["state"], again["already_taught"], again["version"]) == ("done", False, 4)
    assert known(taught)["mug"] == 12
    taught.post("/api/undo")


def test_a_lesson_that_was_taken_back_is_no_longer_known(client):
    teach(client, "mug", frames("mug"))
    client.post("/api/undo")
    assert not teach(client, "mug", frames("mug")).json()["already_taught"]
    assert known(client) == {"mug": 6}


def test_the_model_says_what_to_teach_next(taught, service):
    told = taught.get("/api/model").json()["advice"]
    assert [(one["labels"], one["kind"]) for one in told] == [
        ([name], "once more") for name in COLOURS
    ]
    kettles = [("frames", (f"{k}.png", picture("kettle", 50 + k), "image/png")) for k in range(5)]
    teach(taught, "cup", kettles)
    pair = taught.get("/api/model").json()["advice"][0]
    assert pair == {
        "labels": ["kettle", "cup"],
        "kind": "confused",
        "text": "kettle and cup are confused: show both once more",
        "lessons": 1,
        "frames": 5,
        "right": 0,
        "known": service.learner.advice()[0].known,
        "taken_for": {"kettle": 5},
    }
    undone = taught.post("/api/undo").json()["advice"]
    assert [one["kind"] for one in undone] == ["once more"] * 3


def test_rename_forget_and_undo(taught):
    rename = taught.post("/api/rename", json={"label": "mug", "to": " beaker "})
    assert [one["label"] for one in rename.json()["objects"]] == ["beaker", "kettle", "cup"]
    forget = taught.post("/api/forget", json={"label": "kettle"})
    assert [one["label"] for one in forget.json()["objects"]] == ["beaker", "cup"]
    undo = taught.post("/api/undo")
    assert [one["label"] for one in undo.json()["objects"]] == ["beaker", "kettle", "cup"]
    assert not undo.json()["can_undo"]
    again = taught.post("/api/undo")
    assert again.status_code == 409
    assert "nothing to undo" in again.json()["detail"]


def test_the_threshold_is_kept_in_the_file_and_is_no_change_to_undo(taught, service):
    assert taught.get("/api/model").json()["threshold"] == service.learner.threshold
    taught.post("/api/forget", json={"label": "kettle"})
    told = taught.post("/api/threshold", json={"threshold": 0.25}).json()
    assert told["threshold"] == 0.25
    assert told["can_undo"]
    assert Learner.load(service.path).threshold == 0.25
    undone = taught.post("/api/undo").json()
    assert "kettle" in [one["label"] for one in undone["objects"]]
    assert undone["threshold"] == 0.25
    for wrong in (1.5, -0.1, "high", "0.5", True, None):
        assert taught.post("/api/threshold", json={"threshold": wrong}).status_code == 422
    too_much = {"threshold": 0.5, "thresold": 0.1}
    assert taught.post("/api/threshold", json=too_much).status_code == 422
    assert service.learner.threshold == 0.25


def test_a_load_can_be_taken_back_after_the_threshold_was_set(taught, service):
    before = taught.get("/api/model").json()["objects"]
    taught.post("/api/model/file", files={"file": other("second")})
    assert taught.post("/api/threshold", json={"threshold": 0.5}).json()["can_undo"]
    assert taught.post("/api/undo").json()["objects"] == before


def test_save_and_load(taught, service):
    saved = taught.get("/api/model/file")
    assert saved.content == service.path.read_bytes()
    assert 'filename="kitchen.pv"' in saved.headers["content-disposition"]
    taught.post("/api/forget", json={"label": "cup"})
    before = service.path.read_bytes()
    assert taught.post("/api/model/file", files={"file": saved.content}).status_code == 200
    assert known(taught) == {"mug": 6, "kettle": 6, "cup": 6}
    assert (
        service.path.read_bytes()
        == Learner.from_bytes(saved.content, device="cpu").without_undo().to_bytes()
    )
    assert service.path.with_name("kitchen.pv.before-load").read_bytes() == before


def other(label: str) -> bytes:
    learner = tiny()
    for name, value in (("first", 0), (label, 255)):
        learner.learn(np.full((2, 32, 32, 3), value, np.uint8), name)
    return learner.to_bytes()


def test_no_load_loses_what_was_known_before(taught, service):
    first = service.path.read_bytes()
    for label in ("second", "third"):
        assert taught.post("/api/model/file", files={"file": other(label)}).status_code == 200
    assert service.path.with_name("kitchen.pv.before-load").read_bytes() == first
    assert Learner.load(
        service.path.with_name("kitchen.pv.before-load-2"), device="cpu"
    ).labels == [
        "first",
        "second",
    ]
    for k in range(3, SMALL.replaced_models + 1):
        service.path.with_name(f"kitchen.pv.before-load-{k}").touch()
    refused = taught.post("/api/model/file", files={"file": other("fourth")})
    assert (refused.status_code, "move kitchen.pv.before-load" in refused.json()["detail"]) == (
        409,
        True,
    )
    assert known(taught) == {"first": 2, "third": 2}


def test_undo_takes_a_load_back_and_nothing_from_before_it(taught, service):
    before = service.path.read_bytes()
    assert taught.post("/api/model/file", files={"file": other("second")}).json()["can_undo"]
    assert [one["label"] for one in taught.post("/api/undo").json()["objects"]] == list(COLOURS)
    assert service.path.read_bytes() == before
    taught.post("/api/model/file", files={"file": other("second")})
    taught.post("/api/rename", json={"label": "first", "to": "one"})
    assert [one["label"] for one in taught.post("/api/undo").json()["objects"]] == [
        "first",
        "second",
    ]
    assert taught.post("/api/undo").status_code == 409


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:1000] + b"\0" + data[1001:],
        lambda data: b"",
        lambda data: b"PK\x03\x04" * 99,
    ],
)
def test_a_damaged_model_is_refused_and_changes_nothing(taught, service, damage):
    before = service.path.read_bytes()
    refused = taught.post("/api/model/file", files={"file": damage(before)})
    assert refused.status_code == 422
    assert str(service.path.parent) not in refused.json()["detail"]
    assert taught.get("/api/model/file").content == before == service.path.read_bytes()


def test_a_model_with_names_that_cannot_be_shown_is_refused(client, service):
    strange = tiny()
    strange.learn(np.zeros((2, 32, 32, 3), np.uint8), "ab")
    strange._history = History(replace(strange._state, names={0: "a\x07b"}))
    refused = client.post("/api/model/file", files={"file": strange.to_bytes()})
    assert refused.status_code == 422
    assert known(client) == {}


def test_models_that_keep_frames_or_see_huge_images_are_refused(client):
    for options, status, reason in (
        ({"strategy": "cumulative", "size": 32}, 422, "keeps"),
        ({"strategy": "dslda", "size": 544}, 413, "544"),
    ):
        strange = Learner(weights="random", width=0.0625, device="cpu", **options)
        refused = client.post("/api/model/file", files={"file": strange.to_bytes()})
        assert (refused.status_code, reason in refused.json()["detail"]) == (status, True)


def test_an_export_is_what_the_library_exports(taught, service):
    runtime = pytest.importorskip("onnxruntime")
    assert taught.get("/api/export?format=tflite").status_code == 422
    model = taught.get("/api/export")
    assert 'filename="kitchen.onnx"' in model.headers["content-disposition"]
    session = runtime.InferenceSession(model.content)
    frames = np.zeros((2, 32, 32, 3), np.uint8)
    _, scores = session.run(None, {"frames": frames})
    expected = service.learner.strategy.judge(frames).scores
    assert scores == pytest.approx(expected, rel=1e-3, abs=1e-3)
    portable = taught.get("/api/export?format=portable").content
    assert Learner.from_bytes(portable, device="cpu").counts == service.learner.counts


@pytest.mark.parametrize("format", ["onnx", "portable"])
def test_a_network_that_cannot_be_exported_is_refused_with_the_reason(format, tmp_path):
    pytest.importorskip("onnxruntime")
    own = nn.Sequential(nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6), nn.ReLU())
    learner = Learner("dslda", backbone=own, size=32, device="cpu", engine="torch")
    learner.learn(np.zeros((2, 32, 32, 3), np.uint8), "mug")
    app = create_app(LearnerService(learner, tmp_path / "kitchen.pv", SMALL))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        refused = client.get(f"/api/export?format={format}")
    assert refused.status_code == 409
    assert "written as ONNX: a batch norm in training mode" in refused.json()["detail"]


def test_with_nothing_taught_there_is_nothing_to_export(client):
    refused = client.get("/api/export")
    assert (refused.status_code, "teach it" in refused.json()["detail"]) == (409, True)


def test_a_check_counts_right_and_wrong(taught):
    own = taught.post("/api/check", data={"label": "mug"}, files=frames("mug", 4)).json()
    assert (own["right"], own["frames"], own["accuracy"], own["taken_for"]) == (4, 4, 1.0, {})
    other = taught.post(
        "/api/check", data={"label": "mug"}, files=[*frames("cup", 3), *frames("mug", 1)]
    ).json()
    assert (other["right"], other["accuracy"]) == (1, 0.25)
    assert sum(other["taken_for"].values()) == 3
    assert (
        taught.post("/api/check", data={"label": "jug"}, files=frames("cup", 3)).status_code == 409
    )


def test_a_video_is_a_lesson_too(client, tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "mug.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for k in range(25):
            image = np.full((64, 64, 3), (k * 9, 80, 80), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        container.mux(stream.encode())
    video = {"video": ("../../evil.sh", (tmp_path / "mug.mp4").read_bytes(), "video/mp4")}
    assert teach(client, "mug", video).json()["state"] == "done"
    assert 1 <= known(client)["mug"] <= 10  # thinned to the limit of ten frames
    refused = teach(client, "cup", {"video": ("cup.mp4", b"no video at all" * 50)})
    assert refused.status_code == 422
    assert "/" not in refused.json()["detail"]
    assert "--skip-bad" not in refused.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "files", "status", "reason"),
    [
        ("mug", [], 422, "either frames or a video"),
        ("mug", [*frames("mug", 1), ("video", ("a.mp4", b"x"))], 422, "either frames or a video"),
        ("mug", [("frames", ("a", b"no image"))], 422, "frame 1 is not an image"),
        (
            "mug",
            [*frames("mug", 2), ("frames", ("a", picture("mug")[:200]))],
            422,
            "frame 3 is not an image",
        ),
        ("mug", frames("mug", 11), 413, "the limit is 10"),
        ("mug", [("frames", ("a", picture("mug", side=201)))], 413, "bytes"),
        (
            "mug",
            [("frames", ("a", picture("mug", side=210, kind="JPEG")))],
            413,
            "44100|210 x 210 pixels",
        ),
        ("x" * 201, frames("mug", 1), 422, "200 characters"),
        ("  ", frames("mug", 1), 422, "1 to 200"),
        ("a\x07b", frames("mug", 1), 422, "control"),
    ],
)
def test_a_lesson_that_is_refused_says_why_and_changes_nothing(
    client, service, label, files, status, reason
):
    before = service.path.read_bytes()
    refused = teach(client, label, files)
    assert refused.status_code == status
    assert any(part in refused.json()["detail"] for part in reason.split("|")), refused.json()
    assert service.path.read_bytes() == before
    assert service.snapshot.version == 0


@pytest.mark.parametrize(
    ("path", "request_", "reason"),
    [
        (
            "predict",
            {"content": picture("mug"), "headers": {"content-type": "image/png"}},
            "multipart/form-data",
        ),
        ("predict", {"content": picture("mug")}, "curl -F frame=@FILE"),
        ("model/file", {"content": b"x"}, "curl -F file=@FILE"),
        ("lessons", {"data": {"label": ""}, "files": frames("mug", 1)}, "label: say what it shows"),
        (
            "rename",
            {"content": b'{"label": "mug", "to": "cup"}'},
            "'Content-Type: application/json'",
        ),
        (
            "rename",
            {"content": b'{"label', "headers": {"content-type": "application/json"}},
            "send a JSON object",
        ),
        ("rename", {"json": {"label": "mug"}}, "to: Field required"),
        (
            "lessons?wait=99",
            {"data": {"label": "mug"}, "files": frames("mug", 1)},
            "wait: Input should be less",
        ),
    ],
)
def test_a_request_of_another_form_is_told_the_right_one(client, path, request_, reason):
    refused = client.post(f"/api/{path}", **request_)
    assert (refused.status_code, reason in refused.json()["detail"]) == (422, True), refused.json()


def test_a_full_queue_is_refused_and_a_lesson_can_be_waited_for(client, service):
    gate = Gate(service)
    first = teach(client, "mug", frames("mug"), wait=0).json()
    assert first["state"] == "queued"
    teach(client, "cup", frames("cup"), wait=0)
    refused = teach(client, "kettle", frames("kettle"), wait=0)
    assert refused.status_code == 429
    assert "waiting already" in refused.json()["detail"]
    gate.open()
    assert client.get(f"/api/lessons/{first['id']}?wait=30").json()["state"] == "done"
    assert client.get(f"/api/lessons/{'0' * 16}").status_code == 404


def test_health(taught):
    assert taught.get("/healthz").json() == {"status": "ok"}
