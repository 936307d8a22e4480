"""Data sets of picture files that a list names: `pictures.csv` in their folder.

file,class,session,split
train/0001.jpg,mug,1,train
val/0001.jpg,mug,2,test

Nothing outside the folder is read. `docs/guides/data-sets.md` has programs that write the lists of
CLEAR, Tiny ImageNet and OpenLORIS-Object.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from primavista.errors import FileError, file_errors
from primavista.media.video import BadFiles
from primavista.progress import Progress
from primavista.streams.dataset import DataSet
from primavista.streams.session_files import SessionFiles, file_facts, readable_sessions

LIST = "pictures.csv"
MAX_TEXT = 256 * 2**20  # bytes of one list
MAX_PICTURES = 4_000_000
DEFAULT_SIZE = 128  # pixels


class ListedPicture(BaseModel):
    """A line of the list.

    Args:
        file: The path of the picture in the folder.
        name: The column `class`: the name of the class.
        session: The number of the session; the same number in several classes is the same domain.
        split: "train" or "test".
        category: The category of the class; by default each class is its own.
    """

    model_config = ConfigDict(extra="forbid")

    file: Annotated[str, Field(min_length=1, max_length=1000)]
    name: Annotated[str, Field(alias="class", min_length=1)]
    session: Annotated[int, Field(ge=1)]
    split: Literal["train", "test"]
    category: str = ""


def is_listed(path: str | Path) -> bool:
    """Return True if a path is a folder with a list of pictures.

    Args:
        path: A folder; it need not exist.
    """
    return (Path(path).expanduser() / LIST).is_file()


def listed(
    path: str | Path,
    *,
    size: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """Open a folder of pictures with a list, `pictures.csv`. Pictures are decoded on demand.

    Args:
        path: The folder.
        size: The side of the frames in pixels; 128 by default.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total), in sessions, while pictures are checked.

    Returns:
        The data set. Classes and sessions are in the order in which the list names them first.

    Raises:
        FileError: If the list is wrong, or names a file that is missing or outside the folder.
    """
    root, side, bad = Path(path).expanduser(), size or DEFAULT_SIZE, BadFiles(skip_bad)
    sessions: dict[tuple[str, int, bool], list[Path]] = {}
    category: dict[str, str] = {}
    for line in _read_list(root / LIST):
        key = line.name, line.session, line.split == "test"
        sessions.setdefault(key, []).append(inside(root, line.file, root / LIST))
        category.setdefault(line.name, line.category or line.name)
    classes, categories = list(category), list(dict.fromkeys(category.values()))
    found = [
        SessionFiles(classes.index(name), number, tuple(pictures), is_test)
        for (name, number, is_test), pictures in sessions.items()
    ]
    kept = readable_sessions(found, side, bad, progress)
    if all(one.is_test for one in kept):
        raise FileError(f"{root} has no training pictures. {bad.note}")
    return DataSet(
        **file_facts(kept, side),
        name=root.resolve().name,
        classes=tuple(classes),
        categories=tuple(categories.index(category[name]) for name in classes),
        note=bad.note,
    )


def _read_list(path: Path) -> list[ListedPicture]:
    lines = csv.DictReader(read_text(path).splitlines())
    found: list[ListedPicture] = []
    try:
        for line in lines:
            found.append(ListedPicture.model_validate(line))
            if len(found) > MAX_PICTURES:
                raise FileError(f"{path} has more than {MAX_PICTURES:,} pictures: give a part")
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise FileError(f"{path}, line {lines.line_num}: {field}: {first['msg']}") from error
    except csv.Error as error:  # such as a field of many thousand letters
        raise FileError(f"{path}, line {lines.line_num}: {error}") from error
    return found


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
    if "\0" in name or "\\" in name:
        raise FileError(f"{where} has {name[:80]!r} as the name of a file: write the list again")
    path = root / name
    with file_errors("read", path):
        home, found = root.resolve(), path.resolve()
    if Path(name).is_absolute() or not found.is_relative_to(home):
        raise FileError(f"refused: {where} names {name[:80]!r}, which lies outside {root}")
    if not found.is_file():
        raise FileError(f"{path} is missing, and {where} names it: complete the data set")
    return path


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
