"""`primavista predict`: what a saved learner sees in images, folders and videos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primavista.cli import arguments
from primavista.cli.arguments import check_model, chosen_region, load_learner
from primavista.cli.frames import sample_frames
from primavista.cli.recognise import Locator, Looker, Recogniser
from primavista.errors import FileError, InputError
from primavista.media.addresses import is_live, live_name

if TYPE_CHECKING:
    from primavista.media.video import BadFiles

FPS = 2.0  # frames per second that are recognised, to be read as lines
ANNOTATED_FPS = 10.0  # and in a video that is watched


def predict(
    model: Path,
    sources: list[str],
    annotate: Path | None = None,
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
    `primavista predict kitchen.pv clip.mp4 --annotate out.mp4`,
    `primavista predict kitchen.pv table.jpg --locate --annotate found.png`

    Args:
        sources: Images, folders and videos.
        annotate: Write a copy of the one video or picture with the answers drawn in, e.g. out.mp4.
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
    _check_sources(sources, annotate)
    learner = load_learner(model, device, threshold)
    rate = fps or (FPS if annotate is None else ANNOTATED_FPS)
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
