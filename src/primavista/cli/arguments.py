"""The options before a command, the arguments that commands share, and safe printing of texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from primavista import __version__
from primavista.errors import InputError
from primavista.media.addresses import shows_password
from primavista.storage.references import is_reference

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.media.images import Region

MIN_SIZE, MAX_SIZE = 32, 512  # sides of the images, in pixels
NEW = "New files only: "

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The learner's file, e.g. kitchen.pv.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Familiarity from which a frame counts as known, 0 to 1 (default: that of the file).",
        min=0,
        max=1,
    ),
]
RegionText = Annotated[
    str | None,
    typer.Option(
        "--region",
        metavar="L,T,R,B",
        help="Part of the picture to look at: left, top, right, bottom as shares from 0 to 1.",
    ),
]
Strategy = Annotated[
    str | None,
    typer.Option(help=NEW + "prima (default), 'cwr*', ..., or your own: package.module:Class."),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        help=NEW + "side of the images in pixels (default: 192).", min=MIN_SIZE, max=MAX_SIZE
    ),
]
MaxFrames = Annotated[
    int, typer.Option(help="Frames that are used of each video, evenly spread.", min=1)
]
VideoFps = Annotated[
    float | None,
    typer.Option("--fps", help="Frames per second to take of videos (default: all).", min=0.001),
]
WatchedSeconds = Annotated[
    float | None,
    typer.Option("--seconds", help="How long to watch a camera (default: until Ctrl-C).", min=0.1),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave out and count what cannot be decoded."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

# Of `run` and `bench`.
Out = Annotated[
    Path | None, typer.Option(help="Folder of the results (default: in primavista-runs).")
]
Threads = Annotated[
    int, typer.Option(help="CPU threads shared by the cells; 0: one per processor.", min=0)
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="On a GPU: the same bits each time, more slowly. (On the CPU it is always so.)",
    ),
]


def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    register: Annotated[
        list[str] | None,
        typer.Option(
            help="A strategy or backbone of your own that a file may use: package.module:Name. "
            "Its code is imported. Repeatable."
        ),
    ] = None,
) -> None:
    """Handle the options that come before a command."""
    if version:
        print(f"primavista {__version__}")
        raise typer.Exit
    for text in register or ():
        if not is_reference(text):
            raise InputError(f"--register {text}: expected package.module:Name")
    register_named(*(register or ()))


def load_learner(model: Path, device: str, threshold: float | None) -> Learner:
    """Load a learner, with another threshold for this command unless that is None."""
    from primavista.learner.learner import Learner

    learner = Learner.load(model.expanduser(), device=device)
    if threshold is not None:
        learner.threshold = threshold
    return learner


def chosen_region(text: str | None) -> Region | None:
    """Read the option `--region`; None if it was not given."""
    from primavista.media.images import read_region

    return None if text is None else read_region(text)


def register_named(*names: str | None) -> None:
    """Register the references `package.module:Name` among names on the command line."""
    references = [name for name in names if name is not None and is_reference(name)]
    if not references:
        return
    from primavista.strategies.registry import register

    for reference in references:
        register(reference)


def warn_of_password(text: str) -> None:
    """Warn if an address on the command line has a password, which other users can see there."""
    if shows_password(text):
        typer.echo(
            "warning: other users of this machine can read the password in the list of processes. "
            "Put the address into an environment variable and write env:NAME in its place",
            err=True,
        )


def printable(text: str) -> str:
    """Replace the characters of a name or a path that a terminal could take as a command.

    >>> printable("mug\\x1b[2J\\n")
    'mug\ufffd[2J\ufffd'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
