"""Cameras at this machine: FFmpeg's own Video4Linux input reads an emulated USB camera.

The library of `v4l2_device.c` answers in the place of the kernel; everything above it is real.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import primavista as pv
from primavista.cli.app import app
from primavista.media.camera import CameraLostError, CameraView, camera_frames
from primavista.media.video import open_frames

from ..events.event_servers import Listener, Mosquitto, until
from .camera_servers import jpeg
from .v4l2_camera import DAMAGED, PULLED, V4l2Camera, emulate_v4l2, yuyv

pytest.importorskip("av")
DEVICE = "/dev/video0"
BLUE, YELLOW = (20, 40, 200), (250, 230, 20)


@pytest.fixture
def cameras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cameras"
    folder.mkdir()
    emulate_v4l2(folder, monkeypatch)
    return folder


def moving(i: int) -> np.ndarray[Any, Any]:
    """48 x 64: a yellow square on blue, which goes two pixels to the right per frame."""
    picture = np.full((48, 64, 3), BLUE, np.uint8)
    picture[10:26, 2 * i : 2 * i + 16] = YELLOW
    return picture


def plain(value: int) -> np.ndarray[Any, Any]:
    picture = np.full((48, 64, 3), value, np.uint8)
    picture[::4, ::4] = 128  # not quite plain
    return picture


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    learner = pv.Learner("ncm", weights="random", size=32, width=0.25, threshold=0.0)
    for label, value in (("coal", 10), ("snow", 245)):
        learner.learn(np.stack([plain(value)] * 4), label)
    learner.save(tmp_path / "hut.pv")
    return tmp_path / "hut.pv"


@pytest.mark.parametrize("kind", ["YUYV", "MJPG"])
def test_every_frame_comes_in_order_and_in_its_colours(cameras: Path, kind: str) -> None:
    camera = V4l2Camera(cameras)
    pictures = [moving(i) for i in range(20)]
    made = yuyv if kind == "YUYV" else jpeg
    camera.film([(made(one), 0) for one in pictures], kind, 64, 48)
    # 100 frames come in this time; a busy machine may read fewer, but never another order
    frames = list(camera_frames(CameraView(DEVICE, None), seconds=2, keep=256))
    assert 15 <= len(frames) <= 105
    for i, frame in enumerate(frames):
        # the colours of two pixels are one in YUYV, those of four in this JPEG
        differences = np.abs(frame.image.astype(int) - pictures[i % 20])
        assert np.median(differences) < 5
        assert differences.mean() < 12
        columns = np.flatnonzero((frame.image[16:20, :, 0] > 135).all(0))
        assert columns[0] == pytest.approx(2 * (i % 20), abs=1)
        assert columns[-1] == pytest.approx(2 * (i % 20) + 15, abs=1)
    gaps = np.diff([frame.at for frame in frames])
    # 50 per second, if the machine is not busy: then some gaps are longer, but not all of them
    assert np.quantile(gaps, 0.1) < 0.04
    assert np.median(gaps) > 0.01


@pytest.mark.parametrize("kind", ["YUYV", "MJPG"])
def test_a_damaged_buffer_costs_one_frame(cameras: Path, kind: str) -> None:
    camera = V4l2Camera(cameras)
    whole = (yuyv if kind == "YUYV" else jpeg)(plain(200))
    short = whole[: len(whole) // 3]  # a packet was lost on the bus
    film = [(short, 0), (whole, DAMAGED), (b"", 0)] + [(whole, 0)] * 3
    camera.film(film, kind, 64, 48)
    frames = list(camera_frames(CameraView(DEVICE, None), seconds=2, keep=256))
    assert len(frames) >= 8
    # FFmpeg repairs a short JPEG; a short picture in YUYV is left out
    assert sum(abs(frame.image.mean() - 200) < 10 for frame in frames) >= 0.7 * len(frames)


def test_the_second_camera_is_not_the_metadata_of_the_first(cameras: Path) -> None:
    for number, value in ((0, 10), (2, 245)):
        V4l2Camera(cameras, number).show(lambda i, value=value: plain(value), 1)
        V4l2Camera(cameras, number + 1).be("metadata")
    for number, value in ((0, 10), (1, 245)):
        frame = next(camera_frames(CameraView(f"camera:{number}", 16)))
        assert abs(frame.image.mean() - value) < 12
    for source in ("camera:2", "/dev/video1", "/dev/video4"):
        with pytest.raises(CameraLostError, match="has /dev/video0, /dev/video2") as caught:
            open_frames(source, size=16)
        assert source in str(caught.value)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("gone", "no such camera; this machine has none. Connect a camera"),
        ("busy", "busy.*close other programs"),
        ("forbidden", "Permission denied.*the group video"),
    ],
)
def test_a_camera_that_cannot_be_opened(cameras: Path, state: str, expected: str) -> None:
    V4l2Camera(cameras).be(state)
    for source in (DEVICE, "camera:0"):
        with pytest.raises(CameraLostError, match=expected):
            open_frames(source, size=16)


def test_a_camera_that_falls_silent(cameras: Path) -> None:
    camera = V4l2Camera(cameras)
    silence = lambda done, total: camera.be("silent")  # noqa: E731
    with pytest.raises(CameraLostError, match=r"gave no frame for 0\.7 s"):
        open_frames(DEVICE, size=16, seconds=60, stall=0.7, progress=silence)


@pytest.mark.slow
def test_a_lesson_and_a_lesson_in_which_the_plug_is_pulled(cameras: Path, model: Path) -> None:
    camera = V4l2Camera(cameras)
    camera.show(lambda i: plain(120), 1)
    result = call("learn", model, DEVICE, "--label", "fog", "--seconds", 0.5)
    assert result.exit_code == 0, (result.output, result.exception)
    assert pv.Learner.load(model).labels == ["coal", "snow", "fog"]
    before = model.read_bytes()

    camera.film([(yuyv(plain(90)), 0)] * 20 + [(b"", PULLED)], "YUYV", 64, 48)
    result = call("learn", model, "camera:0", "--label", "rain", "--seconds", 60)
    assert result.exit_code == 1
    assert "camera:0: No such device. Connect a camera" in " ".join(result.output.split())
    assert model.read_bytes() == before


@pytest.mark.slow
def test_watching_goes_on_when_the_plug_is_put_in_again(
    cameras: Path, model: Path, tmp_path: Path
) -> None:
    camera = V4l2Camera(cameras)
    camera.show(lambda i: plain(10), 1)
    with Mosquitto(tmp_path) as broker, Listener(broker.port) as home:
        ended = threading.Event()

        def director() -> None:
            try:
                until(lambda: len(home.events) == 2)
                camera.be("gone")
                until(lambda: len(home.events) == 3)
                camera.show(lambda i: plain(245), 1)
                camera.be("on")
                until(lambda: len(home.events) == 5)
            finally:  # also if something did not come: a camera is waited for without an end
                if not ended.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)  # as systemd does

        thread = threading.Thread(target=director)
        thread.start()
        options = ["--hold", 0.2, "--fps", 20, "--seconds", 60, "--json"]
        result = call("watch", model, "camera:0", *options, "--mqtt", broker.url)
        ended.set()
        thread.join(30)
    assert not thread.is_alive()
    assert result.exit_code == 0, (result.output, result.exception)
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert home.events == told
    said = [one.get("label", one.get("state")) for one in told]
    assert said == ["online", "coal", "offline", "online", "snow"]
    assert "No such device" in told[2]["reason"]
