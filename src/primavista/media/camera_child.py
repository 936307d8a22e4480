"""The child process that reads a camera: it opens the stream, decodes, crops and resizes.

What a network camera sends is read with much foreign code. Here that code has neither the model nor
anything to write to, and a limit on memory; whatever it meets costs one connection.
`primavista.media.camera` starts this process and kills it when no frame comes. The job, which may
hold a password, comes through standard input, because other users see the command line of a
process. This module does not import torch.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from primavista.errors import FileError, require_extra
from primavista.media.camera import MJPEG, OPENING, V4L2, CameraJob
from primavista.media.child import answer_jobs, limit_memory
from primavista.media.decode import FrameTimer, turned
from primavista.media.images import ImageArray, as_frame, check_pixels

MEMORY = 256 * 2**20  # bytes that decoding may take
NUMBERS = range(64)  # in the paths of devices that are looked at
QUERYCAP = 0x80685600  # the request VIDIOC_QUERYCAP of <linux/videodev2.h>
CAPABILITIES = struct.Struct("=84xII12x")  # struct v4l2_capability: of the camera, of the device
CAN_CAPTURE, HAS_DEVICE_CAPABILITIES = 0x1, 0x80000000

STATUS = {  # by what FFmpeg says
    "401": "it asks for a user and a password, or for others than these (401)",
    "403": "it does not allow this (403)",
    "404": "there is no such stream (404): the path of the address is wrong",
}
NOT_MJPEG = (
    "it does not answer with MJPEG (multipart/x-mixed-replace): a single file is downloaded first, "
    "and a camera has another address for its stream"
)


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
    except (av.FFmpegError, OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(_reason(error, job)) from error


def _opened(av: Any, job: CameraJob) -> Any:
    """Open the container of a camera."""
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
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return  # the connection was closed


def _made(frame: Any, job: CameraJob) -> ImageArray:
    side = job.size or job.longest
    return as_frame(turned(frame), side, job.region, whole=job.size is None)


def _reason(error: Any, job: CameraJob) -> str:
    """Say why a camera cannot be read, without its address, which PyAV puts into its errors."""
    if isinstance(error, TimeoutError) or type(error).__name__ == "ExitError":
        return "it does not answer"
    if job.format == MJPEG and (isinstance(error, ValueError) or error.errno == errno.EIO):
        return NOT_MJPEG
    text = str(getattr(error, "strerror", None) or type(error).__name__)
    code = next((word for word in text.split() if word in STATUS), None)
    return text if code is None else STATUS[code]


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
