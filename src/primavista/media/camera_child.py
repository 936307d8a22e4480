"""The child process that reads a camera: it opens the stream, decodes, crops and resizes.

What a network camera sends is read with much foreign code. Here that code has neither the model nor
anything to write to, and a limit on memory; whatever it meets costs one connection.
`primavista.media.camera` starts this process and kills it when no frame comes. The job, which may
hold a password, comes through standard input, because other users see the command line of a
process. This module does not import torch.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError

import numpy as np
from PIL import Image

from primavista.errors import FileError, require_extra
from primavista.media.addresses import Address
from primavista.media.child import limit_memory, open_pipes, receive_header, send_header
from primavista.media.decode import FrameTimer, timed_frames, turned
from primavista.media.images import ImageArray, Region, centre_square, cut_region

if TYPE_CHECKING:
    from http.client import HTTPResponse

MEMORY = 2**30  # bytes that decoding may take
HTTP = "http"  # in place of an input format of FFmpeg: MJPEG in parts over HTTP
FILM = "film"  # in place of one: a video file, played at its own speed, again and again
V4L2 = "v4l2"  # the input format of FFmpeg for cameras of Linux
NUMBERS = range(64)  # in the paths of devices that are looked at
QUERYCAP = 0x80685600  # the request VIDIOC_QUERYCAP of <linux/videodev2.h>
CAPABILITIES = struct.Struct("=84xII12x")  # struct v4l2_capability: of the camera, of the device
CAN_CAPTURE, HAS_DEVICE_CAPABILITIES = 0x1, 0x80000000


@dataclass(frozen=True)
class CameraJob:
    """A camera to read, and what to make of its frames.

    Attributes:
        url: What FFmpeg opens: a device, an address with its password, or a file; on Linux also the
            number of a camera.
        format: The input format of FFmpeg, or `HTTP` or `FILM`.
        options: Options of FFmpeg for this input.
        size: The side of the frames to make; None keeps the whole picture.
        fps: The most frames per second to send; None sends all.
        region: The part of the picture to look at, in shares of its sides; None for all of it.
        longest: The longest side of a whole picture to send; None sends it as it is.
        pixels: The largest number of pixels of a frame.
        opening: Within how many seconds the stream must open.
        stall: Within how many seconds the next frame must come.
    """

    url: str = field(repr=False)
    format: str
    options: dict[str, str]
    size: int | None
    fps: float | None
    region: Region | None
    longest: int | None
    pixels: int
    opening: float
    stall: float


@dataclass(frozen=True)
class CameraHeader:
    """One frame of a camera, whose bytes follow, or the reason why there are no more.

    Attributes:
        width: The width of the frame in pixels; 0 if there are no more.
        height: Its height.
        reason: Why there are no more.
    """

    width: int = 0
    height: int = 0
    reason: str = ""


def main() -> None:
    """Read the camera of the job on standard input until it ends or nobody reads the frames."""
    jobs, answers = open_pipes()
    fields = receive_header(jobs)
    if fields is None:
        return
    job = CameraJob(**fields)  # type: ignore[arg-type]
    try:
        for frame in read_camera(job):
            send_header(answers, CameraHeader(frame.shape[1], frame.shape[0]))
            answers.write(frame.tobytes())
            answers.flush()
    except BrokenPipeError:  # the parent has gone
        os._exit(0)
    except FileError as error:
        reason = str(error)
    except MemoryError:
        reason = f"its frames take more than {MEMORY >> 20} MiB to decode"
    else:
        reason = "the stream ended"
    send_header(answers, CameraHeader(reason=reason))
    answers.flush()


def read_camera(job: CameraJob) -> Iterator[ImageArray]:
    """Read the frames of a camera as they come.

    Args:
        job: What to read, and what to make of it.

    Yields:
        uint8 arrays, size x size x 3, or the whole region.

    Raises:
        FileError: If the stream cannot be opened or breaks; the message holds no address.
    """
    av = require_extra("av", "video")
    limit_memory(MEMORY)
    if job.format == FILM:
        yield from _film(job)
        return
    try:
        with _opened(av, job) as container:
            yield from _frames(av, container, job)
    except (av.FFmpegError, OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError | FileError):
            raise
        raise FileError(_reason(error, job)) from error


def _opened(av: Any, job: CameraJob) -> Any:
    """Open the container of a camera."""
    if job.format == HTTP:
        stream = _http_stream(Address("", job.url), job)
        return av.open(stream, format="mpjpeg", metadata_errors="replace", buffer_size=65536)
    return av.open(
        capture_device(job.url) if job.format == V4L2 else job.url,
        format=job.format,
        options=job.options,
        timeout=(job.opening, job.stall),
        metadata_errors="replace",
    )


def _frames(av: Any, container: Any, job: CameraJob) -> Iterator[ImageArray]:
    stream = next((s for s in container.streams.video if s.codec_context is not None), None)
    if stream is None:
        raise FileError("it has no video that can be decoded")
    context = stream.codec_context
    _check_pixels(context.width, context.height, job.pixels)
    context.options = {"max_pixels": str(2 * job.pixels + 2**16)}
    context.thread_count = 1
    begin, due = None, FrameTimer(job.fps)
    for packet in _packets(container, stream):
        try:
            frames = packet.decode()
        except av.InvalidDataError:  # a damaged packet, or the stream was joined in the middle
            continue
        for frame in frames:
            _check_pixels(frame.width, frame.height, job.pixels)
            now = time.monotonic()
            begin = now if begin is None else begin
            if due(now - begin) and not frame.is_corrupt:
                yield _made(turned(frame), job)


def _film(job: CameraJob) -> Iterator[ImageArray]:
    """Play a video file at its own speed; when it ends, it begins again."""
    while True:
        begin, due, count = time.monotonic(), FrameTimer(job.fps), 0
        for seconds, frame in timed_frames(job.url, max_pixels=job.pixels):
            if isinstance(frame, FileError) or not due(seconds):
                continue
            time.sleep(max(begin + seconds - time.monotonic(), 0.0))
            yield _made(turned(frame), job)
            count += 1
        if not count:
            raise FileError("none of its frames can be decoded")


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """Packets as they come, without those of damaged buffers, which a device gives as empty ones.

    Some devices say that there is no packet yet instead of waiting.
    """
    while True:
        try:
            for packet in container.demux(stream):
                if packet.size > 0 or packet.pts is None:  # without a time: the end of the stream
                    yield packet
            return
        except BlockingIOError:
            time.sleep(0.005)


def _made(picture: Image.Image, job: CameraJob) -> ImageArray:
    if job.region is not None:
        picture = cut_region(picture, job.region)
    if job.size is not None:
        return centre_square(picture, job.size)
    if job.longest is not None:
        picture.thumbnail((job.longest, job.longest), Image.Resampling.BILINEAR)
    return np.asarray(picture)


def _check_pixels(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise FileError(f"its frames of {width} x {height} pixels are over the limit of {most}")


class HttpBody(io.RawIOBase):
    """The body of an answer as PyAV reads it: as many bytes as there are, not as many as asked for.

    Args:
        answer: The answer of the server.
    """

    def __init__(self, answer: HTTPResponse) -> None:
        self.answer = answer

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the bytes that have come, at most `size` and at least one; none at the end.

        Args:
            size: The most bytes to return.
        """
        return self.answer.read1(size)


def _http_stream(address: Address, job: CameraJob) -> HttpBody:
    """Ask for an MJPEG stream; certificates are checked, and only HTTP is followed."""
    import urllib.request  # slow, and only this process needs it

    logins = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    if address.user is not None:
        logins.add_password(None, address.without_login, address.user, address.password or "")
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPBasicAuthHandler(logins),
        urllib.request.HTTPDigestAuthHandler(logins),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    answer = opener.open(address.without_login, timeout=job.stall)
    if answer is None:
        raise FileError("it leads to another kind of address")
    kind = answer.headers.get_content_type()
    if not kind.startswith("multipart/"):
        raise FileError(
            f"it answers with {kind!r:.60}, not with MJPEG (multipart/x-mixed-replace): "
            "a single file is downloaded first, and a camera has another address for its stream"
        )
    return HttpBody(answer)


def _reason(error: Exception, job: CameraJob) -> str:
    """Say why a camera cannot be read, without its address, which PyAV puts into its errors."""
    if isinstance(error, HTTPError):
        return _status(error.code)
    if isinstance(error, URLError):
        inner = error.reason
        return str(getattr(inner, "strerror", None) or inner)
    if isinstance(error, TimeoutError) or type(error).__name__ == "ExitError":
        return "it does not answer"
    text = str(getattr(error, "strerror", None) or type(error).__name__)
    code = next((int(word) for word in text.split() if word in ("401", "403", "404")), None)
    return text if code is None else _status(code)


def _status(code: int) -> str:
    texts = {
        401: "it asks for a user and a password, or for others than these (401)",
        403: "it does not allow this (403)",
        404: "there is no such stream (404): the path of the address is wrong",
    }
    return texts.get(code, f"it answers with the status {code}")


def capture_device(name: str) -> str:
    """Return the path of a camera's device, such as /dev/video2 for the second camera.

    A USB camera usually has two devices, one for pictures and one for metadata; only those for
    pictures are counted.

    Args:
        name: The number of the camera, from 0, or the path of its device.

    Raises:
        FileError: If there is no such camera; the message lists those that there are.
    """
    if not name.isdecimal() and _may_capture(name):
        return name
    cameras = [path for path in (f"/dev/video{i}" for i in NUMBERS) if _may_capture(path)]
    if name.isdecimal() and int(name) < len(cameras):
        return cameras[int(name)]
    raise FileError(f"there is no such camera; this machine has {', '.join(cameras) or 'none'}")


def _may_capture(path: str) -> bool:
    """Ask a device whether it gives pictures; True if it is there but does not say."""
    import fcntl

    try:
        device = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:  # busy, or not allowed: whoever opens it says so
        return True
    facts = bytearray(CAPABILITIES.size)
    try:
        fcntl.ioctl(device, QUERYCAP, facts)
    except OSError:
        return True
    finally:
        os.close(device)
    of_camera, of_device = CAPABILITIES.unpack(facts)
    abilities = of_device if of_camera & HAS_DEVICE_CAPABILITIES else of_camera
    return bool(abilities & CAN_CAPTURE)


if __name__ == "__main__":
    main()
