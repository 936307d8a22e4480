"""Your own data: `<class>/<session>/<frame>.png` pictures and `<class>/<session>.mp4` videos.

Pictures and videos can be mixed. `folder` opens them as a data set, `lessons_of_objects` finds the
lessons of a learner in them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Literal

from primavista.errors import FileError, InputError
from primavista.media.video import (
    IMAGES,
    VIDEOS,
    BadFiles,
    Lesson,
    clips_of_object,
    left_out,
    media_in,
    natural,
    subfolders,
    tell_left_out,
)
from primavista.progress import Progress
from primavista.storage.disk import user_cache
from primavista.streams.conventions import held_out
from primavista.streams.dataset import DataSet
from primavista.streams.session_files import (
    SessionFiles,
    VideoCache,
    file_facts,
    readable_pictures,
)

MAX_FRAMES = 600  # per video
SHOWN_SESSIONS = 12  # in the note of a data set
LAYOUT = "Expected are <class>/<session>/<frame>.png pictures or <class>/<session>.mp4 videos"
log = logging.getLogger("primavista")

# The sessions of each class: (name, path).
FoundSessions = dict[str, list[tuple[str, Path]]]


def folder(
    path: str | Path,
    *,
    test: Literal["quarter", "none"] | Sequence[str] = "quarter",
    split: int = 0,
    size: int = 128,
    max_frames: int | None = None,
    fps: float | None = None,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> DataSet:
    """Open a folder of your own: one folder per class, with one folder or video per session.

    Names are sorted naturally (s2 before s10). Each class is a category of its own. Pictures are
    decoded each time they are asked for: `pack` a data set that is used more than once. Videos are
    decoded now, and again only if they change.

    Args:
        path: The folder.
        test: The test sessions. "quarter" takes every fourth session of each class from its third:
            1 of 3 to 6, 2 of 7 to 10, CORe50's 3, 7 and 10 of 11, the second of two. "none" takes
            none, and a list of session names takes those of every class.
        split: With "quarter", 0 takes those; any other number draws as many sessions of each class
            at random, the same ones for the same number.
        size: The side of the frames in pixels.
        max_frames: The number of frames kept per video, evenly spread; 600 by default.
        fps: The number of frames per second to read from each video. By default all are read.
        skip_bad: Decode every picture once now; leave out and count those that are damaged.
        cache: The folder for decoded videos. The default is ~/.cache/primavista/videos.
        progress: Called with (done, total), in sessions.

    Returns:
        The data set. Its `note` says which sessions are the test set and what was left out.

    Raises:
        InputError: If `test` names sessions that do not exist.
        FileError: If the folder is not laid out like this, if a file is damaged, or if the cache
            cannot be written.
    """
    root, bad = Path(path).expanduser(), BadFiles(skip_bad)
    found = _find_sessions(root, bad)
    videos = VideoCache(
        folder=Path(cache).expanduser() if cache else user_cache("videos"),
        size=size,
        max_frames=MAX_FRAMES if max_frames is None else max_frames,
        fps=fps,
        bad=bad,
    )
    read = _read_sessions(found, videos, progress)
    flags = _test_flags(read, test, found, split)
    read = [replace(one, is_test=flag) for one, flag in zip(read, flags, strict=True)]
    classes = tuple(found)
    if not read:
        raise FileError(f"{root} holds no session that can be read. {LAYOUT}. {bad.note}")
    note = _describe(read, classes, bad)
    told = left_out(root, _files_of(found))
    if told:
        note += f"; left out: {told}"
    log.info("%s: %s", root, note)
    return DataSet(
        **file_facts(read, size),
        name=root.resolve().name,
        classes=classes,
        categories=tuple(range(len(classes))),
        note=note,
    )


def _files_of(found: FoundSessions) -> Iterator[Path]:
    """The files of all sessions, damaged ones too."""
    for sessions in found.values():
        for _, path in sessions:
            yield from media_in(path, IMAGES) if path.is_dir() else [path]


def _read_sessions(
    found: FoundSessions, videos: VideoCache, progress: Progress | None
) -> list[SessionFiles]:
    """The sessions that can be read, class by class."""
    read: list[SessionFiles] = []
    total, done = sum(map(len, found.values())), 0
    for label, sessions in enumerate(found.values()):
        for number, (session_name, path) in enumerate(sessions, 1):
            one = SessionFiles(label, number, name=session_name)
            with videos.bad.guard():
                if path.is_dir():
                    read.append(replace(one, pictures=_pictures(path, videos)))
                else:
                    read.append(replace(one, video=videos.decoded(path)))
            done += 1
            if progress:
                progress(done, total)
    return read


def _pictures(path: Path, videos: VideoCache) -> tuple[Path, ...]:
    files = readable_pictures(media_in(path, IMAGES), videos.size, videos.bad)
    if not files:
        raise FileError(f"the session {path} has no pictures that can be read. {LAYOUT}")
    return files


def _test_flags(
    read: list[SessionFiles], test: str | Sequence[str], found: FoundSessions, split: int
) -> list[bool]:
    """One truth value per session: whether it is for testing."""
    if split and test != "quarter":
        raise InputError(
            f"split {split} draws the test sessions: leave out test={test!r}, or split"
        )
    if test == "none":
        return [False] * len(read)
    if test == "quarter":
        counts = [(name, len(sessions)) for name, sessions in found.items()]
        numbers = [_test_numbers(name, count, split) for name, count in counts]
        return [item.number in numbers[item.label] for item in read]
    if isinstance(test, str):
        raise InputError(
            f'test is "quarter", "none" or a list of session names; got {test!r}. '
            f'Right: test=["{test}"]'
        )
    names = {item.name for item in read}
    missing = [name for name in test if name not in names]
    if missing:
        some = sorted(names, key=natural)[:20]
        raise InputError(f"there are no sessions {', '.join(missing)}; there are {', '.join(some)}")
    chosen = set(test)
    return [item.name in chosen for item in read]


def _test_numbers(name: str, count: int, split: int) -> tuple[int, ...]:
    """The numbers of the test sessions of a class: the fixed ones, or as many drawn at random."""
    fixed = held_out(count)
    if not split:
        return fixed
    return tuple(Random(f"{split}/{name}").sample(range(1, count + 1), len(fixed)))


def _describe(read: list[SessionFiles], classes: Sequence[str], bad: BadFiles) -> str:
    """The note of a data set: its test sessions, what was skipped, and what was thinned."""
    names = [f"{classes[item.label]}/{item.name}" for item in read]
    chosen = [name for name, item in zip(names, read, strict=True) if item.is_test]
    few = ", ".join(chosen[:SHOWN_SESSIONS]) or "none"
    if len(chosen) > SHOWN_SESSIONS:
        few += f" and {len(chosen) - SHOWN_SESSIONS} more"
    notes = [f"{len(chosen)} of {len(read)} sessions are the test set: {few}"]
    if bad.problems:
        notes.append(bad.note)
    videos = [(name, item.video) for name, item in zip(names, read, strict=True) if item.video]
    thinned = [f"{name} {video.thinned}" for name, video in videos if video.thinned]
    if thinned:
        more = f", and {len(thinned) - 1} more videos likewise" if len(thinned) > 1 else ""
        notes.append(f"{thinned[0]}{more} (--max-frames)")
    return "; ".join(notes)


def _find_sessions(root: Path, bad: BadFiles) -> FoundSessions:
    """The sessions of each class by name: folders of pictures, and videos."""
    found: FoundSessions = {}
    for path in subfolders(root):
        with bad.guard():
            inside = [*subfolders(path), *media_in(path, VIDEOS)]
            if not inside:
                put = ": put the pictures in a folder per video" if media_in(path, IMAGES) else ""
                raise FileError(f"the class {path} has no sessions{put}. {LAYOUT}")
            inside.sort(key=lambda item: natural(item.name))
            found[path.name] = [(_session_name(item), item) for item in inside]
    if not found and not bad.problems:
        raise FileError(f"{root} holds no classes. {LAYOUT}")
    by_object = sessions_by_object(found)
    return {name: by_object[name] for name in sorted(by_object, key=natural)}


def sessions_by_object(found: FoundSessions) -> FoundSessions:
    """Group sessions by object: CORe50's layout s1/o1 becomes o1/s1.

    Args:
        found: The inner folders of each outer folder, as (name, path).

    Returns:
        The sessions of each object if all names are like s1/o1; otherwise `found` itself.
    """
    inner = [name for sessions in found.values() for name, _ in sessions]
    is_sessions = all(re.fullmatch(r"s\d+", name) for name in found)
    if not is_sessions or not all(re.fullmatch(r"o\d+", name) for name in inner):
        return found
    by_object: FoundSessions = {}
    for session in sorted(found, key=natural):
        for name, path in found[session]:
            by_object.setdefault(name, []).append((session, path))
    return by_object


def _session_name(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


def lessons_of_objects(root: Path) -> list[Lesson]:
    """Return the lessons of a folder with one folder per object, or in CORe50's layout, s1/o1.

    What is left out of the folder is logged.

    Args:
        root: The folder.

    Raises:
        InputError: If there are no folders in it.
        FileError: If one of them cannot be read, or holds neither images nor videos.
    """
    folders = subfolders(root)
    if not folders:
        raise InputError(
            f"{root} holds no folders named after objects: say what it shows with --label mug"
        )
    clips: dict[Path, tuple[Path, ...]] = {}
    sessions: FoundSessions = {}
    for inside in folders:
        own = clips_of_object(inside)
        clips |= own
        sessions[inside.name] = [(path.stem, path) for path in own]
    tell_left_out(root, chain.from_iterable(clips.values()))
    return [
        Lesson(label, clips[path], str(path))
        for label, own in sessions_by_object(sessions).items()
        for _, path in own
    ]
