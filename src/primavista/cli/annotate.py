"""A video with its predictions drawn into it: same size, frame rate and orientation, no sound."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageColor, ImageDraw

from primavista.cli.arguments import printable
from primavista.cli.csv_file import check_writable
from primavista.cli.fonts import font_for
from primavista.cli.sampling import SampledFrame, Sighting, watched
from primavista.errors import CHOOSE_FOLDER, FileError, InputError, file_error, require_extra
from primavista.storage.disk import replacing

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction
    from primavista.media.video import BadFiles
    from primavista.progress import Progress

SUFFIXES = (".mp4", ".mkv", ".mov")
TICKS_PER_SECOND = 90_000  # of the time stamps that are written
KNOWN_COLOUR = "#3DDC97"
UNKNOWN_COLOUR = "#B0B0B0"
TEXT_COLOUR = "#FFFFFF"
BAND_COLOUR = (0, 0, 0, 150)


def check_copy(source: Path, target: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a copy that cannot or must not be written, before any work is done.

    Args:
        source: The picture or the video that is read.
        target: The copy with `--annotate`.
        suffixes: How the name of the copy may end.

    Raises:
        InputError: If the copy has another suffix, or if there is such a file already.
        FileError: If its folder does not exist or cannot be written to.
    """
    if target.suffix.lower() not in suffixes:
        raise InputError(f"--annotate {target}: the name of the copy ends in {', '.join(suffixes)}")
    check_writable(target)
    if target.exists():
        problem = "is the source itself" if target.samefile(source) else "exists"
        raise InputError(f"{target} {problem}: give another name")


def annotate_video(
    learner: Learner,
    source: Path,
    target: Path,
    fps: float,
    bad: BadFiles,
    progress: Progress,
) -> Iterator[Sighting]:
    """Write a copy of a video with predictions drawn into it; the whole file or none.

    Args:
        learner: The learner.
        source: The video to read.
        target: The video to write; its suffix decides the format.
        fps: How many frames per second are recognised; what the last second shows is drawn, and
            the frames between show the same.
        bad: Decides what happens with frames that cannot be decoded.
        progress: Called after each frame with the number of frames done and in all.

    Yields:
        Each frame that was recognised, with its predictions.

    Raises:
        FileError: If the video cannot be read or written.
        MissingExtraError: If PyAV is not installed.
    """
    from primavista.media.decode import FrameTimer, timed_frames, turned, video_rate
    from primavista.media.frames import crop_and_resize

    av = require_extra("av", "video")
    rate, total = video_rate(source)
    due = FrameTimer(fps)
    watch = learner.watch()
    latest: Prediction | None = None
    with replacing(target, keep_suffix=True) as part, _container(av, part, target) as container:
        writer = VideoWriter(av, container, rate)
        for count, (seconds, frame) in enumerate(timed_frames(source), 1):
            with bad.guard():
                if isinstance(frame, FileError):
                    raise frame
                picture = turned(frame)
                if due(seconds) or latest is None:
                    image = crop_and_resize(picture, learner.size)
                    sampled = SampledFrame(str(source), seconds, image)
                    sighting = watched(watch, sampled, learner.predict(image))
                    latest = sighting.recent
                    yield sighting
                writer.write(draw(picture, latest), seconds)
            progress(count, max(total, count))
        writer.finish()


@contextlib.contextmanager
def written_video(source: Path, target: Path) -> Iterator[VideoWriter]:
    """Open a copy of a video for writing, picture by picture; the whole file or none.

    Args:
        source: The video, whose frame rate the copy has.
        target: The video to write; its suffix decides the format.

    Yields:
        The writer, which is finished at the end.
    """
    from primavista.media.decode import video_rate

    av = require_extra("av", "video")
    with replacing(target, keep_suffix=True) as part, _container(av, part, target) as container:
        writer = VideoWriter(av, container, video_rate(source)[0])
        yield writer
        writer.finish()


def draw(picture: Image.Image, prediction: Prediction) -> Image.Image:
    """Draw a prediction into a picture.

    A band at the bottom shows the name, the confidence and a bar of it, or "unknown"; a rectangle
    shows the centre square, which is what the network sees.

    Args:
        picture: The picture, of any size.
        prediction: What it shows.

    Returns:
        A new picture of the same size, RGB.
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


class VideoWriter:
    """The video stream of a container; the first picture decides its size.

    Args:
        av: PyAV.
        container: The open file.
        rate: The frames per second.
    """

    def __init__(self, av: Any, container: Any, rate: Fraction) -> None:
        self._av = av
        self._container = container
        self._rate = rate
        self._stream: Any = None

    def write(self, picture: Image.Image, seconds: float) -> None:
        """Append a picture that is shown from a certain time.

        Args:
            picture: The picture; all have the size of the first.
            seconds: The time.
        """
        if self._stream is None:
            self._stream = self._add_stream(picture.size)
        stream = self._stream
        cropped = picture.crop((0, 0, stream.width, stream.height))
        frame = self._av.VideoFrame.from_image(cropped)
        frame.pts = round(seconds * TICKS_PER_SECOND)
        frame.time_base = Fraction(1, TICKS_PER_SECOND)
        self._container.mux(stream.encode(frame))

    def finish(self) -> None:
        """Write what the encoder still holds."""
        if self._stream is not None:
            self._container.mux(self._stream.encode())

    def _add_stream(self, size: tuple[int, int]) -> Any:
        codec = "libx264" if "libx264" in self._av.codecs_available else "mpeg4"
        stream = self._container.add_stream(codec, rate=self._rate)
        # yuv420p stores the colours of two by two pixels as one, so both sides must be even
        stream.width, stream.height = (side - side % 2 for side in size)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS_PER_SECOND)
        if codec == "libx264":
            stream.options = {"crf": "20"}
        return stream


@contextlib.contextmanager
def _container(av: Any, part: Path, target: Path) -> Iterator[Any]:
    """Open a video file for writing; errors name the file that was asked for."""
    try:
        with av.open(str(part), "w") as container:
            yield container
    except FileError:
        raise
    except (av.FFmpegError, OSError) as error:
        raise file_error("write", target, error, CHOOSE_FOLDER) from error
