"""Frames to recognise one by one, and what they show, as lines on the terminal and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.markup import escape

from primavista.cli.arguments import printable
from primavista.storage.names import UNKNOWN

if TYPE_CHECKING:
    import numpy as np

    from primavista.learner.learner import Learner
    from primavista.learner.locating import Located
    from primavista.learner.prediction import Prediction
    from primavista.media.images import Region
    from primavista.media.video import BadFiles


@dataclass(frozen=True)
class SampledFrame:
    """One frame at model size, or whole.

    Attributes:
        source: The file or the camera that it comes from.
        seconds: The time since the start of the video or of the recording; None for an image.
        image: The pixels: uint8, size x size x 3, RGB; H x W x 3 if it is whole.
    """

    source: str
    seconds: float | None
    image: np.ndarray[Any, Any]

    @property
    def record(self) -> dict[str, Any]:
        """The source and, in a video or of a camera, the time, for JSON."""
        if self.seconds is None:
            return {"source": self.source}
        return {"source": self.source, "seconds": round(self.seconds, 3)}


def sample_frames(
    source: str,
    size: int | None,
    bad: BadFiles,
    fps: float,
    region: Region | None = None,
) -> Iterator[SampledFrame]:
    """Read every image of a source, and so many frames per second of its videos.

    An animated image is read like a video.

    Args:
        source: An image, a folder, or a video.
        size: The side of the frames in pixels; None keeps whole pictures.
        bad: Decides what happens with files that cannot be decoded.
        fps: The number of frames per second to take of videos.
        region: The part of the picture to look at; None for all of it.

    Yields:
        The frames, in order.
    """
    from primavista.media.decode import picture_frames
    from primavista.media.video import find_media, is_image
    from primavista.media.video_file import video_frames

    paths: list[Path] = []
    with bad.guard():
        paths = find_media(source)
    for path in paths:
        with bad.guard():
            if is_image(path):
                for time, read in picture_frames(path, size, fps, region, whole=size is None):
                    yield SampledFrame(str(path), time, read())
                continue
            for at, image in video_frames(path, size, fps, region):
                with bad.guard():
                    if isinstance(image, OSError):
                        raise image
                    yield SampledFrame(str(path), at, image)


BAR_WIDTH = 12  # characters
FIELDS = ("label", "answer", "known", "confidence", "familiarity", "scores")


@dataclass(frozen=True)
class Sighting:
    """A frame and what it shows.

    Attributes:
        frame: The frame.
        alone: What it shows by itself.
        recent: What the last second of its video shows; the same as `alone` for an image.
    """

    frame: SampledFrame
    alone: Prediction
    recent: Prediction

    @property
    def record(self) -> dict[str, Any]:
        """The JSON of the frame: what it shows and, in a video, `recent`."""
        record = self.frame.record | as_fields(self.alone)
        if self.frame.seconds is None:
            return record
        return record | {"recent": as_fields(self.recent)}


class Recogniser:
    """Recognises frames, alone and together with the frames of the second before them.

    It prints one line per frame, and at the end one per video, or one for all pictures.

    Args:
        learner: The learner.
        top: The number of the most likely names in a line.
        as_json: Print JSON for scripts instead of text.
        quiet: Print no line per frame unless `as_json` is set.
        named: Print the name of the video in each line, because there are several.
    """

    def __init__(
        self,
        learner: Learner,
        top: int = 3,
        as_json: bool = False,
        quiet: bool = False,
        named: bool = False,
    ) -> None:
        self.learner, self.size = learner, learner.size
        self.top, self.as_json, self.quiet, self.named = top, as_json, quiet, named
        # aligns the columns; a likely name has a question mark
        self.width = max(len(UNKNOWN), *(len(name) + 1 for name in learner.labels), 0)
        self.seen: list[Prediction] = []  # what all frames show
        self.videos: dict[str, list[Prediction]] = {}  # those of each video file
        self.console = Console(highlight=False)
        self._source, self._watch = "", learner.watch()

    def look(self, frame: SampledFrame) -> Sighting:
        """Recognise the next frame."""
        alone = self.learner.predict(frame.image)
        if frame.seconds is None:
            return Sighting(frame, alone, alone)
        if frame.source != self._source:
            self._source, self._watch = frame.source, self.learner.watch()
        return Sighting(frame, alone, self._watch.add(frame.image, alone, frame.seconds))

    def report(self, sighting: Sighting) -> None:
        """Count one frame and print its line."""
        frame, alone = sighting.frame, sighting.alone
        self.seen.append(alone)
        if frame.seconds is not None:
            self.videos.setdefault(frame.source, []).append(alone)
        if self.as_json:
            print(json.dumps(sighting.record))
        elif not self.quiet:
            self.console.print(self._line(frame, sighting.recent), soft_wrap=True)

    def close(self, skipped: int) -> None:
        """Print what each video shows, or how often each object was seen, and what was skipped."""
        from primavista.learner.watch import fuse

        rule = self.learner.answer_rule
        fused = {source: fuse(seen, rule) for source, seen in self.videos.items()}
        if self.as_json:
            videos = [
                {"source": source, "frames": len(self.videos[source]), **as_fields(answer)}
                for source, answer in fused.items()
            ]
            print(json.dumps({"summary": {**self._summary(skipped), "videos": videos}}))
            return
        for source, answer in fused.items():
            where = escape(printable(f"{Path(source).name}: ")) if len(fused) > 1 else ""
            counts = Counter(map(_name, self.videos[source]))
            total, same = counts.total(), counts.pop(_name(answer), 0)
            others = f" ({_listed(counts)})" if counts else ""
            line = f"{where}{_marked_up(answer)}: {same} of {total} frames{others}"
            self.console.print(line, soft_wrap=True)
        if not self.videos and len(self.seen) > 1:
            line = f"{len(self.seen)} frames: {_listed(Counter(map(_name, self.seen)))}"
            self.console.print(line, soft_wrap=True)
        if skipped:
            self.console.print(f"skipped {skipped} that could not be decoded")

    def _summary(self, skipped: int) -> dict[str, Any]:
        return {
            "frames": len(self.seen),
            "votes": Counter(one.label for one in self.seen if one.answer == "known"),
            "likely": Counter(one.label for one in self.seen if one.answer == "likely"),
            "unknown": sum(one.answer == "unknown" for one in self.seen),
            "skipped": skipped,
        }

    def _line(self, frame: SampledFrame, prediction: Prediction) -> str:
        where = escape(printable(Path(frame.source).name))
        if frame.seconds is not None:
            time = format_time(frame.seconds)
            where = f"{where} {time}" if self.named else time
        ranked = sorted(prediction.scores.items(), key=lambda item: -item[1])[: self.top]
        names = [escape(printable(label)) for label, _ in ranked]
        if prediction.answer == "unknown" or prediction.label is None:
            # no percentages and no bar: among the taught names alone they say nothing of a stranger
            candidates = f"(most like {', '.join(names)})" if names else ""
            blank = " " * (BAR_WIDTH + 6)
            return f"{where:<8} [dim]{UNKNOWN:<{self.width}} {blank}  {candidates}[/dim]".rstrip()
        name = _marked_up(prediction, self.width)
        others = [
            f"{name} {100 * share:.0f} %" for name, (_, share) in zip(names, ranked, strict=True)
        ]
        rest = f"[dim]{', '.join(others[1:])}[/dim]"
        return f"{where:<8} {name} {self._bar(prediction.confidence)}  {rest}".rstrip()

    def _bar(self, confidence: float) -> str:
        filled = round(BAR_WIDTH * confidence)
        full, empty = "#-" if self.console.options.ascii_only else "━─"
        rest = empty * (BAR_WIDTH - filled)
        return f"{100 * confidence:3.0f} % {full * filled}[dim]{rest}[/dim]"


def as_fields(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a JSON object, with the field names of Python and of the service."""
    return {name: getattr(prediction, name) for name in FIELDS}


def _marked_up(prediction: Prediction, width: int = 0) -> str:
    """Return an answer in the markup of rich: a likely name has a question mark and is amber."""
    style = "bold yellow" if prediction.answer == "likely" else "bold"
    return f"[{style}]{escape(f'{printable(prediction.said):<{width}}')}[/{style}]"


def _name(prediction: Prediction) -> str:
    """Return the name of the object that is known or likely, or "unknown"."""
    if prediction.label is None or prediction.answer == "unknown":
        return UNKNOWN
    return prediction.label


def _listed(counts: Counter[str]) -> str:
    names = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return escape(printable(names))


def format_time(seconds: float) -> str:
    """Format a time in a video as minutes, seconds and tenths.

    >>> format_time(61.25)
    '1:01.2'
    """
    tenths = int(seconds * 10 + 1e-6)
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"


class Found(NamedTuple):
    """A whole picture, or a frame of a video, and the objects in it, the best first."""

    frame: SampledFrame
    objects: list[Located]


class Locator:
    """Finds objects anywhere in whole pictures, and prints one line per object, or JSON.

    Args:
        learner: The learner.
        as_json: Print JSON for scripts instead of text.
        named: Print the name of the video in each line, because there are several.
    """

    size = None

    def __init__(self, learner: Learner, as_json: bool, named: bool) -> None:
        self.learner, self.as_json, self.named = learner, as_json, named

    def look(self, frame: SampledFrame) -> Found:
        """Search a frame."""
        return Found(frame, self.learner.locate(frame.image))

    def report(self, found: Found) -> None:
        """Print what was found in one frame; the boxes are in pixels."""
        frame, objects = found
        if self.as_json:
            print(json.dumps(frame.record | {"objects": [asdict(one) for one in objects]}))
            return
        where = Path(frame.source).name
        if frame.seconds is not None:
            time = f"{frame.seconds:.1f} s"
            where = f"{where} {time}" if self.named else time
        if not objects:
            print(f"{printable(where)}: nothing")
        for one in objects:
            box = one.box
            ends = f"({box.left:.0f}, {box.top:.0f}) - ({box.right:.0f}, {box.bottom:.0f})"
            said = f"{one.label} {100 * one.confidence:.0f} % at {ends}"
            print(printable(f"{where}: {said}"))

    def close(self, skipped: int) -> None:
        """Print how many files and frames were skipped."""
        if skipped and not self.as_json:
            print(f"skipped {skipped} that could not be decoded")


Looker: TypeAlias = Recogniser | Locator
