"""Frames to recognise, one by one as they come: from images, folders, videos and cameras."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primavista.cli.sources import CAMERA

if TYPE_CHECKING:
    import numpy as np

    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction
    from primavista.streams.video import BadFiles

BATCH = 16  # frames that are recognised together, except from a camera


@dataclass(frozen=True)
class SampledFrame:
    """One frame at model size.

    Attributes:
        source: The file or the camera that it comes from.
        seconds: The time since the start of the video or of the recording; None for an image.
        image: The pixels: uint8, size x size x 3, RGB.
    """

    source: str
    seconds: float | None
    image: np.ndarray[Any, Any]


def sample_frames(
    source: str, size: int, fps: float, seconds: float | None, bad: BadFiles
) -> Iterator[SampledFrame]:
    """Read every image of a source, and so many frames per second of its videos or of a camera.

    Args:
        source: An image, a folder, a video, or a camera such as "camera:0".
        size: The side of the frames in pixels.
        fps: How many frames per second to take of videos and cameras.
        seconds: How long to record from a camera; None records until it is interrupted.
        bad: Decides what happens with files that cannot be decoded.

    Yields:
        The frames, in order.
    """
    if is_camera(source):
        yield from _camera_frames(source, size, fps, seconds)
        return
    from primavista.streams.video import find_media, is_image

    for path in find_media(source, bad):
        if is_image(path):
            yield from _image_frame(path, size, bad)
        else:
            yield from _video_frames(path, size, fps, bad)


def predict_frames(
    learner: Learner, frames: Iterator[SampledFrame], batch: int = BATCH
) -> Iterator[tuple[SampledFrame, Prediction]]:
    """Predict what each frame shows.

    Args:
        learner: The learner.
        frames: The frames.
        batch: How many frames are recognised together; 1 answers each at once.

    Yields:
        Each frame with its prediction.
    """
    import numpy as np

    while chunk := list(islice(frames, batch)):
        predictions = learner.predict(np.stack([frame.image for frame in chunk]))
        yield from zip(chunk, predictions, strict=True)


def is_camera(source: str) -> bool:
    """Say if a source is a camera.

    Args:
        source: What the user named.

    Returns:
        True for "camera:0" and the like.
    """
    return source.startswith(CAMERA)


def is_video_file(source: str) -> bool:
    """Say if a source is a single video file, by its suffix.

    Args:
        source: What the user named.

    Returns:
        True if the file exists and has the suffix of a video.
    """
    from primavista.streams.video import VIDEOS

    path = Path(source).expanduser()
    return path.is_file() and path.suffix.lower() in VIDEOS


def _camera_frames(
    source: str, size: int, fps: float, seconds: float | None
) -> Iterator[SampledFrame]:
    from primavista.streams.decode import camera_frames

    began = time.monotonic()
    limit = math.inf if seconds is None else seconds
    for read in camera_frames(source, size, limit, fps):
        if callable(read):
            yield SampledFrame(source, time.monotonic() - began, read())


def _image_frame(path: Path, size: int, bad: BadFiles) -> Iterator[SampledFrame]:
    from primavista.streams.decode import read_image

    with bad.guard():
        yield SampledFrame(str(path), None, read_image(path, size))


def _video_frames(path: Path, size: int, fps: float, bad: BadFiles) -> Iterator[SampledFrame]:
    from primavista.streams.decode import timed_frames, upright

    for seconds, frame in timed_frames(path, fps):
        with bad.guard():
            if isinstance(frame, OSError):
                raise frame
            yield SampledFrame(str(path), seconds, upright(frame, size))
