"""A video with what is recognised drawn into it: the same size, frame rate and orientation, without sound."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from primavista.cli.fonts import font_for
from primavista.cli.look import Look
from primavista.cli.sources import shown
from primavista.errors import FileError, require_extra

if TYPE_CHECKING:
    from primavista.learner.learner import Learner, Prediction
    from primavista.streams.video import BadFiles

SUFFIXES = (".mp4", ".mkv", ".mov")
TICKS = 90_000  # a second, of the time stamps that are written
KNOWN, NOT, PAPER, INK = "#3DDC97", "#B0B0B0", (0, 0, 0, 150), "#FFFFFF"


def annotate_video(
    learner: Learner,
    source: Path,
    target: Path,
    fps: float,
    bad: BadFiles,
    progress: Callable[[int, int], None],
) -> Iterator[tuple[Look, Prediction]]:
    """Write `target`, whole or not at all, looking `fps` times a second; gives each look with its prediction."""
    from primavista.frames import crop_and_resize
    from primavista.streams.decode import Due, timed_frames, turned, video_rate

    av = require_extra("av", "video")
    rate, total = video_rate(source)
    part = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    due, count, latest = Due(fps), 0, None
    try:
        with _writing(av, part, target) as container:
            stream = None
            for at, frame in timed_frames(source):
                with bad.guard():
                    if isinstance(frame, FileError):
                        raise frame
                    picture = turned(frame)
                    if due(at) or latest is None:
                        look = Look(str(source), at, crop_and_resize(picture, learner.size))
                        latest = learner.predict(look.image)
                        yield look, latest
                    stream = stream or _stream(av, container, picture.size, rate)
                    _put(av, container, stream, draw(picture, latest), at)
                count += 1
                progress(count, max(total, count))
            if stream is not None:
                container.mux(stream.encode())
        os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def draw(picture: Image.Image, prediction: Prediction) -> Image.Image:
    """The picture with a band at its foot: its name and a bar of the confidence, or "unknown"; a frame round what counts."""
    canvas = picture.convert("RGBA")
    width, height = canvas.size
    side = min(width, height)
    text, band = max(10, side // 14), max(16, side // 8)
    layer = Image.new("RGBA", canvas.size)
    pen = ImageDraw.Draw(layer)
    known = prediction.known and prediction.label is not None
    colour = KNOWN if known else NOT
    left, top = (width - side) // 2, (height - side) // 2
    if width != height:
        pen.rectangle(
            (left, top, left + side - 1, top + side - 1),
            outline=(*_rgb(colour), 160),
            width=max(1, side // 200),
        )
    pen.rectangle((0, height - band, width, height), fill=PAPER)
    bar = max(2, band // 8)
    share = (
        f"{100 * prediction.confidence:.0f} %" if known else ""
    )  # beside "unknown" it would read as that of it
    if known:
        pen.rectangle((0, height - bar, round(width * prediction.confidence), height), fill=colour)
    font, name = font_for(
        shown(prediction.label) if known and prediction.label else "unknown", text
    )
    room = width - 3 * bar - font.getlength(share) - 2 * bar
    while len(name) > 1 and font.getlength(name) > room:
        name = name[:-2] + "…" if len(name) > 2 else "…"
    middle = height - bar - (band - bar) // 2
    pen.text((2 * bar, middle), name, font=font, fill=INK if known else NOT, anchor="lm")
    pen.text((width - 2 * bar, middle), share, font=font, fill=INK, anchor="rm")
    return Image.alpha_composite(canvas, layer).convert("RGB")


def _stream(av: Any, container: Any, size: tuple[int, int], rate: Fraction) -> Any:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    stream = container.add_stream(codec, rate=rate)
    stream.width, stream.height = (
        side - side % 2 for side in size
    )  # the colours of two by two pixels are kept as one
    stream.pix_fmt = "yuv420p"
    stream.codec_context.time_base = Fraction(1, TICKS)
    if codec == "libx264":
        stream.options = {"crf": "20"}
    return stream


def _put(av: Any, container: Any, stream: Any, picture: Image.Image, at: float) -> None:
    frame = av.VideoFrame.from_image(picture.crop((0, 0, stream.width, stream.height)))
    frame.pts, frame.time_base = round(at * TICKS), Fraction(1, TICKS)
    container.mux(stream.encode(frame))


@contextlib.contextmanager
def _writing(av: Any, part: Path, target: Path) -> Iterator[Any]:
    try:
        with av.open(str(part), "w") as container:
            yield container
    except (av.FFmpegError, OSError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"cannot write {target}: {error.strerror or error}. Choose a folder that you may write"
        ) from error


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
