"""Decoding of one image, one video, one camera; every failure names the file and what to do."""

from __future__ import annotations

import os
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps

from primavista.errors import FileError, PrimavistaError, require_extra
from primavista.frames import MAX_PIXELS, crop_and_resize

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")  # of Pillow: no others, whatever the file's name says
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"  # of FFmpeg: no playlists, which could name other files
SKIP = "skip bad files (--skip-bad, skip_bad=True)"
Array = np.ndarray[Any, Any]
Item = (
    Callable[[], Array] | FileError
)  # a frame, converted when it is called, or what stands in its place
threads = 0  # of a video's decoder; 0 is FFmpeg's choice. Worker processes set 1


def without_skip(error: FileError) -> str:
    """What is wrong, for those who skip bad files already or cannot.

    >>> without_skip(FileError(f"mug.mp4 was cut off. Restore it, or {SKIP} to use these"))
    'mug.mp4 was cut off. Restore it'
    """
    return str(error).replace(f", or {SKIP} to use these", "").replace(f", or {SKIP}", "")


class TooLargeError(FileError):
    """An image or video with more pixels than are safe to decode."""


def read_image(path: str | Path, size: int | None) -> Array:
    """One image file, turned upright as its EXIF says, at model size: uint8, size x size x 3 (None: its shorter side)."""
    path = Path(path)
    _check_file(path)
    return decode_image(path, path, size)


def decode_image(
    file: Path | BinaryIO, name: str | Path, size: int | None, max_pixels: int | None = None
) -> Array:
    """`read_image` of a path or an open file; `name` is for the messages."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Pillow's about sizes and metadata: sizes are checked here
            with Image.open(file, formats=FORMATS) as picture:
                _check_pixels(name, picture.width, picture.height, max_pixels)
                upright = ImageOps.exif_transpose(picture)
                return crop_and_resize(_eight_bits(upright), size or min(upright.size))
    except PrimavistaError:
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(name, str(error)) from error
    except PermissionError as error:
        raise FileError(f"cannot read {name}: {error.strerror}. Check its permissions") from error
    except Exception as error:  # a decoder may fail in any way on foreign bytes
        raise FileError(
            f"{name} is damaged or not an image ({error or type(error).__name__}): remove it, or {SKIP}"
        ) from error


def video_frames(path: str | Path, size: int, fps: float | None = None) -> Iterator[Item]:
    """The frames of a video file in order, each converted and resized only when it is called."""
    for _, frame in timed_frames(path, fps):
        yield frame if isinstance(frame, FileError) else partial(upright, frame, size)


def timed_frames(path: str | Path, fps: float | None = None) -> Iterator[tuple[float, Any]]:
    """PyAV's frames of a video file in order with their seconds from its start; a `FileError` for one that is damaged."""
    av = require_extra("av", "video")
    with _opened(av, Path(path)) as (container, stream):
        yield from _decode(av, container, stream, Path(path), fps)


def video_rate(path: str | Path) -> tuple[Fraction, int]:
    """Frames a second of a video file, and how many it says that it holds (0: it does not say)."""
    with _opened(require_extra("av", "video"), Path(path)) as (container, stream):
        rate = Fraction(stream.average_rate or stream.guessed_rate or 25)
        return rate, stream.frames or round((_end(container, stream) or 0) * rate)


@contextmanager
def _opened(av: Any, path: Path) -> Iterator[tuple[Any, Any]]:
    """A video file's container, and the first stream in it that can be decoded."""
    _check_file(path)
    with _failures(av, path, "is damaged or not a video"):
        # The prefix keeps FFmpeg from reading a file's name as an address or a list of files.
        options = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS}
        container = av.open(f"file:{path}", options=options, metadata_errors="replace")
    with container:
        stream = next((s for s in container.streams.video if s.codec_context is not None), None)
        if stream is None:
            raise FileError(
                f"{path} holds no video that can be decoded: convert it (ffmpeg -i {path.name} out.mp4)"
            )
        yield container, stream


def _decode(
    av: Any, container: Any, stream: Any, path: Path, fps: float | None
) -> Iterator[tuple[float, Any]]:
    _check_pixels(path, stream.codec_context.width, stream.codec_context.height)
    stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
    stream.codec_context.thread_count = threads
    stream.thread_type = "AUTO"
    rate, start, due = float(stream.average_rate or 25), _start(stream), Due(fps)
    count, reached = 0, 0.0
    for frame in _raw_frames(av, container, stream, path):
        if isinstance(frame, FileError):
            yield reached, frame
            continue
        at = count / rate if frame.time is None else frame.time - start
        reached = max(
            reached, at + max(1 / rate, float((frame.duration or 0) * (frame.time_base or 0)))
        )
        count += 1
        if frame.is_corrupt:
            yield at, FileError(f"{path} is damaged at frame {count}: repair it, or {SKIP}")
        elif due(at):
            yield at, frame
    end = _end(container, stream)
    if not count:
        yield (
            0.0,
            FileError(
                f"{path} holds no frame that can be decoded: it is damaged or was cut off. Restore or repair it"
            ),
        )
    elif end is not None and end - reached > max(0.25, 0.05 * end):
        found = f"its frames end at {reached:.1f} s of {end:.1f} s"
        yield reached, FileError(f"{path} was cut off: {found}. Restore it, or {SKIP} to use these")


def _raw_frames(av: Any, container: Any, stream: Any, path: Path) -> Iterator[Any]:
    """Decoded frames; a `FileError` in the place of a packet that does not decode; the next ones may."""
    packets, count = container.demux(stream), 0
    while True:
        with _failures(av, path, f"breaks off after {count} frames"):
            packet = next(packets, None)
        if packet is None:
            return
        try:
            with _failures(av, path, f"is damaged after {count} frames"):
                frames = packet.decode()
        except FileError as error:
            yield error
            continue
        for frame in frames:
            _check_pixels(path, frame.width, frame.height)
            count += 1
            yield frame


def upright(frame: Any, size: int) -> Array:
    """A decoded frame, turned as its display matrix says, at model size."""
    return crop_and_resize(turned(frame), size)


def turned(frame: Any) -> Image.Image:
    """A decoded frame whole, turned as its display matrix says."""
    picture = Image.fromarray(frame.to_ndarray(format="rgb24"))
    turns = round(frame.rotation / 90) % 4  # counter-clockwise
    ways = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
    return picture.transpose(ways[turns - 1]) if turns else picture


class Due:
    """Whether a frame at this time is one of `fps` a second; without `fps`, all are."""

    def __init__(self, fps: float | None) -> None:
        self.fps, self.tick = fps, -1

    def __call__(self, at: float) -> bool:
        """True once for each 1/fps of a second."""
        tick = int((at + 1e-4) * self.fps) if self.fps else self.tick + 1
        if tick == self.tick:
            return False
        self.tick = tick
        return True


def camera_frames(
    source: str, size: int, seconds: float, fps: float | None = None
) -> Iterator[Item]:
    """Frames of a camera for `seconds`; `source` is "camera:0", "camera:1" and so on."""
    number = source.removeprefix("camera:")
    if not number.isdecimal():
        raise FileError(
            f"{source!r} is no camera: write camera:0 for the first one, camera:1 for the second"
        )
    av = require_extra("av", "video")
    name, kind, options = camera_input(av, int(number))
    try:
        container = av.open(name, format=kind, options=options, timeout=10.0)
    except (av.FFmpegError, OSError, ValueError) as error:
        raise FileError(
            f"cannot open {source} ({name}): {error}. Connect a camera, close other programs that use it, "
            "and see that you are allowed to use it (on Linux: the group video)"
        ) from error
    with container:
        yield from _film(av, container, source, size, seconds, Due(fps))


def camera_input(av: Any, number: int) -> tuple[str, str, dict[str, str]]:
    """FFmpeg's name, input format and options of the camera with this number on this platform."""
    if sys.platform == "darwin":
        return f"{number}:none", "avfoundation", {"framerate": "30", "pixel_format": "uyvy422"}
    if sys.platform == "win32":
        cameras = [
            d for d in av.device.enumerate_input_devices("dshow") if "video" in d.media_types
        ]
        if number >= len(cameras):
            raise FileError(
                f"there is no camera:{number}: this machine has {len(cameras)}. Connect one"
            )
        return f"video={cameras[number].description}", "dshow", {}
    return f"/dev/video{number}", "v4l2", {}


def _film(
    av: Any, container: Any, source: str, size: int, seconds: float, due: Due
) -> Iterator[Item]:
    begin, count = time.monotonic(), 0
    frames = container.decode(video=0)
    while (at := time.monotonic() - begin) < seconds:
        try:
            frame = next(frames, None)
        except BlockingIOError:  # no new frame yet
            time.sleep(0.005)
            frames = container.decode(video=0)
            continue
        except (av.FFmpegError, OSError) as error:
            raise FileError(
                f"{source} stopped after {count} frames: {error}. Connect it again"
            ) from error
        if frame is None:
            break
        count += 1
        if due(at):
            yield partial(upright, frame, size)
    if not count:
        raise FileError(
            f"{source} gave no frame in {seconds:g} s: see that it is switched on and not in use"
        )


@contextmanager
def _failures(av: Any, path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (av.FFmpegError, OSError, ValueError, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise FileError(f"{path} {what} ({reason}): restore or repair it, or {SKIP}") from error


def _check_file(path: Path) -> None:
    """A regular file with something in it: a pipe would wait for ever."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise FileError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}. Check the path"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{path} is not a regular file")
    if found.st_size == 0:
        raise FileError(f"{path} is empty (0 bytes): remove it, or {SKIP}")


def _check_pixels(name: str | Path, width: int, height: int, limit: int | None = None) -> None:
    if width * height > (limit or MAX_PIXELS):
        raise _too_large(name, f"{width} x {height} pixels", limit)


def _too_large(name: str | Path, what: str, limit: int | None = None) -> TooLargeError:
    limited = f"{what}; the limit is {limit or MAX_PIXELS} pixels"
    return TooLargeError(
        f"{name} is too large to be decoded safely ({limited}): make it smaller first"
    )


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Images of 16 bits a pixel lose their lower eight; Pillow would cut them off at 255 instead."""
    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray(
        (np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    )


def _start(stream: Any) -> float:
    return float((stream.start_time or 0) * (stream.time_base or 0))


def _end(container: Any, stream: Any) -> float | None:
    """How many seconds of this video the file says that it holds."""
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    hours, _, rest = stream.metadata.get("DURATION", "").partition(":")
    minutes, _, seconds = rest.partition(":")
    try:
        return 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError:
        alone = len(container.streams) == 1 and container.duration
        return container.duration / 1e6 if alone else None
