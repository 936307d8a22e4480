"""The child process that decodes what clients send: one picture or video after another.

Decoders run much code on bytes that may be hostile. This process has neither the model nor the
connections of clients, and its memory and processor time are limited: an attack costs one request.
`primavista.media.decoder` starts the process, and kills it when it takes too long. Jobs and answers
go through pipes: a header in JSON, then bytes. This module does not import torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from dataclasses import dataclass
from typing import Literal

from primavista.errors import FileError, MissingExtraError, require_extra
from primavista.media import decode
from primavista.media.images import ImageArray, TooLargeError, decode_image, without_skip
from primavista.media.pipes import receive_header, send_header
from primavista.media.video import BadFiles, FrameSampler

BACKGROUND = 10  # added to the niceness of the processes for photographs and videos


@dataclass(frozen=True)
class DecodeJob:
    """One picture or video to decode; its bytes follow.

    Attributes:
        kind: The kind of the input.
        name: The name of the input in messages.
        length: The number of bytes.
        size: The side of the frames to make, in pixels; the longest side of a whole picture.
        pixels: The largest number of pixels of a picture, or of a frame of a video.
        frames: The largest number of frames to keep of a video.
        seconds: The processor time that decoding may take.
        memory: The bytes of memory that decoding may take beyond the frames that it makes.
        whole: True for the whole picture instead of its centre square.
    """

    kind: Literal["picture", "video"]
    name: str
    length: int
    size: int
    pixels: int
    frames: int
    seconds: float
    memory: int
    whole: bool = False


@dataclass(frozen=True)
class DecodeAnswer:
    """The outcome of a job; the frames follow as bytes.

    Attributes:
        frames: The number of frames, 0 if there was an error.
        status: The HTTP status of a refusal; 200 if there was none.
        reason: The reason of a refusal.
        width: The width of a whole picture.
        height: Its height.
    """

    frames: int = 0
    status: int = 200
    reason: str = ""
    width: int = 0
    height: int = 0


def main() -> None:
    """Decode jobs from standard input until it ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the service, which ends this process
    if "background" in sys.argv[1:] and hasattr(os, "nice"):
        os.nice(BACKGROUND)
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a decoder prints must not get between the answers
    decode.threads = 1
    with contextlib.suppress(MissingExtraError):
        require_extra("av", "video")  # the limits of a job must not count the import
    while (fields := receive_header(jobs)) is not None:
        job = DecodeJob(**fields)  # type: ignore[arg-type]
        answer, frames = run_job(job, jobs.read(job.length))
        send_header(answers, answer)
        for frame in frames:
            answers.write(frame.tobytes())
        answers.flush()


def run_job(job: DecodeJob, data: bytes) -> tuple[DecodeAnswer, list[ImageArray]]:
    """Decode one picture or video within its limits.

    Args:
        job: The job.
        data: The encoded picture or video.

    Returns:
        The answer and the frames.
    """
    _set_limits(job)
    try:
        frames = _decoded(job, data)
    except MissingExtraError:
        return DecodeAnswer(status=422, reason="this machine cannot read videos: send frames"), []
    except MemoryError:
        reason = f"{job.name} takes more than {job.memory >> 20} MiB to decode: make it smaller"
        return DecodeAnswer(status=413, reason=reason), []
    except FileError as error:
        status = 413 if isinstance(error, TooLargeError) else 422
        return DecodeAnswer(status=status, reason=without_skip(error)), []
    if job.whole:
        height, width = frames[0].shape[:2]
        return DecodeAnswer(frames=1, width=width, height=height), frames
    return DecodeAnswer(frames=len(frames)), frames


def _decoded(job: DecodeJob, data: bytes) -> list[ImageArray]:
    file = io.BytesIO(data)
    if job.kind == "picture":
        return [decode_image(file, job.name, job.size, job.pixels, whole=job.whole)]
    sampler = FrameSampler(job.frames)
    sampler.offer(decode.video_frames(file, job.size, max_pixels=job.pixels), BadFiles())
    return sampler.frames


def _set_limits(job: DecodeJob) -> None:
    """Limit the memory and the processor time of this process to those of one job."""
    try:
        import resource
    except ImportError:  # Windows: the service ends what takes too long
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + job.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    try:
        with open("/proc/self/statm") as statm:
            private = int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:  # not Linux
        return
    memory = private + job.memory + job.frames * job.size**2 * 3
    # RLIMIT_AS would also count memory that is only reserved, such as 64 MiB per thread.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
