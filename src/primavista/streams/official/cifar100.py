"""CIFAR-100 (Krizhevsky 2009) from its official files: 100 classes of 500 + 100 small pictures.

data = cifar100("~/data/cifar-100-python.tar.gz", size=128)
batches = stream(data, "class-incremental", first=50, classes_per_batch=10)
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primavista.errors import FileError, InputError, file_errors
from primavista.media.images import ImageArray
from primavista.streams.core50.image_array import MappedFrames
from primavista.streams.dataset import DataSet, Labels, Session
from primavista.streams.pickles import MAX_BYTES, loads, read_pickle

ARCHIVE = "cifar-100-python.tar.gz"
FOLDER = "cifar-100-python"
FILES = ("train", "test", "meta")
SIDE = 32  # pixels
WHERE = f"Download {ARCHIVE} from https://www.cs.toronto.edu/~kriz/cifar.html again"
MAX_MEMBERS = 100  # the most files in the archive; the official one has seven


def is_cifar100(path: str | Path) -> bool:
    """Return True if a path is the official archive or a folder with its files.

    Args:
        path: A file or folder; it need not exist.
    """
    place = Path(path).expanduser()
    return _is_archive(place) or _folder(place) is not None


def cifar100(
    path: str | Path, labels: Labels = "object", *, size: int | None = None, sessions: int = 1
) -> DataSet:
    """Open CIFAR-100 from its official files; nothing in them is executed or unpacked to disk.

    All pictures are kept in memory, 184 MB (770 MB for a moment while they are read), and resized
    on demand. The training pictures of a class form one session, or several of equal size for
    protocols such as NICv2, in the order of the file. The official test pictures of a class are its
    test session.

    Args:
        path: `cifar-100-python.tar.gz`, the folder `cifar-100-python` that it unpacks to (with the
            files `train`, `test` and `meta`), or a folder that holds either.
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
    read = _read_archive(place) if _is_archive(place) else _read_folder(place)
    names = _names(read["meta"], "fine_label_names", place)
    groups = _names(read["meta"], "coarse_label_names", place)
    parts = [_part(read[name], name, place, len(names), len(groups)) for name in ("train", "test")]
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
        frames=MappedFrames(pixels, size),
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


def _is_archive(place: Path) -> bool:
    return place.is_file() and place.name == ARCHIVE


def _folder(place: Path) -> Path | None:
    """The folder with the files, or the archive in a folder; None if there is neither."""
    for folder in (place, place / FOLDER):
        if all((folder / name).is_file() for name in FILES):
            return folder
    return place / ARCHIVE if _is_archive(place / ARCHIVE) else None


def _read_folder(place: Path) -> dict[str, Any]:
    found = _folder(place)
    if found is None:
        raise FileError(
            f"{place} does not hold CIFAR-100: it should hold {ARCHIVE}, or the files "
            f"{', '.join(FILES)} that it unpacks to. Get it from "
            "https://www.cs.toronto.edu/~kriz/cifar.html (CIFAR-100 python version)"
        )
    if _is_archive(found):
        return _read_archive(found)
    return {name: read_pickle(found / name) for name in FILES}


def _read_archive(archive: Path) -> dict[str, Any]:
    """Read the three files out of the archive without unpacking it to disk."""
    found: dict[str, Any] = {}
    try:
        with file_errors("read", archive), tarfile.open(archive, "r|gz") as source:
            for count, member in enumerate(source):
                if count >= MAX_MEMBERS or member.size > MAX_BYTES:
                    raise FileError(
                        f"refused to read {archive}: {member.name[:80]!r} is file {count + 1} and "
                        f"has {member.size:,} bytes; CIFAR-100 has fewer and smaller ones. {WHERE}"
                    )
                name = member.name.removeprefix("./").removeprefix(f"{FOLDER}/")
                if name in FILES:
                    found[name] = _read_member(source, member, archive)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise FileError(f"{archive} is damaged ({error}). {WHERE}") from error
    missing = [name for name in FILES if name not in found]
    if missing:
        raise FileError(f"{archive} holds no {FOLDER}/{missing[0]}. {WHERE}")
    return found


def _read_member(source: tarfile.TarFile, member: tarfile.TarInfo, archive: Path) -> Any:
    where = f"{member.name} in {archive}"
    if not member.isreg():
        raise FileError(f"refused to read {where}: it is a link or a device. {WHERE}")
    file = source.extractfile(member)
    data = file.read() if file else b""
    if len(data) < member.size:
        raise FileError(f"{archive} was cut off in {member.name}. {WHERE}")
    return loads(data, where)


def _value(table: Any, key: str, place: Path) -> Any:
    """Return an entry of a file; a key written by Python 2 may be read as bytes."""
    found = table if isinstance(table, dict) else {}
    value = found.get(key, found.get(key.encode()))
    if value is None:
        raise FileError(f"{place} is not CIFAR-100: a file has no '{key}'. {WHERE}")
    return value


def _names(meta: Any, key: str, place: Path) -> list[str]:
    given = _value(meta, key, place)
    listed = given if isinstance(given, list) else []
    names = [name.decode("latin-1") if isinstance(name, bytes) else name for name in listed]
    if not names or not all(isinstance(name, str) for name in names):
        raise FileError(f"{place} is not CIFAR-100: '{key}' is not a list of names. {WHERE}")
    return names


def _part(table: Any, name: str, place: Path, classes: int, groups: int) -> _Part:
    data = _value(table, "data", place)
    is_pixels = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2
    if not is_pixels or data.shape[1] != 3 * SIDE * SIDE or not len(data):
        raise FileError(
            f"'data' of {name} in {place} is not N x 3072 uint8, as CIFAR-100 has it. {WHERE}"
        )
    pixels = data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    fine = _labels(table, "fine_labels", len(data), classes, place)
    return _Part(pixels, fine, _labels(table, "coarse_labels", len(data), groups, place))


def _labels(table: Any, key: str, count: int, classes: int, place: Path) -> NDArray[np.int64]:
    given = _value(table, key, place)
    is_list = isinstance(given, list) and len(given) == count
    if not is_list or not all(type(v) is int and 0 <= v < classes for v in given):
        raise FileError(
            f"'{key}' in {place} should have {count} labels from 0 to {classes - 1}. {WHERE}"
        )
    return np.array(given, np.int64)


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
    train: list[Session] = []
    test: list[Session] = []
    rows: list[NDArray[np.int64]] = []
    start, offset = 0, 0
    for part, sessions, count in zip(parts, (train, test), (pieces, 1), strict=True):
        for fine, group in enumerate(category):
            rank = category[:fine].count(group) if by_category else 0
            label = group if by_category else fine
            for piece, own in enumerate(np.array_split(np.flatnonzero(part.fine == fine), count)):
                number = 1 + rank * count + piece
                sessions.append(Session(label, number, start, start + len(own)))
                rows.append(own + offset)
                start += len(own)
        offset += len(part.fine)
    last = max(session.number for session in train)  # numbers count all sessions of a class
    tested = [Session(s.label, s.number + last, s.start, s.stop) for s in test if len(s)]
    return np.concatenate(rows), tuple(train), tuple(tested)
