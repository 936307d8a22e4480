"""The child process that reads a camera: it opens the stream, decodes, crops and resizes.

What a network camera sends is read with much foreign code. Here that code has neither the model nor
anything to write to, and a limit on memory; whatever it meets costs one connection.
`primavista.media.camera` starts this process and kills it when no frame comes. The job, which may
hold a password, comes through standard input, because other users see the command line of a
process. This module does not import torch.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from http.client import HTTPException
from types import SimpleNamespace
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError

from primavista.errors import FileError, require_extra
from primavista.media.addresses import Address
from primavista.media.camera import HTTP, OPENING, V4L2, CameraJob
from primavista.media.child import answer_jobs, limit_memory
from primavista.media.decode import FrameTimer, turned
from primavista.media.images import ImageArray, as_frame, check_pixels

MEMORY = 256 * 2**20  # bytes that decoding may take
NUMBERS = range(64)  # in the paths of devices that are looked at
QUERYCAP = 0x80685600  # the request VIDIOC_QUERYCAP of <linux/videodev2.h>
CAPABILITIES = struct.Struct("=84xII12x")  # struct v4l2_capability: of the camera, of the device
CAN_CAPTURE, HAS_DEVICE_CAPABILITIES = 0x1, 0x80000000


def read_camera(job: CameraJob, _: BinaryIO) -> Iterator[ImageArray]:
    """Read the frames of a camera as they come.

    Args:
        job: What to read, and what to make of it.
        _: The pipe of the jobs; nothing follows this one.

    Yields:
        uint8 arrays, size x size x 3, or the whole region.

    Raises:
        FileError: If the stream cannot be opened or breaks; the message holds no address.
    """
    av = require_extra("av", "video")
    limit_memory(MEMORY)
    try:
        with _opened(av, job) as container:
            yield from _frames(av, container, job)
    except (av.FFmpegError, OSError, ValueError, HTTPException) as error:
        if isinstance(error, FileError):
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
        timeout=(OPENING, job.stall),
        metadata_errors="replace",
    )


def _frames(av: Any, container: Any, job: CameraJob) -> Iterator[ImageArray]:
    stream = next((s for s in container.streams.video if s.codec_context is not None), None)
    if stream is None:
        raise FileError("it has no video that can be decoded")
    context = stream.codec_context
    check_pixels("a frame", context.width, context.height, job.pixels)
    context.options = {"max_pixels": str(2 * job.pixels + 2**16)}
    context.thread_count = 1
    begin, due = None, FrameTimer(job.fps)
    for packet in _packets(container, stream):
        try:
            frames = packet.decode()
        except av.InvalidDataError:  # a damaged packet, or the stream was joined in the middle
            continue
        for frame in frames:
            check_pixels("a frame", frame.width, frame.height, job.pixels)
            now = time.monotonic()
            begin = now if begin is None else begin
            if due(now - begin) and not frame.is_corrupt:
                yield _made(frame, job)


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


def _made(frame: Any, job: CameraJob) -> ImageArray:
    side = job.size or job.longest
    return as_frame(turned(frame), side, job.region, whole=job.size is None)


def _http_stream(address: Address, job: CameraJob) -> SimpleNamespace:
    """Ask for an MJPEG stream; certificates are checked, and only HTTP is followed.

    What is returned reads as many bytes as have come, not as many as PyAV asks for.
    """
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
    return SimpleNamespace(read=answer.read1)


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
    answer_jobs(CameraJob, read_camera)
