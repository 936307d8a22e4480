"""Copies of pictures and videos with answers drawn in: same size, rate and orientation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from primavista.cli.arguments import printable
from primavista.cli.csv_file import check_writable
from primavista.cli.frames import SampledFrame, is_video_file
from primavista.cli.progress import progress_bar
from primavista.errors import (
    CHOOSE_FOLDER,
    FileError,
    InputError,
    file_error,
    file_errors,
    require_extra,
)
from primavista.storage.disk import replacing

if TYPE_CHECKING:
    from primavista.learner.locating import Located
    from primavista.learner.prediction import Prediction
    from primavista.media.video import BadFiles

VIDEO_SUFFIXES = (".mp4", ".mkv", ".mov")
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
TICKS_PER_SECOND = 90_000  # of the time stamps that are written
KNOWN_COLOUR = "#3DDC97"
UNKNOWN_COLOUR = "#B0B0B0"
TEXT_COLOUR = "#FFFFFF"
BAND_COLOUR = (0, 0, 0, 150)
# one colour per object, by the order in which the objects were taught; told apart on any picture
COLOURS = (KNOWN_COLOUR, *("#FFB000", "#64B5F6", "#FF6E9C", "#C792EA", "#F4F269", "#FF8A50"))
LAST_CYRILLIC = "\u052f"  # DejaVu Sans has the Latin, Greek and Cyrillic letters up to it
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Seen = TypeVar("Seen")


class Looker(Protocol[Seen]):
    """Finds out what frames of a size show (None for whole pictures), and can draw it."""

    @property
    def size(self) -> int | None:
        """The side of the frames; None for whole pictures."""

    def look(self, frames: Sequence[SampledFrame]) -> list[Seen]:
        """Return what each of some frames shows."""

    def draw(self, picture: Image.Image, seen: Seen, /) -> Image.Image:
        """Return a copy of a picture with what was seen drawn into it."""


def check_copy(source: Path, target: Path) -> None:
    """Refuse a copy that cannot or must not be written, before any work is done."""
    if not source.is_file():
        raise InputError(f"--annotate is for one picture or one video file, not {source}")
    suffixes = VIDEO_SUFFIXES if is_video_file(str(source)) else PICTURE_SUFFIXES
    if target.suffix.lower() not in suffixes:
        raise InputError(f"--annotate {target}: the name of the copy ends in {', '.join(suffixes)}")
    check_writable(target)
    if target.exists():
        problem = "is the source itself" if target.samefile(source) else "exists"
        raise InputError(f"{target} {problem}: give another name")


def annotate(
    looker: Looker[Seen], source: Path, target: Path, fps: float, bad: BadFiles
) -> Iterator[Seen]:
    """Write a copy of a picture or a video with answers drawn into it; the whole file or none.

    `fps` frames per second of a video are looked at; the frames between show the same answer.
    Every answer is yielded.
    """
    if is_video_file(str(source)):
        yield from _annotate_video(looker, source, target, fps, bad)
        return
    from primavista.media.images import centre_square, decode_image

    picture = Image.fromarray(decode_image(source, source, None, whole=True))
    image = np.array(picture) if looker.size is None else centre_square(picture, looker.size)
    (seen,) = looker.look([SampledFrame(str(source), None, image)])
    with file_errors("write", target), replacing(target, keep_suffix=True) as part:
        looker.draw(picture, seen).save(part)
    yield seen


def _annotate_video(
    looker: Looker[Seen], source: Path, target: Path, fps: float, bad: BadFiles
) -> Iterator[Seen]:
    from primavista.media.decode import FrameTimer, timed_frames, turned, upright, video_rate

    rate, total = video_rate(source)
    due = FrameTimer(fps)
    latest: Seen | None = None
    with written_video(target, rate) as write, progress_bar("drawing frames") as progress:
        for count, (seconds, frame) in enumerate(timed_frames(source), 1):
            with bad.guard():
                if isinstance(frame, FileError):
                    raise frame
                if due(seconds) or latest is None:
                    image = upright(frame, looker.size)
                    (latest,) = looker.look([SampledFrame(str(source), seconds, image)])
                    yield latest
                write(looker.draw(turned(frame), latest), seconds)
            progress(count, max(total, count))


@contextmanager
def written_video(target: Path, rate: Fraction) -> Iterator[Callable[[Image.Image, float], None]]:
    """Open a video for writing, whole or not at all; yield a function that appends a picture.

    The first picture decides the size of the video. Errors name the file that was asked for.
    """
    av = require_extra("av", "video")
    streams: list[Any] = []

    def write(picture: Image.Image, seconds: float) -> None:
        if not streams:
            streams.append(_add_stream(av, container, rate, picture.size))
        (stream,) = streams
        cropped = picture.crop((0, 0, stream.width, stream.height))
        frame = av.VideoFrame.from_image(cropped)
        frame.pts = round(seconds * TICKS_PER_SECOND)
        frame.time_base = Fraction(1, TICKS_PER_SECOND)
        container.mux(stream.encode(frame))

    with replacing(target, keep_suffix=True) as part:
        try:
            with av.open(str(part), "w") as container:
                yield write
                for stream in streams:
                    container.mux(stream.encode())  # what the encoder still holds
        except FileError:
            raise
        except (av.FFmpegError, OSError) as error:
            raise file_error("write", target, error, CHOOSE_FOLDER) from error


def _add_stream(av: Any, container: Any, rate: Fraction, size: tuple[int, int]) -> Any:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    stream = container.add_stream(codec, rate=rate)
    # yuv420p stores the colours of two by two pixels as one, so both sides must be even
    stream.width, stream.height = (side - side % 2 for side in size)
    stream.pix_fmt = "yuv420p"
    stream.codec_context.time_base = Fraction(1, TICKS_PER_SECOND)
    if codec == "libx264":
        stream.options = {"crf": "20"}
    return stream


def draw(picture: Image.Image, prediction: Prediction) -> Image.Image:
    """Return a copy of a picture with a prediction drawn into it.

    A band at the bottom shows the name, the confidence and a bar of it, or "unknown"; a rectangle
    shows the centre square, which is what the network sees.
    """
    canvas = picture.convert("RGBA")
    layer = Image.new("RGBA", canvas.size)
    pen = ImageDraw.Draw(layer)
    label = prediction.label if prediction.known else None
    _draw_square(pen, canvas.size, UNKNOWN_COLOUR if label is None else KNOWN_COLOUR)
    _draw_band(pen, canvas.size, label, prediction.confidence)
    return Image.alpha_composite(canvas, layer).convert("RGB")


def _draw_square(pen: ImageDraw.ImageDraw, size: tuple[int, int], colour: str) -> None:
    width, height = size
    if width == height:
        return
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = (left, top, left + side - 1, top + side - 1)
    outline = (*ImageColor.getrgb(colour)[:3], 160)
    pen.rectangle(square, outline=outline, width=max(1, side // 200))


def _draw_band(
    pen: ImageDraw.ImageDraw, size: tuple[int, int], label: str | None, confidence: float
) -> None:
    width, height = size
    side = min(width, height)
    band = max(16, side // 8)
    bar = max(2, band // 8)
    pen.rectangle((0, height - band, width, height), fill=BAND_COLOUR)
    share = ""  # next to "unknown", a percentage would read as that of the unknown
    if label is not None:
        share = f"{100 * confidence:.0f} %"
        pen.rectangle((0, height - bar, round(width * confidence), height), fill=KNOWN_COLOUR)
    font, name = font_for(printable(label) if label else "unknown", max(10, side // 14))
    room = width - 3 * bar - font.getlength(share) - 2 * bar
    while len(name) > 1 and font.getlength(name) > room:
        name = name[:-2] + "…" if len(name) > 2 else "…"
    middle = height - bar - (band - bar) // 2
    colour = UNKNOWN_COLOUR if label is None else TEXT_COLOUR
    pen.text((2 * bar, middle), name, font=font, fill=colour, anchor="lm")
    pen.text((width - 2 * bar, middle), share, font=font, fill=TEXT_COLOUR, anchor="rm")


def draw_boxes(picture: Image.Image, found: list[Located], labels: list[str]) -> Image.Image:
    """Return a copy of a picture with boxes; the order of `labels` decides the colours."""
    canvas = picture.convert("RGB")
    pen = ImageDraw.Draw(canvas)
    side = min(canvas.size)
    thick, text_size = max(2, side // 140), max(11, side // 24)
    for one in reversed(found):
        place = labels.index(one.label) if one.label in labels else 0
        colour = COLOURS[place % len(COLOURS)]
        box = one.box
        pen.rectangle((box.left, box.top, box.right, box.bottom), outline=colour, width=thick)
        font, text = font_for(f"{printable(one.label)} {100 * one.confidence:.0f} %", text_size)
        wide, high = font.getlength(text) + 8, text_size + 6
        left = min(max(box.left, 0), max(canvas.width - wide, 0))
        top = box.top - high if box.top >= high else box.top
        pen.rectangle((left, top, left + wide, top + high), fill=colour)
        pen.text((left + 4, top + high / 2), text, font=font, fill="#101010", anchor="lm")
    return canvas


def font_for(name: str, size: int) -> tuple[Font, str]:
    """Return a font, and a name as it is drawn: letters that the font lacks are escaped.

    Pillow's own font has ASCII only; for other names DejaVu Sans is used if it is installed.

    >>> font_for("mug 杯", 12)[1]
    'mug \\\\u676f'
    """
    font: Font = ImageFont.load_default(size)
    last = "~"
    if not name.isascii():
        with suppress(OSError):
            font, last = ImageFont.truetype("DejaVuSans.ttf", size), LAST_CYRILLIC
    letters = [x if x <= last else x.encode("ascii", "backslashreplace").decode() for x in name]
    return font, "".join(letters)
