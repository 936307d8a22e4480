"""The official orders of CORe50, read from the authors' file lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from primavista.errors import FileError
from primavista.streams.core50.layout import core50_folder, parse_name
from primavista.streams.dataset import DataSet, Session, SessionKey
from primavista.streams.listed import read_text

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
