"""Data sets made of lists of picture files; nothing outside their folder is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from primavista.errors import FileError, InputError, file_errors
from primavista.media.video import IMAGES, BadFiles, media_in
from primavista.progress import Progress
from primavista.streams.dataset import DataSet
from primavista.streams.session_files import SessionFiles, file_facts, readable_sessions

MAX_TEXT = 64 * 2**20  # bytes of one list or JSON file
MAX_PICTURES = 4_000_000
DEFAULT_SIZE = 128  # pixels


@dataclass(frozen=True)
class PictureList:
    """The sessions and classes of a data set, as listed by its files.

    Args:
        name: A short name.
        sessions: All sessions, training and test.
        classes: The name of each class.
        categories: The category of each class.
        note: A sentence for the user.
    """

    name: str
    sessions: Sequence[SessionFiles]
    classes: Sequence[str]
    categories: Sequence[int]
    note: str


def picture_data(
    listed: PictureList,
    size: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """Make a data set from picture files, which are decoded on demand.

    Args:
        listed: The sessions and their pictures.
        size: The side of the frames in pixels; 128 by default.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total), in sessions, while pictures are checked.

    Returns:
        The data set.

    Raises:
        FileError: If there are no training pictures, or implausibly many pictures.
    """
    side, bad = size or DEFAULT_SIZE, BadFiles(skip_bad)
    if sum(len(one.pictures) for one in listed.sessions) > MAX_PICTURES:
        raise FileError(f"{listed.name} has more than {MAX_PICTURES:,} pictures: give a part of it")
    kept = readable_sessions(listed.sessions, side, bad, progress)
    if not any(not one.is_test for one in kept):
        raise FileError(f"{listed.name} has no training pictures: {bad.note or 'complete it'}")
    return DataSet(
        **file_facts(kept, side),
        name=listed.name,
        classes=tuple(listed.classes),
        categories=tuple(listed.categories),
        note="; ".join(filter(None, [listed.note, bad.note])),
        skipped=bad.skipped,
    )


def inside(root: Path, name: str, where: Path) -> Path:
    """Return the file that a list names if it exists and lies in the folder of the data set.

    Args:
        root: The folder of the data set.
        name: The path in the list, relative to the folder.
        where: The list, for messages.

    Returns:
        The path.

    Raises:
        FileError: If the path leads out of the folder (even by a link), or if there is no such
            file.
    """
    if not 1 <= len(name) <= 1000 or "\0" in name or "\\" in name:
        raise FileError(f"{where} has {name[:80]!r} as the name of a file: download it again")
    path = root / name
    with file_errors("read", path):
        home, found = root.resolve(), path.resolve()
    if Path(name).is_absolute() or not found.is_relative_to(home):
        raise FileError(f"refused: {where} names {name[:80]!r}, which lies outside {root}")
    if not found.is_file():
        raise FileError(f"{path} is missing, and {where} names it: complete the data set")
    return path


def pictures_in(root: Path, folder: Path) -> tuple[Path, ...]:
    """List the pictures of a folder in natural order.

    Args:
        root: The folder of the data set.
        folder: A folder in it.

    Returns:
        The paths of its pictures.

    Raises:
        FileError: If the folder has no pictures, cannot be read, or has a link out of `root`.
    """
    found = media_in(folder, IMAGES)
    if not found:
        raise FileError(f"{folder} has no pictures: complete the data set")
    if not folder.resolve().is_relative_to(root.resolve()):
        raise FileError(f"refused: {folder} is a link that leads out of {root}")
    for path in found:
        if path.is_symlink():
            inside(root, path.relative_to(root).as_posix(), folder)
    return tuple(found)


def read_text(path: Path) -> str:
    """Read a text file of plausible size.

    Args:
        path: The file.

    Raises:
        FileError: If it cannot be read, is too large, or is not a text.
    """
    with file_errors("read", path):
        size = path.stat().st_size
        if size > MAX_TEXT:
            raise FileError(f"refused to read {path}: it has {size:,} bytes, over {MAX_TEXT:,}")
        data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not a text: download it again") from error


def divided(pictures: tuple[Path, ...], pieces: int, where: Path) -> list[tuple[Path, ...]]:
    """Divide the pictures of a class into sessions of equal size, in order.

    Args:
        pictures: The pictures.
        pieces: The number of sessions.
        where: Their folder, for messages.

    Raises:
        InputError: If there are fewer pictures than sessions.
    """
    if not 1 <= pieces <= len(pictures):
        raise InputError(
            f"sessions must lie from 1 to {len(pictures)}, the pictures of {where}; got {pieces}"
        )
    parts = np.array_split(np.arange(len(pictures)), pieces)
    return [tuple(pictures[i] for i in part.tolist()) for part in parts]
