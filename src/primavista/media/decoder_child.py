"""The child process that decodes pictures and videos, one after another.

An attack on a decoder costs one job: the memory and the processor time of this process are limited,
and `primavista.media.decoder`, which starts it, kills it when it takes too long.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Literal

from primavista.errors import FileError, MissingExtraError, require_extra
from primavista.media import decode
from primavista.media.child import answer_jobs, limit_memory, limit_processor_time
from primavista.media.images import ImageArray, decode_image, without_skip
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
        frames: The largest number of frames to keep.
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


def decode_job(job: DecodeJob, jobs: BinaryIO) -> Iterator[ImageArray]:
    """Decode one input within its limits.

    Args:
        job: The job.
        jobs: The pipe with the bytes of the input.

    Yields:
        The frames.

    Raises:
        TooLargeError: If it cannot be decoded within the limits.
        FileError: If it cannot be decoded at all.
    """
    file = io.BytesIO(jobs.read(job.length))
    limit_processor_time(job.seconds)
    limit_memory(job.memory + job.frames * job.size**2 * 3)
    try:
        if job.kind == "picture":
            yield decode_image(file, job.name, job.size, job.pixels, whole=job.whole)
            return
        sampler = FrameSampler(job.frames, BadFiles())
        frames = (frame for _, frame in decode.timed_frames(file, max_pixels=job.pixels))
        sampler.offer(frames, partial(decode.upright, size=job.size))
        yield from sampler.frames
    except MissingExtraError as error:
        raise FileError("this machine cannot read videos: send frames") from error
    except FileError as error:
        raise type(error)(without_skip(error)) from error


def main() -> None:
    """Decode jobs from standard input until it ends."""
    if "background" in sys.argv[1:] and hasattr(os, "nice"):
        os.nice(BACKGROUND)
    decode.threads = 1
    with contextlib.suppress(MissingExtraError):
        require_extra("av", "video")  # the limits of a job must not count the import
    answer_jobs(DecodeJob, decode_job, processes=False)


if __name__ == "__main__":
    main()
