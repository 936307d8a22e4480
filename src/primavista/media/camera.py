"""Cameras: at this machine, and on the network by RTSP or as MJPEG over HTTP.

Each is read by a child process (`camera_child`), which is killed when no frame comes for too long.
A thread takes the frames from it as they come, so a slow reader gets the newest frame, not an old
one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any, NamedTuple

import numpy as np

from primavista.errors import FileError, InputError, require_extra
from primavista.media.addresses import (
    CAMERA,
    DEVICE,
    STALL,
    VIDEOS,
    Backoff,
    camera_address,
    is_address,
    is_live,
    live_name,
)
from primavista.media.camera_child import FILM, HTTP, V4L2, CameraHeader, CameraJob
from primavista.media.child import receive_header, send_header, start_child
from primavista.media.images import ImageArray, Region

MAX_PIXELS = 7680 * 4320  # of a frame: 8K
OPENING = 20.0  # seconds until the first frame
LESSON_FRAMES = 256  # that may wait to be taken, if none may be dropped
RTSP = {
    "rtsp_transport": "tcp",
    "allowed_media_types": "video",
    "protocol_whitelist": "rtsp,rtsps,rtp,tcp,tls",
    "format_whitelist": "rtsp,sdp,rtp",
    "fpsprobesize": "0",  # otherwise 20 frames are read before the first one is given
    "analyzeduration": "2000000",  # microseconds
}
STOPPED = "its stream made the decoder stop"
log = logging.getLogger("primavista")


class CameraLostError(FileError):
    """Raised if a camera cannot be opened, ends, or gives no frame for too long."""


class CameraFrame(NamedTuple):
    """A frame of a camera, and when it came, in the seconds of `time.monotonic`."""

    at: float
    image: ImageArray


@dataclass(frozen=True)
class CameraView:
    """A camera, and what is taken of its picture.

    Args:
        source: "camera:0", "/dev/video0", "rtsp://...", "http://..." or "env:NAME"; or the path of
            a video file, which is played at its own speed, again and again.
        size: The side of the frames in pixels; None keeps the whole picture.
        fps: The most frames per second to take; None takes all.
        region: The part of the picture to look at; None for all of it.
        stall: After how many seconds without a frame the camera counts as lost.
        longest: The longest side of a whole picture, in pixels; a larger one is made smaller.
    """

    source: str
    size: int | None
    fps: float | None = None
    region: Region | None = None
    stall: float = STALL
    longest: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.stall <= 3600:
            raise InputError(f"stall must lie from 0 to 3600 seconds; got {self.stall}")

    @property
    def name(self) -> str:
        """The name of the camera in messages and events; it does not show the password."""
        return live_name(self.source)


def is_film(source: str) -> bool:
    """Return True if a source is a video file, which can take the place of a camera.

    Args:
        source: What the user named.
    """
    path = Path(source).expanduser()
    return path.suffix.lower() in VIDEOS and path.is_file()


def camera_frames(
    view: CameraView, seconds: float = math.inf, keep: int = 1
) -> Iterator[CameraFrame]:
    """Read the frames of a camera as they come, over one connection.

    Args:
        view: The camera, and what is taken of it.
        seconds: How long to read, from the first frame on; by default until the camera is lost.
        keep: How many frames may wait to be taken. If more come, the oldest are dropped.

    Yields:
        The frames with their times.

    Raises:
        CameraLostError: If the camera cannot be opened, ends, or stalls.
        InputError: If there is no such kind of camera.
    """
    with CameraProcess(view, keep) as camera:
        frame: CameraFrame | None = camera.read(OPENING)
        assert frame is not None
        end = frame.at + seconds
        while frame is not None and frame.at < end:
            yield frame
            left = max(0.0, end - time.monotonic())
            frame = camera.read_within(min(view.stall, left))
            if frame is None and left > view.stall:
                raise camera.stalled(view.stall)


def check_filmed(view: CameraView, silent: float, seconds: float) -> None:
    """Refuse a lesson if no frame came at its end, for over a second and over a quarter of it.

    Args:
        view: The camera.
        silent: How many seconds have passed since its last frame.
        seconds: How long the lesson was to be.

    Raises:
        CameraLostError: If that is too long.
    """
    between = 0.0 if view.fps is None else 1 / view.fps
    if silent > between + max(1.0, 0.25 * seconds):
        raise CameraLostError(
            f"{view.name} gave no frame in the last {silent:.1f} of {seconds:g} s. "
            f"{_advice(view.source)}"
        )


def steady_frames(
    view: CameraView,
    seconds: float = math.inf,
    *,
    patient: bool = False,
    stopped: Event | None = None,
    on_lost: Callable[[str], None] = lambda reason: None,
    on_back: Callable[[], None] = lambda: None,
) -> Iterator[CameraFrame]:
    """Read the frames of a camera, and connect again, with longer and longer waits, if it is lost.

    Args:
        view: The camera, and what is taken of it.
        seconds: How long to read, from the first frame on; by default until it is interrupted.
        patient: Also wait for a camera that cannot be opened at first.
        stopped: Ends the reading when it is set; a wait for the camera ends at once.
        on_lost: Called with the reason when the camera is lost, and when the reason changes.
        on_back: Called when the first frame comes after that.

    Yields:
        The newest frames with their times.

    Raises:
        CameraLostError: If the camera cannot be opened at first, unless `patient`.
        InputError: If there is no such kind of camera.
    """
    stopped = stopped or Event()
    waits, reason = Backoff(), ""
    began = math.inf
    left = seconds
    while left > 0 and not stopped.is_set():
        try:
            for frame in camera_frames(view, left):
                began = min(began, frame.at)
                if reason:
                    reason = ""
                    on_back()
                waits.reset()
                yield frame
                if stopped.is_set():
                    break
            return
        except CameraLostError as error:
            if began == math.inf and not patient:
                raise
            if str(error) != reason:
                reason = str(error)
                on_lost(reason)
        left = min(seconds, began + seconds - time.monotonic())
        stopped.wait(max(0.0, min(waits.next(), left)))


def camera_input(av: Any, number: int) -> tuple[str, str, dict[str, str]]:
    """Return FFmpeg's name, input format and options of a camera on this platform.

    On Linux the name is the number: the process that reads the camera finds its device.

    Args:
        av: The module of PyAV.
        number: The number of the camera, from 0.

    Raises:
        FileError: If there is no such camera (on Windows, which lists them).
    """
    if sys.platform == "darwin":
        return f"{number}:none", "avfoundation", {"framerate": "30", "pixel_format": "uyvy422"}
    if sys.platform == "win32":
        cameras = [
            d for d in av.device.enumerate_input_devices("dshow") if "video" in d.media_types
        ]
        if number >= len(cameras):
            raise FileError(
                f"there is no camera:{number}: this machine has {len(cameras)}. Connect one"
            )
        return f"video={cameras[number].description}", "dshow", {}
    return str(number), V4L2, {}


class CameraProcess:
    """The child process that reads a camera, and the thread that takes its frames.

    Use it in a `with` block, which ends the process.

    Args:
        view: The camera, and what is taken of it.
        keep: How many frames may wait to be taken.
    """

    def __init__(self, view: CameraView, keep: int = 1) -> None:
        self.name = view.name
        self._advice = _advice(view.source)
        self._size = view.size
        job = _job(view)
        self._frames: deque[CameraFrame] = deque(maxlen=keep)
        self._reason: str | None = None  # why there are no more frames
        self._ready = Condition()
        self._child = start_child("primavista.media.camera_child")
        assert self._child.stdin is not None
        with contextlib.suppress(OSError), self._child.stdin as pipe:  # it may have ended
            send_header(pipe, job)
        self._thread = Thread(target=self._take, name="camera", daemon=True)
        self._thread.start()

    def __enter__(self) -> CameraProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        self._thread.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def read(self, seconds: float) -> CameraFrame:
        """Wait for the next frame.

        Args:
            seconds: How long to wait.

        Raises:
            CameraLostError: If the camera ended, or if no frame comes.
        """
        frame = self.read_within(seconds)
        if frame is None:
            raise self.stalled(seconds)
        return frame

    def read_within(self, seconds: float) -> CameraFrame | None:
        """Wait for the next frame; None if none comes.

        Args:
            seconds: How long to wait.

        Raises:
            CameraLostError: If the camera ended.
        """
        with self._ready:
            self._ready.wait_for(lambda: self._frames or self._reason is not None, seconds)
            if self._frames:
                return self._frames.popleft()
            if self._reason is None:
                return None
        raise CameraLostError(f"{self.name}: {self._reason}. {self._advice}")

    def stalled(self, seconds: float) -> CameraLostError:
        """Return the error for a camera that gives no frame.

        Args:
            seconds: For how long it gave none.
        """
        return CameraLostError(f"{self.name} gave no frame for {seconds:g} s. {self._advice}")

    def _take(self) -> None:
        """Take frames from the child until there are no more: the body of the thread."""
        reason = None
        while reason is None:
            reason, image = self._next_frame()
            with self._ready:
                if image is not None:
                    self._frames.append(CameraFrame(time.monotonic(), image))
                self._reason = reason
                self._ready.notify_all()

    def _next_frame(self) -> tuple[str | None, ImageArray | None]:
        """Read one answer and check it: what the child decoded may have taken control of it."""
        pipe = self._child.stdout
        assert pipe is not None
        fields = receive_header(pipe)
        try:
            header = None if fields is None else CameraHeader(**fields)  # type: ignore[arg-type]
        except TypeError:
            header = None
        if header is None:
            return STOPPED, None
        if header.reason:
            return "".join(c for c in str(header.reason)[:500] if c.isprintable()), None
        sides = (header.height, header.width)
        if not _is_possible(sides, self._size):
            return STOPPED, None
        count = header.height * header.width * 3
        data = pipe.read(count)
        if len(data) < count:
            return STOPPED, None
        return None, np.frombuffer(bytearray(data), np.uint8).reshape(*sides, 3)


def _is_possible(sides: tuple[int, int], size: int | None) -> bool:
    """Return True if a frame may have these sides."""
    if not all(type(side) is int and side > 0 for side in sides):
        return False
    return sides[0] * sides[1] <= MAX_PIXELS if size is None else sides == (size, size)


def _job(view: CameraView) -> CameraJob:
    av = require_extra("av", "video")
    url, kind, options = _input(av, view.source)
    return CameraJob(
        url=url,
        format=kind,
        options=options,
        size=view.size,
        fps=view.fps,
        region=view.region,
        longest=view.longest,
        pixels=MAX_PIXELS,
        opening=OPENING,
        stall=view.stall,
    )


def _input(av: Any, source: str) -> tuple[str, str, dict[str, str]]:
    """Return what FFmpeg opens, its input format, and options."""
    if DEVICE.fullmatch(source):
        return source, V4L2, {}
    if not is_live(source):
        return str(Path(source).expanduser()), FILM, {}
    if source.startswith(CAMERA):
        number = source.removeprefix(CAMERA)
        if not number.isdecimal():
            raise FileError(
                f"{source!r} is not a camera: write camera:0 for the first one, camera:1 for the "
                "second"
            )
        return camera_input(av, int(number))
    address = camera_address(source)
    if address.parts.scheme in ("http", "https"):
        return address.url, HTTP, {}
    return address.url, "rtsp", dict(RTSP)


def _advice(source: str) -> str:
    if not is_live(source):
        return "Give a video file that can be played"
    if is_address(source):
        return "See that it is switched on, and that the address, user and password are right"
    return (
        "Connect a camera, close other programs that use it, and see that you are allowed to use "
        "it (on Linux: the group video)"
    )
