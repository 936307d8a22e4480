"""The child process that decodes pictures, videos and pickles of plain data, one after another.

An attack on a decoder costs one job: the memory and the processor time of this process are limited,
and `primavista.media.decoder`, which starts it, kills it when it takes too long.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from primavista.errors import FileError, MissingExtraError, require_extra
from primavista.media import decode
from primavista.media.child import (
    limit_memory,
    limit_processor_time,
    open_pipes,
    receive_header,
    send_header,
)
from primavista.media.images import ImageArray, Region, TooLargeError, decode_image, without_skip
from primavista.media.video import BadFiles, FrameSampler

BACKGROUND = 10  # added to the niceness of the processes for photographs and videos


@dataclass(frozen=True)
class DecodeJob:
    """One picture, video or pickle to decode.

    Attributes:
        kind: The kind of the input.
        name: The name of the input in messages.
        length: The number of bytes that follow.
        size: The side of the frames to make, in pixels; the longest side of a whole picture.
        pixels: The largest number of pixels of a picture, or of a frame of a video.
        frames: The largest number of frames to keep of a video.
        seconds: The processor time that decoding may take.
        memory: The bytes of memory that decoding may take beyond the frames that it makes.
        whole: True for the whole picture instead of its centre square.
        path: The file to open; by default the bytes follow.
        fps: The number of frames per second to take of a video; None takes all.
        region: The part of the picture to look at; None for all of it.
        keys: Which part of a pickle to return: its item at the first key, of that the item at the
            second, and so on.
    """

    kind: Literal["picture", "video", "pickle"]
    name: str
    length: int
    size: int
    pixels: int
    frames: int
    seconds: float
    memory: int
    whole: bool = False
    path: str = ""
    fps: float | None = None
    region: Region | None = None
    keys: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class DecodeAnswer:
    """The outcome of a job.

    Attributes:
        length: The number of bytes that follow: frames, or a pickle's content as JSON.
        frames: The number of frames.
        width: The width of the frames.
        height: Their height.
        reason: Why the job was refused; empty if it was not.
        too_large: True if the input exceeds a limit, False if it is damaged.
    """

    length: int = 0
    frames: int = 0
    width: int = 0
    height: int = 0
    reason: str = ""
    too_large: bool = False


def main() -> None:
    """Decode jobs from standard input until it ends."""
    if "background" in sys.argv[1:] and hasattr(os, "nice"):
        os.nice(BACKGROUND)
    jobs, answers = open_pipes()
    decode.threads = 1
    with contextlib.suppress(MissingExtraError):
        require_extra("av", "video")  # the limits of a job must not count the import
    while (fields := receive_header(jobs)) is not None:
        job = DecodeJob(**fields)  # type: ignore[arg-type]
        answer, content = run_job(job, jobs.read(job.length))
        send_header(answers, answer)
        for part in content:
            answers.write(part)
        answers.flush()


def run_job(job: DecodeJob, data: bytes) -> tuple[DecodeAnswer, list[bytes]]:
    """Decode one input within its limits; return the answer and what follows it."""
    limit_processor_time(job.seconds)
    limit_memory(job.memory + job.frames * job.size**2 * 3)
    try:
        if job.kind == "pickle":
            text = plain_json(data, job.keys)
            return DecodeAnswer(len(text)), [text]
        frames = _decoded(job, Path(job.path) if job.path else io.BytesIO(data))
    except MissingExtraError:
        return DecodeAnswer(reason="this machine cannot read videos: send frames"), []
    except MemoryError:
        reason = f"{job.name} takes more than {job.memory >> 20} MiB to decode: make it smaller"
        return DecodeAnswer(reason=reason, too_large=True), []
    except FileError as error:
        too_large = isinstance(error, TooLargeError)
        return DecodeAnswer(reason=without_skip(error), too_large=too_large), []
    height, width = frames[0].shape[:2]
    length = sum(frame.nbytes for frame in frames)
    return DecodeAnswer(length, len(frames), width, height), [frame.tobytes() for frame in frames]


def _decoded(job: DecodeJob, file: Path | BinaryIO) -> list[ImageArray]:
    if job.kind == "picture":
        return [decode_image(file, job.name, job.size, job.pixels, job.region, job.whole)]
    sampler = FrameSampler(job.frames)
    frames = decode.video_frames(file, job.size, job.fps, job.pixels, job.region)
    sampler.offer(frames, BadFiles())
    return sampler.frames


class _PickledType:
    """The type of the items of a pickled array: integers, truth values or texts."""

    def __init__(self, code: str, *_: object) -> None:
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "iubSU":
            raise FileError(f"it holds an array of {self.dtype}, not of integers or texts")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _PickledArray:
    """An array in a pickle, which is never given to numpy as an object to restore."""

    def __init__(self, *_: object) -> None:
        self.content: list[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        flat = np.frombuffer(_latin(data), kind.dtype)
        self.content = flat.reshape(shape, order="F" if fortran else "C").tolist()


def _scalar(kind: _PickledType, data: str | bytes) -> Any:
    return np.frombuffer(_latin(data), kind.dtype)[0].item()


def _latin(text: str | bytes, *_: object) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else text


# What stands for each name that a pickle of plain data may hold; nothing else is called.
ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledType,
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("_codecs", "encode"): _latin,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of an allowed name."""
        if (module, name) not in ALLOWED:
            raise FileError(f"it holds the name {module[:80]}.{name[:80]}, which no data needs")
        return ALLOWED[module, name]


def plain_json(data: bytes, keys: tuple[str | int, ...] = ()) -> bytes:
    """Read a pickle of lists, tuples, dicts, integers, texts and arrays of these, as JSON.

    Args:
        data: The pickle.
        keys: Which part of it to return; null if a dict does not have such an item.

    Raises:
        FileError: If it is damaged, or holds anything else.
    """
    try:
        # Python 2 wrote texts as bytes: latin-1 keeps each.
        value = _PlainUnpickler(io.BytesIO(data), encoding="latin-1").load()
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else _plain(value)[key]
            if value is None:
                break
        return json.dumps(value, default=_plain).encode()
    except (FileError, MemoryError):
        raise
    except Exception as error:  # a crafted pickle may fail in any way
        reason = str(error) or type(error).__name__
        raise FileError(f"it is damaged or not a pickle of plain data ({reason})") from error


def _plain(value: Any) -> Any:
    """Return an array as lists, and bytes as text; other objects are refused."""
    if isinstance(value, _PickledArray) and value.content is not None:
        return value.content
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list | tuple):
        return value
    raise FileError(f"it holds a {type(value).__name__}, which no data needs")


if __name__ == "__main__":
    main()
