"""The child process that decodes video files of this machine, one after another.

`primavista.media.video_file` starts it. This module does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from primavista.errors import require_extra
from primavista.media import decode
from primavista.media.child import (
    FrameHeader,
    answer_jobs,
    limit_memory,
    limit_processor_time,
)
from primavista.media.images import SKIP, ImageArray, TooLargeError
from primavista.media.video_file import VideoJob

MEMORY = 512 * 2**20  # bytes that decoding may take
SECONDS = 60  # of the processor, until the next frame
THREADS = 4  # each takes memory for frames of its own


def read_video(job: VideoJob, _: BinaryIO) -> Iterator[FrameHeader | tuple[float, ImageArray]]:
    """Read the frames of a video file, or its facts.

    Args:
        job: What to read, and what to make of it.
        _: The pipe of the jobs; nothing follows this one.

    Yields:
        The facts, if these are asked for; otherwise the time of each frame, with the frame if it is
        wanted, or with the reason why it cannot be decoded.

    Raises:
        FileError: If the file cannot be read, or exceeds a limit.
    """
    os.chdir(job.folder)
    limit_memory(MEMORY)
    limit_processor_time(SECONDS)
    try:
        if job.facts:
            rate, count = decode.video_rate(job.path)
            yield FrameHeader(more=True, rate=float(rate), count=count)
            return
        frames = decode.timed_frames(job.path, job.fps, job.pixels)
        for number, (seconds, frame) in enumerate(frames, job.first):
            limit_processor_time(SECONDS)
            if isinstance(frame, OSError):
                yield FrameHeader(more=True, seconds=seconds, reason=str(frame))
            elif number % job.every:
                yield FrameHeader(more=True, seconds=seconds)
            else:
                yield seconds, decode.upright(frame, job.size, job.region)
    except MemoryError as error:
        raise TooLargeError(
            f"{job.path} takes more memory to decode than is allowed: make it smaller, or {SKIP}"
        ) from error


if __name__ == "__main__":
    require_extra("av", "video")  # the limits of a job must not count the import
    decode.threads = min(THREADS, os.cpu_count() or 1)
    answer_jobs(VideoJob, read_video)
