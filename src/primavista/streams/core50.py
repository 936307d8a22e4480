"""CORe50: 50 objects of 10 categories, each filmed in 11 sessions; 3, 7 and 10 are the test set.

data = CORe50("~/data/core50")
batches = stream(data, "nicv2-391", run=0)     # the official order if its files exist

The data set is a folder of pictures, such as s1/o1/C_01_01_000.png; the official orders are read
from the authors' file lists.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import get_args

from primavista.errors import FileError, InputError
from primavista.media.images import read_image
from primavista.media.video import BadFiles
from primavista.progress import Progress
from primavista.streams.conventions import object_names
from primavista.streams.dataset import CORe50Facts, DataSet, Session, SessionKey, TestFrames
from primavista.streams.listed import read_text
from primavista.streams.session_files import SessionFiles, file_facts, readable_sessions

OBJECTS_PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
TOTAL_FRAMES = 164_866
REDUCED_EVERY = 20  # the official 1-in-20 list: one frame per second

SessionsByKey = Mapping[SessionKey, SessionFiles]

NAME = re.compile(
    r"s(\d{1,4})/o(\d{1,4})/C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE
)
_FILE = re.compile(r"C_(\d{1,4})_(\d{1,4})_(\d{1,6})\.(?:png|jpe?g)", re.IGNORECASE)
DOWNLOAD = "docs/guides/paper.md says how to get CORe50"
IMAGES = ("core50_128x128", "core50_350x350", "core50_32x32")

BATCHES = {"ni": 8, "nc": 9, "nic": 79, "nicv2-79": 79, "nicv2-196": 196, "nicv2-391": 391}
RUNS = 10
FOLDERS = {
    "ni": "NI_inc",
    "nc": "NC_inc",
    "nic": "NIC_inc",
    **{f"nicv2-{n}": f"NIC_v2_{n}" for n in (79, 196, 391)},
}
PARENTS = ("", "batches_filelists", "batches_filelists_NICv2", "batches_filelists_nicv2")
_LIST = re.compile(r"train_batch_(\d{2,5})_filelist\.txt")
Order = list[list[SessionKey]]
Sessions = Mapping[SessionKey, Session]


class CORe50(DataSet):
    """CORe50 on disk. Frames are read on demand.

    Labels come from the names of the files.

    Args:
        path: The folder that holds `s1` .. `s11`, or `core50_128x128` with them.
        test: The test frames. "full" has 44,972. "reduced", the default, is the official 1-in-20
            list: every 20th frame of the full test set in the order of the official lists, 2,249.
        size: The side of the frames in pixels. The default is the size on disk.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total), in sessions, while `skip_bad` checks pictures.

    Raises:
        InputError: If an argument is out of range.
        FileError: If the folder does not hold CORe50, or a file is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        test: TestFrames = "reduced",
        *,
        size: int | None = None,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> None:
        if test not in get_args(TestFrames):
            raise InputError(f"test must be 'reduced' or 'full'; got {test!r}")
        folder, bad = core50_folder(path), BadFiles(skip_bad)
        whole = picture_sessions(folder)
        side = size or _side(whole, folder, bad)
        readable = readable_sessions(whole, side, bad, progress)
        sessions = {(one.number, one.label + 1): one for one in readable}
        count = sum(one.count for one in readable)
        complete = count == TOTAL_FRAMES
        name = "core50" if complete else f"core50 ({count:,} of {TOTAL_FRAMES:,} frames)"
        files = _training_files(sessions, folder) + _test_files(sessions, test)
        objects = max(thing for _, thing in sessions)  # classes up to the last existing object
        super().__init__(
            **file_facts(files, side),
            name=name,
            classes=object_names(objects, OBJECTS_PER_CATEGORY),
            categories=tuple(i // OBJECTS_PER_CATEGORY for i in range(objects)),
            origin=folder,
            core50=CORe50Facts(test, complete),
            note=bad.note,
        )


def _side(sessions: list[SessionFiles], folder: Path, bad: BadFiles) -> int:
    """The side of the first picture that can be read."""
    for path in (path for one in sessions for path in one.pictures):
        with BadFiles(bad.skip, quiet=True).guard():
            return len(read_image(path, None))
    raise FileError(f"no picture of {folder} can be read: copy or download them again")


def _training_files(sessions: SessionsByKey, folder: Path) -> list[SessionFiles]:
    """The training sessions, by object and then by session."""
    found = [one for one in sessions.values() if one.number not in TEST_SESSIONS]
    if not found:
        numbers = ", ".join(map(str, TEST_SESSIONS))
        raise FileError(f"{folder} holds test sessions only ({numbers}): add the others")
    return sorted(found, key=lambda one: (one.label, one.number))


def _test_files(sessions: SessionsByKey, test: TestFrames) -> list[SessionFiles]:
    """The test frames in the order of the official list; consecutive ones make up one session.

    The list is sorted by session, then by object as a text, then by frame.
    """
    keys = [key for key in sessions if key[0] in TEST_SESSIONS]
    keys.sort(key=lambda key: (key[0], str(key[1])))
    frames = [(key, path) for key in keys for path in sessions[key].pictures]
    if test != "full":
        frames = frames[::REDUCED_EVERY]
    return [
        replace(sessions[key], pictures=tuple(path for _, path in chosen), is_test=True)
        for key, chosen in groupby(frames, key=lambda frame: frame[0])
    ]


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


def official_batches(
    dataset: DataSet, protocol: str, run: int, orders: str | Path | None = None
) -> tuple[list[list[Session]], str] | None:
    """Find the official order of a run for a data set.

    Args:
        dataset: CORe50, a packed copy of it, or any data set whose class i is object i + 1.
        protocol: The name of the protocol in lower case, such as "nicv2-391".
        run: The number of the run.
        orders: The folder with the official files. By default, the folder of CORe50 and its parent
            are searched; other data sets have no default.

    Returns:
        The training sessions of each batch, and the file that the order comes from; None if no file
        holds it.

    Raises:
        FileError: If a file is damaged, or names sessions that the data set does not have.
    """
    if protocol not in BATCHES or not 0 <= run < RUNS:
        return None
    by_key = {(session.number, session.label + 1): session for session in dataset.train}
    for folder in _order_folders(dataset, orders):
        for parent in PARENTS:
            lists = folder / parent / FOLDERS[protocol]
            if lists.is_dir():
                order = _read_order(lists / f"run{run}", by_key)
                _check_order(order, protocol, lists / f"run{run}")
                return [[by_key[key] for key in batch] for batch in order], str(lists / f"run{run}")
    return None


def _order_folders(dataset: DataSet, orders: str | Path | None) -> list[Path]:
    if orders is not None:
        return [core50_folder(orders)]
    if dataset.origin is None:
        return []
    return list(dict.fromkeys([dataset.origin, dataset.origin.parent]))


def read_list(path: Path) -> list[tuple[int, int, int]]:
    """Read a file list, with lines such as "s11/o1/C_11_01_000.png 0".

    The object is taken from the name. The label is not used, because the official NC lists number
    the classes of each run in their order of appearance.

    Args:
        path: The file list.

    Returns:
        The numbers of session, object and frame of each line.

    Raises:
        FileError: If the file cannot be read, is empty, or has an invalid line.
    """
    frames = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        name, _, _ = line.strip().rpartition(" ")
        try:
            if line.strip():
                frames.append(parse_name(name))
        except ValueError as error:
            raise FileError(f"{path}, line {number}: {error}") from error
    if not frames:
        raise FileError(f"{path} names no frame: download the file lists again")
    return frames


def _read_order(folder: Path, sessions: Sessions) -> Order:
    if not folder.is_dir():
        there = ", ".join(sorted(p.name for p in folder.parent.glob("run*"))) or "none"
        raise FileError(
            f"{folder} is missing (there: {there}): "
            "download the file lists again, or choose one of those runs"
        )
    matches = ((_LIST.fullmatch(path.name), path) for path in folder.iterdir())
    found = {int(match[1]): path for match, path in matches if match}
    if sorted(found) != list(range(len(found))) or not found:
        missing = next((i for i in range(len(found)) if i not in found), 0)
        raise FileError(
            f"{folder} has no train_batch_{missing:02d}_filelist.txt: download the file lists again"
        )
    return [_whole(read_list(found[i]), sessions, found[i]) for i in range(len(found))]


def _whole(
    frames: Iterable[tuple[int, int, int]], sessions: Sessions, where: Path
) -> list[SessionKey]:
    """Return the sessions of a batch in the order of their first frames; all must be complete.

    A data set may lack frames of a session that could not be decoded, but a list may not.
    """
    numbers: dict[SessionKey, list[int]] = {}
    for session, thing, number in frames:
        numbers.setdefault((session, thing), []).append(number)
    for key, listed in numbers.items():
        name = f"s{key[0]}/o{key[1]}"
        if key not in sessions:
            raise FileError(
                f"{where} trains on {name}, which is not among the training sessions on disk"
            )
        if len(listed) < len(sessions[key]) or len(set(listed)) < len(listed):
            raise FileError(
                f"{where} lists {len(listed)} frames of {name}, some twice or too few: the data "
                f"set has {len(sessions[key])}. Download the lists again, or remove them"
            )
    return list(numbers)


def _check_order(order: Order, protocol: str, where: Path) -> None:
    """Check that an order has the number of batches of the protocol, and each session once."""
    if len(order) != BATCHES[protocol]:
        raise FileError(
            f"{where} has {len(order)} batches and {protocol} has {BATCHES[protocol]}: "
            "download it again"
        )
    counts = Counter(chain.from_iterable(order))
    (session, thing), times = counts.most_common(1)[0]
    if times > 1:
        raise FileError(f"{where} trains twice on s{session}/o{thing}: download it again")
