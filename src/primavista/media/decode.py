"""Decoding of one video, or of an image file with all its frames; errors say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image, ImageFile

from primavista.errors import FileError, require_extra
from primavista.media.images import (
    MAX_PIXELS,
    SKIP,
    ImageArray,
    Region,
    as_frame,
    check_file,
    check_pixels,
    is_animated,
    loaded_upright,
    opened_picture,
)

# Of FFmpeg: no playlists, which could name other files. What comes over the network has one of
# three formats, so that little code can be attacked.
NETWORK_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"
CONTAINERS = (
    f"{NETWORK_CONTAINERS},asf,av1,flv,h264,hevc,ivf,m4v,mjpeg,mpeg,mpegts,mpegvideo,mxf,nut,"
    "obu,ogg,wtv"
)
FRAME_SECONDS = 0.1  # of a frame of an animation that does not say it, as in browsers
# The threads of a video's decoder; 0 is FFmpeg's choice. Worker processes set 1.
threads = 0


def timed_frames(
    video: str | Path | BinaryIO, fps: float | None = None, max_pixels: int | None = None
) -> Iterator[tuple[float, Any]]:
    """Decode the frames of a video in order, with their times.

    Args:
        video: The path, or an open file, which messages call "the video".
        fps: The number of frames per second to take; all by default.
        max_pixels: The largest number of pixels of a frame.

    Yields:
        The seconds from the start, and a frame of PyAV or a `FileError` in place of a damaged one.
    """
    av = require_extra("av", "video")
    with _opened(av, video) as (container, stream):
        name = _video_name(video)
        yield from _decode(av, container, stream, name, fps, max_pixels or MAX_PIXELS)


def video_rate(path: str | Path) -> tuple[Fraction, int]:
    """Return the frames per second of a video file, and how many it says that it holds.

    Args:
        path: The file. If it does not say how many frames it holds, that number is 0.

    Raises:
        FileError: If the file is missing, damaged or not a video.
    """
    with _opened(require_extra("av", "video"), path) as (container, stream):
        rate = Fraction(stream.average_rate or stream.guessed_rate or 25)
        return rate, stream.frames or round((_end(container, stream) or 0) * rate)


def _video_name(video: str | Path | BinaryIO) -> Path:
    """Return what messages call a video."""
    return Path(video) if isinstance(video, str | Path) else Path("the video")


@contextmanager
def _opened(av: Any, video: str | Path | BinaryIO) -> Iterator[tuple[Any, Any]]:
    """The container of a video, and the first stream in it that can be decoded."""
    name = _video_name(video)
    if isinstance(video, str | Path):
        check_file(name)
        # The prefix keeps FFmpeg from reading a file's name as an address or a list of files.
        source: str | BinaryIO = f"file:{name}"
        protocols, formats = "file", CONTAINERS
    else:
        source, protocols, formats = video, "none", NETWORK_CONTAINERS
    with _failures(av, name, "is damaged or not a video"):
        options = {"protocol_whitelist": protocols, "format_whitelist": formats}
        container = av.open(source, options=options, metadata_errors="replace")
    with container:
        stream = next((s for s in container.streams.video if s.codec_context is not None), None)
        if stream is None:
            raise FileError(
                f"{name} holds no video that can be decoded: "
                f"convert it (ffmpeg -i {name.name} out.mp4)"
            )
        yield container, stream


def _decode(
    av: Any, container: Any, stream: Any, path: Path, fps: float | None, max_pixels: int
) -> Iterator[tuple[float, Any]]:
    check_pixels(path, stream.codec_context.width, stream.codec_context.height, max_pixels)
    # FFmpeg's own limit counts the padding of a frame, too.
    stream.codec_context.options = {"max_pixels": str(2 * max_pixels + 2**16)}
    stream.codec_context.thread_count = threads
    stream.thread_type = "AUTO"
    rate, start, due = float(stream.average_rate or 25), _start(stream), FrameTimer(fps)
    count, reached = 0, 0.0
    for frame in _raw_frames(av, container, stream, path, max_pixels):
        if isinstance(frame, FileError):
            yield reached, frame
            continue
        at = count / rate if frame.time is None else frame.time - start
        duration = float((frame.duration or 0) * (frame.time_base or 0))
        reached = max(reached, at + max(1 / rate, duration))
        count += 1
        if frame.is_corrupt:
            yield at, FileError(f"{path} is damaged at frame {count}: repair it, or {SKIP}")
        elif due(at):
            yield at, frame
    if not count:
        error = FileError(
            f"{path} holds no frame that can be decoded: it is damaged or was cut off. "
            "Restore or repair it"
        )
        yield 0.0, error
        return
    end = _end(container, stream)
    if end is not None and end - reached > max(0.25, 0.05 * end):
        found = f"its frames end at {reached:.1f} s of {end:.1f} s"
        yield reached, FileError(f"{path} was cut off: {found}. Restore it, or {SKIP} to use these")


def _raw_frames(av: Any, container: Any, stream: Any, path: Path, max_pixels: int) -> Iterator[Any]:
    """Yield the decoded frames, and a `FileError` in place of a packet that cannot be decoded.

    The packets after it may be fine.
    """
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
            check_pixels(path, frame.width, frame.height, max_pixels)
            count += 1
            yield frame


def upright(frame: Any, size: int | None, region: Region | None = None) -> ImageArray:
    """Turn a decoded frame as its display matrix says, and bring it to model size.

    Args:
        frame: A frame of PyAV.
        size: The side of the result in pixels; None keeps the whole picture.
        region: The part of the picture to look at; None for all of it.

    Returns:
        uint8, size x size x 3; H x W x 3 if it is whole.
    """
    return as_frame(turned(frame), size, region, whole=size is None)


def turned(frame: Any) -> Image.Image:
    """Turn a decoded frame as its display matrix says, in full size.

    Args:
        frame: A frame of PyAV.

    Returns:
        The picture, RGB.
    """
    picture = Image.fromarray(frame.to_ndarray(format="rgb24"))
    turns = round(frame.rotation / 90) % 4  # counter-clockwise
    ways = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
    return picture.transpose(ways[turns - 1]) if turns else picture


class FrameTimer:
    """Chooses frames by their times so that there are `fps` of them per second.

    Args:
        fps: The number of frames per second; None chooses all.
    """

    def __init__(self, fps: float | None) -> None:
        self.fps, self.tick = fps, -1

    def __call__(self, at: float) -> bool:
        """Return True once for each 1/fps of a second.

        Args:
            at: The time of a frame in seconds; times do not decrease.
        """
        tick = int((at + 1e-4) * self.fps) if self.fps else self.tick + 1
        if tick == self.tick:
            return False
        self.tick = tick
        return True


@contextmanager
def _failures(av: Any, path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (av.FFmpegError, OSError, ValueError, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise FileError(f"{path} {what} ({reason}): restore or repair it, or {SKIP}") from error


def _start(stream: Any) -> float:
    return float((stream.start_time or 0) * (stream.time_base or 0))


def _end(container: Any, stream: Any) -> float | None:
    """The seconds of video that the file says it holds; None if it does not say."""
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    hours, _, rest = stream.metadata.get("DURATION", "").partition(":")
    minutes, _, seconds = rest.partition(":")
    try:
        return 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError:
        alone = len(container.streams) == 1 and container.duration
        return container.duration / 1e6 if alone else None


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
