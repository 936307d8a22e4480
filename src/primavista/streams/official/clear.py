"""CLEAR-10 and CLEAR-100 (Lin et al. 2021): pictures of 11 or 101 classes from ten periods.

data = clear("~/data/clear10")
batches = stream(data, "domain-incremental")     # the periods of 2004 to 2014, one after the other
"""

from __future__ import annotations

from pathlib import Path

from primavista.errors import FileError
from primavista.media.video import subfolders
from primavista.progress import Progress
from primavista.streams.dataset import DataSet
from primavista.streams.official.picture_files import (
    PictureList,
    picture_data,
    pictures_in,
    read_text,
)
from primavista.streams.session_files import SessionFiles

TRAIN = ("train", "train_image_only")  # the folder names in the two archives
TEST = ("test",)
IMAGES = "labeled_images"
NAMES = "class_names.txt"


def is_clear(path: str | Path) -> bool:
    """Return True if a path is a folder with CLEAR's training files.

    Args:
        path: A folder; it need not exist.
    """
    folder = _part(Path(path).expanduser(), TRAIN)
    return folder is not None and (folder / IMAGES).is_dir()


def clear(
    path: str | Path,
    *,
    size: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """Open CLEAR-10 or CLEAR-100; both have the same layout.

    A session holds the pictures of one class in one period (`bucket`), and its number is that of
    the period, so `domain-incremental` follows time. The test set consists of the test pictures of
    all periods.

    Args:
        path: The folder with `train` (or `train_image_only`) and `test`, the folders in the
            archives. Each has `class_names.txt` and `labeled_images/<period>/<class>/*.jpg`.
        size: The side of the frames in pixels; 128 by default.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total), in sessions, while pictures are checked.

    Returns:
        The data set. Each class is its own category.

    Raises:
        FileError: If the folder has another layout, or a list names a missing file.
    """
    root = Path(path).expanduser()
    train, test = _part(root, TRAIN), _part(root, TEST)
    if train is None or test is None:
        missing = "train" if train is None else "test"
        raise FileError(
            f"{root} has no folder {missing}: unpack clear10-train-image-only.zip and "
            "clear10-test.zip of https://clear-benchmark.github.io into it"
        )
    classes = [name for name in read_text(train / NAMES).split("\n") if name.strip()]
    if not classes or len(set(classes)) < len(classes):
        raise FileError(f"{train / NAMES} should have one class per line, each once")
    sessions = _sessions(train, classes, offset=0, is_test=False)
    last = max(one.number for one in sessions)  # numbers count all sessions of a class
    sessions += _sessions(test, classes, offset=last, is_test=True)
    tested = sum(len(one.pictures) for one in sessions if one.is_test)
    note = f"the official test set of CLEAR, all periods: {tested:,} pictures"
    listed = PictureList("clear", sessions, classes, range(len(classes)), note)
    return picture_data(listed, size, skip_bad, progress)


def _part(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _sessions(
    folder: Path, classes: list[str], *, offset: int, is_test: bool
) -> list[SessionFiles]:
    sessions = []
    periods = {_number(home): home for home in subfolders(folder / IMAGES)}
    for period, home in sorted(periods.items()):
        found = {one.name: pictures_in(folder, one) for one in subfolders(home)}
        unknown = [name for name in found if name not in classes]
        if unknown:
            raise FileError(f"{home} has the class {unknown[0][:80]!r}, which {NAMES} has not")
        sessions += [
            SessionFiles(label, offset + period, found[name], is_test)
            for label, name in enumerate(classes)
            if name in found
        ]
    if not sessions:
        raise FileError(f"{folder} has no labelled pictures: unpack its archive again")
    return sessions


def _number(home: Path) -> int:
    if not home.name.isdecimal() or len(home.name) > 4:
        raise FileError(f"{home} does not have the number of a period as its name")
    return int(home.name)
