"""CIFAR-100 (Krizhevsky 2009) from its official files: 100 classes of 500 + 100 small pictures.

data = cifar100("~/data/cifar-100-binary.tar.gz", size=128)
batches = stream(data, "class-incremental", first=50, classes_per_batch=10)
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from primavista.errors import FileError, InputError, file_errors
from primavista.media.frames import LazyFrames
from primavista.media.images import ImageArray, centre_square
from primavista.streams.dataset import DataSet, Session, consecutive_sessions

ARCHIVE = "cifar-100-binary.tar.gz"
FOLDER = "cifar-100-binary"
FINE, COARSE = "fine_label_names.txt", "coarse_label_names.txt"
FILES = ("train.bin", "test.bin", FINE, COARSE)
SIDE = 32  # pixels
RECORD = 2 + 3 * SIDE**2  # bytes of a picture: superclass, class, then red, green and blue values
WHERE = f"Download {ARCHIVE} from https://www.cs.toronto.edu/~kriz/cifar.html again"
MAX_BYTES = 256 * 2**20  # of a file; the training pictures have 153,700,000
MAX_MEMBERS = 100  # the most files in the archive


def is_cifar100(path: str | Path) -> bool:
    """Return True if a path is the official archive or a folder with its files.

    Args:
        path: A file or folder; it need not exist.
    """
    return _found(Path(path).expanduser()) is not None


def cifar100(
    path: str | Path,
    labels: Literal["object", "category"] = "object",
    *,
    size: int | None = None,
    sessions: int = 1,
) -> DataSet:
    """Open CIFAR-100 from its official files; nothing in them is executed or unpacked to disk.

    All pictures are kept in memory, 184 MB, and resized on demand. The training pictures of a class
    form one session, or several of equal size for protocols such as NICv2, in the order of the
    file. The official test pictures of a class are its test session.

    Args:
        path: `cifar-100-binary.tar.gz` (the "binary version"), the folder `cifar-100-binary` that
            it unpacks to, or a folder that holds either.
        labels: "object" for the 100 classes, "category" for the 20 superclasses. With superclasses,
            the five classes of each are its sessions, so `domain-incremental` has one class of
            every superclass per batch.
        size: The side of the frames in pixels; 32 by default, as in the files.
        sessions: The number of sessions that the training pictures of each class are divided into.

    Returns:
        The data set. Categories are the superclasses.

    Raises:
        InputError: If an argument is out of range.
        FileError: If the files are missing or damaged, or hold other data.
    """
    if labels not in ("object", "category"):
        raise InputError(f"labels must be 'object' or 'category'; got {labels!r}")
    place = Path(path).expanduser()
    read = _read_files(place)
    names, groups = (_names(read[name], name, place) for name in (FINE, COARSE))
    parts = [_part(read[name], name, place, len(names), len(groups)) for name in FILES[:2]]
    category = _categories(parts, len(names), place)
    fewest = min(np.bincount(parts[0].fine, minlength=len(names)).tolist())
    if not fewest:
        raise FileError(f"a class of {place} has no training pictures. {WHERE}")
    if not 1 <= sessions <= fewest:
        raise InputError(
            f"sessions must lie from 1 to {fewest}, the training pictures of the smallest class; "
            f"got {sessions}"
        )
    rows, train, test = _sessions(parts, category, sessions, by_category=labels == "category")
    pixels = np.concatenate([part.pixels for part in parts])[rows]
    by_object = labels == "object"
    return DataSet(
        name="cifar100",
        frames=LazyFrames(lambda i: centre_square(pixels[i], size or SIDE), len(pixels)),
        train=train,
        test=test,
        classes=tuple(names if by_object else groups),
        categories=tuple(category) if by_object else tuple(range(len(groups))),
        note=f"the official test set of CIFAR-100: {len(parts[1].fine):,} pictures",
    )


@dataclass(frozen=True)
class _Part:
    """The pictures of one file, N x 32 x 32 x 3, with their fine and coarse labels."""

    pixels: ImageArray
    fine: NDArray[np.int64]
    coarse: NDArray[np.int64]


def _found(place: Path) -> Path | None:
    """The archive, or the folder with the files; None if there is neither."""
    for folder in (place, place / FOLDER):
        if all((folder / name).is_file() for name in FILES):
            return folder
    archives = (place, place / ARCHIVE)
    return next((one for one in archives if one.is_file() and one.name == ARCHIVE), None)


def _read_files(place: Path) -> dict[str, bytes]:
    found = _found(place)
    if found is None:
        raise FileError(
            f"{place} does not hold CIFAR-100: it should hold {ARCHIVE}, or the files "
            f"{', '.join(FILES)} that it unpacks to. Get it from "
            "https://www.cs.toronto.edu/~kriz/cifar.html (CIFAR-100 binary version)"
        )
    if found.is_file():
        return _read_archive(found)
    return {name: _read_file(found / name) for name in FILES}


def _read_file(path: Path) -> bytes:
    with file_errors("read", path):
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"refused to read {path}: it is larger than CIFAR-100 is. {WHERE}")
        return path.read_bytes()


def _read_archive(archive: Path) -> dict[str, bytes]:
    """Read the files out of the archive without unpacking it to disk."""
    read: dict[str, bytes] = {}
    try:
        with (
            file_errors("read", archive),
            gzip.open(archive) as unpacked,
            tarfile.open(fileobj=cast(BinaryIO, _Bounded(unpacked, archive)), mode="r|") as source,
        ):
            for count, member in enumerate(source):
                if count >= MAX_MEMBERS or member.size > MAX_BYTES:
                    raise FileError(
                        f"refused to read {archive}: {member.name[:80]!r} is file {count + 1} and "
                        f"has {member.size:,} bytes; CIFAR-100 has fewer and smaller ones. {WHERE}"
                    )
                name = member.name.removeprefix("./").removeprefix(f"{FOLDER}/")
                file = source.extractfile(member) if member.isreg() else None
                if file is not None and name in FILES:
                    read[name] = file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise FileError(f"{archive} is damaged ({error}). {WHERE}") from error
    missing = [name for name in FILES if name not in read]
    if missing:
        raise FileError(f"{archive} holds no file {FOLDER}/{missing[0]}. {WHERE}")
    return read


class _Bounded:
    """The unpacked bytes of an archive, and no more than CIFAR-100 can have.

    tarfile reads the name of a file whole, however long it claims to be.
    """

    def __init__(self, unpacked: gzip.GzipFile, archive: Path) -> None:
        self._unpacked, self._archive, self._left = unpacked, archive, MAX_BYTES

    def read(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise FileError(f"refused to read {self._archive}: it is too large. {WHERE}")
        return self._unpacked.read(count)


def _names(text: bytes, name: str, place: Path) -> list[str]:
    names = text.decode("latin-1").split()
    if not names:
        raise FileError(f"{name} in {place} holds no names. {WHERE}")
    return names


def _part(data: bytes, name: str, place: Path, classes: int, groups: int) -> _Part:
    if len(data) % RECORD or not data:
        raise FileError(
            f"{name} in {place} is damaged: it has {len(data):,} bytes, and {RECORD} per picture. "
            f"{WHERE}"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    coarse, fine = records[:, 0].astype(np.int64), records[:, 1].astype(np.int64)
    if fine.max() >= classes or coarse.max() >= groups:
        raise FileError(
            f"{name} in {place} should have labels from 0 to {classes - 1}, and superclasses from "
            f"0 to {groups - 1}. {WHERE}"
        )
    pixels = records[:, 2:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return _Part(pixels, fine, coarse)


def _categories(parts: Sequence[_Part], classes: int, place: Path) -> list[int]:
    """Return the superclass of each class; raise if its pictures have several."""
    fine = np.concatenate([part.fine for part in parts])
    coarse = np.concatenate([part.coarse for part in parts])
    found = []
    for label in range(classes):
        own = np.unique(coarse[fine == label])
        if len(own) != 1:
            raise FileError(f"class {label} of {place} has {len(own)} superclasses. {WHERE}")
        found.append(int(own[0]))
    return found


def _sessions(
    parts: Sequence[_Part], category: Sequence[int], pieces: int, *, by_category: bool
) -> tuple[NDArray[np.int64], tuple[Session, ...], tuple[Session, ...]]:
    """The rows of both files in the order of the sessions, and the sessions."""
    planned: list[tuple[int, int, int, bool]] = []
    rows: list[NDArray[np.int64]] = []
    offset, last = 0, 0
    for part, is_test in zip(parts, (False, True), strict=True):
        count = 1 if is_test else pieces
        for fine, group in enumerate(category):
            rank = category[:fine].count(group) if by_category else 0
            label = group if by_category else fine
            for piece, own in enumerate(np.array_split(np.flatnonzero(part.fine == fine), count)):
                number = 1 + last + rank * count + piece
                planned.append((label, number, len(own), is_test))
                rows.append(own + offset)
        offset += len(part.fine)
        last = max(number for _, number, _, _ in planned)  # numbers count all sessions of a class
    train, test = consecutive_sessions(planned)
    return np.concatenate(rows), train, tuple(session for session in test if len(session))
