"""Messages between this process and a child that decodes: a header in JSON, then bytes.

The job and the header of the camera's child are here too, so that neither side imports the other.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING

from primavista.media.images import Region

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_HEADER = 65536  # bytes
HTTP = "http"  # in place of an input format of FFmpeg: MJPEG in parts over HTTP
FILM = "film"  # in place of one: a video file, played at its own speed, again and again
V4L2 = "v4l2"  # the input format of FFmpeg for cameras of Linux
_LENGTH = struct.Struct("!I")


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


def send_header(pipe: IO[bytes], header: DataclassInstance) -> None:
    """Write a header to a pipe.

    Args:
        pipe: The pipe; the bytes that belong to the header are written by the caller.
        header: A dataclass whose fields JSON can hold, such as the job or the answer.
    """
    data = json.dumps(asdict(header)).encode()
    pipe.write(_LENGTH.pack(len(data)) + data)


def receive_header(pipe: IO[bytes]) -> dict[str, object] | None:
    """Read a header from a pipe.

    Args:
        pipe: The pipe.

    Returns:
        Its fields, or None if the pipe has ended or what comes is not a header.
    """
    prefix = pipe.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(prefix)[0]
    if length > MAX_HEADER:
        return None
    try:
        fields = json.loads(pipe.read(length))
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
