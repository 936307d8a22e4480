"""Videos of this machine: a child process decodes them, as it does for clients of the service.

A video may come from anybody, and a small file can declare a large one. The child has limits on
memory, pixels and the processor time of each frame; whatever it meets costs one file.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from primavista.errors import FileError, require_extra
from primavista.media import images
from primavista.media.child import Child, FrameHeader, StoppedError
from primavista.media.images import SKIP, ImageArray, Region, TooLargeError

LARGEST_TERM = 100_000  # of a frame rate, which is a fraction such as 30000/1001
_children: set[Child] = set()
_idle: list[Child] = []  # those that wait for the next video; a process that is forked has none
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
    os.register_at_fork(after_in_child=_children.clear)


@dataclass(frozen=True)
class VideoJob:
    """What the child needs to read a video file.

    Attributes:
        path: The file, as the user named it.
        folder: The working folder.
        pixels: The largest number of pixels of a frame.
        facts: True to ask only for the rate and the number of frames.
        size: The side of the frames to make; None for the whole picture.
        fps: The number of frames per second to take; None for all.
        region: The part of the picture to look at; None for all of it.
        first: The number of the first frame.
        every: Only frames whose number is a multiple of this are made.
    """

    path: str
    folder: str
    pixels: int
    facts: bool = False
    size: int | None = None
    fps: float | None = None
    region: Region | None = None
    first: int = 0
    every: int = 1


def video_frames(
    path: Path,
    size: int | None,
    fps: float | None = None,
    region: Region | None = None,
    *,
    first: int = 0,
    every: int = 1,
) -> Generator[tuple[float, Any]]:
    """Decode the frames of a video file in order, with their times.

    Args:
        path: The file.
        size: The side of the frames in pixels; None keeps whole pictures.
        fps: The number of frames per second to take; all by default.
        region: The part of the picture to look at; None for all of it.
        first: The number of the first frame.
        every: Only frames whose number is a multiple of this are made.

    Yields:
        The seconds from the start; and a frame, a `FileError` in place of a damaged one, or None if
        it was not to be made.

    Raises:
        FileError: If the file is missing, damaged or not a video, or exceeds a limit.
    """
    job = VideoJob(
        str(path),
        os.getcwd(),
        images.MAX_PIXELS,
        size=size,
        fps=fps,
        region=region,
        first=first,
        every=every,
    )
    with _answers(job) as answers:
        for header, image in answers:
            yield header.seconds, FileError(header.reason) if header.reason else image


def video_facts(path: Path) -> tuple[Fraction, int]:
    """Return the frames per second of a video file, and how many it says that it holds.

    Args:
        path: The file. If it does not say how many frames it holds, that number is 0.

    Raises:
        FileError: If the file is missing, damaged or not a video.
    """
    job = VideoJob(str(path), os.getcwd(), images.MAX_PIXELS, facts=True)
    with _answers(job) as answers:
        ((header, _),) = answers
    return Fraction(header.rate).limit_denominator(LARGEST_TERM), header.count


@contextmanager
def _answers(job: VideoJob) -> Iterator[Iterator[tuple[FrameHeader, ImageArray | None]]]:
    """Let a child do a job; it is ended if it is interrupted, stops or exceeds a limit."""
    require_extra("av", "video")

    def is_possible(width: int, height: int) -> bool:
        return width * height <= job.pixels if job.size is None else width == height == job.size

    child = _idle.pop() if _idle else Child("video_child")
    _children.add(child)
    can_go_on = False
    try:
        child.send(job)
        yield child.answers(is_possible)
        can_go_on = True
    except StoppedError as error:
        advice = f"Restore or repair it, or {SKIP}"
        raise FileError(f"{job.path} cannot be decoded: {error}. {advice}") from error
    except FileError as error:
        can_go_on = not isinstance(error, TooLargeError)
        raise
    finally:
        if can_go_on:
            _idle.append(child)
        else:
            _children.discard(child)
            child.close()


@atexit.register
def _end_children() -> None:
    while _children:
        _children.pop().close()
