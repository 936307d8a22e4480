"""Videos and batches over HTTP, and what `wait` answers."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from serve_support import Gate, frames, picture

from primavista import Learner
from primavista.errors import InputError


def image(name: str, number: int) -> np.ndarray:
    with Image.open(io.BytesIO(picture(name, number))) as opened:
        return np.array(opened)


@pytest.fixture
def clip() -> bytes:
    """A video of the cup."""
    av = pytest.importorskip("av")
    shown = [image("cup", number) for number in range(8)]
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10, width=64, height=64, pix_fmt="yuv420p")
        for one in shown:
            square = np.array(Image.fromarray(one).resize((64, 64)))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(square)))
        container.mux(stream.encode(None))
    return file.getvalue()


def test_a_video_has_one_answer(shared_taught, shared_service, clip, tmp_path):
    answer = shared_taught.post("/api/predict", files={"video": clip})
    assert answer.status_code == 200, answer.text
    (tmp_path / "clip.mp4").write_bytes(clip)
    expected = Learner.load(shared_service.path, device="cpu").predict(tmp_path / "clip.mp4")
    said = answer.json()
    assert (said["label"], said["known"]) == (expected.label, expected.known)
    assert {one["label"]: one["share"] for one in said["scores"]} == pytest.approx(
        expected.scores, abs=1e-4
    )
    assert said["version"] == 3


def test_a_batch_has_one_answer_per_frame(shared_taught):
    shown = ["mug", "cup", "kettle", "cup"]
    files = [("frames", picture(name, 90 + k)) for k, name in enumerate(shown)]
    said = shared_taught.post("/api/predict/batch", files=files).json()
    assert len(said["frames"]) == len(shown)
    for k, name in enumerate(shown):
        alone = shared_taught.post("/api/predict", files={"frame": picture(name, 90 + k)}).json()
        assert said["frames"][k]["label"] == alone["label"]
        assert said["frames"][k]["confidence"] == pytest.approx(alone["confidence"], abs=1e-5)


def test_what_is_no_batch_and_no_video_is_refused(shared_taught, clip):
    assert shared_taught.post("/api/predict/batch").status_code == 422
    broken = [("frames", picture("cup", 1)), ("frames", b"no picture")]
    refused = shared_taught.post("/api/predict/batch", files=broken)
    assert refused.status_code == 422
    assert "frame 2" in refused.json()["detail"]
    many = [("frames", picture("cup", 1))] * 601
    assert shared_taught.post("/api/predict/batch", files=many).status_code == 413
    both = {"frame": picture("cup", 1), "video": clip}
    for files in (both, {"video": b"no video"}):
        assert shared_taught.post("/api/predict", files=files).status_code == 422
    assert "either a frame or a video" in shared_taught.post("/api/predict").json()["detail"]


def test_wait_answers_200_if_it_is_done_and_202_if_not(client):
    done = client.post("/api/lessons?wait=30", data={"label": "mug"}, files=frames("mug"))
    assert (done.status_code, done.json()["state"]) == (200, "done")
    later = client.post("/api/lessons", data={"label": "cup"}, files=frames("cup"))
    assert later.status_code == 202
    id = later.json()["id"]
    assert client.get(f"/api/lessons/{id}?wait=30").json()["state"] == "done"


def test_wait_answers_409_if_the_lesson_failed(client, monkeypatch):
    def fail(self, *args, **named):
        raise InputError("the head is full")

    monkeypatch.setattr(Learner, "learn", fail)
    failed = client.post("/api/lessons?wait=30", data={"label": "mug"}, files=frames("mug"))
    assert (failed.status_code, failed.json()) == (409, {"detail": "the head is full"})


def test_a_lesson_that_takes_longer_than_the_wait_is_accepted(client, service):
    gate = Gate(service)
    slow = client.post("/api/lessons?wait=0.1", data={"label": "mug"}, files=frames("mug"))
    assert (slow.status_code, slow.json()["state"]) == (202, "queued")
    gate.open()


def test_unknown_is_not_a_name_over_http(client):
    refused = client.post("/api/lessons", data={"label": "Unknown"}, files=frames("mug"))
    assert refused.status_code == 422
    assert "strangers" in refused.json()["detail"]
