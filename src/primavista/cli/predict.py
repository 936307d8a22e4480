"""`primavista predict`: what a saved learner sees in images, folders and videos."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primavista.cli import arguments
from primavista.cli.arguments import (
    check_model,
    check_writable,
    chosen_region,
    load_learner,
    printable,
)
from primavista.cli.progress import progress_bar
from primavista.cli.recognise import Locator, Looker, Recogniser, sample_frames
from primavista.errors import FileError, InputError, PrimavistaError
from primavista.media.addresses import is_live, live_name
from primavista.storage.csv_file import write_csv

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.media.images import Region
    from primavista.media.video import BadFiles

FPS = 2.0  # frames per second that are recognised, to be read as lines
ANNOTATED_FPS = 10.0  # and in a video that is watched
CSV_ANSWER = ("said", "answer", "label", "confidence", "familiarity")
CSV_COLUMNS = ("source", "kind", *CSV_ANSWER, "frames", "problem")


def predict(
    model: Path,
    sources: list[str],
    annotate: Path | None = None,
    csv: Path | None = None,
    locate: bool = False,
    fps: Annotated[float | None, typer.Option(min=0.001)] = None,
    region: arguments.RegionText = None,
    top: Annotated[int, typer.Option(min=1)] = 3,
    threshold: arguments.Threshold = None,
    skip_bad: bool = False,
    device: str = "auto",
    as_json: arguments.AsJson = False,
) -> None:
    """Recognise objects in images and videos: one line per frame, then what they all show.

    There are three answers. `mug` is known: it was taught. `mug?` is likely: more probably right
    than not, but worth asking about. `unknown` looks like nothing that was taught; the names that
    it is most like follow in brackets.

    In a video a line says what the last second shows, and each video has a line at the end that
    says what the whole of it shows; for images it says how many show what. Of several files, one
    that cannot be read is named and the others go on; the exit code is 1 then, unless `--skip-bad`
    is given. For a camera there is `primavista watch`.

    Examples: `primavista predict kitchen.pv photo.jpg`,
    `primavista predict kitchen.pv monday.mp4 tuesday.mp4 photos/`,
    `primavista predict kitchen.pv recordings/ --csv answers.csv`,
    `primavista predict kitchen.pv clip.mp4 --annotate out.mp4`,
    `primavista predict kitchen.pv table.jpg --locate --annotate found.png`

    Args:
        sources: Images, folders and videos.
        annotate: Write a copy of the one video or picture with the answers drawn in, e.g. out.mp4.
        csv: Write one row per picture and per video instead, those in folders of folders too, e.g.
            out.csv.
        locate: Find objects anywhere in pictures and videos: one line per object, with its box in
            pixels.
        fps: Frames per second to recognise in videos (default: 2; 10 with --annotate).
        top: How many of the most likely names to show.
    """
    from primavista.media.video import BadFiles

    check_model(model, sources[0])
    part = chosen_region(region)
    first = Path(sources[0]).expanduser()
    if region is not None and (annotate is not None or locate):
        raise InputError("--annotate and --locate are for whole pictures: leave out --region")
    if csv is not None and (annotate is not None or locate):
        raise InputError("--csv has one row per file: leave out --annotate and --locate")
    _check_sources(sources, annotate)
    check_writable(csv)
    learner = load_learner(model, device, threshold)
    rate = fps or (FPS if annotate is None else ANNOTATED_FPS)
    if csv is not None:
        _write_table(csv, learner, sources, skip_bad, rate, part)
        return
    named = len(sources) > 1 or first.is_dir()
    looker: Looker = (
        Locator(learner, as_json, named)
        if locate
        else Recogniser(learner, top, as_json, quiet=annotate is not None, named=named)
    )
    bad = BadFiles(skip_bad or named)
    seen: Iterable[Any]
    if annotate is None:
        frames = (sample_frames(one, looker.size, bad, rate, part) for one in sources)
        seen = map(looker.look, chain.from_iterable(frames))
    else:
        from primavista.cli.annotate import annotate as write_annotated

        seen = write_annotated(looker, first, annotate, rate, bad)
    failed = _report(looker, seen, bad)
    if annotate is not None and not as_json:
        typer.echo(f"wrote {annotate}")
    if failed and not skip_bad:
        raise typer.Exit(1)


def _check_sources(sources: Sequence[str], annotate: Path | None) -> None:
    """Refuse cameras, and what cannot be annotated."""
    for source in filter(is_live, sources):
        raise InputError(
            f"{live_name(source)} is a camera, which has no end: `primavista watch` says what it "
            "sees, with --locate anywhere in the picture"
        )
    if annotate is not None:
        if len(sources) > 1:
            raise InputError("--annotate is for one picture or one video file: name one")
        from primavista.cli.annotate import check_source

        check_source(Path(sources[0]).expanduser(), annotate)


def _report(looker: Looker, seen: Iterable[Any], bad: BadFiles) -> int:
    """Print a line for each frame, and the end; return how many could not be decoded."""
    is_nothing = True
    for one in seen:
        looker.report(one)
        is_nothing = False
    if bad.problems and is_nothing:
        raise FileError(bad.problems[0])
    looker.close(bad.skipped)
    return bad.skipped


def _write_table(
    target: Path,
    learner: Learner,
    sources: Sequence[str],
    skip_bad: bool,
    fps: float,
    region: Region | None,
) -> None:
    """Recognise every picture and video of the sources and write one row for each.

    If the user interrupts it, the rows so far are written.
    """
    from primavista.media.video import BadFiles

    files = _files_of(sources)
    rows: list[tuple[object, ...]] = []
    stopped = False
    with progress_bar("files") as progress:
        try:
            for done, file in enumerate(files, 1):
                rows.append(_row(learner, file, BadFiles(skip_bad, quiet=True), fps, region))
                progress(done, len(files))
        except KeyboardInterrupt:
            stopped = True
    write_csv(target, CSV_COLUMNS, rows)
    typer.echo(f"wrote {printable(str(target))}: {len(rows)} of {len(files)} files")
    if stopped:
        raise typer.Exit(130)
    if not skip_bad and any(problem for *_, problem in rows):
        raise typer.Exit(1)


def _files_of(sources: Sequence[str]) -> list[Path]:
    """Find the pictures and videos of sources, those in the folders of a folder too.

    Each file comes once, in natural order within each source.
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
    """The files in a folder and in its folders, but not in links to folders or in hidden ones."""
    from primavista.media.video import media_in, subfolders

    inside = [path for path in subfolders(folder) if not os.path.islink(path)]
    return [*media_in(folder), *chain.from_iterable(map(_below, inside))]


def _row(
    learner: Learner, file: Path, bad: BadFiles, fps: float, region: Region | None
) -> tuple[object, ...]:
    """Return the row of one file; an error that the file causes is told in it."""
    from primavista.learner.watch import fuse
    from primavista.media.video import is_image

    kind = "picture" if is_image(file) else "video"
    try:
        frames = sample_frames(str(file), learner.size, bad, fps, region)
        seen = [learner.predict(frame.image) for frame in frames]
        if not seen:
            raise FileError(bad.problems[0] if bad.problems else f"{file} holds no frames")
    except PrimavistaError as error:
        return (str(file), kind, "", "", "", "", "", 0, str(error))
    answer = fuse(seen, learner.answer_rule)
    told = (getattr(answer, name) for name in CSV_ANSWER)
    return (str(file), kind, *told, len(seen), "")
