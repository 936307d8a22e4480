"""Tiny ImageNet (Stanford CS231n): 200 classes of 500 pictures, 64 x 64, and 50 to test on.

data = tiny_imagenet("~/data/tiny-imagenet-200")
batches = stream(data, "class-incremental", first=100, classes_per_batch=20)
"""

from __future__ import annotations

import re
from pathlib import Path

from primavista.errors import FileError
from primavista.progress import Progress
from primavista.streams.dataset import DataSet
from primavista.streams.official.picture_files import (
    PictureList,
    divided,
    inside,
    picture_data,
    pictures_in,
    read_text,
)
from primavista.streams.session_files import SessionFiles

FOLDER = "tiny-imagenet-200"
IDS = "wnids.txt"
WORDS = "words.txt"
ANNOTATIONS = "val_annotations.txt"
_ID = re.compile(r"n\d{8}")


def is_tiny_imagenet(path: str | Path) -> bool:
    """Return True if a path is the folder of Tiny ImageNet, or one that holds it.

    Args:
        path: A folder; it need not exist.
    """
    return _home(Path(path).expanduser()) is not None


def tiny_imagenet(
    path: str | Path,
    *,
    size: int | None = None,
    sessions: int = 1,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """Open Tiny ImageNet from its official folder.

    The labelled pictures of `val` are the test set, as is usual in the literature, because those of
    `test` have no labels.

    Args:
        path: The folder `tiny-imagenet-200` with `wnids.txt`, `words.txt`, `train` and `val`, or
            its parent folder.
        size: The side of the frames in pixels; 128 by default (64 in the files).
        sessions: The number of sessions that the training pictures of each class are divided into.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total), in sessions, while pictures are checked.

    Returns:
        The data set. Each class is its own category, named by the first word of its synset.

    Raises:
        InputError: If a class has fewer pictures than `sessions`.
        FileError: If the folder has another layout, or a list names a missing file.
    """
    given = Path(path).expanduser()
    root = _home(given)
    if root is None:
        raise FileError(
            f"{given} does not hold {FOLDER} with {IDS}, train and val/{ANNOTATIONS}: unpack "
            "tiny-imagenet-200.zip of http://cs231n.stanford.edu/tiny-imagenet-200.zip into it"
        )
    ids = _ids(root / IDS)
    found: list[SessionFiles] = []
    for label, name in enumerate(ids):
        folder = root / "train" / name / "images"
        pieces = divided(pictures_in(root, folder), sessions, folder)
        found += [SessionFiles(label, i, piece) for i, piece in enumerate(pieces, 1)]
    by_class = _annotated(root, ids)
    found += [SessionFiles(k, sessions + 1, by_class[k], True) for k in sorted(by_class)]
    tested = sum(map(len, by_class.values()))
    note = f"the labelled validation pictures of Tiny ImageNet are the test set: {tested:,}"
    listed = PictureList("tiny-imagenet", found, _words(root, ids), range(len(ids)), note)
    return picture_data(listed, size, skip_bad, progress)


def _home(given: Path) -> Path | None:
    for folder in (given, given / FOLDER):
        if (folder / IDS).is_file() and (folder / "val" / ANNOTATIONS).is_file():
            return folder
    return None


def _ids(path: Path) -> list[str]:
    ids = read_text(path).split()
    wrong = [name for name in ids if not _ID.fullmatch(name)]
    if wrong or not ids or len(set(ids)) < len(ids):
        what = f"{wrong[0][:40]!r}" if wrong else "a class twice, or none"
        raise FileError(f"{path} has {what} instead of one WordNet id per line: unpack it again")
    return ids


def _annotated(root: Path, ids: list[str]) -> dict[int, tuple[Path, ...]]:
    """The validation pictures of each class, in the order of their list."""
    home, label = root / "val", {name: i for i, name in enumerate(ids)}
    found: dict[int, list[Path]] = {}
    for number, line in enumerate(read_text(home / ANNOTATIONS).splitlines(), 1):
        if not line.strip():
            continue
        name, _, rest = line.partition("\t")
        known = label.get(rest.partition("\t")[0])
        if known is None:
            raise FileError(f"{home / ANNOTATIONS}, line {number}: no class of {IDS} follows a tab")
        picture = inside(home, f"images/{name}", home / ANNOTATIONS)
        found.setdefault(known, []).append(picture)
    return {key: tuple(pictures) for key, pictures in found.items()}


def _words(root: Path, ids: list[str]) -> list[str]:
    """Return the first word of each synset, with its id if ambiguous; the id if there is none."""
    lines = read_text(root / WORDS).splitlines() if (root / WORDS).is_file() else []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = [words.get(name, name).partition(",")[0].strip() or name for name in ids]
    return [f"{n} {name}" if names.count(n) > 1 else n for n, name in zip(names, ids, strict=True)]
