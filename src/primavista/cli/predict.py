"""`primavista predict`: what a saved learner sees in images, folders, videos and cameras."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primavista.cli import arguments
from primavista.cli.arguments import (
    check_model,
    chosen_region,
    load_learner,
    printable,
    warn_of_password,
)
from primavista.cli.csv_file import write_csv
from primavista.cli.frames import Looker, Seen, sample_frames
from primavista.cli.locate import Locator
from primavista.cli.progress import progress_bar
from primavista.cli.recognise import Recogniser
from primavista.cli.targets import check_writable
from primavista.errors import FileError, InputError, PrimavistaError, file_errors
from primavista.media.addresses import is_live, live_name

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.media.video import BadFiles

FPS = 2.0  # frames per second that are recognised, to be read as lines
ANNOTATED_FPS = 10.0  # and in a video that is watched
BATCH = 16  # frames that are recognised together, except from a camera
ANSWER = ("said", "answer", "label", "confidence", "familiarity")
COLUMNS = ("source", "kind", *ANSWER, "frames", "problem")


def predict(
    model: Path,
    sources: list[str],
    annotate: Path | None = None,
    csv: Path | None = None,
    locate: bool = False,
    fps: Annotated[float | None, typer.Option(min=0.001)] = None,
    seconds: arguments.WatchedSeconds = None,
    region: arguments.RegionText = None,
    top: Annotated[int, typer.Option(min=1)] = 3,
    threshold: arguments.Threshold = None,
    skip_bad: bool = False,
    device: str = "auto",
    as_json: arguments.AsJson = False,
) -> None:
    """Recognise objects in images, videos or a camera: one line per frame, then what they all show.

    There are three answers. `mug` is known: it was taught. `mug?` is likely: more probably right
    than not, but worth asking about. `unknown` looks like nothing that was taught; the names that
    it is most like follow in brackets.

    In videos and cameras a line says what the last second shows, and each video has a line at the
    end that says what the whole of it shows; for images and cameras it is the majority vote. Of
    several files, one that cannot be read is named and the others go on; the exit code is 1 then,
    unless `--skip-bad` is given.

    Examples: `primavista predict kitchen.pv photo.jpg`,
    `primavista predict kitchen.pv monday.mp4 tuesday.mp4 photos/`,
    `primavista predict kitchen.pv recordings/ --csv answers.csv`,
    `primavista predict kitchen.pv clip.mp4 --annotate out.mp4`,
    `primavista predict kitchen.pv table.jpg --locate --annotate found.png`

    Args:
        sources: Images, folders and videos, or one camera: camera:0, /dev/video0, rtsp://...,
            http://..., env:NAME.
        annotate: Write a copy of the one video or picture with the answers drawn in, e.g. out.mp4.
        csv: Write one row per picture and per video instead, those in folders of folders too, e.g.
            out.csv.
        locate: Find objects anywhere in pictures and videos: one line per object, with its box in
            pixels.
        fps: Frames per second to recognise in videos and cameras (default: 2; 10 with --annotate).
        top: How many of the most likely names to show.
    """
    from primavista.media.video import BadFiles

    check_model(model, sources[0])
    part = chosen_region(region)
    first = Path(sources[0]).expanduser()
    if region is not None and (annotate is not None or locate):
        raise InputError("--annotate and --locate are for whole pictures: leave out --region")
    _check_sources(sources, annotate, csv, locate)
    check_writable(csv)
    learner = load_learner(model, device, threshold)
    rate = fps or (FPS if annotate is None else ANNOTATED_FPS)
    how = {"fps": rate, "seconds": seconds, "region": part}
    if csv is not None:
        failed = _predict_to_csv(learner, sources, csv, skip_bad, how)
    else:
        named = len(sources) > 1 or first.is_dir()
        looker: Looker[Any] = (
            Locator(learner, as_json, named)
            if locate
            else Recogniser(learner, top, as_json, quiet=annotate is not None, named=named)
        )
        bad = BadFiles(skip_bad or named)
        if annotate is None:
            seen = look(looker, sources, bad, **how)
        else:
            from primavista.cli.annotate import annotate as write_annotated

            seen = write_annotated(looker, first, annotate, rate, bad)
        failed = _report(looker, seen, bad, is_live(sources[0]))
    if annotate is not None and not as_json:
        typer.echo(f"wrote {annotate}")
    if failed and not skip_bad:
        raise typer.Exit(1)


def _check_sources(
    sources: Sequence[str], annotate: Path | None, csv: Path | None, locate: bool
) -> None:
    """Refuse cameras where only files are possible, and what cannot be annotated."""
    for source in filter(is_live, sources):
        if annotate is not None or csv is not None or locate or len(sources) > 1:
            raise InputError(
                f"{live_name(source)} is a camera, which has no end: recognise it by itself. "
                "--annotate is for one picture or one video file, --csv for files and folders, "
                "and for --locate there is `primavista watch ... --locate`"
            )
    if annotate is not None:
        if len(sources) > 1:
            raise InputError("--annotate is for one picture or one video file: name one")
        from primavista.cli.annotate import check_source

        check_source(Path(sources[0]).expanduser(), annotate)


def look(looker: Looker[Seen], sources: Sequence[str], bad: BadFiles, **how: Any) -> Iterator[Seen]:
    """Yield what the frames of all sources show; `how` are more arguments of `sample_frames`."""
    warn_of_password(sources[0])
    at_once = is_live(sources[0]) or looker.size is None  # locating takes long
    batch = 1 if at_once else BATCH
    parts = (sample_frames(one, looker.size, bad, **how) for one in sources)
    frames = chain.from_iterable(parts)
    while chunk := list(islice(frames, batch)):
        yield from looker.look(chunk)


def _report(looker: Looker[Seen], seen: Iterable[Seen], bad: BadFiles, camera: bool) -> int:
    """Print a line for each frame, and the end; return how many could not be decoded."""
    count = 0
    try:
        for one in seen:
            looker.report(one)
            count += 1
    except KeyboardInterrupt:  # it ends a camera
        if not camera:
            raise
    if bad.problems and not count:
        raise FileError(bad.problems[0])
    looker.close(bad.skipped)
    return bad.skipped


def _predict_to_csv(
    learner: Learner, sources: Sequence[str], target: Path, skip_bad: bool, how: dict[str, Any]
) -> int:
    """Recognise every picture and video of the sources and write one row for each.

    A file that cannot be read gets a row that says why. If the user interrupts it, the rows so far
    are written. The number of files that could not be read is returned.
    """
    from primavista.media.video import BadFiles

    files = files_of(sources)
    rows: list[tuple[object, ...]] = []
    stopped = False
    with progress_bar("files") as progress:
        try:
            for done, file in enumerate(files, 1):
                rows.append(_row(learner, file, BadFiles(skip_bad, quiet=True), how))
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

    Links to folders are not followed, hidden files and folders are left out. Each file comes once,
    in natural order within each source.
    """
    from primavista.media.video import find_media, nothing_in, tell_left_out

    found: dict[Path, None] = {}
    for source in sources:
        path = Path(source).expanduser()
        if not source.strip() or not path.is_dir():
            found |= dict.fromkeys(find_media(source))
            continue
        files = _below(path)
        if not files:
            raise nothing_in(path, deep=True)
        tell_left_out(path, files, deep=True)
        found |= dict.fromkeys(files)
    return list(found)


def _below(folder: Path) -> list[Path]:
    from primavista.media.video import media_in, subfolders

    with file_errors("read the folder", folder, "Check the path and its permissions"):
        inside = [path for path in subfolders(folder) if not os.path.islink(path)]
    return [*media_in(folder), *(file for path in inside for file in _below(path))]


def _row(learner: Learner, file: Path, bad: BadFiles, how: dict[str, Any]) -> tuple[object, ...]:
    """Return the row of one file, which also reports an error that the file itself causes."""
    from primavista.learner.watch import fuse
    from primavista.media.video import is_image

    kind = "picture" if is_image(file) else "video"
    try:
        seen = [one.alone for one in look(Recogniser(learner), [str(file)], bad, **how)]
        if not seen:
            raise FileError(bad.problems[0] if bad.problems else f"{file} holds no frames")
    except PrimavistaError as error:
        return (str(file), kind, "", "", "", "", "", 0, str(error))
    answer = fuse(seen, learner.answer_rule)
    told = (getattr(answer, name) for name in ANSWER)
    return (str(file), kind, *told, len(seen), "")
