"""The options before a command, the arguments that commands share, and safe printing of texts.

Args:
    model: The learner's file, e.g. kitchen.pv.
    name: An object that it knows.
    source: A CORe50 folder, a class/session folder, a packed store, or `rendered`.
    plan: quick, paper, claims, or a TOML file.
    as_json: Print JSON for scripts.
    data: A data set: rendered:objects=2,frames=12, or a folder.
    deterministic: On a GPU: the same bits each time, more slowly. (On the CPU it is always so.)
    device: auto, cpu or cuda.
    fps: Frames per second to take of videos (default: all).
    max_frames: Frames that are used of each video, evenly spread.
    out: Folder of the results (default: in primavista-runs).
    overrides: key=value, e.g. data.frames=30 or runs=3; repeatable.
    region: Part of the picture to look at: left, top, right, bottom as shares from 0 to 1.
    seconds: How long to watch a camera (default: until Ctrl-C).
    size: New files only: side of the images in pixels (default: 192).
    skip_bad: Leave out and count what cannot be decoded.
    strategy: New files only: prima (default), 'cwr*', ..., or your own: package.module:Class.
    threads: CPU threads shared by the cells; 0: one per processor.
    threshold: Familiarity from which an answer is known, 0 to 1 (default: that of the file); a
        lower one also makes more answers likely.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from primavista import __version__
from primavista.errors import CHOOSE_FOLDER, FileError, InputError
from primavista.media.addresses import shows_password
from primavista.storage.references import is_reference

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.media.images import Region

AsJson = Annotated[bool, typer.Option("--json")]
ImageSize = Annotated[int | None, typer.Option(min=32, max=512)]
MaxFrames = Annotated[int, typer.Option(min=1)]
RegionText = Annotated[str | None, typer.Option(metavar="L,T,R,B")]
Threads = Annotated[int, typer.Option(min=0)]
Threshold = Annotated[float | None, typer.Option(min=0, max=1)]
VideoFps = Annotated[float | None, typer.Option(min=0.001)]
WatchedSeconds = Annotated[float | None, typer.Option(min=0.1)]


def options(
    version: bool = False,
    register: list[str] | None = None,
) -> None:
    """Handle the options that come before a command.

    Args:
        version: Print the version and stop.
        register: A strategy or backbone of your own that a file may use: package.module:Name. Its
            code is imported. Repeatable.
    """
    if version:
        print(f"primavista {__version__}")
        raise typer.Exit
    for text in register or ():
        if not is_reference(text):
            raise InputError(f"--register {text}: expected package.module:Name")
    register_named(*(register or ()))


def check_model(model: Path, source: str | Path) -> None:
    """Refuse a source in the place of the model: the two are easily swapped.

    Args:
        model: What was given as the file of the model.
        source: The first of the arguments after it.
    """
    from primavista.media.addresses import VIDEOS, is_live
    from primavista.media.images import IMAGES

    is_media = model.suffix.lower() in (*IMAGES, *VIDEOS)
    if is_media or is_live(str(model)) or model.expanduser().is_dir():
        right = source if Path(source).suffix == ".pv" else "kitchen.pv"
        raise InputError(
            f"{model} is not the file of a model, which comes first: write {right} {model}"
        )


def check_writable(path: Path | None) -> None:
    """Refuse a file in a folder that cannot be written to; None is no file."""
    if path is None:
        return
    folder = path.expanduser().absolute().parent
    if not os.access(folder, os.W_OK):
        reason = "permission denied" if folder.is_dir() else "there is no such folder"
        raise FileError(f"cannot write in {folder}: {reason}. {CHOOSE_FOLDER}")
    if path.expanduser().is_dir():
        raise FileError(f"cannot write {path}: it is a folder. Name a file in it")


def check_copy(source: Path, target: Path, otherwise: str = "", replace: bool = False) -> None:
    """Refuse a copy that cannot be written, that is its source, or that exists already.

    Args:
        source: The file that is copied.
        target: The copy.
        otherwise: More advice for a target that exists, besides another name.
        replace: Allow a target that exists, if it is not the source.
    """
    check_writable(target)
    if target.exists() and target.samefile(source):
        raise InputError(f"{target} is the source itself: give another name")
    if target.exists() and not replace:
        raise InputError(f"{target} exists: give another name{otherwise}")


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
