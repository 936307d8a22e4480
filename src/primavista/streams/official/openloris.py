"""OpenLORIS-Object (She et al. 2020): household objects filmed by robots, four factors at a time.

data = openloris("~/data/openloris", factors=["illumination"])
batches = stream(data, "domain-incremental")     # the nine tasks of a factor, from easy to hard
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from primavista.errors import FileError, InputError
from primavista.media.video import subfolders
from primavista.progress import Progress
from primavista.streams.dataset import DataSet, Labels
from primavista.streams.official.picture_files import (
    PictureList,
    picture_data,
    pictures_in,
)
from primavista.streams.session_files import SessionFiles

# In the order of the authors' sequential benchmark.
FACTORS = ("illumination", "occlusion", "pixel", "clutter")
SEGMENTS = 9  # segments per factor: three views at each of three levels of difficulty
_SEGMENT = re.compile(r"segment_?(\d{1,2})", re.IGNORECASE)


def is_openloris(path: str | Path) -> bool:
    """Return True if a path is a folder with `train/<factor>/segment1`.

    Args:
        path: A folder; it need not exist.
    """
    home = Path(path).expanduser() / "train"
    return any(list(_segments(home / factor)) for factor in FACTORS if (home / factor).is_dir())


def openloris(
    path: str | Path,
    labels: Labels = "object",
    *,
    factors: Sequence[str] | None = None,
    size: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> DataSet:
    """Open OpenLORIS-Object from its official folders.

    A session is one video of one object in one segment. Its number is that of the authors' task:
    1 to 9 for illumination, followed by occlusion, pixel and clutter, up to 36.
    `domain-incremental` is therefore their sequential benchmark, or, with one factor, their
    benchmark of that factor.

    Args:
        path: The folder with `train/<factor>/segment<k>/<object>/*.jpg`, and `test` with the same
            layout; a folder `validation` is not used.
        labels: "object" for the 121 objects, "category" for their kinds. The kind of an object is
            its name without its number.
        factors: Some of illumination, occlusion, pixel and clutter; by default all that exist.
        size: The side of the frames in pixels; 128 by default.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total), in sessions, while pictures are checked.

    Returns:
        The data set. Categories are the kinds of objects.

    Raises:
        InputError: If an argument is wrong.
        FileError: If the folder has another layout.
    """
    if labels not in ("object", "category"):
        raise InputError(f"labels must be 'object' or 'category'; got {labels!r}")
    root = Path(path).expanduser()
    chosen = _chosen(root, factors)
    train, test = (list(_videos(root, part, chosen)) for part in ("train", "test"))
    objects = sorted({video.name for video in (*train, *test)})
    kinds = sorted(set(map(_kind, objects)))
    classes = objects if labels == "object" else kinds
    # Numbers count all sessions of a class.
    after = [replace(video, number=video.number + len(FACTORS) * SEGMENTS) for video in test]
    sessions = [video.session(classes, is_test=False) for video in train]
    sessions += [video.session(classes, is_test=True) for video in after]
    tested = sum(len(one.pictures) for one in sessions if one.is_test)
    note = f"{', '.join(chosen)}; the official test set of OpenLORIS-Object: {tested:,} pictures"
    categories = [kinds.index(_kind(name)) for name in classes]
    listed = PictureList("openloris", sessions, classes, categories, note)
    return picture_data(listed, size, skip_bad, progress)


@dataclass(frozen=True)
class _Video:
    """A video: the name of its object, the number of its task, and its pictures."""

    name: str
    number: int
    pictures: tuple[Path, ...]

    def session(self, classes: Sequence[str], *, is_test: bool) -> SessionFiles:
        """Return the session, labelled by the object if it is a class, otherwise by its kind."""
        own = self.name if self.name in classes else _kind(self.name)
        return SessionFiles(classes.index(own), self.number, self.pictures, is_test)


def _kind(name: str) -> str:
    """The kind of an object: its name without its number."""
    return re.sub(r"_\d+$", "", name)


def _chosen(root: Path, factors: Sequence[str] | None) -> list[str]:
    """The factors to read, in the authors' order."""
    there = {factor for factor in FACTORS if (root / "train" / factor).is_dir()}
    asked = there if factors is None else set(factors)
    if not asked <= set(FACTORS) or isinstance(factors, str):
        raise InputError(f"factors are some of {', '.join(FACTORS)}, in a list; got {factors!r}")
    if not asked or asked - there:
        missing = sorted(asked - there) or FACTORS
        raise FileError(
            f"{root} has no folder train/{missing[0]}: unpack the archives of "
            "https://lifelong-robotic-vision.github.io/dataset/object into it"
        )
    return sorted(asked, key=FACTORS.index)


def _videos(root: Path, part: str, factors: Sequence[str]) -> Iterator[_Video]:
    """The videos by task and object."""
    for factor in factors:
        for segment, folder in _segments(root / part / factor):
            if not 1 <= segment <= SEGMENTS:
                raise FileError(f"{folder}: a factor has the segments 1 to {SEGMENTS}")
            number = FACTORS.index(factor) * SEGMENTS + segment
            for video in subfolders(folder):
                yield _Video(video.name, number, pictures_in(root, video))


def _segments(home: Path) -> Iterator[tuple[int, Path]]:
    if not home.is_dir():
        raise FileError(f"{home} is missing: unpack its archive")
    for folder in subfolders(home):
        if match := _SEGMENT.fullmatch(folder.name):
            yield int(match[1]), folder
