"""Copies of pictures and videos with answers drawn in: same size, rate and orientation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from primavista.cli.arguments import check_copy, printable
from primavista.cli.progress import progress_bar
from primavista.cli.recognise import Found, Looker, SampledFrame, Sighting
from primavista.errors import CHOOSE_FOLDER, FileError, InputError, file_errors, require_extra
from primavista.media.addresses import is_video_file
from primavista.media.boxes import Box
from primavista.storage.disk import replacing
from primavista.storage.names import UNKNOWN

if TYPE_CHECKING:
    from primavista.learner.locating import Located
    from primavista.learner.prediction import Prediction
    from primavista.media.video import BadFiles

VIDEO_SUFFIXES = (".mp4", ".mkv", ".mov")
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
TICKS_PER_SECOND = 60_000  # of the time stamps that are written; MPEG-4 allows up to 65,535
TICK = Fraction(1, TICKS_PER_SECOND)
KNOWN_COLOUR, LIKELY_COLOUR, UNKNOWN_COLOUR = "#3DDC97", "#FFB000", "#B0B0B0"
# one colour per object, by the order in which the objects were taught; told apart on any picture
COLOURS = (KNOWN_COLOUR, LIKELY_COLOUR, "#64B5F6", "#FF6E9C", "#C792EA", "#F4F269", "#FF8A50")
LAST_CYRILLIC = "\u052f"  # DejaVu Sans has the Latin, Greek and Cyrillic letters up to it
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def check_source(source: Path, target: Path) -> None:
    """Refuse what cannot be annotated, and a copy that cannot or must not be written."""
    if not source.is_file():
        raise InputError(f"--annotate is for one picture or one video file, not {source}")
    suffixes = VIDEO_SUFFIXES if is_video_file(source) else PICTURE_SUFFIXES
    if target.suffix.lower() not in suffixes:
        raise InputError(f"--annotate {target}: the name of the copy ends in {', '.join(suffixes)}")
    check_copy(source, target)


def annotate(
    looker: Looker, source: Path, target: Path, fps: float, bad: BadFiles
) -> Iterator[Sighting | Found]:
    """Write a copy of a picture or a video with answers drawn into it; the whole file or none.

    `fps` frames per second of a video are looked at; the frames between show the same answer.
    Every answer is yielded.
    """
    if is_video_file(source):
        yield from _annotate_video(looker, source, target, fps, bad)
        return
    from primavista.media.images import centre_square, decode_image

    picture = Image.fromarray(decode_image(source, source, None, whole=True))
    image = np.array(picture) if looker.size is None else centre_square(picture, looker.size)
    seen = looker.look(SampledFrame(str(source), None, image))
    with file_errors("write", target), replacing(target, keep_suffix=True) as part:
        _with_answer(picture, seen, looker).save(part)
    yield seen


def _annotate_video(
    looker: Looker, source: Path, target: Path, fps: float, bad: BadFiles
) -> Iterator[Sighting | Found]:
    from primavista.media.decode import FrameTimer
    from primavista.media.images import centre_square
    from primavista.media.video_file import video_facts, video_frames

    rate, total = video_facts(source)
    due = FrameTimer(fps)
    latest: Sighting | Found | None = None
    with written_video(target, rate) as write, progress_bar("drawing frames") as progress:
        for count, (seconds, whole) in enumerate(video_frames(source, None), 1):
            with bad.guard():
                if isinstance(whole, FileError):
                    raise whole
                if due(seconds) or latest is None:
                    image = whole if looker.size is None else centre_square(whole, looker.size)
                    latest = looker.look(SampledFrame(str(source), seconds, image))
                    yield latest
                write(_with_answer(Image.fromarray(whole), latest, looker), seconds)
            progress(count, max(total, count))


def _with_answer(picture: Image.Image, seen: Sighting | Found, looker: Looker) -> Image.Image:
    if isinstance(seen, Found):
        return draw_boxes(picture, seen.objects, looker.learner.labels)
    return draw(picture, seen.recent)


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
        frame = av.VideoFrame.from_image(picture.crop((0, 0, stream.width, stream.height)))
        frame.pts, frame.time_base = round(seconds * TICKS_PER_SECOND), TICK
        container.mux(stream.encode(frame))

    with file_errors("write", target, CHOOSE_FOLDER), replacing(target, keep_suffix=True) as part:
        try:
            with av.open(str(part), "w") as container:
                yield write
                for stream in streams:
                    container.mux(stream.encode())  # what the encoder still holds
        except av.FFmpegError as error:
            raise OSError(error.strerror) from error


def _add_stream(av: Any, container: Any, rate: Fraction, size: tuple[int, int]) -> Any:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    stream = container.add_stream(codec, rate=rate, options={"crf": "20"})
    # yuv420p stores the colours of two by two pixels as one, so both sides must be even
    stream.width, stream.height = (side - side % 2 for side in size)
    stream.pix_fmt = "yuv420p"
    stream.codec_context.time_base = TICK
    return stream


def draw(picture: Image.Image, prediction: Prediction) -> Image.Image:
    """Return a copy of a picture with a prediction: its name and confidence, or "unknown".

    They are beside a rectangle around the centre square, which is what the network sees. A likely
    name has a question mark and is amber. There is no percentage next to "unknown": it would read
    as that of the unknown.
    """
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    square = Box(left, top, left + side - 1, top + side - 1)
    if prediction.answer == "unknown" or prediction.label is None:
        return _draw(picture, [(square, UNKNOWN, UNKNOWN_COLOUR)])
    text = f"{prediction.said} {100 * prediction.confidence:.0f} %"
    colour = KNOWN_COLOUR if prediction.known else LIKELY_COLOUR
    return _draw(picture, [(square, text, colour)])


def draw_boxes(picture: Image.Image, found: list[Located], labels: list[str]) -> Image.Image:
    """Return a copy of a picture with boxes; the order of `labels` decides the colours."""
    colours = dict(zip(labels, cycle(COLOURS), strict=False))
    drawn = []
    for one in reversed(found):
        text = f"{one.label} {100 * one.confidence:.0f} %"
        drawn.append((one.box, text, colours.get(one.label, COLOURS[0])))
    return _draw(picture, drawn)


def _draw(picture: Image.Image, boxes: Sequence[tuple[Box, str, str]]) -> Image.Image:
    """Return a copy of a picture with boxes, each with a text in its upper left corner."""
    canvas = picture.convert("RGB")
    pen = ImageDraw.Draw(canvas)
    side = min(canvas.size)
    thick, text_size = max(2, side // 140), max(11, side // 24)
    for box, label, colour in boxes:
        pen.rectangle((box.left, box.top, box.right, box.bottom), outline=colour, width=thick)
        font, text = font_for(printable(label), text_size)
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
