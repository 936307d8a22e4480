"""Sources that are named on the command line (videos, images, folders, cameras), as lessons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import typer

from primavista.addresses import shows_password
from primavista.errors import FileError, InputError
from primavista.storage.names import checked_name

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
            found += _lessons_of_object(path, label)
        else:
            found += _lessons_of_objects(path)
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


def _lessons_of_object(folder: Path, label: str) -> list[Lesson[Media]]:
    """Return the lessons in the folder of one object."""
    from primavista.learner.lesson import Lesson
    from primavista.streams.folder import subfolders
    from primavista.streams.video import IMAGES, VIDEOS, media_in, natural

    pictures = media_in(folder, IMAGES)
    found: list[Lesson[Media]] = []
    if pictures:
        found.append(Lesson(label, tuple(pictures), str(folder)))
    parts = [*subfolders(folder), *media_in(folder, VIDEOS)]
    for part in sorted(parts, key=lambda path: natural(path.name)):
        files = media_in(part, IMAGES) if part.is_dir() else [part]
        if not files:
            raise FileError(
                f"the folder {part} holds no pictures: remove it, or name the folders in it one by "
                "one"
            )
        found.append(Lesson(label, tuple(files), str(part)))
    if not found:
        raise FileError(f"the folder {folder} holds no images and no videos")
    return found


def _lessons_of_objects(root: Path) -> list[Lesson[Media]]:
    """Return the lessons of a folder with one folder per object, or in CORe50's layout, s1/o1."""
    from primavista.streams.folder import sessions_by_object, subfolders
    from primavista.streams.rendered.written import read_scene, scene_classes

    folders = subfolders(root)
    if not folders:
        raise InputError(
            f"{root} holds no folders named after objects: say what it shows with --label mug"
        )
    scene = read_scene(root)
    lessons: dict[Path, Lesson[Media]] = {}
    sessions: dict[str, list[tuple[str, Path]]] = {}
    for folder in folders:
        own = _lessons_of_object(folder, folder.name)
        lessons |= {Path(lesson.name): lesson for lesson in own}
        sessions[folder.name] = [(Path(lesson.name).stem, Path(lesson.name)) for lesson in own]
    names = dict(enumerate(scene_classes(scene.scene)[0], 1)) if scene else {}
    found = []
    for label, own_sessions in sessions_by_object(sessions).items():
        name = names.get(int(label[1:]), label) if scene else label
        found += [replace(lessons[path], label=name) for _, path in own_sessions]
    return found
