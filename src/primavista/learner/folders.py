"""Folders of videos and pictures, one per object, as lessons that are not opened yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from primavista.errors import FileError, InputError
from primavista.learner.lesson import Lesson
from primavista.streams.folder import sessions_by_object
from primavista.streams.rendered.written import read_scene, scene_classes
from primavista.streams.video import IMAGES, VIDEOS, media_in, natural, subfolders


def lessons_of_object(folder: Path, label: str) -> list[Lesson[tuple[Path, ...]]]:
    """Return the lessons in the folder of one object: its pictures, its videos, its folders.

    Args:
        folder: The folder; pictures directly in it are one lesson.
        label: The name of the object.

    Raises:
        FileError: If the folder cannot be read, or holds neither images nor videos.
    """
    pictures = media_in(folder, IMAGES)
    found: list[Lesson[tuple[Path, ...]]] = []
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


def lessons_of_objects(root: Path) -> list[Lesson[tuple[Path, ...]]]:
    """Return the lessons of a folder with one folder per object, or in CORe50's layout, s1/o1.

    Args:
        root: The folder. If `primavista data render` wrote it, the names are those of its scene.

    Raises:
        InputError: If there are no folders in it.
        FileError: If one of them cannot be read, or holds neither images nor videos.
    """
    folders = subfolders(root)
    if not folders:
        raise InputError(
            f"{root} holds no folders named after objects: say what it shows with --label mug"
        )
    scene = read_scene(root)
    lessons: dict[Path, Lesson[tuple[Path, ...]]] = {}
    sessions: dict[str, list[tuple[str, Path]]] = {}
    for folder in folders:
        own = lessons_of_object(folder, folder.name)
        lessons |= {Path(lesson.name): lesson for lesson in own}
        sessions[folder.name] = [(Path(lesson.name).stem, Path(lesson.name)) for lesson in own]
    names = dict(enumerate(scene_classes(scene.scene)[0], 1)) if scene else {}
    found = []
    for label, own_sessions in sessions_by_object(sessions).items():
        name = names.get(int(label[1:]), label) if scene else label
        found += [replace(lessons[path], label=name) for _, path in own_sessions]
    return found
