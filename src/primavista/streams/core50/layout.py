"""The files of CORe50: a folder of pictures, such as s1/o1/C_01_01_000.png."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from primavista.errors import FileError
from primavista.streams.session_files import SessionFiles

NAME = re.compile(
    r"s(\d{1,4})/o(\d{1,4})/C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE
)
_FILE = re.compile(r"C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE)
DOWNLOAD = "docs/guides/paper.md says how to get CORe50"
IMAGES = ("core50_128x128", "core50_350x350", "core50_32x32")


def parse_name(name: str) -> tuple[int, int, int]:
    """Parse the official name of a frame.

    Args:
        name: The path of the picture below the folder of CORe50.

    Returns:
        The numbers of session, object and frame.

    Raises:
        ValueError: If it is not such a name.

    >>> parse_name("s11/o1/C_11_01_000.png")
    (11, 1, 0)
    """
    match = NAME.fullmatch(name)
    if not match or match[1] != match[3].lstrip("0") or match[2] != match[4].lstrip("0"):
        raise ValueError(
            f"'{name[:80]}' is not the name of a CORe50 frame, such as s11/o1/C_11_01_000.png"
        )
    return int(match[1]), int(match[2]), int(match[5])


def core50_folder(path: str | Path) -> Path:
    """Find the folder of CORe50, or of its official orders.

    Args:
        path: The folder.

    Returns:
        The absolute path of the folder.

    Raises:
        FileError: If there is no such folder.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileError(f"there is no folder {folder}. {DOWNLOAD}")
    return folder.resolve()


def is_core50(path: str | Path) -> bool:
    """Return True if a path holds CORe50's pictures, as `CORe50` reads them.

    Args:
        path: A folder; it need not exist.
    """
    return next(_frames(Path(path).expanduser()), None) is not None


def picture_sessions(folder: Path) -> list[SessionFiles]:
    """List the pictures of CORe50 by session and object, ordered by the numbers of the frames.

    Args:
        folder: The folder of CORe50.

    Returns:
        The sessions. Their labels are the objects, from 0.

    Raises:
        FileError: If there are none, or if a picture is misplaced or there twice.
    """
    found: dict[tuple[int, int], dict[int, Path]] = {}
    for session, thing, path, (named_session, named_thing, number) in _frames(folder):
        if (named_session, named_thing) != (session, thing):
            raise FileError(
                f"{path} lies in the wrong folder: it belongs in s{named_session}/o{named_thing}"
            )
        pictures = found.setdefault((session, thing), {})
        if pictures.setdefault(number, path) != path:
            raise FileError(f"{path.parent} holds frame {number} twice ({path.name}): remove one")
    if not found:
        raise FileError(
            f"no CORe50 frames in {folder}: it should hold s1/o1/C_01_01_000.png and so on. "
            f"{DOWNLOAD}"
        )
    return [
        SessionFiles(thing - 1, session, tuple(pictures[number] for number in sorted(pictures)))
        for (session, thing), pictures in found.items()
    ]


def _frames(folder: Path) -> Iterator[tuple[int, int, Path, list[int]]]:
    """The pictures in s1/o1 and so on: session, object, path, and the numbers in the name."""
    for session, session_folder in _numbered(_pictures(folder), "s"):
        for thing, object_folder in _numbered(session_folder, "o"):
            for file in os.listdir(object_folder):
                if match := _FILE.fullmatch(file):
                    yield session, thing, object_folder / file, list(map(int, match.groups()))


def _pictures(folder: Path) -> Path:
    """The folder with s1, s2, ...: this one, or the one that the official archives make in it."""
    return next((folder / name for name in IMAGES if _numbered(folder / name, "s")), folder)


def _numbered(folder: Path, letter: str) -> list[tuple[int, Path]]:
    """The subfolders s1, s2, ... or o1, o2, ... in ascending order."""
    if not folder.is_dir():
        return []
    names = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    numbered = [name for name in names if re.fullmatch(letter + r"[1-9]\d{0,3}", name)]
    return sorted((int(name[1:]), folder / name) for name in numbered)
