"""The frames of CORe50 as people have them on disk: a folder of images, or one array with its list of names."""

from __future__ import annotations

import os
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from primavista.errors import FileError, InputError
from primavista.frames import Frames, LazyFrames, crop_and_resize
from primavista.streams.core50.pickles import read_pickle
from primavista.streams.dataset import SessionKey, SessionRows
from primavista.streams.decode import read_image
from primavista.streams.video import BadFiles

NAME = re.compile(
    r"s(\d{1,4})/o(\d{1,4})/C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE
)
_FILE = re.compile(r"C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE)
ARRAYS = ("core50_imgs.npz", "core50_imgs.npy", "core50_imgs.bin")
IMAGES = ("core50_128x128", "core50_350x350", "core50_32x32")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CORe50Files:
    """All frames of CORe50 in the order in which they lie on disk, and how they form sessions.

    Args:
        frames: The frames.
        sessions: The readable frames of each session.
        whole: The same with the frames that could not be decoded.
    """

    frames: Frames
    sessions: Mapping[SessionKey, SessionRows]
    whole: Mapping[SessionKey, SessionRows]


def parse_name(name: str) -> tuple[int, int, int]:
    """Session, object and frame number of an official name.

    >>> parse_name("s11/o1/C_11_01_000.png")
    (11, 1, 0)
    """
    match = NAME.fullmatch(name)
    if not match or match[1] != match[3].lstrip("0") or match[2] != match[4].lstrip("0"):
        raise ValueError(
            f"'{name[:80]}' is no name of a CORe50 frame, such as s11/o1/C_11_01_000.png"
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
    """Whether a folder holds CORe50's pictures or its array, as `CORe50` reads them."""
    folder = Path(path).expanduser()
    if folder.is_file():
        return folder.name in ARRAYS
    if any((folder / name).is_file() for name in ARRAYS):
        return True
    places = (
        place for _, of in _numbered(_pictures(folder), "s") for _, place in _numbered(of, "o")
    )
    return any(_FILE.fullmatch(name) for place in places for name in os.listdir(place))


def _pictures(folder: Path) -> Path:
    """The folder with s1, s2, ...: this one, or the one that the official archives make in it."""
    return next((folder / name for name in IMAGES if any(_numbered(folder / name, "s"))), folder)


def open_files(
    folder: Path, size: int | None, bad: BadFiles | None = None, progress: Progress | None = None
) -> CORe50Files:
    """What is in the folder: the packed array where it is complete, else the images.

    Where `bad` skips, each picture is decoded once now, and the sessions lack those that cannot be.
    """
    images, bad = _pictures(folder), bad or BadFiles()
    if any((folder / name).is_file() for name in ARRAYS):
        if (folder / "paths.pkl").is_file():
            if bad.skip:
                raise InputError(
                    f"--skip-bad (skip_bad=True) is for pictures; {folder} holds CORe50 as one array"
                )
            return _packed(folder, size)
        if not any(_numbered(images, "s")):
            raise FileError(
                f"{folder / 'paths.pkl'} is missing: the array of images needs it to know which frame is which"
            )
    return _images(images, size, bad, progress)


def _files_of_names(frames: Frames, names: Sequence[str], where: Path) -> CORe50Files:
    """A source from the name of each row."""
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


def _images(
    folder: Path, size: int | None, bad: BadFiles, progress: Progress | None
) -> CORe50Files:
    names: list[str] = []
    for session, of_session in _numbered(folder, "s"):
        for thing, of_object in _numbered(of_session, "o"):
            for file in sorted(os.listdir(of_object)):
                match = _FILE.fullmatch(file)
                if match and (int(match[1]), int(match[2])) != (session, thing):
                    raise FileError(
                        f"{of_object / file} lies in the wrong folder: it belongs in s{match[1]}/o{match[2]}"
                    )
                if match:
                    names.append(f"s{session}/o{thing}/{file}")
    if not names:
        raise FileError(
            f"no CORe50 frames in {folder}: it should hold s1/o1/C_01_01_000.png and so on, or core50_imgs.npz with paths.pkl. "
            f"To download them: primavista data core50 {folder}"
        )
    side = size or _side(folder, names, bad)
    read = partial(
        _decode_row, folder, names, side
    )  # not a closure: workers that pack must be able to receive it
    source = _files_of_names(LazyFrames(read, len(names)), names, folder)
    if not bad.skip:
        return source
    good = _readable(folder, names, side, bad, progress)
    readable = {key: rows.only(good) for key, rows in source.sessions.items()}
    return replace(
        source, sessions={key: found for key, found in readable.items() if len(found.rows)}
    )


def _side(folder: Path, names: list[str], bad: BadFiles) -> int:
    """The side of the first picture that can be read."""
    for name in names:
        with BadFiles(bad.skip, quiet=True).guard():
            return len(read_image(folder / name, None))
    raise FileError(f"no picture of {folder} can be read: copy or download them again")


def _readable(
    folder: Path, names: list[str], side: int, bad: BadFiles, progress: Progress | None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    good = np.zeros(len(names), bool)
    for done, name in enumerate(names, 1):
        with bad.guard():
            read_image(folder / name, side)
            good[done - 1] = True
        if progress and (done % 100 == 0 or done == len(names)):
            progress(done, len(names))
    return good


def _decode_row(folder: Path, names: list[str], side: int, row: int) -> np.ndarray[Any, Any]:
    return read_image(folder / names[row], side)


class MappedFrames:
    """Frames that are rows of a memory-mapped array: only those asked for are read."""

    def __init__(self, array: np.ndarray[Any, Any], size: int | None) -> None:
        self.array, self.size = array, size

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, indices: Tensor) -> Tensor:
        chunk = self.array[indices.cpu().numpy()]
        if self.size is None or chunk.shape[1:3] == (self.size, self.size):
            return torch.from_numpy(np.ascontiguousarray(chunk))
        return torch.stack([torch.from_numpy(crop_and_resize(image, self.size)) for image in chunk])


def _packed(folder: Path, size: int | None) -> CORe50Files:
    names = read_pickle(folder / "paths.pkl")
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if not isinstance(names, list):
        raise FileError(
            f"{folder / 'paths.pkl'} holds no list of names but a {type(names).__name__}: download it again"
        )
    array = _array(folder, len(names))
    if (
        array.dtype != np.uint8
        or array.ndim != 4
        or array.shape[3] != 3
        or len(array) != len(names)
    ):
        raise FileError(
            f"the array of images in {folder} is {array.dtype} of shape {array.shape}; it should be uint8, {len(names)} x H x "
            "W x 3, a row for each name in paths.pkl: download core50_imgs.npz and paths.pkl again"
        )
    return _files_of_names(MappedFrames(array, size), names, folder / "paths.pkl")


def _array(folder: Path, count: int) -> np.ndarray[Any, Any]:
    """The images, mapped: from the npz itself where they lie in it uncompressed, else from a copy made once."""
    packed, plain, raw = (folder / f"core50_imgs.{kind}" for kind in ("npz", "npy", "bin"))
    if plain.is_file():
        with plain.open("rb") as file:
            shape, offset = _npy_header(file, plain)
        return _mapped(plain, shape, offset)
    if packed.is_file():
        return map_npz(packed)
    return _mapped(raw, (count, 128, 128, 3), 0)


def map_npz(path: Path, member: str = "x.npy") -> np.ndarray[Any, Any]:
    """The array in an npz file, memory-mapped in place. A compressed one is unpacked once, to an .npy file beside it."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(member)
            with archive.open(info) as stream:
                shape, header = _npy_header(stream, path)
            if info.compress_type == zipfile.ZIP_STORED:
                return _mapped(path, shape, _data_offset(path, info) + header)
            _unpack(archive, info, path.with_suffix(".npy"))
    except KeyError as error:
        raise FileError(
            f"{path} holds no array '{member}': it is not CORe50's, download core50_imgs.npz again"
        ) from error
    except (zipfile.BadZipFile, EOFError, ValueError, struct.error) as error:
        raise FileError(f"{path} is damaged ({error}): download core50_imgs.npz again") from error
    return _mapped(path.with_suffix(".npy"), shape, header)


def _npy_header(stream: Any, path: Path) -> tuple[tuple[int, ...], int]:
    """Shape and length of the header of an .npy stream of uint8 in C order."""
    version = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read(stream)
    if dtype != np.uint8 or fortran:
        raise FileError(
            f"{path} holds an array of {dtype}, not the uint8 images of CORe50: download it again"
        )
    return shape, stream.tell()


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: after its local header, whose name and extra field have lengths of their own."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)
    name, extra = struct.unpack("<HH", header[26:30])
    return info.header_offset + 30 + int(name) + int(extra)


def _mapped(path: Path, shape: tuple[int, ...], offset: int) -> np.ndarray[Any, Any]:
    need = offset + int(np.prod(shape, dtype=object))
    if (size := path.stat().st_size) < need:
        raise FileError(
            f"{path} has {size:,} bytes and should have {need:,}: it was cut off, download or unpack it again"
        )
    return np.memmap(path, np.uint8, "r", offset, shape)


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < info.file_size:
        raise FileError(
            f"{target} needs {info.file_size:,} bytes to unpack the images once; {free:,} are free: make room"
        )
    part = target.with_name(target.name + ".part")
    try:
        with archive.open(info) as source, part.open("wb") as sink:
            _copy(source, sink)
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(
            f"cannot unpack the images to {target}: {error.strerror or error}"
        ) from error


def _copy(source: Any, sink: BinaryIO) -> None:
    while chunk := source.read(1 << 22):
        sink.write(chunk)
