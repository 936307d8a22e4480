"""CORe50: 50 objects of 10 categories, each filmed in 11 sessions; 3, 7 and 10 are the test set.

data = CORe50("~/data/core50")
batches = stream(data, "nicv2-391", run=0)     # the official order if its files exist
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import get_args

from primavista.errors import FileError, InputError
from primavista.media.images import read_image
from primavista.media.video import BadFiles
from primavista.progress import Progress
from primavista.streams.conventions import object_names
from primavista.streams.core50.layout import core50_folder, picture_sessions
from primavista.streams.dataset import (
    CORe50Facts,
    DataSet,
    SessionKey,
    TestFrames,
)
from primavista.streams.session_files import SessionFiles, file_facts, readable_sessions

OBJECTS_PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
TOTAL_FRAMES = 164_866
REDUCED_EVERY = 20  # the official 1-in-20 list: one frame per second

Sessions = Mapping[SessionKey, SessionFiles]


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


def _training_files(sessions: Sessions, folder: Path) -> list[SessionFiles]:
    """The training sessions, by object and then by session."""
    found = [one for one in sessions.values() if one.number not in TEST_SESSIONS]
    if not found:
        numbers = ", ".join(map(str, TEST_SESSIONS))
        raise FileError(f"{folder} holds test sessions only ({numbers}): add the others")
    return sorted(found, key=lambda one: (one.label, one.number))


def _test_files(sessions: Sessions, test: TestFrames) -> list[SessionFiles]:
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
