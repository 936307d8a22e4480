"""CORe50: 50 objects of 10 categories, each filmed in 11 sessions; 3, 7 and 10 are the test set.

data = CORe50("~/data/core50")
batches = stream(data, "nicv2-391", run=0)     # the official order if its files exist
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primavista.errors import FileError, InputError
from primavista.media.frames import Selection
from primavista.media.video import BadFiles
from primavista.progress import Progress
from primavista.streams.conventions import category_names, held_out, object_names
from primavista.streams.core50.layout import CORe50Files, core50_folder, open_files
from primavista.streams.core50.orders import read_list
from primavista.streams.dataset import (
    CORe50Facts,
    DataSet,
    Labels,
    Origin,
    SessionKey,
    SessionRows,
    TestFrames,
    consecutive_sessions,
)
from primavista.streams.rendered.scene import Scene, WrittenScene, read_scene, scene_name

OBJECTS_PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
TOTAL_FRAMES = 164_866
REDUCED_EVERY = 20  # the official 1-in-20 list: one frame per second
PUBLISHED_MULTIPLE = 100  # published accuracies are over a multiple of this number of frames

Sessions = Mapping[SessionKey, SessionRows]


class CORe50(DataSet):
    """CORe50 on disk. Frames are read on demand.

    Labels come from the names of the files; `labels.pkl` is not needed. If `primavista data render`
    wrote the pictures, the data set is the same as `rendered(scene)`: the categories, the test
    sessions and the name are those of the scene, and `test` is "full" by default.

    Args:
        path: The folder that holds `s1` .. `s11` (or `core50_128x128` with them), or
            `core50_imgs.npz` with `paths.pkl`.
        labels: "object" for 50 classes, "category" for 10.
        test: The test frames. "full" has 44,972. "reduced", the default, is the official 1-in-20
            list: every 20th frame of the full test set in the order of the official lists, 2,249.
            "published" is what the public results use: the reduced list padded to a multiple of
            100 by its own first frames, 2,300. Anything else is the path of a file list.
        size: The side of the frames in pixels. The default is the size on disk.
        skip_bad: True to decode every picture once now; damaged ones are left out and counted.
        progress: Called with (done, total) while `skip_bad` checks pictures.

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
        written = read_scene(folder)
        files = open_files(folder, size, bad, progress)
        if written and not skip_bad:
            _check_counts(files.sessions, written, folder)
        structure = _Structure.of_scene(written.scene) if written else _Structure()
        spans = _training_spans(files.sessions, structure, folder)
        spans += _test_spans(files.sessions, structure, test or ("full" if written else "reduced"))
        if written:  # the order of `rendered`
            spans.sort(key=lambda span: (span.key[1], span.key[0]))
        train, tested = consecutive_sessions(
            (structure.label(span.key, labels), span.key[0], len(span.rows), span.is_test)
            for span in spans
        )
        classes, categories = structure.classes(files.sessions, labels)
        rows = np.concatenate([span.rows for span in spans])
        super().__init__(
            name=scene_name(written.scene) if written else _name(files.sessions),
            frames=Selection(files.frames, rows),
            train=train,
            test=tested,
            classes=classes,
            categories=categories,
            origin=_origin(folder, spans, files, structure),
            core50=None if written else _facts(files.sessions, structure, labels, test),
            note=bad.note,
            skipped=bad.skipped,
        )


@dataclass(frozen=True)
class _Structure:
    """The number of objects per category, and the numbers of the test sessions."""

    per_category: int = OBJECTS_PER_CATEGORY
    test: tuple[int, ...] = TEST_SESSIONS

    @staticmethod
    def of_scene(scene: Scene) -> _Structure:
        return _Structure(scene.objects, held_out(scene.sessions))

    def label(self, key: SessionKey, labels: Labels) -> int:
        thing = key[1] - 1
        return thing if labels == "object" else thing // self.per_category

    def classes(
        self, sessions: Sessions, labels: Labels
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The names and categories of the classes, up to the last existing object."""
        objects = max(thing for _, thing in sessions)
        if labels == "category":
            names = category_names(-(-objects // self.per_category))
            return names, tuple(range(len(names)))
        names = object_names(objects, self.per_category)
        return names, tuple(i // self.per_category for i in range(objects))


@dataclass(frozen=True)
class _Span:
    """Consecutive frames of the data set: a training session, or test frames of one session."""

    key: SessionKey
    is_test: bool
    rows: NDArray[Any]


def _training_spans(sessions: Sessions, structure: _Structure, folder: Path) -> list[_Span]:
    """The training sessions, by object and then by session."""
    keys = [key for key in sessions if key[0] not in structure.test]
    if not keys:
        numbers = ", ".join(map(str, structure.test))
        raise FileError(f"{folder} holds test sessions only ({numbers}): add the others")
    keys.sort(key=lambda key: (key[1], key[0]))
    return [_Span(key, False, sessions[key].rows) for key in keys]


def _test_spans(sessions: Sessions, structure: _Structure, test: str | Path) -> list[_Span]:
    """The test frames; consecutive frames of one session form one span."""
    spans = []
    chosen = _test_frames(sessions, test, structure)
    for key, frames in groupby(chosen, key=lambda frame: frame[0]):
        positions = [position for _, position in frames]
        spans.append(_Span(key, True, sessions[key].rows[positions]))
    return spans


def _origin(folder: Path, spans: list[_Span], files: CORe50Files, structure: _Structure) -> Origin:
    objects = tuple(span.key[1] for span in spans if not span.is_test)
    whole = {key: rows for key, rows in files.whole.items() if key[0] not in structure.test}
    return Origin(folder, objects, whole)


def _facts(
    sessions: Sessions, structure: _Structure, labels: Labels, test: str | Path | None
) -> CORe50Facts:
    named: dict[str | Path | None, TestFrames] = {
        None: "reduced",
        "reduced": "reduced",
        "published": "published",
        "full": "full",
    }
    kind = named.get(test, "list")
    if kind == "list" and test is not None:  # possibly the official list of the reduced test set
        listed = _test_frames(sessions, test, structure)
        if listed == _test_frames(sessions, "reduced", structure):
            kind = "reduced"
    return CORe50Facts(labels, kind, _count(sessions) == TOTAL_FRAMES)


def _check_counts(sessions: Sessions, written: WrittenScene, folder: Path) -> None:
    for (session, thing), frames in sessions.items():
        if len(frames.rows) != written.scene.frames:
            raise FileError(
                f"{folder / written.location(thing, session)} holds {len(frames.rows)} of its "
                f"{written.scene.frames} pictures: delete it and finish it with the same command: "
                f"{written.command(folder)}"
            )


def _test_frames(
    sessions: Sessions, test: str | Path, structure: _Structure
) -> list[tuple[SessionKey, int]]:
    """The test frames, as (session, position in it), in the order of the official list.

    The list is sorted by session, then by object as a text, then by frame.
    """
    if test in ("full", "reduced", "published"):
        keys = [key for key in sessions if key[0] in structure.test]
        keys.sort(key=lambda key: (key[0], str(key[1])))
        full = [(key, i) for key in keys for i in range(len(sessions[key].rows))]
        return full if test == "full" else _reduced(full, padded=test == "published")
    path = Path(test).expanduser()
    if not path.is_file():
        raise InputError(
            f"test must be 'reduced', 'full', 'published' or the path of a file list; got '{test}'"
        )
    return [_find_frame(frame, sessions, path, structure) for frame in read_list(path)]


def _reduced(full: list[tuple[SessionKey, int]], *, padded: bool) -> list[tuple[SessionKey, int]]:
    """One frame in 20; `padded` repeats the first ones up to a multiple of 100."""
    chosen = full[::REDUCED_EVERY]
    if not padded or not chosen:
        return chosen
    missing = -len(chosen) % PUBLISHED_MULTIPLE
    return [chosen[i % len(chosen)] for i in range(len(chosen) + missing)]


def _find_frame(
    frame: tuple[int, int, int], sessions: Sessions, path: Path, structure: _Structure
) -> tuple[SessionKey, int]:
    session, thing, number = frame
    if session not in structure.test:
        raise FileError(
            f"{path} tests on s{session}, a training session; test sessions are "
            f"{', '.join(map(str, structure.test))}"
        )
    found = sessions.get((session, thing))
    numbers = np.empty(0) if found is None or found.numbers is None else found.numbers
    position = int(np.searchsorted(numbers, number))
    if position == len(numbers) or numbers[position] != number:
        raise FileError(
            f"{path} names frame {number} of s{session}/o{thing}, which is not on disk: "
            "complete the data set"
        )
    return (session, thing), position


def _name(sessions: Sessions) -> str:
    count = _count(sessions)
    if count == TOTAL_FRAMES:
        return "core50"
    return f"core50 ({count:,} of {TOTAL_FRAMES:,} frames)"


def _count(sessions: Sessions) -> int:
    return sum(len(frames.rows) for frames in sessions.values())
