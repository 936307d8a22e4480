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
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
from PIL import Image

from primavista.errors import FileError, require_extra
from primavista.media.addresses import Address
from primavista.media.decode import FrameTimer, timed_frames, turned
from primavista.media.images import ImageArray, centre_square, cut_region
from primavista.media.pipes import (
    FILM,
    HTTP,
    V4L2,
    CameraHeader,
    CameraJob,
    receive_header,
    send_header,
)
from primavista.media.v4l2 import capture_device

MEMORY = 2**30  # bytes that decoding may take


def main() -> None:
    """Read the camera of the job on standard input until it ends or nobody reads the frames."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    fields = receive_header(sys.stdin.buffer)
    if fields is None:
        return
    job = CameraJob(**fields)  # type: ignore[arg-type]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a decoder that prints does not disturb the frames
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
    _limit_memory()
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


def _limit_memory() -> None:
    """Let this process have the memory of one decoder, and no more."""
    try:
        import resource

        with open("/proc/self/statm") as statm:
            private = int(statm.read().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):  # not Linux
        return
    resource.setrlimit(resource.RLIMIT_DATA, (private + MEMORY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
