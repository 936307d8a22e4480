"""Cameras: at this machine, and on the network by RTSP or as MJPEG over HTTP.

Each is read by a child process (`camera_child`), which is killed when no frame comes for too long.
A thread takes the frames from it as they come, so a slow reader gets the newest frame, not an old
one.
"""

from __future__ import annotations

import math
import random
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any, NamedTuple

from primavista.errors import FileError, InputError, require_extra
from primavista.media.addresses import (
    CAMERA,
    DEVICE,
    STALL,
    camera_address,
    is_address,
    live_name,
)
from primavista.media.child import Child
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
HTTP = {
    "protocol_whitelist": "http,https,httpproxy,tcp,tls",
    "format_whitelist": "mpjpeg",
}
MJPEG = "mpjpeg"  # the input format of FFmpeg for MJPEG in parts over HTTP
V4L2 = "v4l2"  # the input format of FFmpeg for cameras of Linux
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0  # seconds until a lost camera is looked for again


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
        source: "camera:0", "/dev/video0", "rtsp://...", "http://..." or "env:NAME".
        size: The side of the frames in pixels; None keeps the whole picture.
        fps: The most frames per second to take; None takes all.
        region: The part of the picture to look at; None for all of it.
        stall: After how many seconds without a frame the camera counts as lost.
        longest: The longest side of a whole picture, in pixels; a larger one is made smaller.
        pixels: The largest number of pixels of a frame.
    """

    source: str = field(repr=False)
    size: int | None
    fps: float | None = None
    region: Region | None = None
    stall: float = STALL
    longest: int | None = None
    pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if not 0 < self.stall <= 3600:
            raise InputError(f"stall must lie from 0 to 3600 seconds; got {self.stall}")

    @property
    def name(self) -> str:
        """The name of the camera in messages and events; it does not show the password."""
        return live_name(self.source)


@dataclass(frozen=True)
class CameraJob(CameraView):
    """What the child needs to read a camera.

    Args:
        url: What FFmpeg opens: a device, an address with its password, or a file; on Linux also the
            number of a camera.
        format: The input format of FFmpeg, or `HTTP` or `FILM`.
        options: Options of FFmpeg for this input.
    """

    url: str = field(default="", repr=False)
    format: str = ""
    options: dict[str, str] = field(default_factory=dict)


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
        frame = camera.read(OPENING)
        if frame is None:
            raise _stalled(view, OPENING)
        end = frame.at + seconds
        while frame is not None and frame.at < end:
            yield frame
            left = max(0.0, end - time.monotonic())
            frame = camera.read(min(view.stall, left))
            if frame is None and left > view.stall:
                raise _stalled(view, view.stall)


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
    wait, reason = FIRST_WAIT, ""
    began = math.inf
    left = seconds
    while left > 0 and not stopped.is_set():
        try:
            for frame in camera_frames(view, left):
                began = min(began, frame.at)
                if reason:
                    reason = ""
                    on_back()
                wait = FIRST_WAIT
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
        # shortened at random: many that lost the same camera do not come back at the same moment
        stopped.wait(max(0.0, min(wait * random.uniform(0.5, 1.0), left)))
        wait = min(2 * wait, LONGEST_WAIT)


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
        self.view, self.name = view, view.name
        url, kind, options = _input(require_extra("av", "video"), view.source)
        self._frames: deque[CameraFrame] = deque(maxlen=keep)
        self._reason = ""  # why there are no more frames
        self._ready = Condition()
        self._child = Child("camera_child")
        self._child.send(CameraJob(**vars(view), url=url, format=kind, options=options))
        self._thread = Thread(target=self._take, name="camera", daemon=True)
        self._thread.start()

    def __enter__(self) -> CameraProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.process.kill()
        self._thread.join()
        self._child.close()

    def read(self, seconds: float) -> CameraFrame | None:
        """Wait for the next frame; None if none comes.

        Args:
            seconds: How long to wait.

        Raises:
            CameraLostError: If the camera ended.
        """
        with self._ready:
            self._ready.wait_for(lambda: self._frames or self._reason, seconds)
            if self._frames:
                return self._frames.popleft()
            if not self._reason:
                return None
        raise CameraLostError(f"{self.name}: {self._reason}. {_advice(self.view.source)}")

    def _take(self) -> None:
        """Take frames from the child until there are no more: the body of the thread."""
        reason = "the stream ended"
        try:
            for image in self._child.frames(self._is_possible):
                with self._ready:
                    self._frames.append(CameraFrame(time.monotonic(), image))
                    self._ready.notify_all()
        except FileError as error:
            reason = str(error)
        with self._ready:
            self._reason = reason
            self._ready.notify_all()

    def _is_possible(self, width: int, height: int) -> bool:
        if self.view.size is None:
            return width * height <= self.view.pixels
        return width == height == self.view.size


def _input(av: Any, source: str) -> tuple[str, str, dict[str, str]]:
    """Return what FFmpeg opens, its input format, and options."""
    if DEVICE.fullmatch(source):
        return source, V4L2, {}
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
        return address.url, MJPEG, {**HTTP, **_tls()}
    if address.parts.scheme == "rtsps":
        return address.url, "rtsp", {**RTSP, **_tls()}
    return address.url, "rtsp", dict(RTSP)


def _tls() -> dict[str, str]:
    """FFmpeg checks no certificate unless it is asked to; `SSL_CERT_FILE` names one of its own."""
    return {"tls_verify": "1", "ca_file": ssl.get_default_verify_paths().cafile or ""}


def _stalled(view: CameraView, seconds: float) -> CameraLostError:
    message = f"{view.name} gave no frame for {seconds:g} s. {_advice(view.source)}"
    return CameraLostError(message)


def _advice(source: str) -> str:
    if is_address(source):
        advice = "See that it is switched on, and that the address, user and password are right"
        if camera_address(source).parts.scheme in ("https", "rtsps"):
            advice += "; SSL_CERT_FILE names the file of a certificate of its own"
        return advice
    return (
        "Connect a camera, close other programs that use it, and see that you are allowed to use "
        "it (on Linux: the group video)"
    )
