"""The places of objects, over HTTP and in a stream."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from serve_support import COLOURS, picture

from primavista import Learner


def two_halves(kind: str = "PNG", **options) -> bytes:
    """A wide picture: mug on the left, cup on the right."""
    noise = np.random.default_rng(5).integers(-8, 8, (64, 128, 3))
    pixels = np.repeat(np.array([COLOURS["mug"], COLOURS["cup"]]), 64, axis=0)[None] + noise
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, kind, **options)
    return file.getvalue()


def test_objects_of_a_picture_are_those_of_the_learner_as_shares(shared_taught, shared_service):
    answer = shared_taught.post("/api/locate", files={"frame": two_halves()})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    pixels = np.array(Image.open(io.BytesIO(two_halves())))
    expected = Learner.load(shared_service.path, device="cpu").locate(pixels)
    assert [one["label"] for one in said["objects"]] == [one.label for one in expected]
    assert said["objects"]
    assert said["version"] == 3
    for one, right in zip(said["objects"], expected, strict=True):
        box = right.box
        shares = (box.left / 128, box.top / 64, box.right / 128, box.bottom / 64)
        assert tuple(one["box"].values()) == pytest.approx(shares, abs=1e-6)


def test_a_picture_that_lies_on_its_side_is_searched_upright(shared_taught, shared_service):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    data = two_halves("JPEG", exif=exif, quality=95)
    said = shared_taught.post("/api/locate", files={"frame": data}).json()
    upright = np.array(Image.open(io.BytesIO(data)).transpose(Image.Transpose.ROTATE_270))
    assert upright.shape == (128, 64, 3)
    expected = Learner.load(shared_service.path, device="cpu").locate(upright)
    assert expected
    assert [one["box"]["bottom"] for one in said["objects"]] == pytest.approx(
        [one.box.bottom / 128 for one in expected]
    )


def test_what_cannot_be_searched_is_refused(shared_taught, shared_service):
    assert shared_taught.post("/api/locate", files={"frame": b"no image"}).status_code == 422
    assert shared_taught.post("/api/locate").status_code == 422


def test_a_strategy_that_cannot_locate_is_refused_with_409(tmp_path):
    from starlette.testclient import TestClient

    from primavista.serve.asgi import create_app
    from primavista.serve.learner_service import LearnerService

    learner = Learner("naive", weights="random", width=0.0625, size=32, device="cpu", epochs=1)
    learner.learn(np.zeros((4, 32, 32, 3), np.uint8), "dark")
    learner.save(tmp_path / "n.pv")
    service = LearnerService(learner, tmp_path / "n.pv")
    with TestClient(create_app(service), base_url="http://localhost") as client:
        said = client.post("/api/locate", files={"frame": picture("mug")})
    assert said.status_code == 409
    assert "frozen" in said.json()["detail"]


def test_a_stream_has_boxes_after_they_were_switched_on(shared_taught):
    with shared_taught.websocket_connect("ws://localhost/api/stream") as socket:

        def ask() -> dict:
            socket.send_bytes(two_halves())
            return socket.receive_json()

        plain = ask()
        socket.send_json({"locate": True})
        assert socket.receive_json() == {"locate": True}
        found = ask()
        socket.send_json({"locate": False})
        assert socket.receive_json() == {"locate": False}
        again = ask()
    assert "objects" not in plain
    assert "objects" not in again
    alone = shared_taught.post("/api/locate", files={"frame": two_halves()}).json()
    assert found["objects"] == alone["objects"]
    assert set(plain) == set(found) - {"objects"}
