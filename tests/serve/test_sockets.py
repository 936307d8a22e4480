"""The stream: one frame at a time, older ones dropped. The lesson: by frames, all or nothing."""

from __future__ import annotations

import asyncio
import io
import time

import numpy as np
import pytest
from PIL import Image
from serve_support import SMALL, Gate, frames, picture
from starlette.websockets import WebSocketDisconnect

from primavista.serve.socket_routes import _Stream


def test_a_stream_answers_each_frame_and_goes_on_after_a_bad_one(taught):
    with taught.websocket_connect("ws://localhost/api/stream") as socket:
        for number, (frame, label) in enumerate(
            [(picture("mug", 9), "mug"), (b"no image", None), (picture("cup", 9), "cup")], 1
        ):
            socket.send_bytes(frame)
            said = socket.receive_json()
            assert said["frame"] == number
            assert said.get("label") == label
            assert ("error" in said) == (label is None)


def scene(seed: int, colour: tuple[int, int, int]) -> bytes:
    """A picture of 8 x 8 cells of random brightness, tinted."""
    cells = np.random.default_rng(seed).integers(60, 256, (8, 8, 1))
    tinted = (np.kron(cells, np.ones((4, 4, 3))) * np.array(colour) / 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(tinted).save(file, "PNG")
    return file.getvalue()


def test_a_stream_also_says_what_the_last_second_shows(taught):
    """Each frame by itself as before; `recent` is the geometric mean of the frames of one scene."""
    red, pink, elsewhere = scene(1, (255, 90, 90)), scene(1, (255, 140, 140)), scene(2, (9, 255, 9))
    with taught.websocket_connect("ws://localhost/api/stream") as socket:

        def ask(frame: bytes) -> dict:
            socket.send_bytes(frame)
            return socket.receive_json()

        def shares(said: dict) -> np.ndarray:
            return np.array([one["share"] for one in said["scores"]])

        first, second = ask(red), ask(pink)
        alone = taught.post("/api/predict", files={"frame": ("a.png", pink)}).json()
        for name in ("label", "known", "version"):
            assert second[name] == alone[name]
        assert shares(second) == pytest.approx(shares(alone), abs=1e-5)
        assert "recent" not in alone
        assert first["recent_frames"] == 1
        assert {name: first[name] for name in first["recent"]} == first["recent"]
        mean = np.sqrt(shares(first).clip(1e-6) * shares(second).clip(1e-6))
        assert second["recent_frames"] == 2
        assert shares(second["recent"]) == pytest.approx(mean / mean.sum(), abs=1e-6)
        familiarity = (first["familiarity"] + second["familiarity"]) / 2
        assert second["recent"]["familiarity"] == pytest.approx(familiarity)
        third = ask(elsewhere)
        assert third["recent_frames"] == 1
        assert {name: third[name] for name in third["recent"]} == third["recent"]
        lesson = taught.post("/api/lessons?wait=30", data={"label": "pan"}, files=frames("mug", 5))
        assert lesson.json()["state"] == "done"
        assert ask(elsewhere)["recent_frames"] == 1  # a new version of the model
        assert ask(elsewhere)["recent_frames"] == 2


class Received:
    """How many frames of streams have come, each of which takes the place of an older one."""

    def __init__(self, monkeypatch):
        self.count = 0
        put = _Stream.put

        async def counted(client, frame):
            await put(client, frame)
            self.count += 1

        monkeypatch.setattr(_Stream, "put", counted)


@pytest.fixture
def received(monkeypatch):
    return Received(monkeypatch)


def test_of_frames_that_come_too_fast_only_the_newest_is_kept(
    taught, service, monkeypatch, received
):
    """While the first is recognised ten come: of those, one is answered, the last."""
    import threading

    hold, inside = threading.Event(), threading.Event()
    predict = type(service.learner).predict

    def slow(self, images):
        inside.set()
        assert hold.wait(30)
        return predict(self, images)

    monkeypatch.setattr(type(service.learner), "predict", slow)
    with taught.websocket_connect("ws://localhost/api/stream") as socket:
        socket.send_bytes(picture("mug"))
        assert inside.wait(30)
        for k in range(10):
            socket.send_bytes(picture("cup", k))
        while received.count < 11:
            pass
        hold.set()
        assert socket.receive_json()["frame"] == 1
        newest = socket.receive_json()
        assert newest["frame"] == 11
        assert 0 < newest["age"] < 30


def test_a_frame_that_waits_for_a_place_gives_way_to_a_newer_one(
    taught, service, monkeypatch, received
):
    """So does its age, which counts from its arrival: answers were as old as the queue."""
    places = asyncio.Semaphore(0)
    monkeypatch.setattr(service, "stream_places", places)
    with taught.websocket_connect("ws://localhost/api/stream") as socket:
        socket.send_bytes(picture("mug"))
        time.sleep(0.3)
        for k in range(5):
            socket.send_bytes(picture("cup", k))
        while received.count < 6:
            pass
        began = time.monotonic()
        taught.portal.call(places.release)
        newest = socket.receive_json()
        assert newest["frame"] == 6
        assert newest["age"] < 0.3 + time.monotonic() - began


def test_a_lesson_frame_by_frame(client, service):
    with client.websocket_connect("ws://localhost/api/teach") as socket:
        socket.send_json({"label": "mug"})
        assert socket.receive_json() == {"frames": 0}
        for k in range(5):
            socket.send_bytes(picture("mug", k))
            assert socket.receive_json() == {"frames": k + 1}
        assert service.snapshot.version == 0
        socket.send_json({"end": True})
        while (said := socket.receive_json()["lesson"])["state"] != "done":
            assert said["state"] in ("queued", "running")
        assert (said["frames"], said["version"], said["progress"]) == (5, 1, 1.0)
    assert service.learner.counts == {"mug": 5}


@pytest.mark.parametrize(("words", "count"), [({}, 5), ({"again": True}, 10)])
def test_the_same_frames_twice_are_left_out_unless_asked_for_again(client, service, words, count):
    for asked in ({}, words):
        with client.websocket_connect("ws://localhost/api/teach") as socket:
            socket.send_json({"label": "mug", **asked})
            for k in range(5):
                socket.send_bytes(picture("mug", k))
            socket.send_json({"end": True})
            said = {"lesson": {"state": ""}}
            while said.get("lesson", {}).get("state") != "done":
                said = socket.receive_json()
    assert said["lesson"]["already_taught"] == (count == 5)
    assert service.learner.counts == {"mug": count}


def test_a_lesson_that_breaks_off_changes_nothing(client, service):
    before = service.path.read_bytes()
    with client.websocket_connect("ws://localhost/api/teach") as socket:
        socket.send_json({"label": "mug"})
        socket.send_bytes(picture("mug"))
        socket.receive_json()
    Gate(service).open()
    assert service.learner.labels == []
    assert service.path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([b"frame first"], "send the name first"),
        (["no json"], "JSON object"),
        (["[" * 100_000], "JSON object"),
        (["{}"], "1 to 200"),
        (['{"label": "a\\u0000b"}'], "control"),
        (['{"label": "\\ud800"}'], "control"),
        (['{"label": "mug"}', '{"end": true}'], "no frames"),
        (['{"label": "mug"}', '{"label": "cup"}'], "then"),
        (['{"label": "mug"}', b"no image"], "frame 1 is not an image"),
        (['{"label": "mug"}', b"x" * (SMALL.frame_bytes + 1)], "the limit is"),
        (['{"label": "mug"}', *[picture("mug")] * 11], "at most 10 frames"),
    ],
)
def test_a_lesson_that_makes_no_sense_is_refused_with_the_reason(client, service, sent, reason):
    with client.websocket_connect("ws://localhost/api/teach") as socket:
        for message in sent:
            socket.send_bytes(message) if isinstance(message, bytes) else socket.send_text(message)
        said = {}
        while "error" not in said:
            said = socket.receive_json()
        assert reason in said["error"]
        with pytest.raises(WebSocketDisconnect):
            socket.receive_json()
    assert service.snapshot.version == 0


def test_the_frames_of_a_lesson_count_as_an_upload_until_its_end(client, service):
    """Each while it is decoded, and then its pixels."""
    coded = [picture("mug", k) for k in range(3)]
    service.uploads.limit = 2 * 3 * service.learner.size**2 + len(coded[2]) - 1
    with client.websocket_connect("ws://localhost/api/teach") as socket:
        socket.send_json({"label": "mug"})
        for frame in coded:
            socket.send_bytes(frame)
        said = [socket.receive_json() for _ in range(4)]
    assert said[:3] == [{"frames": 0}, {"frames": 1}, {"frames": 2}]
    assert "all uploads in progress" in said[3]["error"]
    assert service.uploads.taken == 0
