"""The arguments that several commands share, and a safe way to print texts of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from primavista.references import is_reference

if TYPE_CHECKING:
    from primavista.images import Region

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
MIN_SIZE, MAX_SIZE = 32, 512  # sides of the images, in pixels


def chosen_region(text: str | None) -> Region | None:
    """Read the option `--region`.

    Args:
        text: Its text, or None if it was not given.

    Raises:
        InputError: If it is not a part of the picture.
    """
    from primavista.images import read_region

    return None if text is None else read_region(text)


def register_named(*names: str | None) -> None:
    """Register the references among names that the user wrote on the command line.

    Args:
        names: names of strategies or backbones, or references `package.module:Name`.

    Raises:
        InputError: if a reference cannot be imported.
    """
    references = [name for name in names if name is not None and is_reference(name)]
    if not references:
        return
    from primavista.strategies.registry import register

    for reference in references:
        register(reference)


def printable(text: str) -> str:
    """Replace the characters of a name or a path that a terminal could take as a command.

    Args:
        text: A text that anybody may have written.

    Returns:
        The text with the replacement character for everything that cannot be printed.

    >>> printable("mug\\x1b[2J\\n")
    'mug\ufffd[2J\ufffd'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
