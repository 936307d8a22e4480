"""The files of CORe50: a folder of images, or one array with its list of names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from primavista.errors import FileError, InputError
from primavista.media.frames import Frames, LazyFrames
from primavista.media.images import ImageArray, read_image
from primavista.media.video import BadFiles
from primavista.progress import Progress
from primavista.streams.core50.image_array import ARRAYS, open_image_array
from primavista.streams.dataset import SessionKey, SessionRows

NAME = re.compile(
    r"s(\d{1,4})/o(\d{1,4})/C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE
)
_FILE = re.compile(r"C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE)
IMAGES = ("core50_128x128", "core50_350x350", "core50_32x32")


@dataclass(frozen=True)
class CORe50Files:
    """All frames of CORe50 in their order on disk, and the sessions that they form.

    Args:
        frames: The frames.
        sessions: The readable frames of each session.
        whole: All frames of each session, including those that could not be decoded.
    """

    frames: Frames
    sessions: Mapping[SessionKey, SessionRows]
    whole: Mapping[SessionKey, SessionRows]


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
        path: The folder, or the array of images in it.

    Returns:
        The absolute path of the folder.

    Raises:
        FileError: If there is no such folder. The message says how to download CORe50.
    """
    folder = Path(path).expanduser()
    if folder.is_file() and folder.suffix in (".npz", ".npy"):
        folder = folder.parent
    if not folder.is_dir():
        raise FileError(
            f"there is no folder {folder}. To download CORe50 into it: "
            f"primavista data core50 {folder}"
        )
    return folder.resolve()


def is_core50(path: str | Path) -> bool:
    """Return True if a path holds CORe50's pictures or its array, as `CORe50` reads them.

    Args:
        path: A folder, or the array of images; it need not exist.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        return folder.name in ARRAYS
    if any((folder / name).is_file() for name in ARRAYS):
        return True
    for _, _, object_folder in _object_folders(_pictures(folder)):
        if any(_FILE.fullmatch(name) for name in os.listdir(object_folder)):
            return True
    return False


def _pictures(folder: Path) -> Path:
    """The folder with s1, s2, ...: this one, or the one that the official archives make in it."""
    return next((folder / name for name in IMAGES if any(_numbered(folder / name, "s"))), folder)


def open_files(
    folder: Path, size: int | None, bad: BadFiles | None = None, progress: Progress | None = None
) -> CORe50Files:
    """Open the packed array of a folder if it is complete, and its images otherwise.

    Args:
        folder: The folder of CORe50.
        size: The side of the frames in pixels; None keeps the size on disk.
        bad: The treatment of damaged pictures. If it skips them, each picture is decoded once now,
            and pictures that cannot be decoded are left out of the sessions.
        progress: Called with (done, total), in pictures, while they are checked.

    Returns:
        The frames and the sessions that they form.

    Raises:
        InputError: If `bad` skips pictures but the folder holds an array.
        FileError: If there are no frames, or a file is missing, misplaced or damaged.
    """
    images, bad = _pictures(folder), bad or BadFiles()
    if any((folder / name).is_file() for name in ARRAYS):
        if (folder / "paths.pkl").is_file():
            if bad.skip:
                raise InputError(
                    "--skip-bad (skip_bad=True) is for pictures; "
                    f"{folder} holds CORe50 as one array"
                )
            frames, names = open_image_array(folder, size)
            return _files_of_names(frames, names, folder / "paths.pkl")
        if not any(_numbered(images, "s")):
            raise FileError(
                f"{folder / 'paths.pkl'} is missing: "
                "the array of images needs it to know which frame is which"
            )
    return _open_images(images, size, bad, progress)


def _files_of_names(frames: Frames, names: Sequence[str], where: Path) -> CORe50Files:
    """Sort rows into sessions by the name of each."""
    rows: dict[SessionKey, dict[int, int]] = {}
    for row, name in enumerate(names):
        try:
            session, thing, number = parse_name(name)
        except (ValueError, TypeError) as error:
            raise FileError(f"{where}, item {row}: {error}") from error
        frame_rows = rows.setdefault((session, thing), {})
        if number in frame_rows:
            raise FileError(
                f"{where} holds frame {number} of s{session}/o{thing} twice ({name}): remove one"
            )
        frame_rows[number] = row
    sessions = {}
    for key in sorted(rows):
        numbers = sorted(rows[key])
        sessions[key] = SessionRows(
            np.array(numbers, np.int32), np.array([rows[key][n] for n in numbers], np.int64)
        )
    return CORe50Files(frames, sessions, sessions)


def _numbered(folder: Path, letter: str) -> Iterator[tuple[int, Path]]:
    """The subfolders s1, s2, ... or o1, o2, ... in ascending order."""
    found = []
    if folder.is_dir():
        for entry in os.scandir(folder):
            if re.fullmatch(letter + r"[1-9]\d{0,3}", entry.name) and entry.is_dir():
                found.append((int(entry.name[1:]), Path(entry.path)))
    return iter(sorted(found))


def _object_folders(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """The folders s1/o1, s1/o2, ... with the numbers of session and object."""
    for session, session_folder in _numbered(folder, "s"):
        for thing, object_folder in _numbered(session_folder, "o"):
            yield session, thing, object_folder


def _image_names(folder: Path) -> list[str]:
    """The names of all frames, such as s1/o1/C_01_01_000.png; one in a wrong folder is an error."""
    names: list[str] = []
    for session, thing, object_folder in _object_folders(folder):
        for file in sorted(os.listdir(object_folder)):
            match = _FILE.fullmatch(file)
            if match is None:
                continue
            if (int(match[1]), int(match[2])) != (session, thing):
                raise FileError(
                    f"{object_folder / file} lies in the wrong folder: "
                    f"it belongs in s{match[1]}/o{match[2]}"
                )
            names.append(f"s{session}/o{thing}/{file}")
    if not names:
        raise FileError(
            f"no CORe50 frames in {folder}: it should hold s1/o1/C_01_01_000.png and so on, or "
            f"core50_imgs.npz with paths.pkl. To download them: primavista data core50 {folder}"
        )
    return names


def _open_images(
    folder: Path, size: int | None, bad: BadFiles, progress: Progress | None
) -> CORe50Files:
    names = _image_names(folder)
    side = size or _side(folder, names, bad)
    # Not a closure, because it is sent to the worker processes that pack the frames.
    read = partial(_decode_row, folder, names, side)
    files = _files_of_names(LazyFrames(read, len(names)), names, folder)
    if not bad.skip:
        return files
    good = _readable(folder, names, side, bad, progress)
    readable = {key: rows.only(good) for key, rows in files.sessions.items()}
    sessions = {key: found for key, found in readable.items() if len(found.rows)}
    return replace(files, sessions=sessions)


def _side(folder: Path, names: list[str], bad: BadFiles) -> int:
    """The side of the first picture that can be read."""
    for name in names:
        with BadFiles(bad.skip, quiet=True).guard():
            return len(read_image(folder / name, None))
    raise FileError(f"no picture of {folder} can be read: copy or download them again")


def _readable(
    folder: Path, names: list[str], side: int, bad: BadFiles, progress: Progress | None
) -> NDArray[np.bool_]:
    """Return one truth value per picture: True if it can be decoded."""
    good = np.zeros(len(names), bool)
    for done, name in enumerate(names, 1):
        with bad.guard():
            read_image(folder / name, side)
            good[done - 1] = True
        if progress and (done % 100 == 0 or done == len(names)):
            progress(done, len(names))
    return good


def _decode_row(folder: Path, names: list[str], side: int, row: int) -> ImageArray:
    return read_image(folder / names[row], side)
