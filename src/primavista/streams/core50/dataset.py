"""CORe50: 50 objects of 10 categories, each filmed in 11 sessions; 3, 7 and 10 are the test set.

data = CORe50("~/data/core50")
batches = stream(data, "nicv2-391", run=0)     # the official order if its files exist
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import cast, get_args

from primavista.errors import FileError, InputError
from primavista.media.images import read_image
from primavista.media.video import BadFiles
from primavista.progress import Progress
from primavista.streams.conventions import category_names, object_names
from primavista.streams.core50.layout import core50_folder, frame_numbers, picture_sessions
from primavista.streams.core50.orders import read_list
from primavista.streams.dataset import (
    CORe50Facts,
    DataSet,
    Labels,
    Origin,
    SessionKey,
    TestFrames,
)
from primavista.streams.session_files import SessionFiles, file_facts, readable_sessions

OBJECTS_PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
TOTAL_FRAMES = 164_866
REDUCED_EVERY = 20  # the official 1-in-20 list: one frame per second
PUBLISHED_MULTIPLE = 100  # published accuracies are over a multiple of this number of frames

Sessions = Mapping[SessionKey, SessionFiles]


class CORe50(DataSet):
    """CORe50 on disk. Frames are read on demand.

    Labels come from the names of the files.

    Args:
        path: The folder that holds `s1` .. `s11`, or `core50_128x128` with them.
        labels: "object" for 50 classes, "category" for 10.
        test: The test frames. "full" has 44,972. "reduced", the default, is the official 1-in-20
            list: every 20th frame of the full test set in the order of the official lists, 2,249.
            "published" is what the public results use: the reduced list padded to a multiple of
            100 by its own first frames, 2,300. Anything else is the path of a file list.
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
        labels: Labels = "object",
        test: str | Path | None = None,
        *,
        size: int | None = None,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> None:
        if labels not in ("object", "category"):
            raise InputError(f"labels must be 'object' or 'category'; got {labels!r}")
        folder, bad = core50_folder(path), BadFiles(skip_bad)
        whole = picture_sessions(folder)
        side = size or _side(whole, folder, bad)
        sessions = {_key(one): one for one in readable_sessions(whole, side, bad, progress)}
        files = _training_files(sessions, folder) + _test_files(sessions, test or "reduced")
        classes, categories = _classes(sessions, labels)
        labelled = [replace(one, label=_label(one.label, labels)) for one in files]
        super().__init__(
            **file_facts(labelled, side),
            name=_name(sessions),
            classes=classes,
            categories=categories,
            origin=Origin(
                folder,
                objects=tuple(one.label + 1 for one in files if not one.is_test),
                sessions={
                    _key(one): frame_numbers(one)
                    for one in whole
                    if one.number not in TEST_SESSIONS
                },
            ),
            core50=_facts(sessions, labels, test),
            note=bad.note,
            skipped=bad.skipped,
        )


def _label(thing: int, labels: Labels) -> int:
    return thing if labels == "object" else thing // OBJECTS_PER_CATEGORY


def _classes(sessions: Sessions, labels: Labels) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names and categories of the classes, up to the last existing object."""
    objects = max(thing for _, thing in sessions)
    if labels == "category":
        names = category_names(-(-objects // OBJECTS_PER_CATEGORY))
        return names, tuple(range(len(names)))
    names = object_names(objects, OBJECTS_PER_CATEGORY)
    return names, tuple(i // OBJECTS_PER_CATEGORY for i in range(objects))


def _key(one: SessionFiles) -> SessionKey:
    return one.number, one.label + 1


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


def _test_files(sessions: Sessions, test: str | Path) -> list[SessionFiles]:
    """The test frames; consecutive frames of one session make up one session."""
    chosen = groupby(_test_frames(sessions, test), key=lambda frame: frame[0])
    return [
        replace(sessions[key], pictures=tuple(path for _, path in frames), is_test=True)
        for key, frames in chosen
    ]


def _facts(sessions: Sessions, labels: Labels, test: str | Path | None) -> CORe50Facts:
    kind: TestFrames = "list"
    if test is None or test in get_args(TestFrames):
        kind = cast(TestFrames, test or "reduced")
    elif _test_frames(sessions, test) == _test_frames(sessions, "reduced"):
        kind = "reduced"
    return CORe50Facts(labels, kind, _count(sessions) == TOTAL_FRAMES)


def _test_frames(sessions: Sessions, test: str | Path) -> list[tuple[SessionKey, Path]]:
    """The test frames, as (session, picture), in the order of the official list.

    The list is sorted by session, then by object as a text, then by frame.
    """
    if test in ("full", "reduced", "published"):
        keys = [key for key in sessions if key[0] in TEST_SESSIONS]
        keys.sort(key=lambda key: (key[0], str(key[1])))
        full = [(key, path) for key in keys for path in sessions[key].pictures]
        return full if test == "full" else _reduced(full, padded=test == "published")
    path = Path(test).expanduser()
    if not path.is_file():
        raise InputError(
            f"test must be 'reduced', 'full', 'published' or the path of a file list; got '{test}'"
        )
    return _listed_frames(path, sessions)


def _reduced(full: list[tuple[SessionKey, Path]], *, padded: bool) -> list[tuple[SessionKey, Path]]:
    """One frame in 20; `padded` repeats the first ones up to a multiple of 100."""
    chosen = full[::REDUCED_EVERY]
    if not padded or not chosen:
        return chosen
    missing = -len(chosen) % PUBLISHED_MULTIPLE
    return [chosen[i % len(chosen)] for i in range(len(chosen) + missing)]


def _listed_frames(path: Path, sessions: Sessions) -> list[tuple[SessionKey, Path]]:
    """The test frames that a file list names."""
    pictures = {
        (*key, number): picture
        for key, one in sessions.items()
        for number, picture in zip(frame_numbers(one), one.pictures, strict=True)
    }
    found = []
    for session, thing, number in read_list(path):
        if session not in TEST_SESSIONS:
            raise FileError(
                f"{path} tests on s{session}, a training session; test sessions are "
                f"{', '.join(map(str, TEST_SESSIONS))}"
            )
        if (session, thing, number) not in pictures:
            raise FileError(
                f"{path} names frame {number} of s{session}/o{thing}, which is not on disk: "
                "complete the data set"
            )
        found.append(((session, thing), pictures[session, thing, number]))
    return found


def _name(sessions: Sessions) -> str:
    count = _count(sessions)
    if count == TOTAL_FRAMES:
        return "core50"
    return f"core50 ({count:,} of {TOTAL_FRAMES:,} frames)"


def _count(sessions: Sessions) -> int:
    return sum(one.count for one in sessions.values())
