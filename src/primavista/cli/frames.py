"""Frames to recognise, one by one: from images, folders and videos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from primavista.media.images import Region
    from primavista.media.video import BadFiles


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


def sample_frames(
    source: str,
    size: int | None,
    bad: BadFiles,
    fps: float,
    region: Region | None = None,
) -> Iterator[SampledFrame]:
    """Read every image of a source, and so many frames per second of its videos.

    An animated image is read like a video.

    Args:
        source: An image, a folder, or a video.
        size: The side of the frames in pixels; None keeps whole pictures.
        bad: Decides what happens with files that cannot be decoded.
        fps: The number of frames per second to take of videos.
        region: The part of the picture to look at; None for all of it.

    Yields:
        The frames, in order.
    """
    from primavista.media.animation import picture_frames
    from primavista.media.decode import timed_frames, upright
    from primavista.media.video import find_media, is_image

    paths: list[Path] = []
    with bad.guard():
        paths = find_media(source)
    for path in paths:
        with bad.guard():
            if is_image(path):
                for time, read in picture_frames(path, size, fps, region, whole=size is None):
                    yield SampledFrame(str(path), time, read())
                continue
            for at, frame in timed_frames(path, fps):
                with bad.guard():
                    if isinstance(frame, OSError):
                        raise frame
                    yield SampledFrame(str(path), at, upright(frame, size, region))
