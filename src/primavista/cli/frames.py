"""Frames to recognise, one by one as they come: from images, folders, videos and cameras."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from primavista.cli.arguments import printable
from primavista.media.addresses import is_live

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from primavista.media.camera import CameraView
    from primavista.media.images import Region
    from primavista.media.video import BadFiles

Seen = TypeVar("Seen")


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

    @property
    def record(self) -> dict[str, Any]:
        """The source and, in a video or of a camera, the time, for JSON."""
        if self.seconds is None:
            return {"source": self.source}
        return {"source": self.source, "seconds": round(self.seconds, 3)}


class Looker(Protocol[Seen]):
    """Finds out what frames of a size show (None for whole pictures), and prints or draws it."""

    @property
    def size(self) -> int | None:
        """The side of the frames; None for whole pictures."""

    def look(self, frames: Sequence[SampledFrame]) -> list[Seen]:
        """Return what each of some frames shows."""

    def draw(self, picture: Image.Image, seen: Seen, /) -> Image.Image:
        """Return a copy of a picture with what was seen drawn into it."""

    def report(self, seen: Seen, /) -> None:
        """Print what one frame shows."""

    def close(self, skipped: int) -> None:
        """Print the end: what all frames show, and how many could not be decoded."""


def sample_frames(
    source: str,
    size: int | None,
    bad: BadFiles,
    fps: float,
    seconds: float | None = None,
    region: Region | None = None,
) -> Iterator[SampledFrame]:
    """Read every image of a source, and so many frames per second of its videos or of a camera.

    Args:
        source: An image, a folder, a video, or a camera such as "camera:0" or "rtsp://door/live".
        size: The side of the frames in pixels; None keeps whole pictures.
        bad: Decides what happens with files that cannot be decoded.
        fps: The number of frames per second to take of videos and cameras.
        seconds: How long to record from a camera; None records until it is interrupted.
        region: The part of the picture to look at; None for all of it.

    Yields:
        The frames, in order. A camera that is lost is waited for, with a message on standard error.
    """
    if is_live(source):
        from primavista.media.camera import CameraView

        yield from _camera_frames(CameraView(source, size, fps, region), seconds)
        return
    from primavista.media.decode import timed_frames, upright
    from primavista.media.images import decode_image
    from primavista.media.video import find_media, is_image

    paths: list[Path] = []
    with bad.guard():
        paths = find_media(source)
    for path in paths:
        with bad.guard():
            if is_image(path):
                image = decode_image(path, path, size, region=region, whole=size is None)
                yield SampledFrame(str(path), None, image)
                continue
            for at, frame in timed_frames(path, fps):
                with bad.guard():
                    if isinstance(frame, OSError):
                        raise frame
                    yield SampledFrame(str(path), at, upright(frame, size, region))


def _camera_frames(view: CameraView, seconds: float | None) -> Iterator[SampledFrame]:
    """Yield the newest frames of a camera, which is connected again if it is lost."""
    from primavista.media.camera import steady_frames

    def tell(text: str) -> None:
        typer.echo(printable(text), err=True)

    began = None
    for at, image in steady_frames(
        view,
        seconds or math.inf,
        on_lost=lambda reason: tell(f"{reason}; trying again until it is back"),
        on_back=lambda: tell(f"{view.name} is back"),
    ):
        began = at if began is None else began
        yield SampledFrame(view.name, at - began, image)
