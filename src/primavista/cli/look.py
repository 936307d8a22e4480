"""Frames to be recognised, one by one as they come: of images, folders, videos and cameras."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primavista.cli.sources import CAMERA

if TYPE_CHECKING:
    import numpy as np

    from primavista.learner.learner import Learner, Prediction
    from primavista.streams.video import BadFiles

BATCH = 16  # frames recognised at once, where there is no hurry


@dataclass(frozen=True)
class Look:
    """A frame at model size: where it is from, and its seconds from the start of a video or a camera's look."""

    source: str
    at: float | None
    image: np.ndarray[Any, Any]


def looks(source: str, size: int, fps: float, seconds: float | None, bad: BadFiles) -> Iterator[Look]:
    """Every image of a source, `fps` frames a second of its videos, of a camera for `seconds` (None: until it is stopped)."""
    from primavista.streams.decode import camera_frames, read_image, timed_frames, upright
    from primavista.streams.video import find_media, is_image

    if source.startswith(CAMERA):
        import time

        begin = time.monotonic()
        for read in camera_frames(source, size, math.inf if seconds is None else seconds, fps):
            if callable(read):
                yield Look(source, time.monotonic() - begin, read())
        return
    for path in find_media(source, bad):
        if is_image(path):
            with bad.guard():
                yield Look(str(path), None, read_image(path, size))
            continue
        for at, frame in timed_frames(path, fps):
            with bad.guard():
                if isinstance(frame, OSError):
                    raise frame
                yield Look(str(path), at, upright(frame, size))


def recognised(
    learner: Learner, frames: Iterator[Look], at_once: int = BATCH
) -> Iterator[tuple[Look, Prediction]]:
    """Each with what the learner takes it for."""
    import numpy as np

    while chunk := list(islice(frames, at_once)):
        yield from zip(
            chunk, learner.predict(np.stack([look.image for look in chunk])), strict=True
        )


def is_live(source: str) -> bool:
    """Whether it is a camera."""
    return source.startswith(CAMERA)


def is_one_video(source: str) -> bool:
    """Whether it is a single video file, by its name."""
    from primavista.streams.video import VIDEOS

    path = Path(source).expanduser()
    return path.is_file() and path.suffix.lower() in VIDEOS
