"""Pictures and videos of clients: decoded within the limits, cut to squares, and searched.

Decoding is done in a child process, see `primavista.media.decoder`. Nothing that a client sends
names a file on this machine, and nothing of it is written to a file.
"""

from __future__ import annotations

import time
from typing import BinaryIO

from fastapi import UploadFile

from primavista.errors import FileError
from primavista.media.decoder import shared_decoder
from primavista.media.decoder_child import DecodeJob
from primavista.media.images import ImageArray, TooLargeError
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RefusedError, refused_as
from primavista.serve.schemas import FoundObject, FoundObjects

# the longest side of a picture in which objects are searched for, in sides of the model's frames
WHOLE_SIDES = 4


async def decode_frame(
    service: LearnerService, file: BinaryIO, name: str = "the frame", whole_sides: int = 0
) -> ImageArray:
    """Decode one image: its centre square at model size, or all of it.

    Args:
        service: The service, which has the size and the limits on bytes, pixels, time and memory.
        file: The encoded image.
        name: The name of the image in messages.
        whole_sides: The longest side, at most, of a whole image, in sides of the model's frames; 0
            for the centre square.

    Returns:
        The image: uint8, H x W x 3, RGB.

    Raises:
        RefusedError: If the image is too large (413) or cannot be decoded (422).
    """
    limits, length = service.limits, _length(file)
    if length > limits.frame_bytes:
        limit = limits.frame_bytes
        reason = f"{name} has {length} bytes, and the limit is {limit}: make it smaller"
        raise RefusedError(413, reason)
    size = max(1, whole_sides) * service.learner.size
    job = DecodeJob(
        kind="picture",
        name=name,
        length=length,
        size=size,
        pixels=limits.frame_pixels,
        frames=1,
        seconds=limits.frame_seconds,
        memory=limits.decoder_bytes,
        whole=whole_sides > 0,
    )
    try:
        frames = await _decode(job, file)
    except FileError as error:
        reason = f"{name} is not an image that can be decoded: send JPEG, PNG, WebP or BMP"
        raise RefusedError(422, reason) from error
    return frames[0]


async def decode_frames(service: LearnerService, files: list[UploadFile]) -> list[ImageArray]:
    """Decode several images; if one of them is refused, all are.

    One is decoded after the other, so that images of other clients come in between.

    Args:
        service: The service, which has the limits on the number of images, on each of them, and on
            the time for all.
        files: The encoded images.

    Returns:
        The images: uint8, H x W x 3, RGB.

    Raises:
        RefusedError: If there are too many images or one of them is refused.
    """
    limits = service.limits
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
        images.append(await decode_frame(service, file.file, f"frame {number}"))
    return images


async def decode_video(service: LearnerService, file: BinaryIO) -> list[ImageArray]:
    """Decode a video, evenly thinned to the allowed number of frames.

    Args:
        service: The service, which has the limits on frames, pixels, time and memory.
        file: The encoded video.

    Returns:
        The frames at model size: uint8, size x size x 3, RGB.

    Raises:
        RefusedError: If the video is too large or too long (413) or cannot be decoded (422).
    """
    limits = service.limits
    job = DecodeJob(
        kind="video",
        name="the video",
        length=_length(file),
        size=service.learner.size,
        pixels=limits.frame_pixels,
        frames=limits.lesson_frames,
        seconds=limits.wait_seconds,
        memory=limits.decoder_bytes,
    )
    with refused_as(422, FileError):
        return await _decode(job, file)


async def _decode(job: DecodeJob, file: BinaryIO) -> list[ImageArray]:
    try:
        return await shared_decoder().run(job, file)
    except TooLargeError as error:
        raise RefusedError(413, str(error)) from error


def _length(file: BinaryIO) -> int:
    """Return the number of bytes of a file, and go to its start."""
    length = file.seek(0, 2)
    file.seek(0)
    return length


async def find_objects(service: LearnerService, picture: ImageArray) -> FoundObjects:
    """Find the taught objects in one picture; `RefusedError` (409) if the learner cannot locate."""
    snapshot = service.snapshot
    with refused_as(409):
        found = await service.in_thread(snapshot.learner.locate, picture)
    height, width = picture.shape[:2]
    objects = [FoundObject.of(one, width, height) for one in found]
    return FoundObjects(objects=objects, version=snapshot.version)
