"""CORe50: 50 objects of 10 categories, each filmed in 11 sessions; sessions 3, 7 and 10 are the test set.

data = CORe50("~/data/core50")
stream = core50_stream(data, "nicv2-391", run=0)     # the official order where its files are there, else a drawn one
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from primavista.errors import FileError, InputError
from primavista.frames import Selection
from primavista.streams.base import DataSet, Session, Stream
from primavista.streams.core50.fetch import download
from primavista.streams.core50.orders import Clips, official_order, read_list
from primavista.streams.core50.sources import Clip, Key, open_source
from primavista.streams.protocols import protocol

__all__ = ["CATEGORIES", "CORe50", "CORe50Data", "core50_stream", "download"]

CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can",
    "glasses", "ball", "marker", "cup", "remote control",
)  # fmt: skip
PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
FRAMES = 164_866
EVERY = 20  # the 1-in-20 list: one frame a second
PADDED = 100  # the published accuracies are over a multiple of it


@dataclass(frozen=True, eq=False)
class CORe50Data(DataSet):
    """A data set that knows where it lies and which object each training session shows."""

    folder: Path
    clips: Clips
    sessions: dict[Key, Session]


def CORe50(  # noqa: N802
    path: str | Path,
    labels: Literal["object", "category"] = "object",
    test: str | Path = "reduced",
    *,
    size: int | None = None,
) -> CORe50Data:
    """CORe50 as it lies on disk; frames are read when they are asked for.

    `path` is the folder that holds `s1` .. `s11` (or `core50_128x128` with them), or `core50_imgs.npz` with `paths.pkl`.
    `labels`: 50 objects, or 10 categories. `test` is "full" (44,972 frames), "reduced" (the official 1-in-20 list: 2,249,
    every 20th frame of the full test set in the order of the official lists), "published" (as the public results: the reduced
    list padded to a multiple of 100 by its own first frames, 2,300), or the path of a file list. `size` resizes the frames.
    """
    if labels not in ("object", "category"):
        raise InputError(f"labels must be 'object' or 'category'; got {labels!r}")
    folder = _folder(path)
    source = open_source(folder, size)
    train = sorted((k for k in source.clips if k[0] not in TEST_SESSIONS), key=lambda k: (k[1], k[0]))
    if not train:
        raise FileError(f"{folder} holds test sessions only (3, 7 and 10): add the others")
    held = _test_frames(source.clips, test)
    rows = [source.clips[key].rows for key in train] + [source.clips[key].rows[[i]] for key, i in held]
    named = _name(source.clips)
    sessions: dict[Key, Session] = {}
    start = 0
    for key in train:
        stop = start + len(source.clips[key].rows)
        sessions[key] = Session(_label(key, labels), key[0], start, stop)
        start = stop
    tested = []
    for key, group in groupby(held, key=lambda item: item[0]):
        stop = start + len(list(group))
        tested.append(Session(_label(key, labels), key[0], start, stop))
        start = stop
    classes, categories = _classes(source.clips, labels)
    frames = Selection(source.frames, torch.from_numpy(np.concatenate(rows)))
    clips = {key: source.clips[key] for key in train}
    return CORe50Data(named, frames, tuple(sessions.values()), tuple(tested), classes, categories, folder, clips, sessions)


def core50_stream(data: DataSet, name: str, run: int = 0, *, orders: str | Path | None = None) -> Stream:
    """A run of a protocol over CORe50: the official order where the folder holds it, else one of our generator.

    Official are "ni", "nc", "nic", "nicv2-79", "nicv2-196" and "nicv2-391" in runs 0 to 9, from the file lists, from LUP.pkl
    with paths.pkl, or from nicv2_official_orders.json. `stream.source` says which it was. With category labels the order is
    that of the objects. `orders` is another folder with those files; it serves any data set whose class i is object i + 1,
    such as a packed copy. Data sets that are not CORe50's and have no `orders` get the generator.
    """
    key = name.lower().replace("_", "-")
    if isinstance(data, CORe50Data):
        sessions, clips, folders = data.sessions, data.clips, [data.folder, data.folder.parent]
    else:
        sessions = {(session.number, session.label + 1): session for session in data.train}
        clips, folders = {k: Clip(None, np.arange(len(s))) for k, s in sessions.items()}, []
    for folder in dict.fromkeys(folders if orders is None else [_folder(orders)]):
        if found := official_order(folder, key, run, clips):
            order, where = found
            return Stream(data, [[sessions[key] for key in batch] for batch in order], key, run, where)
    if not isinstance(data, CORe50Data):
        return protocol(name, data, run)
    drawn = protocol(name, _by_object(data), run)
    back = {session.start: session for session in data.train}
    return Stream(data, [[back[session.start] for session in batch] for batch in drawn.batches], drawn.name, run)


def _by_object(data: CORe50Data) -> DataSet:
    train = tuple(Session(thing - 1, number, s.start, s.stop) for (number, thing), s in data.sessions.items())
    classes, categories = _classes(data.clips, "object")
    return DataSet(data.name, data.frames, train, (), classes, categories)


def _folder(path: str | Path) -> Path:
    folder = Path(path).expanduser()
    if folder.is_file() and folder.suffix in (".npz", ".npy"):
        folder = folder.parent
    if not folder.is_dir():
        raise FileError(f"there is no folder {folder}. To download CORe50 into it: primavista data core50 {folder}")
    return folder.resolve()


def _test_frames(clips: Clips, test: str | Path) -> list[tuple[Key, int]]:
    """The test frames in the order of the official list: session, then object as a text, then frame."""
    keys = sorted((key for key in clips if key[0] in TEST_SESSIONS), key=lambda key: (key[0], str(key[1])))
    full = [(key, i) for key in keys for i in range(len(clips[key].rows))]
    if test == "full":
        return full
    if test in ("reduced", "published"):
        chosen = full[::EVERY]
        missing = -len(chosen) % PADDED if test == "published" and chosen else 0
        return [chosen[i % len(chosen)] for i in range(len(chosen) + missing)]
    path = Path(test).expanduser()
    if not path.is_file():
        raise InputError(f"test must be 'reduced', 'full', 'published' or the path of a file list; got '{test}'")
    return [_find(frame, clips, path) for frame in read_list(path)]


def _find(frame: tuple[int, int, int], clips: Clips, path: Path) -> tuple[Key, int]:
    session, thing, number = frame
    if session not in TEST_SESSIONS:
        raise FileError(f"{path} tests on s{session}, a training session; test sessions are 3, 7 and 10")
    clip = clips.get((session, thing))
    numbers = np.empty(0) if clip is None or clip.numbers is None else clip.numbers
    place = int(np.searchsorted(numbers, number))
    if place == len(numbers) or numbers[place] != number:
        raise FileError(f"{path} names frame {number} of s{session}/o{thing}, which is not on disk: complete the data set")
    return (session, thing), place


def _label(key: Key, labels: str) -> int:
    return key[1] - 1 if labels == "object" else (key[1] - 1) // PER_CATEGORY


def _classes(clips: Clips, labels: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and categories of the classes, up to the last object that there is."""
    objects = max(thing for _, thing in clips)
    names = [CATEGORIES[i] if i < len(CATEGORIES) else f"category {i + 1}" for i in range(-(-objects // PER_CATEGORY))]
    if labels == "category":
        return tuple(names), tuple(range(len(names)))
    of = [i // PER_CATEGORY for i in range(objects)]
    return tuple(f"{names[c]} {i % PER_CATEGORY + 1}" for i, c in enumerate(of)), tuple(of)


def _name(clips: Clips) -> str:
    count = sum(len(clip.rows) for clip in clips.values())
    return "core50" if count == FRAMES else f"core50 ({count:,} of {FRAMES:,} frames)"
