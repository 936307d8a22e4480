"""Sources that are named on the command line (videos, images, folders, cameras), as lessons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import typer

from primavista.addresses import shows_password
from primavista.errors import InputError
from primavista.storage.manifest import checked_name

if TYPE_CHECKING:
    from primavista.learner.lesson import Lesson

# A camera, or the files of one lesson.
Media: TypeAlias = str | tuple[Path, ...]


def find_lessons(sources: Sequence[str], label: str | None) -> list[Lesson[Media]]:
    """Find the lessons of all sources, in their order, before any of them is taught.

    A folder may hold pictures (one lesson), videos and folders of pictures (one lesson each).
    Without a label it holds one such folder per object, named after it.

    Args:
        sources: Files, folders and cameras, as they were typed.
        label: The name of the object that all of them show, or None.

    Returns:
        One lesson per video or folder of pictures; the name of each is its path.

    Raises:
        FileError: If a source cannot be read, or holds neither images nor videos.
        InputError: If it is not clear what a source shows, or if a name is not valid.
    """
    from primavista.learner.folders import lessons_of_object, lessons_of_objects
    from primavista.learner.lesson import Lesson
    from primavista.streams.camera import is_live, live_name
    from primavista.streams.video import find_media

    found: list[Lesson[Media]] = []
    for source in sources:
        if is_live(source):
            name = live_name(source)
            warn_of_password(source)
            found.append(Lesson(_required_label(label, name), source, name))
            continue
        path = Path(source).expanduser()
        if not source.strip() or not path.is_dir():
            media = tuple(find_media(source))
            found.append(Lesson(_required_label(label, source), media, source))
        elif label is not None:
            found += lessons_of_object(path, label)
        else:
            found += lessons_of_objects(path)
    return [replace(lesson, label=checked_name(lesson.label)) for lesson in found]


def warn_of_password(text: str) -> None:
    """Warn if an address on the command line has a password, which other users can see there.

    Args:
        text: What was typed: the address of a camera, a webhook or a broker.
    """
    if shows_password(text):
        typer.echo(
            "warning: other users of this machine can read the password in the list of processes. "
            "Put the address into an environment variable and write env:NAME in its place",
            err=True,
        )


def _required_label(label: str | None, source: str) -> str:
    if label is None:
        raise InputError(
            f"what does {source} show? Say it with --label mug "
            "(only a folder of folders has names in it)"
        )
    return label
