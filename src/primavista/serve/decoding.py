"""Decodes what clients send, images and videos, to frames at model size, within the limits.

The work is done in a child process, see `primavista.media.decoder`. Nothing that a client sends
names a file on this machine, and nothing of it is written to a file.
"""

from __future__ import annotations

import time
from typing import Any, BinaryIO

from fastapi import UploadFile

from primavista.errors import FileError
from primavista.media.decoder import shared_decoder
from primavista.media.decoder_child import DecodeJob
from primavista.media.images import ImageArray, TooLargeError
from primavista.serve.limits import RefusedError, ServiceLimits, refused_as


async def decode_frame(
    file: BinaryIO,
    size: int,
    limits: ServiceLimits,
    name: str = "the frame",
    whole: bool = False,
) -> ImageArray:
    """Decode one image: its centre square, resized, or all of it.

    Args:
        file: The encoded image.
        size: The side of the result in pixels; the longest side, at most, if it is whole.
        limits: The limits on bytes, pixels, time and memory.
        name: The name of the image in messages.
        whole: True for the whole image, uncropped.

    Returns:
        The image: uint8, size x size x 3, RGB; H x W x 3 if it is whole.

    Raises:
        RefusedError: If the image is too large (413) or cannot be decoded (422).
    """
    length = _length(file)
    if length > limits.frame_bytes:
        limit = limits.frame_bytes
        reason = f"{name} has {length} bytes, and the limit is {limit}: make it smaller"
        raise RefusedError(413, reason)
    seconds, fields = limits.frame_seconds, {"name": name, "size": size, "whole": whole}
    try:
        frames = await _decode(file, limits, kind="picture", frames=1, seconds=seconds, **fields)
    except FileError as error:
        reason = f"{name} is not an image that can be decoded: send JPEG, PNG, WebP or BMP"
        raise RefusedError(422, reason) from error
    return frames[0]


async def decode_frames(
    files: list[UploadFile], size: int, limits: ServiceLimits, whole: bool = False
) -> list[ImageArray]:
    """Decode several images; if one of them is refused, all are.

    One is decoded after the other, so that images of other clients come in between.

    Args:
        files: The encoded images.
        size: The side of the results in pixels; their longest side if they are whole.
        limits: The limits on the number of images, on each of them, and on the time for all.
        whole: True for the whole images, uncropped.

    Returns:
        The images: uint8, size x size x 3, RGB; H x W x 3 if they are whole.

    Raises:
        RefusedError: If there are too many images or one of them is refused.
    """
    if len(files) > limits.lesson_frames:
        limit = limits.lesson_frames
        reason = f"{len(files)} frames were sent, and the limit is {limit}: send every second one"
        raise RefusedError(413, reason)
    end = time.monotonic() + limits.wait_seconds
    images = []
    for number, file in enumerate(files, 1):
        if time.monotonic() > end:
            reason = f"the frames take more than {limits.wait_seconds:g} seconds to decode"
            raise RefusedError(413, f"{reason}: send fewer or smaller ones")
        images.append(await decode_frame(file.file, size, limits, f"frame {number}", whole))
    return images


async def decode_video(file: UploadFile, size: int, limits: ServiceLimits) -> list[ImageArray]:
    """Decode a video, evenly thinned to the allowed number of frames.

    Args:
        file: The encoded video.
        size: The side of the frames in pixels.
        limits: The limits on frames, pixels, time and memory.

    Returns:
        The frames: uint8, size x size x 3, RGB.

    Raises:
        RefusedError: If the video is too large or too long (413) or cannot be decoded (422).
    """
    frames, seconds = limits.lesson_frames, limits.wait_seconds
    fields = {"name": "the video", "size": size}
    with refused_as(422, FileError):
        return await _decode(
            file.file, limits, kind="video", frames=frames, seconds=seconds, **fields
        )


async def _decode(file: BinaryIO, limits: ServiceLimits, **fields: Any) -> list[ImageArray]:
    """Run a `DecodeJob` with these fields; what is too large for it is refused with 413."""
    pixels, memory = limits.frame_pixels, limits.decoder_bytes
    job = DecodeJob(length=_length(file), pixels=pixels, memory=memory, **fields)
    try:
        return await shared_decoder().run(job, file)
    except TooLargeError as error:
        raise RefusedError(413, str(error)) from error


def _length(file: BinaryIO) -> int:
    """Return the number of bytes of a file, and go to its start."""
    length = file.seek(0, 2)
    file.seek(0)
    return length
