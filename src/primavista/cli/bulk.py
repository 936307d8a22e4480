"""Many files at once: one answer per picture and per video, as a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from primavista.cli.arguments import printable
from primavista.cli.csv_file import write_csv
from primavista.cli.data import progress_bar
from primavista.cli.sampling import predict_frames, sample_frames
from primavista.errors import FileError, InputError, PrimavistaError, file_errors
from primavista.media.addresses import is_live

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction
    from primavista.media.images import Region

COLUMNS = (
    "source",
    "kind",
    "label",
    "known",
    "likeliest",
    "confidence",
    "familiarity",
    "frames",
    "problem",
)


@dataclass(frozen=True)
class BulkReading:
    """The options of reading the files.

    Args:
        fps: Frames per second of videos.
        skip_bad: Whether frames that cannot be decoded are left out.
        region: The part of the picture to look at; None for all of it.
    """

    fps: float
    skip_bad: bool
    region: Region | None = None


def predict_to_csv(
    learner: Learner, sources: Sequence[str], target: Path, reading: BulkReading
) -> int:
    """Recognise every picture and video of the sources and write one row for each.

    A file that cannot be read gets a row that says why. If the user interrupts it, the rows so far
    are written.

    Args:
        learner: The learner.
        sources: Files and folders; the folders in a folder belong to it.
        target: The CSV file.
        reading: How the files are read.

    Returns:
        The number of files that could not be read.

    Raises:
        InputError: If a source is a camera, or if there is nothing to recognise.
        FileError: If a source cannot be opened, or the table cannot be written.
    """
    files = files_of(sources)
    rows: list[tuple[object, ...]] = []
    stopped = False
    with progress_bar("files") as progress:
        try:
            for done, file in enumerate(files, 1):
                rows.append(_row(learner, file, reading))
                progress(done, len(files))
        except KeyboardInterrupt:
            stopped = True
    write_csv(target, COLUMNS, rows)
    typer.echo(f"wrote {printable(str(target))}: {len(rows)} of {len(files)} files")
    if stopped:
        raise typer.Exit(130)
    return sum(1 for row in rows if row[-1])


def files_of(sources: Sequence[str]) -> list[Path]:
    """Find the pictures and videos of sources, those in the folders of a folder too.

    Links to folders are not followed, hidden files and folders are left out.

    Args:
        sources: Files, folders and patterns.

    Returns:
        The files, each once, in natural order within each source.

    Raises:
        InputError: If one is a camera, or not a kind of file that can be read.
        FileError: If one does not exist or cannot be read, or if there are no pictures and videos.
    """
    from primavista.media.camera import live_name
    from primavista.media.video import find_media

    found: dict[Path, None] = {}
    for source in sources:
        if is_live(source):
            raise InputError(f"{live_name(source)} has no end: --csv is for files and folders")
        path = Path(source).expanduser()
        files = _below(path) if source.strip() and path.is_dir() else find_media(source)
        if not files:
            raise FileError(f"the folder {path} holds no images and no videos")
        found |= dict.fromkeys(files)
    return list(found)


def _below(folder: Path) -> list[Path]:
    from primavista.media.video import media_in, subfolders

    with file_errors("read the folder", folder, "Check the path and its permissions"):
        inside = [path for path in subfolders(folder) if not os.path.islink(path)]
    return [*media_in(folder), *(file for path in inside for file in _below(path))]


def _row(learner: Learner, file: Path, reading: BulkReading) -> tuple[object, ...]:
    """Return the row of one file, which also reports an error that the file itself causes."""
    from primavista.media.video import is_image

    kind = "picture" if is_image(file) else "video"
    try:
        answer, frames = _answer(learner, file, reading)
    except PrimavistaError as error:
        return (str(file), kind, "", "", "", "", "", 0, str(error))
    label = answer.label if answer.known and answer.label is not None else "unknown"
    shares = (answer.confidence, answer.familiarity)
    return (str(file), kind, label, answer.known, answer.label, *shares, frames, "")


def _answer(learner: Learner, file: Path, reading: BulkReading) -> tuple[Prediction, int]:
    """Return the answer for the whole file, and the number of its frames that were recognised."""
    from primavista.learner.watch import fuse
    from primavista.media.video import BadFiles

    bad = BadFiles(reading.skip_bad, quiet=True)
    frames = sample_frames(str(file), learner.size, reading.fps, None, bad, reading.region)
    predictions = [sighting.alone for sighting in predict_frames(learner, frames)]
    if not predictions:
        raise FileError(bad.problems[0] if bad.problems else f"{file} holds no frames")
    return fuse(predictions, learner.threshold), len(predictions)
