"""The service's own camera: its picture, predictions and lessons, and what happens when it dies."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from serve_support import COLOURS
from starlette.testclient import TestClient

from primavista.errors import InputError
from primavista.serve.asgi import create_app
from primavista.serve.learner_service import LearnerService
from primavista.serve.service_camera import ServiceCamera

from ..streams.camera_servers import MjpegCamera

pytest.importorskip("av")


class Stage:
    """A camera server, and a client of the service that looks through it."""

    def __init__(self, service: LearnerService) -> None:
        self.colour = COLOURS["mug"]
        self.server = MjpegCamera(
            lambda i: np.full((48, 64, 3), self.colour, np.uint8), fps=30, login="ann:secret"
        )
        self.server.start()
        app = create_app(service, camera=ServiceCamera(self.server.url))
        self.client = TestClient(app, base_url="http://localhost")

    def status(self, online: bool) -> dict[str, object]:
        end = time.monotonic() + 30
        while (found := self.client.get("/api/camera").json())["online"] is not online:
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found

    def teach(self, label: str, seconds: float):
        data = {"label": label, "seconds": seconds}
        return self.client.post("/api/camera/lessons?wait=30", data=data)


@pytest.fixture
def stage(service: LearnerService) -> Iterator[Stage]:
    made = Stage(service)
    with made.client:
        made.status(online=True)
        yield made
    made.server.stop()


@pytest.mark.slow
def test_its_picture_its_lessons_and_its_predictions(stage: Stage) -> None:
    picture = stage.client.get("/api/camera/frame")
    assert picture.headers["content-type"] == "image/jpeg"
    assert picture.headers["cache-control"] == "no-store"
    pixels = np.asarray(Image.open(io.BytesIO(picture.content)))
    assert pixels.shape == (48, 64, 3)
    assert np.abs(pixels.mean((0, 1)) - COLOURS["mug"]).max() < 8
    for label in ("mug", "kettle"):
        stage.colour = COLOURS[label]
        time.sleep(0.3)
        taught = stage.teach(label, 0.8)
        assert taught.status_code == 200
        assert (taught.json()["state"], taught.json()["label"]) == ("done", label)
        assert taught.json()["frames"] >= 2
    assert stage.client.post("/api/camera/predict").json()["label"] == "kettle"


@pytest.mark.slow
def test_a_camera_that_dies_in_a_lesson_teaches_nothing_and_comes_back(
    stage: Stage, service: LearnerService
) -> None:
    assert stage.teach("mug", 0.5).json()["state"] == "done"
    threading.Timer(0.5, stage.server.stop).start()
    failed = stage.teach("kettle", 30)
    assert failed.status_code == 409
    assert "gives no frame" in failed.json()["detail"]
    assert "secret" not in failed.text
    assert service.learner.labels == ["mug"]
    assert stage.client.get("/api/camera/frame").status_code == 409
    assert stage.status(online=False)["reason"]
    # what clients send is recognised all the while
    file = io.BytesIO()
    Image.new("RGB", (32, 32), COLOURS["mug"]).save(file, "PNG")
    answer = stage.client.post("/api/predict", files={"frame": file.getvalue()})
    assert answer.json()["label"] == "mug"
    stage.server.start()
    stage.status(online=True)
    assert stage.client.get("/api/camera/frame").status_code == 200


def test_without_a_camera(client: TestClient) -> None:
    assert client.get("/api/camera").status_code == 404
    assert "--camera" in client.get("/api/camera/frame").json()["detail"]
    assert client.post("/api/camera/lessons", data={"label": "mug"}).status_code == 404
    with pytest.raises(InputError, match="camera:0"):
        ServiceCamera("mug.mp4")
