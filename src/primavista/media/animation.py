"""The frames of image files: one, or those of an animation, which is read like a short video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from PIL import Image, ImageFile

from primavista.media.decode import FrameTimer
from primavista.media.images import (
    MAX_PIXELS,
    ImageArray,
    Region,
    as_frame,
    check_pixels,
    is_animated,
    loaded_upright,
    opened_picture,
)

FRAME_SECONDS = 0.1  # of a frame that does not say how long it is shown, as in browsers


def picture_frames(
    path: Path,
    size: int | None,
    fps: float | None = None,
    region: Region | None = None,
    whole: bool = False,
) -> Iterator[tuple[float | None, Callable[[], ImageArray]]]:
    """Decode the frames of an image file in order.

    Args:
        path: The file.
        size: The side of the frames in pixels; see `decode_image`.
        fps: The number of frames per second to take of an animation; all by default.
        region: The part of the picture to look at; None for all of it.
        whole: Whether to return whole pictures, and not their centre squares.

    Yields:
        The seconds from the start, None for a picture that is not animated; and a function that
        converts the frame.

    Raises:
        FileError: If the file, or the next frame of it, cannot be decoded.
    """

    def frame(picture: Image.Image) -> Callable[[], ImageArray]:
        return lambda: as_frame(picture, size, region, whole=whole)

    with opened_picture(path, path) as picture:
        first = loaded_upright(picture, path, MAX_PIXELS)
        if not is_animated(picture):
            yield None, frame(first)
            return
        due, at = FrameTimer(fps), 0.0
        if due(at):
            yield at, frame(first)
        for number in count(1):
            at += picture.info.get("duration", 0) / 1000 or FRAME_SECONDS
            if not _go_to(picture, number):
                return
            check_pixels(path, picture.width, picture.height, MAX_PIXELS)
            picture.load()
            if due(at):
                yield at, frame(picture.copy())


def _go_to(picture: ImageFile.ImageFile, number: int) -> bool:
    """Go to a frame; return False if there are no more."""
    try:
        picture.seek(number)
    except EOFError:
        return False
    return True
