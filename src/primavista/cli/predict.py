"""`primavista predict`: what a saved learner sees in images, folders, videos and cameras."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from primavista.cli.arguments import (
    Device,
    Model,
    RegionText,
    Threshold,
    chosen_region,
    printable,
    warn_of_password,
)
from primavista.cli.bulk import BulkReading, predict_to_csv
from primavista.cli.csv_file import check_writable
from primavista.cli.sampling import (
    BATCH,
    SampledFrame,
    Sighting,
    is_video_file,
    predict_frames,
    sample_frames,
)
from primavista.errors import FileError, InputError
from primavista.media.addresses import is_live
from primavista.storage.manifest import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction
    from primavista.media.video import BadFiles

FPS = 2.0  # frames per second that are recognised, to be read as lines
ANNOTATED_FPS = 10.0  # and in a video that is watched
BAR_WIDTH = 12  # characters


def predict(
    model: Model,
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Images, folders and videos, or one camera: camera:0, /dev/video0, rtsp://..., "
            "http://..., env:NAME."
        ),
    ],
    annotate: Annotated[
        Path | None,
        typer.Option(help="Write a copy of the video with the predictions drawn in, e.g. out.mp4."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Write one row per picture and per video instead, those in folders of folders "
            "too, e.g. out.csv."
        ),
    ] = None,
    locate: Annotated[
        bool,
        typer.Option(
            "--locate",
            help="Find objects anywhere in pictures and videos: one line per object, with its box "
            "in pixels; with --annotate also for one picture, e.g. out.png.",
        ),
    ] = False,
    fps: Annotated[
        float | None,
        typer.Option(
            help="Frames per second to recognise in videos and cameras "
            "(default: 2; 10 with --annotate).",
            min=0.001,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long to watch a camera (default: until Ctrl-C)."),
    ] = None,
    region: RegionText = None,
    top: Annotated[int, typer.Option(help="How many of the most likely names to show.", min=1)] = 3,
    threshold: Threshold = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out frames that cannot be decoded.")
    ] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per frame, and one at the end.")
    ] = False,
) -> None:
    """Recognise objects in images, videos or a camera: one line per frame, then what they all show.

    In videos and cameras a line says what the last second shows, and each video has a line at the
    end that says what the whole of it shows; for images and cameras it is the majority vote. A
    frame that looks like nothing that was taught is `unknown`; the most likely names follow in
    brackets. Of several files, one that cannot be read is named and the others go on; the exit code
    is 1 then, unless `--skip-bad` is given.

    Examples: `primavista predict kitchen.pv photo.jpg`,
    `primavista predict kitchen.pv monday.mp4 tuesday.mp4 photos/`,
    `primavista predict kitchen.pv recordings/ --csv answers.csv`,
    `primavista predict kitchen.pv clip.mp4 --annotate out.mp4`,
    `primavista predict kitchen.pv table.jpg --locate --annotate found.png`
    """
    from primavista.media.video import BadFiles

    if locate:
        bad = BadFiles(skip_bad or len(sources) > 1)
        learner = _loaded(model, device, threshold)
        return _locate(learner, sources, annotate, fps, bad, as_json)
    source = _only(sources, annotate)
    if annotate is not None:
        _check_target(source, annotate, region)
    check_writable(csv)
    learner = _loaded(model, device, threshold)
    rate = fps or (FPS if annotate is None else ANNOTATED_FPS)
    reading = BulkReading(rate, skip_bad, chosen_region(region))
    if csv is not None:
        failed = predict_to_csv(learner, sources, csv, reading)
    else:
        several = len(sources) > 1 or Path(source).expanduser().is_dir()
        width = max(len(name) for name in [*learner.labels, UNKNOWN])
        quiet = annotate is not None
        reporter = PredictionReporter(top, as_json, width, quiet, learner.threshold, several)
        failed = _print_frames(learner, sources, reading, reporter, seconds, annotate)
    if failed and not skip_bad:
        raise typer.Exit(1)


def _print_frames(
    learner: Learner,
    sources: list[str],
    reading: BulkReading,
    reporter: PredictionReporter,
    seconds: float | None,
    annotate: Path | None,
) -> int:
    """Recognise the frames and print their lines; return how many could not be decoded."""
    from primavista.media.video import BadFiles

    bad = BadFiles(reading.skip_bad or reporter.named)
    if annotate is None:
        sightings = _sightings(learner, sources, reading, seconds, bad)
    else:
        sightings = _annotated(learner, sources[0], annotate, reading.fps, bad)
    failed = _report(reporter, sightings, bad, is_live(sources[0]))
    if annotate is not None and not reporter.as_json:
        typer.echo(f"wrote {annotate}")
    return failed


def _locate(
    learner: Learner,
    sources: list[str],
    annotate: Path | None,
    fps: float | None,
    bad: BadFiles,
    as_json: bool,
) -> None:
    from primavista.cli.locate import locate_in_files

    default = FPS if annotate is None else ANNOTATED_FPS
    locate_in_files(learner, sources, annotate, fps or default, bad, as_json)


def _sightings(
    learner: Learner,
    sources: list[str],
    reading: BulkReading,
    seconds: float | None,
    bad: BadFiles,
) -> Iterator[Sighting]:
    """Recognise the frames of all sources, one after the other."""
    warn_of_password(sources[0])
    part = reading.region
    parts = (sample_frames(one, learner.size, reading.fps, seconds, bad, part) for one in sources)
    frames = chain.from_iterable(parts)
    return predict_frames(learner, frames, 1 if is_live(sources[0]) else BATCH)


def _report(
    reporter: PredictionReporter, sightings: Iterator[Sighting], bad: BadFiles, camera: bool
) -> int:
    """Print the line of each frame and the end; return how many frames or files were left out."""
    try:
        for sighting in sightings:
            reporter.report(sighting)
    except KeyboardInterrupt:
        if not camera:
            raise
    if bad.problems and not reporter.total():
        raise FileError(bad.problems[0])
    reporter.close(bad.skipped)
    return bad.skipped


def _only(sources: list[str], annotate: Path | None) -> str:
    """Return the first source; a camera and a video to be annotated must be the only one."""
    if len(sources) > 1:
        if annotate is not None:
            raise InputError("--annotate is for one video file: name one")
        for source in sources:
            if is_live(source):
                from primavista.media.camera import live_name

                raise InputError(f"{live_name(source)} has no end: watch a camera by itself")
    return sources[0]


def _loaded(model: Path, device: str, threshold: float | None) -> Learner:
    """Load a learner, with another threshold for this command unless that is None."""
    from primavista.learner.learner import Learner

    learner = Learner.load(model.expanduser(), device=device)
    if threshold is not None:
        learner.threshold = threshold
    return learner


def _check_target(source: str, target: Path, region: str | None) -> None:
    """Refuse a video that cannot be annotated, and a file that cannot or must not be written."""
    from primavista.cli.annotate import check_copy
    from primavista.media.camera import live_name

    if region is not None:
        raise InputError("--annotate draws on the whole picture: leave out --region")
    if not is_video_file(source):
        name = live_name(source) if is_live(source) else source
        raise InputError(f"--annotate is for one video file, and {name} is not one")
    check_copy(Path(source).expanduser(), target)


def _annotated(
    learner: Learner, source: str, target: Path, fps: float, bad: BadFiles
) -> Iterator[Sighting]:
    from primavista.cli.annotate import annotate_video
    from primavista.cli.data import progress_bar

    with progress_bar("drawing frames") as progress:
        yield from annotate_video(learner, Path(source).expanduser(), target, fps, bad, progress)


@dataclass
class PredictionReporter:
    """Prints one line per frame, and at the end one per video, or the majority vote.

    Attributes:
        top: How many of the most likely names a line shows.
        as_json: Print JSON for scripts instead of text.
        width: The length of the longest name, which aligns the columns.
        quiet: Print no line per frame unless `as_json` is set.
        threshold: The threshold of the learner.
        named: Print the name of the video in each line, because there are several.
        votes: How many frames, each by itself, were recognised as each object.
        unknown: How many frames were not.
        videos: What the frames of each video file show.
        console: Where text is printed.
    """

    top: int
    as_json: bool
    width: int
    quiet: bool = False
    threshold: float = 0.0
    named: bool = False
    votes: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    videos: dict[str, list[Prediction]] = field(default_factory=dict)
    console: Console = field(default_factory=lambda: Console(highlight=False))

    def report(self, sighting: Sighting) -> None:
        """Count one frame and print its line.

        Args:
            sighting: The frame and what it shows.
        """
        frame, alone = sighting.frame, sighting.alone
        if alone.known and alone.label is not None:
            self.votes[alone.label] += 1
        else:
            self.unknown += 1
        if frame.seconds is not None and not is_live(frame.source):
            self.videos.setdefault(frame.source, []).append(alone)
        if self.as_json:
            typer.echo(json.dumps(as_record(sighting)))
        elif not self.quiet:
            self.console.print(self._line(frame, sighting.recent), soft_wrap=True)

    def close(self, skipped: int) -> None:
        """Print what each video shows, or the vote of all frames if there is none.

        Args:
            skipped: How many frames could not be decoded.
        """
        if self.as_json:
            typer.echo(json.dumps({"summary": self._summary(skipped)}))
            return
        for source, frames in self.videos.items():
            answer = self._answer(frames)
            where = f"{Path(source).name}: " if len(self.videos) > 1 else ""
            self._print_vote(answer.label if answer.known else None, *_tally(frames), where)
        if not self.videos and self.total() > 1:
            self._print_vote(self.winner(), self.votes, self.unknown)
        if skipped:
            self.console.print(f"skipped {skipped} that could not be decoded")

    def winner(self) -> str | None:
        """Return the name with the most frames, or None if more frames are unknown.

        Returns:
            The name; None as well if there were no frames.
        """
        best = self.votes.most_common(1)
        return best[0][0] if best and best[0][1] >= self.unknown else None

    def total(self) -> int:
        """Return the number of frames that were recognised, of all sources together."""
        return sum(self.votes.values()) + self.unknown

    def _summary(self, skipped: int) -> dict[str, Any]:
        label = self.winner()
        count = self.unknown if label is None else self.votes[label]
        total = self.total()
        return {
            "label": label,
            "share": count / total if total else 0.0,
            "frames": total,
            "votes": dict(self.votes),
            "unknown": self.unknown,
            "skipped": skipped,
            "videos": [
                {"source": source, "frames": len(frames), **as_fields(self._answer(frames))}
                for source, frames in self.videos.items()
            ],
        }

    def _answer(self, frames: list[Prediction]) -> Prediction:
        from primavista.learner.watch import fuse

        return fuse(frames, self.threshold)

    def _print_vote(
        self, label: str | None, votes: Counter[str], unknown: int, where: str = ""
    ) -> None:
        """Print an answer, how many frames agree with it, and what the others show."""
        # None stands apart: a file of an earlier version may know an object called "unknown"
        agree = unknown if label is None else votes[label]
        others = [f"{name} {count}" for name, count in votes.most_common() if name != label]
        if label is not None and unknown:
            others.append(f"{UNKNOWN} {unknown}")
        text = f"{agree} of {sum(votes.values()) + unknown} frames"
        if others:
            text += f" ({', '.join(others)})"
        winner = UNKNOWN if label is None else label
        name = f"{escape(printable(where))}[bold]{escape(printable(winner))}[/bold]"
        self.console.print(f"{name}: {escape(printable(text))}", soft_wrap=True)

    def _line(self, frame: SampledFrame, prediction: Prediction) -> str:
        if frame.seconds is None:
            where = escape(printable(Path(frame.source).name))
        else:
            where = format_time(frame.seconds)
            if self.named:
                where = f"{escape(printable(Path(frame.source).name))} {where}"
        ranked = sorted(prediction.scores.items(), key=lambda item: -item[1])[: self.top]
        names = [f"{escape(printable(label))} {100 * share:.0f} %" for label, share in ranked]
        if prediction.known and prediction.label is not None:
            name = f"[bold]{escape(printable(prediction.label)):<{self.width}}[/bold]"
            bar = self._bar(prediction.confidence)
            return f"{where:<8} {name} {bar}  [dim]{', '.join(names[1:])}[/dim]".rstrip()
        # no percentage and no bar: they would read as those of "unknown"
        candidates = f"({', '.join(names)})" if names else ""
        blank = " " * (BAR_WIDTH + 6)
        return f"{where:<8} [dim]{UNKNOWN:<{self.width}} {blank}  {candidates}[/dim]".rstrip()

    def _bar(self, confidence: float) -> str:
        filled = round(BAR_WIDTH * confidence)
        full, empty = "#-" if self.console.options.ascii_only else "━─"
        rest = empty * (BAR_WIDTH - filled)
        return f"{100 * confidence:3.0f} % {full * filled}[dim]{rest}[/dim]"


def as_record(sighting: Sighting) -> dict[str, Any]:
    """Return a frame as a JSON object, with the field names of Python and of the service.

    Args:
        sighting: The frame and what it shows.

    Returns:
        The source, the fields of the frame's own prediction, and for a frame of a video or of a
        camera the seconds and, as `recent`, the fields of the prediction of the last second.
    """
    frame = sighting.frame
    record: dict[str, Any] = {"source": frame.source}
    if frame.seconds is None:
        return record | as_fields(sighting.alone)
    record["seconds"] = round(frame.seconds, 3)
    return record | as_fields(sighting.alone) | {"recent": as_fields(sighting.recent)}


def as_fields(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a JSON object.

    Args:
        prediction: What a frame, or several frames together, show.

    Returns:
        Its fields, with the names of Python and of the service.
    """
    names = ("label", "known", "confidence", "familiarity", "scores")
    return {name: getattr(prediction, name) for name in names}


def _tally(frames: list[Prediction]) -> tuple[Counter[str], int]:
    """Count the frames that show each object, and those that show none."""
    known = [one.label for one in frames if one.known and one.label is not None]
    return Counter(known), len(frames) - len(known)


def format_time(seconds: float) -> str:
    """Format a time in a video as minutes, seconds and tenths.

    >>> format_time(61.25)
    '1:01.2'

    Args:
        seconds: The time in seconds.

    Returns:
        The text.
    """
    tenths = int(seconds * 10 + 1e-6)
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"
