"""Frames to recognise, one by one as they come: from images, folders, videos and cameras."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from primavista.cli.arguments import printable
from primavista.media.addresses import is_live

if TYPE_CHECKING:
    import numpy as np

    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction
    from primavista.learner.watch import Watch
    from primavista.media.camera import CameraView
    from primavista.media.images import Region
    from primavista.media.video import BadFiles

BATCH = 16  # frames that are recognised together, except from a camera


@dataclass(frozen=True)
class SampledFrame:
    """One frame at model size, or whole.

    Attributes:
        source: The file or the camera that it comes from.
        seconds: The time since the start of the video or of the recording; None for an image.
        image: The pixels: uint8, size x size x 3, RGB; H x W x 3 if it is whole.
    """

    source: str
    seconds: float | None
    image: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sighting:
    """A frame and what it shows.

    Attributes:
        frame: The frame.
        alone: What it shows by itself.
        recent: What the last second of its video or camera shows; the same as `alone` for an image.
    """

    frame: SampledFrame
    alone: Prediction
    recent: Prediction


def sample_frames(
    source: str,
    size: int | None,
    fps: float,
    seconds: float | None,
    bad: BadFiles,
    region: Region | None = None,
) -> Iterator[SampledFrame]:
    """Read every image of a source, and so many frames per second of its videos or of a camera.

    Args:
        source: An image, a folder, a video, or a camera such as "camera:0" or "rtsp://door/live".
        size: The side of the frames in pixels; None keeps whole pictures.
        fps: How many frames per second to take of videos and cameras.
        seconds: How long to record from a camera; None records until it is interrupted.
        bad: Decides what happens with files that cannot be decoded.
        region: The part of the picture to look at; None for all of it.

    Yields:
        The frames, in order. A camera that is lost is waited for, with a message on standard error.
    """
    if is_live(source):
        from primavista.media.camera import CameraView

        yield from _camera_frames(CameraView(source, size, fps, region), seconds)
        return
    from primavista.media.video import find_media, is_image

    paths: list[Path] = []
    with bad.guard():
        paths = find_media(source)
    for path in paths:
        with bad.guard():
            if is_image(path):
                yield from _image_frame(path, size, bad, region)
            else:
                yield from _video_frames(path, size, fps, bad, region)


def predict_frames(
    learner: Learner, frames: Iterator[SampledFrame], batch: int = BATCH
) -> Iterator[Sighting]:
    """Predict what each frame shows, alone and together with the frames of the second before it.

    Args:
        learner: The learner.
        frames: The frames.
        batch: How many frames are recognised together; 1 answers each at once.

    Yields:
        Each frame with its predictions.
    """
    import numpy as np

    source, watch = "", learner.watch()
    while chunk := list(islice(frames, batch)):
        predictions = learner.predict(np.stack([frame.image for frame in chunk]))
        for frame, prediction in zip(chunk, predictions, strict=True):
            if frame.source != source:
                source, watch = frame.source, learner.watch()
            yield watched(watch, frame, prediction)


def watched(watch: Watch, frame: SampledFrame, prediction: Prediction) -> Sighting:
    """Add a frame to those of the last second of its video.

    Args:
        watch: The frames of the same source before this one.
        frame: The frame. An image, which has no time, stays by itself.
        prediction: What it shows by itself.

    Returns:
        What it shows, by itself and with the others.
    """
    if frame.seconds is None:
        return Sighting(frame, prediction, prediction)
    return Sighting(frame, prediction, watch.add(frame.image, prediction, frame.seconds))


def is_video_file(source: str) -> bool:
    """Return True if a source is a single video file, by its suffix.

    Args:
        source: What the user named.

    Returns:
        True if the file exists and has the suffix of a video.
    """
    from primavista.media.video import VIDEOS

    path = Path(source).expanduser()
    return path.is_file() and path.suffix.lower() in VIDEOS


def _camera_frames(view: CameraView, seconds: float | None) -> Iterator[SampledFrame]:
    """The newest frames of a camera, which is connected again if it is lost."""
    from primavista.media.camera import steady_frames

    began, name = None, view.name
    frames = steady_frames(
        view, seconds or math.inf, on_lost=tell_lost, on_back=lambda: tell_back(name)
    )
    for at, image in frames:
        began = at if began is None else began
        yield SampledFrame(name, at - began, image)


def tell_lost(reason: str) -> None:
    """Say on standard error that a camera was lost.

    Args:
        reason: Why.
    """
    typer.echo(f"{printable(reason)}; trying again until it is back", err=True)


def tell_back(name: str) -> None:
    """Say on standard error that a camera gives frames again.

    Args:
        name: The name of the camera.
    """
    typer.echo(f"{printable(name)} is back", err=True)


def _image_frame(
    path: Path, size: int | None, bad: BadFiles, region: Region | None
) -> Iterator[SampledFrame]:
    from primavista.media.images import read_image

    with bad.guard():
        yield SampledFrame(str(path), None, read_image(path, size, region))


def _video_frames(
    path: Path, size: int | None, fps: float, bad: BadFiles, region: Region | None
) -> Iterator[SampledFrame]:
    from primavista.media.decode import timed_frames, upright

    for seconds, frame in timed_frames(path, fps):
        with bad.guard():
            if isinstance(frame, OSError):
                raise frame
            yield SampledFrame(str(path), seconds, upright(frame, size, region))
