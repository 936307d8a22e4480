"""Cameras on the network, with real servers: MJPEG over HTTP, and RTSP by GStreamer."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import primavista as pv
from primavista.errors import FileError, InputError
from primavista.media.addresses import is_live, live_name, read_address, shows_password
from primavista.media.camera import (
    CameraLostError,
    CameraProcess,
    CameraView,
    camera_frames,
    steady_frames,
)
from primavista.media.images import read_region
from primavista.media.video import Lesson, open_frames

from . import media
from .camera_servers import MjpegCamera, jpeg, rtsp_camera, speaker

pytest.importorskip("av")


def halves(_: int) -> np.ndarray[Any, Any]:
    """48 x 64: the left half is black, the right half white."""
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:, 32:] = 255
    return picture


def read_to_the_end(camera: CameraProcess) -> None:
    while True:
        camera.read(5)


def test_mjpeg_over_http_is_a_lesson() -> None:
    grey = lambda i: np.full((48, 64, 3), 40 if i < 10 else 200, np.uint8)  # noqa: E731
    with MjpegCamera(grey) as server:
        clip = open_frames(server.url, size=32, seconds=0.6, max_frames=600)
    assert clip.source == server.url
    assert clip.frames.shape[1:] == (32, 32, 3)
    means = clip.frames.mean((1, 2, 3))
    # none of the first frames is missing, and the rest follows in order
    assert np.abs(means[:10] - 40).max() < 3
    assert np.abs(means[10:] - 200).max() < 3
    assert len(means) > 12


def test_frames_per_second_and_a_region() -> None:
    with MjpegCamera(halves) as server:
        view = CameraView(server.url, 16, fps=5, region=read_region("0.5,0,1,1"))
        frames = list(camera_frames(view, seconds=0.9))
        whole = next(camera_frames(CameraView(server.url, None)))
    assert 3 <= len(frames) <= 6
    assert all(frame.image.min() > 240 for frame in frames)
    assert whole.image.shape == (48, 64, 3)
    assert whole.image[:, :30].max() < 15


@pytest.mark.parametrize("digest", [False, True])
def test_a_user_and_a_password(digest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with MjpegCamera(login="ann:secret", digest=digest) as server:
        monkeypatch.setenv("DOOR", server.url)
        frame = next(camera_frames(CameraView("env:DOOR", 16)))
        assert frame.image.shape == (16, 16, 3)
        wrong = server.url.replace("secret", "guess").replace("ann", "bob")
        with pytest.raises(CameraLostError, match="user and a password") as caught:
            next(camera_frames(CameraView(wrong, 16)))
    assert "guess" not in str(caught.value)


def test_the_password_is_neither_in_the_process_list_nor_in_messages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with MjpegCamera(login="ann:secret") as server:
        monkeypatch.setenv("DOOR", server.url + "?key=hidden")
        with CameraProcess(CameraView("env:DOOR", 16)) as camera:
            camera.read(10)
            child = Path(f"/proc/{camera._child.process.pid}/cmdline")
            if child.exists():
                assert b"camera_child" in child.read_bytes()
                assert b"secret" not in child.read_bytes()
            server.stop()
            with pytest.raises(CameraLostError) as caught:
                read_to_the_end(camera)
    assert server.asked[-1] == "/video.mjpg?key=hidden"
    texts = [str(caught.value), repr(CameraView("env:DOOR", 16)), caplog.text]
    assert not any("secret" in text or "hidden" in text for text in texts)
    assert "env:DOOR" in texts[0]


def test_a_camera_that_vanishes_in_a_lesson_teaches_nothing() -> None:
    learner = pv.Learner("ncm", weights="random", size=32, width=0.25)
    learner.learn(np.zeros((4, 32, 32, 3), np.uint8), "dark")
    before = learner.lessons
    with (
        MjpegCamera(dies_after=20) as server,
        pytest.raises(FileError, match=r"ended|stop") as caught,
    ):
        learner.learn(open_frames(server.url, size=32, seconds=30, skip_bad=True), "mug")
    assert "127.0.0.1" in str(caught.value)
    assert server.sent == 20
    assert (learner.lessons, learner.labels) == (before, ["dark"])


def test_a_stream_that_stalls_is_noticed() -> None:
    with MjpegCamera(stalls_after=20) as server:
        with pytest.raises(CameraLostError, match=r"gave no frame for 0\.7 s|does not answer"):
            open_frames(server.url, size=16, seconds=60, stall=0.7)
        assert server.sent == 20


@pytest.mark.slow
def test_a_lesson_whose_end_was_not_filmed_is_not_half_a_lesson() -> None:
    with (
        MjpegCamera(stalls_after=20) as server,
        pytest.raises(CameraLostError, match=r"gave no frame in the last \d\.\d of 2\.5 s"),
    ):
        open_frames(server.url, size=16, seconds=2.5)  # shorter than `stall`


@pytest.mark.slow
def test_a_camera_that_comes_back_is_read_on() -> None:
    told: list[str] = []
    with MjpegCamera() as server:

        def switch_on(reason: str) -> None:
            told.append(f"lost: {reason}")
            if "refused" in reason:  # it has tried again
                server.start()

        frames = steady_frames(
            CameraView(server.url, 16), on_lost=switch_on, on_back=lambda: told.append("back")
        )
        next(frames)
        server.stop()
        while "back" not in told:
            next(frames)
        frames.close()
    assert told[0].startswith(f"lost: {server.url}: ")
    assert told[-1] == "back"


def test_a_camera_that_is_not_there() -> None:
    with MjpegCamera() as server:
        pass  # its port is free now
    with pytest.raises(CameraLostError, match="refused"):
        next(steady_frames(CameraView(server.url, 16)))
    reasons: list[str] = []

    def switch_on(reason: str) -> None:
        reasons.append(reason)
        server.start()

    patient = steady_frames(CameraView(server.url, 16), patient=True, on_lost=switch_on)
    assert next(patient).image.shape == (16, 16, 3)
    patient.close()
    server.stop()
    assert "refused" in reasons[0]


def test_a_slow_reader_gets_the_newest_frame() -> None:
    with MjpegCamera(lambda i: np.full((16, 16, 3), min(i, 250), np.uint8), fps=100) as server:
        frames = camera_frames(CameraView(server.url, 16))
        first = next(frames).image.mean()
        time.sleep(0.6)
        next(frames)  # was waiting all the time at most
        second = next(frames).image.mean()
        frames.close()
    assert second - first > 20  # with a queue it would be 2 or 3


@pytest.mark.parametrize("kind", ["image/jpeg", "text/html", "video/mp4"])
def test_an_address_that_is_not_a_stream(kind: str) -> None:
    with (
        MjpegCamera(kind=kind) as server,
        pytest.raises(CameraLostError, match="not answer with MJPEG"),
    ):
        open_frames(server.url, size=16)


def test_frames_that_are_too_large_end_the_stream() -> None:
    with MjpegCamera() as server, pytest.raises(CameraLostError, match="64 x 48 pixels"):
        next(camera_frames(CameraView(server.url, 16, pixels=1000)))


def test_garbage_in_place_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    from primavista.media import camera

    from . import camera_servers

    monkeypatch.setattr(camera, "OPENING", 2.0)
    noise = np.random.default_rng(0).bytes(5000)
    monkeypatch.setattr(camera_servers, "jpeg", lambda picture: noise)
    with MjpegCamera() as server, pytest.raises(CameraLostError):
        open_frames(server.url, size=16, stall=1.0)


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n"
MANY_HEADERS = b"".join(b"X-%d: y\r\n" % i for i in range(200))
PART = b"--frame\r\nContent-Type: image/jpeg\r\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"no HTTP at all\r\n\r\n",
        ANSWER + MANY_HEADERS + b"\r\n",
        ANSWER + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        ANSWER + b"\r\n" + PART + b"Content-Length: -5\r\n\r\n",
        ANSWER + b"\r\n" + PART + b"Content-Length: 99999999999\r\n\r\n" + bytes(1000),
        ANSWER + b"\r\n" + PART + MANY_HEADERS + b"\r\n",
    ],
    ids=["nothing", "noise", "headers", "long", "negative", "lie", "part"],
)
def test_a_camera_that_says_nonsense_is_lost_with_a_reason_and_no_traceback(
    said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """More than 100 headers once left a traceback of the child."""
    with speaker(said) as url, pytest.raises(CameraLostError) as lost:
        open_frames(url, size=16, stall=2.0)
    assert "made the decoder stop" not in str(lost.value)
    assert capfd.readouterr().err == ""


def most_memory(status: Path) -> float:
    """The largest memory of a process so far, in MiB."""
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a child is limited on Linux")
def test_a_camera_cannot_take_all_memory() -> None:
    """A part without an end: its bytes are collected until the limit of the child, 256 MiB."""
    first = jpeg(halves(0))
    length = b"Content-Length: %d\r\n\r\n"
    said = ANSWER + b"\r\n" + PART + length % len(first) + first + b"\r\n" + PART + b"\r\n"
    with speaker(said, bytes(2**20)) as url, CameraProcess(CameraView(url, 16)) as camera:
        status = Path(f"/proc/{camera._child.process.pid}/status")
        assert camera.read(20) is not None
        peaks = [most_memory(status)]
        with suppress(OSError, StopIteration, CameraLostError):  # the child has ended
            while True:
                camera.read(0.01)
                peaks.append(most_memory(status))
        with pytest.raises(CameraLostError):
            camera.read(5)
    assert 100 < max(peaks) - peaks[0] < 270


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("rtsp://", "not an address"),
        ("rtsp://door:port/live", "not an address"),
        ("ftp://door/live", "downloaded first"),
        ("http://door/mug.mp4", "download it first"),
        ("env:PRIMAVISTA_NOT_SET", "is not set"),
        ("camera:front", "camera:0 for the first one"),
    ],
)
def test_sources_that_are_not_cameras(source: str, expected: str) -> None:
    assert is_live(source)
    with pytest.raises((InputError, FileError), match=expected):
        open_frames(source)


def test_names_hide_secrets() -> None:
    assert live_name("rtsp://ann:secret@door:8554/live?pwd=1#x") == "rtsp://door:8554/live"
    assert live_name("http://[::1]:8080/a") == "http://[::1]:8080/a"
    address = read_address("rtsp://an%40n:s%3Ae@door/live?pwd=1", ("rtsp",), "")
    assert (address.user, address.password) == ("an@n", "s:e")
    assert shows_password("rtsp://ann:secret@door/live")
    assert not shows_password("rtsp://door/live")
    assert not is_live("mug.mp4")
    assert not is_live(Path("/dev/video0"))
    assert "secret" not in repr(Lesson("cat", "rtsp://ann:secret@door/live", "rtsp://door/live"))


@pytest.mark.parametrize("text", ["", "0,0,1", "0,0,2,1", "0.5,0,0.5,1", "a,b,c,d", "nan,0,1,1"])
def test_a_region_outside_the_picture(text: str) -> None:
    with pytest.raises(InputError, match="shares from 0 to 1"):
        read_region(text)


def test_a_region_of_files(tmp_path: Path) -> None:
    video = media.make_video(tmp_path / "halves.mp4", 4, frame=halves)
    right = open_frames(video, size=16, region=read_region("0.6,0,1,1"))
    left = open_frames(video, size=16, region=read_region("0,0,0.4,1"))
    assert right.frames.min() > 200
    assert left.frames.max() < 50


@pytest.mark.slow
def test_rtsp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shade = lambda i: np.full((48, 64, 3), 60 if i < 10 else 180, np.uint8)  # noqa: E731
    video = media.make_video(tmp_path / "door.mp4", 300, rate=20, frame=shade)
    with rtsp_camera(video, "ann", "secret") as (port, server):
        url = f"rtsp://ann:secret@127.0.0.1:{port}/door"
        clip = open_frames(url, size=32, seconds=1.0)
        assert clip.source == f"rtsp://127.0.0.1:{port}/door"
        means = clip.frames.mean((1, 2, 3))
        assert abs(means[0] - 60) < 5
        assert abs(means[-1] - 180) < 5
        assert 2 <= len(clip) <= 25
        with pytest.raises(CameraLostError, match="user and a password"):
            open_frames(url.replace("secret", "guess"), size=32)
        with pytest.raises(CameraLostError, match="no such stream"):
            open_frames(url.replace("door", "window"), size=32)
        # killed in the middle of a lesson
        seen: list[int] = []

        def kill(done: int, total: int | None) -> None:
            seen.append(done)
            server.kill()

        with pytest.raises(CameraLostError):
            open_frames(url, size=32, seconds=60, stall=3, progress=kill)
        assert seen
