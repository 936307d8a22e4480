"""Corrections while it runs: the last seconds are taught, questions are asked once per object."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import json
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from live_parts.process import TINY, service
from PIL import Image
from serve_support import COLOURS, SMALL, picture, tiny
from starlette.testclient import TestClient

from primavista.learner.prediction import Answer, Prediction
from primavista.learner.watch import thumbnail
from primavista.serve import clips
from primavista.serve.asgi import create_app
from primavista.serve.learner_service import LearnerService

connect = pytest.importorskip("websockets.sync.client").connect
STREAM = "ws://localhost/api/stream?remember=4"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every frame is kept, and a doubt is asked about at the second frame."""
    monkeypatch.setattr(clips, "SPACING", 0.0)
    monkeypatch.setattr(clips, "DOUBT_SECONDS", 0.0)


def show(socket, colour, seeds=range(3)) -> list[dict]:
    """Send frames one by one; return all messages that came, but for the answers to frames."""
    others = []
    for seed in seeds:
        socket.send_bytes(picture(colour, seed))
        while "frame" not in (said := socket.receive_json()):
            others.append(said)
    return others


def said(socket, command: dict, wanted: str) -> dict:
    """Send a command and return the first message of one kind that follows."""
    socket.send_json(command)
    while wanted not in (message := socket.receive_json()):
        assert "error" not in message, message
    return message[wanted]


def learned(socket, command: dict) -> dict:
    socket.send_json(command)
    message: dict = {}
    while message.get("lesson", {}).get("state") != "done":
        message = socket.receive_json()
        assert "error" not in message
    return message["lesson"]


def test_a_wrong_answer_is_corrected_from_the_last_seconds(taught, service):
    """Yellow is taken for one of the three colours; corrected, it is lemon from then on."""
    yellow = (230, 230, 40)
    with taught.websocket_connect(STREAM) as socket:
        show(socket, "cup")
        show(socket, yellow, range(5))
        clip = said(socket, {"clip": True}, "clip")
        assert 3 <= clip["frames"] <= 5  # those of the cup were another scene
        assert clip["label"] in COLOURS
        assert not clip["question"]
        data = base64.b64decode(clip["picture"].partition(",")[2])
        shown = np.asarray(Image.open(io.BytesIO(data))).mean((0, 1))
        assert shown == pytest.approx(yellow, abs=12)
        show(socket, "cup")  # meanwhile the camera shows something else
        lesson = learned(socket, {"teach": clip["id"], "label": "lemon"})
        assert (lesson["label"], lesson["frames"]) == ("lemon", clip["frames"])
        socket.send_bytes(picture(yellow, 77))
        answer = socket.receive_json()
        assert answer["label"] == "lemon"
    assert service.learner.counts["lemon"] == clip["frames"]
    taught.post("/api/undo")
    assert "lemon" not in service.learner.labels


def test_none_of_them_teaches_the_background(taught, service):
    grey = (120, 120, 120)
    with taught.websocket_connect(STREAM) as socket:
        show(socket, grey, range(5))
        clip = said(socket, {"clip": True}, "clip")
        background = taught.get("/api/model").json()["nothing"]
        learned(socket, {"teach": clip["id"], "label": background})
        socket.send_bytes(picture(grey, 9))
        answer = socket.receive_json()
    assert (answer["label"], answer["known"]) == (background, False)


def test_nothing_is_remembered_unless_the_client_asks_for_it(taught, service):
    with taught.websocket_connect("ws://localhost/api/stream") as socket:
        show(socket, "mug")
        socket.send_json({"clip": True})
        assert "no frame" in socket.receive_json()["error"]
        assert service.recalled.taken == 0


def test_everything_is_forgotten_when_the_socket_closes(taught, service):
    with taught.websocket_connect(STREAM) as socket:
        show(socket, "mug", range(4))
        size = 3 * service.learner.size**2
        assert service.recalled.taken == 4 * size
        clip = said(socket, {"clip": True}, "clip")
        assert service.recalled.taken == (4 + clip["frames"]) * size
        assert said(socket, {"drop": clip["id"]}, "dropped") == clip["id"]
        assert service.recalled.taken == 4 * size
        said(socket, {"clip": True}, "clip")
    assert service.recalled.taken == 0


@contextmanager
def small_service(tmp_path, **limits):
    learner = tiny()
    for name, colour in COLOURS.items():
        noise = np.random.default_rng(0).integers(-30, 30, (6, 32, 32, 3))
        learner.learn((np.array(colour) + noise).clip(0, 255).astype(np.uint8), name)
    learner.save(tmp_path / "kitchen.pv")
    made = LearnerService(learner, tmp_path / "kitchen.pv", dataclasses.replace(SMALL, **limits))
    with TestClient(create_app(made), base_url="http://localhost") as client:
        yield made, client


def test_all_streams_together_remember_no_more_than_the_limit(tmp_path):
    """Room for five frames: the first stream takes it and drops its oldest; the other has none."""
    size = 3 * 32**2
    with (
        small_service(tmp_path, recall_bytes=5 * size) as (made, client),
        client.websocket_connect(STREAM) as first,
        client.websocket_connect(STREAM) as second,
    ):
        show(first, "mug", range(8))
        assert made.recalled.taken == 5 * size
        show(second, "mug", range(3))
        assert made.recalled.taken == 5 * size
        second.send_json({"clip": True})
        assert "no frame" in second.receive_json()["error"]
        first.send_json({"clip": True})
        assert "the clips of all streams have at most" in first.receive_json()["error"]


def test_a_stream_keeps_few_clips(tmp_path):
    with (
        small_service(tmp_path, clips=2) as (_, client),
        client.websocket_connect(STREAM) as socket,
    ):
        show(socket, "mug")
        for _ in range(2):
            said(socket, {"clip": True}, "clip")
        socket.send_json({"clip": True})
        assert "2 clips are kept already" in socket.receive_json()["error"]


def questions(messages: list[dict]) -> dict[str, str]:
    """The id of the question about each guessed object; no object is asked about twice."""
    clips = [one["clip"] for one in messages]
    assert all(clip["question"] for clip in clips)
    found = {clip["label"]: clip["id"] for clip in clips}
    assert len(found) == len(clips)
    return found


def test_a_doubtful_object_is_asked_about_once(taught, service):
    """One question per guessed object, which is not asked again after it was dropped."""
    service.learner.threshold = 1.0  # everything is doubtful
    with taught.websocket_connect(STREAM) as socket:
        assert show(socket, "mug") == []
        assert said(socket, {"ask": True}, "ask") is True
        asked = questions(show(socket, "mug", range(3, 9)))
        assert "mug" in asked
        for id in asked.values():
            said(socket, {"drop": id}, "dropped")
        again = questions(show(socket, "mug", range(9, 16)))
        assert not again.keys() & asked.keys()
        assert said(socket, {"ask": False}, "ask") is False
        assert show(socket, "kettle", range(5)) == []


@pytest.mark.slow
def test_a_doubt_goes_on_when_the_picture_jumps(taught, service, monkeypatch):
    """An object that is moved fast is a new scene again and again, but the doubt is the same."""
    monkeypatch.setattr(clips, "DOUBT_SECONDS", 0.6)
    service.learner.threshold = 1.0
    with taught.websocket_connect(STREAM) as socket:
        said(socket, {"ask": True}, "ask")
        asked = []
        begin = time.monotonic()
        seed = 0
        while time.monotonic() < begin + 1.5:
            for colour in ("mug", "kettle"):  # each for less than the doubt must last
                for _ in range(clips.LEAST_FRAMES):
                    asked += show(socket, colour, [seed])
                    seed += 1
                    time.sleep(0.02)
        assert asked
        assert asked[0]["clip"]["frames"] >= clips.LEAST_FRAMES


def show_black(remembered: clips.StreamClips, answer: Prediction, version: int) -> None:
    """Add a black frame with an answer."""
    image = np.zeros((32, 32, 3), np.uint8)
    remembered.add(image, thumbnail(image), answer, version)


def watch(remembered: clips.StreamClips, label: str, answer: Answer, version: int) -> list[str]:
    """Show a scene with one answer; return the objects that are asked about."""
    for _ in range(clips.LEAST_FRAMES):
        show_black(remembered, Prediction(label, 0.9, answer), version)
    return [one["clip"]["label"] for one in asyncio.run(remembered.notices())]


def test_one_doubt_is_one_question_whatever_is_guessed(service):
    """The next doubt may be about another guess, and is another question."""
    remembered = clips.StreamClips(service, 4)
    remembered.asks = True
    version = service.snapshot.version
    assert watch(remembered, "mug", "unknown", version) == ["mug"]
    assert watch(remembered, "kettle", "unknown", version) == []
    assert watch(remembered, "kettle", "known", version) == []
    assert watch(remembered, "kettle", "unknown", version) == ["kettle"]
    assert watch(remembered, "mug", "known", version) == []
    assert watch(remembered, "mug", "unknown", version) == []


def test_a_likely_answer_is_asked_about_once_per_object_and_minute(service, monkeypatch):
    """A stranger is not asked about, and does not stop a question about the next object."""
    remembered = clips.StreamClips(service, 4)
    remembered.asks = "likely"
    version = service.snapshot.version
    assert watch(remembered, "mug", "unknown", version) == []
    assert watch(remembered, "mug", "likely", version) == ["mug"]
    assert watch(remembered, "mug", "unknown", version) == []
    assert watch(remembered, "kettle", "likely", version) == ["kettle"]
    assert watch(remembered, "mug", "known", version) == []
    assert watch(remembered, "nothing", "likely", version) == []  # the background
    assert watch(remembered, "mug", "likely", version) == []
    assert watch(remembered, "mug", "known", version + 1) == []
    assert watch(remembered, "mug", "likely", version + 1) == []  # a new model is no excuse
    monkeypatch.setattr(clips, "ASK_AGAIN_SECONDS", 0.0)
    assert watch(remembered, "mug", "likely", version + 1) == ["mug"]  # a minute later
    assert watch(remembered, "mug", "likely", version + 1) == []  # the same doubt
    remembered.close()
    assert service.recalled.taken == 0


def test_a_doubt_is_asked_about_when_it_has_lasted(service, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(clips, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(clips, "DOUBT_SECONDS", 1.5)
    remembered = clips.StreamClips(service, 4)
    remembered.asks = True
    found = []
    for at in (100.0, 101.0, 101.4, 101.5):
        now[0] = at
        found.append(watch(remembered, "mug", "likely", service.snapshot.version))
    assert found == [[], [], [], ["mug"]]


def test_a_scene_goes_on_while_it_resembles_any_frame_of_it(service):
    """Half a frame is white, then three quarters, then another half: the halves are not alike."""
    left, both, top, rest = (np.zeros((32, 32, 3), np.uint8) for _ in range(4))
    left[:, :16] = both[:, :16] = both[:16] = top[:16] = rest[16:, 16:] = 255
    assert clips.correlation(thumbnail(left), thumbnail(top)) < clips.OTHER_SCENE
    remembered, counts = clips.StreamClips(service, 4), []
    for image in (left, both, top, rest):
        answer = Prediction("mug", 0.9, "known")
        remembered.add(image, thumbnail(image), answer, service.snapshot.version)
        counts.append(len(remembered.clip().frames))
    assert counts == [1, 2, 3, 1]


def test_the_question_about_a_likely_answer_has_only_its_frames(service):
    remembered = clips.StreamClips(service, 4)
    remembered.asks = "likely"
    for answer in ("known", "unknown", "likely"):
        watch(remembered, "mug", answer, service.snapshot.version)
    assert len(remembered.clip().frames) == clips.LEAST_FRAMES


def test_a_clip_has_all_frames_for_which_the_client_was_told_the_same(service):
    """The background and what is unknown are both called unknown; a known object is not."""
    remembered = clips.StreamClips(service, 4)
    answers = [
        Prediction("mug", 0.9, "known"),
        Prediction("mug", 0.9, "unknown"),
        Prediction("nothing", 0.9, "known"),
        Prediction("nothing", 0.4, "unknown"),
        Prediction("mug", 0.9, "likely"),
        Prediction("mug", 0.9, "unknown"),
    ]
    for answer in answers:
        show_black(remembered, answer, service.snapshot.version)
    clip = remembered.clip()
    assert len(clip.frames) == 4
    assert clip.notice()["clip"]["known"] is False


def test_a_question_to_which_the_model_knows_the_answer_is_withdrawn(taught, service):
    service.learner.threshold = 1.0
    with taught.websocket_connect(STREAM) as socket:
        said(socket, {"ask": True}, "ask")
        asked = questions(show(socket, "mug", range(6)))
        assert "mug" in asked
        taught.post("/api/threshold", json={"threshold": 0.0})
        withdrawn = show(socket, "mug", range(6, 9))
        assert asked["mug"] in {one.get("dropped") for one in withdrawn}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({}, "send images as binary"),
        ({"clip": 1}, "send images as binary"),
        ({"ask": "yes"}, "send images as binary"),
        ({"ask": 1}, "send images as binary"),
        ({"drop": "0123456789abcdef"}, "no such clip"),
        ({"teach": ["x"], "label": "mug"}, "no such clip"),
    ],
)
def test_a_command_that_is_refused_leaves_the_stream_open(taught, command, reason):
    with taught.websocket_connect(STREAM) as socket:
        socket.send_json(command)
        assert reason in socket.receive_json()["error"]
        socket.send_text("[1]")
        assert "JSON object" in socket.receive_json()["error"]
        assert show(socket, "mug") == []


def test_a_bad_name_keeps_the_clip(taught):
    with taught.websocket_connect(STREAM) as socket:
        show(socket, "mug")
        clip = said(socket, {"clip": True}, "clip")
        socket.send_json({"teach": clip["id"], "label": ""})
        assert "1 to 200" in socket.receive_json()["error"]
        assert learned(socket, {"teach": clip["id"], "label": "pan"})["frames"] == clip["frames"]


@pytest.mark.slow
def test_over_uvicorn_a_correction_is_learned_and_on_disk(tmp_path):
    """The service in a process of its own, with the pace of a camera."""
    model = tmp_path / "kitchen.pv"
    with service(model, new={**TINY, "strategy": "dslda"}) as running:
        for name in ("mug", "kettle"):
            running.teach(name, [picture(name, seed) for seed in range(6)])
        url = running.url.replace("http", "ws") + "/api/stream?remember=4"
        with connect(url) as socket:
            for seed in range(6):
                socket.send(picture("cup", seed))
                assert json.loads(socket.recv())["frame"] == seed + 1
                time.sleep(0.12)
            socket.send(json.dumps({"clip": True}))
            clip = json.loads(socket.recv())["clip"]
            assert clip["frames"] >= 4
            socket.send(json.dumps({"teach": clip["id"], "label": "pan"}))
            state = ""
            while state != "done":
                state = json.loads(socket.recv())["lesson"]["state"]
            socket.send(picture("cup", 99))
            answer = json.loads(socket.recv())
        assert answer["label"] == "pan"
        assert running.counts()["pan"] == clip["frames"]
        assert [one.name for one in tmp_path.iterdir() if one.suffix in (".jpg", ".png")] == []
