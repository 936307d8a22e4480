"""The service's own camera: its picture, lessons from it, and what happens when it dies."""

from __future__ import annotations

import io
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

    def frame(self) -> bytes:
        """The picture after the next one, which has the colour of now."""
        time.sleep(0.3)
        return self.client.get("/api/camera/frame").content

    def teach(self, label: str):
        files = [("frames", (f"{i}.jpg", self.frame())) for i in range(4)]
        return self.client.post("/api/lessons?wait=30", data={"label": label}, files=files)


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
        assert stage.teach(label).json()["state"] == "done"
    answer = stage.client.post("/api/predict", files={"frame": stage.frame()})
    assert answer.json()["label"] == "kettle"


@pytest.mark.slow
def test_a_camera_that_dies_gives_no_frame_and_comes_back(stage: Stage) -> None:
    assert stage.teach("mug").json()["state"] == "done"
    stage.server.stop()
    assert stage.status(online=False)["reason"]
    failed = stage.client.get("/api/camera/frame")
    assert failed.status_code == 409
    assert "gives no frame" in failed.json()["detail"]
    assert "secret" not in failed.text
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
    with pytest.raises(InputError, match="camera:0"):
        ServiceCamera("mug.mp4")
