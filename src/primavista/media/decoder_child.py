"""The child process that decodes pictures and videos, one after another.

An attack on a decoder costs one job: the memory and the processor time of this process are limited,
and `primavista.media.decoder`, which starts it, kills it when it takes too long.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from primavista.errors import FileError, MissingExtraError, require_extra
from primavista.media import decode
from primavista.media.child import (
    limit_memory,
    limit_processor_time,
    open_pipes,
    receive_header,
    send_header,
)
from primavista.media.images import ImageArray, Region, TooLargeError, decode_image, without_skip
from primavista.media.video import BadFiles, FrameSampler

BACKGROUND = 10  # added to the niceness of the processes for photographs and videos


@dataclass(frozen=True)
class DecodeJob:
    """One picture or video to decode.

    Attributes:
        kind: The kind of the input.
        name: The name of the input in messages.
        length: The number of bytes that follow.
        size: The side of the frames to make, in pixels; the longest side of a whole picture.
        pixels: The largest number of pixels of a picture, or of a frame of a video.
        frames: The largest number of frames to keep of a video.
        seconds: The processor time that decoding may take.
        memory: The bytes of memory that decoding may take beyond the frames that it makes.
        whole: True for the whole picture instead of its centre square.
        path: The file to open; by default the bytes follow.
        fps: The number of frames per second to take of a video; None takes all.
        region: The part of the picture to look at; None for all of it.
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
    path: str = ""
    fps: float | None = None
    region: Region | None = None


@dataclass(frozen=True)
class DecodeAnswer:
    """The outcome of a job.

    Attributes:
        length: The number of bytes of frames that follow.
        frames: The number of frames.
        width: The width of the frames.
        height: Their height.
        reason: Why the job was refused; empty if it was not.
        too_large: True if the input exceeds a limit, False if it is damaged.
    """

    length: int = 0
    frames: int = 0
    width: int = 0
    height: int = 0
    reason: str = ""
    too_large: bool = False


def main() -> None:
    """Decode jobs from standard input until it ends."""
    if "background" in sys.argv[1:] and hasattr(os, "nice"):
        os.nice(BACKGROUND)
    jobs, answers = open_pipes()
    decode.threads = 1
    with contextlib.suppress(MissingExtraError):
        require_extra("av", "video")  # the limits of a job must not count the import
    while (fields := receive_header(jobs)) is not None:
        job = DecodeJob(**fields)  # type: ignore[arg-type]
        answer, content = run_job(job, jobs.read(job.length))
        send_header(answers, answer)
        for part in content:
            answers.write(part)
        answers.flush()


def run_job(job: DecodeJob, data: bytes) -> tuple[DecodeAnswer, list[bytes]]:
    """Decode one input within its limits; return the answer and what follows it."""
    limit_processor_time(job.seconds)
    limit_memory(job.memory + job.frames * job.size**2 * 3)
    try:
        frames = _decoded(job, Path(job.path) if job.path else io.BytesIO(data))
    except MissingExtraError:
        return DecodeAnswer(reason="this machine cannot read videos: send frames"), []
    except MemoryError:
        reason = f"{job.name} takes more than {job.memory >> 20} MiB to decode: make it smaller"
        return DecodeAnswer(reason=reason, too_large=True), []
    except FileError as error:
        too_large = isinstance(error, TooLargeError)
        return DecodeAnswer(reason=without_skip(error), too_large=too_large), []
    height, width = frames[0].shape[:2]
    length = sum(frame.nbytes for frame in frames)
    return DecodeAnswer(length, len(frames), width, height), [frame.tobytes() for frame in frames]


def _decoded(job: DecodeJob, file: Path | BinaryIO) -> list[ImageArray]:
    if job.kind == "picture":
        return [decode_image(file, job.name, job.size, job.pixels, job.region, job.whole)]
    sampler = FrameSampler(job.frames)
    frames = decode.video_frames(file, job.size, job.fps, job.pixels, job.region)
    sampler.offer(frames, BadFiles())
    return sampler.frames


if __name__ == "__main__":
    main()
