"""From the bytes of a client to frames at model size. Nothing of what it sends names a file here."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from primavista.errors import FileError, MissingExtraError
from primavista.serve.limits import Limits, RefusedError
from primavista.streams.decode import Item, TooLargeError, decode_image, video_frames, without_skip
from primavista.streams.video import BadFiles, FrameSampler

Array = np.ndarray[Any, Any]
T = TypeVar("T")


class Hands:
    """Threads for what would hold up the event loop: few, so that they do not crowd out the network."""

    def __init__(self) -> None:
        self._quick = ThreadPoolExecutor(2, "frame")
        self._long = ThreadPoolExecutor(2, "lesson")

    async def quick(self, work: Callable[..., T], *arguments: Any) -> T:
        """One frame."""
        return await asyncio.get_running_loop().run_in_executor(self._quick, work, *arguments)

    async def long(self, work: Callable[..., T], *arguments: Any) -> T:
        """A whole lesson, a model."""
        return await asyncio.get_running_loop().run_in_executor(self._long, work, *arguments)

    def close(self) -> None:
        """Wait for what runs."""
        self._quick.shutdown(cancel_futures=True)
        self._long.shutdown(cancel_futures=True)


def image(data: bytes | BinaryIO, size: int, limits: Limits, name: str = "the frame") -> Array:
    """One image, uint8, size x size x 3."""
    file = BytesIO(data) if isinstance(data, bytes) else data
    length = len(data) if isinstance(data, bytes) else file.seek(0, 2)
    file.seek(0)
    if length > limits.frame:
        raise RefusedError(
            413, f"{name} has {length} bytes, and the limit is {limits.frame}: make it smaller"
        )
    try:
        return decode_image(file, name, size, limits.pixels)
    except TooLargeError as error:
        raise RefusedError(413, str(error)) from error
    except FileError as error:
        raise RefusedError(
            422, f"{name} is no image that can be decoded: send JPEG, PNG, WebP or BMP"
        ) from error


def images(files: list[BinaryIO], size: int, limits: Limits) -> list[Array]:
    """Several, all or none."""
    if len(files) > limits.frames:
        raise RefusedError(
            413,
            f"{len(files)} frames were sent, and the limit is {limits.frames}: send every second one",
        )
    return [image(file, size, limits, f"frame {k}") for k, file in enumerate(files, 1)]


def video(file: BinaryIO, size: int, limits: Limits) -> list[Array]:
    """The frames of a video, thinned evenly to the limit; it lies in a file of our own while it is read."""
    with tempfile.TemporaryDirectory(prefix="primavista-") as folder:
        path = Path(folder) / "video.mp4"  # what kind it is, its contents say
        with open(path, "wb") as copy:
            shutil.copyfileobj(file, copy)
        try:
            keep = FrameSampler(limits.frames)
            keep.offer(_in_time(video_frames(path, size), limits.wait), BadFiles())
        except MissingExtraError as error:
            raise RefusedError(422, "this machine cannot read videos: send frames") from error
        except TooLargeError as error:
            raise RefusedError(413, str(error).replace(str(path), "the video")) from error
        except FileError as error:
            raise RefusedError(422, without_skip(error).replace(str(path), "the video")) from error
        return keep.frames


def _in_time(frames: Iterable[Item], seconds: float) -> Iterator[Item]:
    end = time.monotonic() + seconds
    for frame in frames:
        if time.monotonic() > end:
            raise RefusedError(
                413,
                f"the video takes more than {seconds:g} seconds to decode: send a shorter or smaller one",
            )
        yield frame
