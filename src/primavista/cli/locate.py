"""`primavista predict --locate`: where taught objects are in pictures and videos."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from PIL import Image, ImageDraw

from primavista.cli.arguments import printable
from primavista.cli.fonts import font_for
from primavista.cli.sampling import is_video_file
from primavista.errors import FileError, InputError, file_errors
from primavista.media.addresses import is_live
from primavista.storage.disk import replacing

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.learner.locating import Located
    from primavista.media.video import BadFiles

# one colour per object, by the order in which the objects were taught; told apart on any picture
COLOURS = ("#3DDC97", "#FFB000", "#64B5F6", "#FF6E9C", "#C792EA", "#F4F269", "#FF8A50", "#7FFFD4")


@dataclass(frozen=True)
class FoundIn:
    """The objects that were found in one picture or in one frame of a video.

    Attributes:
        source: The file.
        seconds: When, in a video; None for a picture.
        objects: The objects, the best first.
    """

    source: str
    seconds: float | None
    objects: list[Located]


def locate_in_files(
    learner: Learner,
    sources: list[str],
    annotate: Path | None,
    fps: float,
    bad: BadFiles,
    as_json: bool,
) -> None:
    """Print where objects are, one line per object, and write a copy with boxes if it is asked for.

    Args:
        learner: The learner.
        sources: Pictures, videos and folders of them.
        annotate: The copy of the one picture or video to write; None for none.
        fps: Frames per second to search in videos.
        bad: Decides what happens with files that cannot be decoded.
        as_json: Whether to print one line of JSON per frame instead.
    """
    from primavista.media.camera import live_name

    for one in sources:
        if is_live(one):
            raise InputError(
                f"predict --locate is for pictures and videos, and {live_name(one)} is a camera: "
                "use `primavista watch ... --locate`"
            )
    found: Iterator[FoundIn]
    if annotate is None:
        found = (each for one in sources for each in _found(learner, one, fps, bad))
    elif len(sources) == 1:
        found = _annotated(learner, Path(sources[0]).expanduser(), annotate, fps, bad)
    else:
        raise InputError("--annotate is for one picture or one video: give one source")
    for each in found:
        _report(each, as_json)
    if annotate is not None and not as_json:
        typer.echo(f"wrote {annotate}")


def _report(found: FoundIn, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(as_record(found)))
        return
    where = Path(found.source).name if found.seconds is None else f"{found.seconds:.1f} s"
    if not found.objects:
        typer.echo(f"{printable(where)}: nothing")
    for one in found.objects:
        box = one.box
        ends = f"({box.left:.0f}, {box.top:.0f}) - ({box.right:.0f}, {box.bottom:.0f})"
        said = f"{printable(one.label)} {100 * one.confidence:.0f} %"
        typer.echo(f"{printable(where)}: {said} at {ends}")


def as_record(found: FoundIn) -> dict[str, Any]:
    """Return what was found in a picture as a JSON object.

    Args:
        found: The picture and what was found.

    Returns:
        The source, the seconds in a video, and `objects` with their boxes in pixels.
    """
    record: dict[str, Any] = {"source": found.source}
    if found.seconds is not None:
        record["seconds"] = round(found.seconds, 3)
    return record | {"objects": [asdict(one) for one in found.objects]}


def _found(learner: Learner, source: str, fps: float, bad: BadFiles) -> Iterator[FoundIn]:
    """Yield what is found in a picture, in a video, or in those of a folder."""
    from primavista.media.video import media_in

    path = Path(source).expanduser()
    if path.is_dir():
        for inside in media_in(path):
            yield from _found(learner, str(inside), fps, bad)
    elif is_video_file(source):
        for seconds, picture, due in _video_pictures(path, fps, bad):
            if due:
                yield FoundIn(source, seconds, learner.locate(picture))
    else:
        with bad.guard():
            yield FoundIn(source, None, learner.locate(path))


def _video_pictures(
    path: Path, fps: float, bad: BadFiles
) -> Iterator[tuple[float, Image.Image, bool]]:
    """The frames of a video: when, the picture, and whether it is one of those to be searched."""
    from primavista.media.decode import FrameTimer, timed_frames, turned

    timer = FrameTimer(fps)
    for seconds, frame in timed_frames(path):
        with bad.guard():
            if isinstance(frame, FileError):
                raise frame
            yield seconds, turned(frame), timer(seconds)


def _annotated(
    learner: Learner, source: Path, target: Path, fps: float, bad: BadFiles
) -> Iterator[FoundIn]:
    """Yield what is found in a picture or a video, and write a copy of it with boxes."""
    from primavista.cli.annotate import SUFFIXES, check_copy, written_video
    from primavista.media.images import decode_image

    if source.is_dir():
        raise InputError(f"--annotate is for one picture or one video, and {source} is a folder")
    is_video = is_video_file(str(source))
    suffixes = SUFFIXES if is_video else (".png", ".jpg", ".jpeg", ".webp")
    check_copy(source, target, suffixes)
    if not is_video:
        picture = Image.fromarray(decode_image(source, source, None, whole=True))
        found = learner.locate(picture)
        with file_errors("write", target), replacing(target, keep_suffix=True) as part:
            draw_boxes(picture, found, learner.labels).save(part)
        yield FoundIn(str(source), None, found)
        return
    with written_video(source, target) as writer:
        latest: list[Located] = []
        for seconds, picture, due in _video_pictures(source, fps, bad):
            if due:
                latest = learner.locate(picture)
                yield FoundIn(str(source), seconds, latest)
            writer.write(draw_boxes(picture, latest, learner.labels), seconds)


def draw_boxes(picture: Image.Image, found: list[Located], labels: list[str]) -> Image.Image:
    """Draw boxes with names into a picture.

    Args:
        picture: The picture, of any size.
        found: The objects.
        labels: All names, whose order decides the colours.

    Returns:
        A new picture of the same size, RGB.
    """
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
