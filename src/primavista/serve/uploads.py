"""Decoding of uploaded images and videos into frames at model size.

Nothing that a client sends names a file on this machine.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from primavista.errors import FileError, MissingExtraError
from primavista.frames import ImageArray
from primavista.serve.limits import RefusedError, ServiceLimits
from primavista.streams.decode import (
    DecodedItem,
    TooLargeError,
    decode_image,
    video_frames,
    without_skip,
)
from primavista.streams.video import BadFiles, FrameSampler


def decode_frame(
    data: bytes | BinaryIO, size: int, limits: ServiceLimits, name: str = "the frame"
) -> ImageArray:
    """Decode one image: its centre square, resized.

    Args:
        data: The encoded image.
        size: The side of the result in pixels.
        limits: The limits on bytes and pixels.
        name: What the messages call the image.

    Returns:
        The image: uint8, size x size x 3, RGB.

    Raises:
        RefusedError: If the image is too large (413) or cannot be decoded (422).
    """
    file = BytesIO(data) if isinstance(data, bytes) else data
    length = file.seek(0, 2)
    file.seek(0)
    if length > limits.frame_bytes:
        limit = limits.frame_bytes
        reason = f"{name} has {length} bytes, and the limit is {limit}: make it smaller"
        raise RefusedError(413, reason)
    try:
        return decode_image(file, name, size, limits.frame_pixels)
    except TooLargeError as error:
        raise RefusedError(413, str(error)) from error
    except FileError as error:
        reason = f"{name} is not an image that can be decoded: send JPEG, PNG, WebP or BMP"
        raise RefusedError(422, reason) from error


def decode_frames(files: Sequence[BinaryIO], size: int, limits: ServiceLimits) -> list[ImageArray]:
    """Decode several images; if one of them is refused, all are.

    Args:
        files: The encoded images.
        size: The side of the results in pixels.
        limits: The limits on the number of images and on each of them.

    Returns:
        The images: uint8, size x size x 3, RGB.

    Raises:
        RefusedError: If there are too many images or one of them is refused.
    """
    if len(files) > limits.lesson_frames:
        limit = limits.lesson_frames
        reason = f"{len(files)} frames were sent, and the limit is {limit}: send every second one"
        raise RefusedError(413, reason)
    return [decode_frame(file, size, limits, f"frame {k}") for k, file in enumerate(files, 1)]


def decode_video(file: BinaryIO, size: int, limits: ServiceLimits) -> list[ImageArray]:
    """Decode a video, evenly thinned to the allowed number of frames.

    The video is copied to a temporary file while it is decoded.

    Args:
        file: The encoded video.
        size: The side of the frames in pixels.
        limits: The limits on frames and on the time that decoding may take.

    Returns:
        The frames: uint8, size x size x 3, RGB.

    Raises:
        RefusedError: If the video is too large or too long (413) or cannot be decoded (422).
    """
    with tempfile.TemporaryDirectory(prefix="primavista-") as folder:
        path = Path(folder) / "video.mp4"  # the decoder looks at the contents, not at the name
        with open(path, "wb") as copy:
            shutil.copyfileobj(file, copy)
        try:
            sampler = FrameSampler(limits.lesson_frames)
            sampler.offer(_within(video_frames(path, size), limits.wait_seconds), BadFiles())
        except MissingExtraError as error:
            raise RefusedError(422, "this machine cannot read videos: send frames") from error
        except TooLargeError as error:
            raise RefusedError(413, str(error).replace(str(path), "the video")) from error
        except FileError as error:
            raise RefusedError(422, without_skip(error).replace(str(path), "the video")) from error
        return sampler.frames


def _within(frames: Iterable[DecodedItem], seconds: float) -> Iterator[DecodedItem]:
    """Yield frames for at most so many seconds, then refuse the video."""
    end = time.monotonic() + seconds
    for frame in frames:
        if time.monotonic() > end:
            reason = f"the video takes more than {seconds:g} seconds to decode"
            raise RefusedError(413, f"{reason}: send a shorter or smaller one")
        yield frame
