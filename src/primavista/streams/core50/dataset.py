"""CORe50: 50 objects of 10 categories, each filmed in 11 sessions; sessions 3, 7 and 10 are the test set.

data = CORe50("~/data/core50")
stream = core50_stream(data, "nicv2-391", run=0)     # the official order where its files are there, else a drawn one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from primavista.errors import FileError, InputError
from primavista.frames import Selection
from primavista.streams.core50.fetch import download
from primavista.streams.core50.orders import Clips, official_order, read_list
from primavista.streams.core50.sources import Clip, Key, is_core50, open_source
from primavista.streams.dataset import DataSet, Origin, Session, Stream
from primavista.streams.names import CATEGORIES, category_names, object_names
from primavista.streams.protocols import protocol
from primavista.streams.rendered.renderer import Scene
from primavista.streams.rendered.written import Written, read_scene, scene_name
from primavista.streams.split import held_out
from primavista.streams.video import Bad

__all__ = ["CATEGORIES", "CORe50", "CORe50Data", "core50_stream", "download", "is_core50"]

PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
FRAMES = 164_866
EVERY = 20  # the 1-in-20 list: one frame a second
Rows = np.ndarray[Any, Any]
PADDED = 100  # the published accuracies are over a multiple of it


@dataclass(frozen=True, eq=False)
class CORe50Data(DataSet):
    """A data set that knows where it lies and which object each training session shows.

    `clips` are the training sessions with all their frames; `skipped` counts those that could not be decoded, `note` says so.
    """

    folder: Path
    clips: Clips
    sessions: dict[Key, Session]
    note: str = ""
    skipped: int = 0


def CORe50(  # noqa: N802
    path: str | Path,
    labels: Literal["object", "category"] = "object",
    test: str | Path | None = None,
    *,
    size: int | None = None,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CORe50Data:
    """CORe50 as it lies on disk; frames are read when they are asked for.

    `path` is the folder that holds `s1` .. `s11` (or `core50_128x128` with them), or `core50_imgs.npz` with `paths.pkl`. Labels
    come from the names: `labels.pkl` is not needed.
    `labels`: 50 objects, or 10 categories. `test` is "full" (44,972 frames), "reduced" (the default: the official 1-in-20 list,
    2,249, every 20th frame of the full test set in the order of the official lists), "published" (as the public results: the
    reduced list padded to a multiple of 100 by its own first frames, 2,300), or the path of a file list. `size` resizes the
    frames. With `skip_bad`, every picture is decoded once now, and those that cannot be are left out and counted;
    `progress(done, total)` counts them.

    Of pictures that `primavista data render` wrote, the categories, the test sessions and the name are those of the scene, and
    the test set is the full one unless `test` says otherwise: the same data set as `rendered(scene)`.
    """
    if labels not in ("object", "category"):
        raise InputError(f"labels must be 'object' or 'category'; got {labels!r}")
    folder, bad = _folder(path), Bad(skip_bad)
    written = read_scene(folder)
    shape = _Shape.of(written.scene) if written else _Shape()
    source = open_source(folder, size, bad, progress)
    if written and not skip_bad:
        _check_counts(source.clips, written, folder)
    train = sorted((k for k in source.clips if k[0] not in shape.test), key=lambda k: (k[1], k[0]))
    if not train:
        raise FileError(
            f"{folder} holds test sessions only ({', '.join(map(str, shape.test))}): add the others"
        )
    held = _test_frames(source.clips, test or ("full" if written else "reduced"), shape)
    spans: list[tuple[Key, bool, Rows]] = [(key, False, source.clips[key].rows) for key in train]
    for key, group in groupby(held, key=lambda item: item[0]):
        spans.append((key, True, source.clips[key].rows[[i for _, i in group]]))
    if written:
        spans.sort(key=lambda span: (span[0][1], span[0][0]))  # as in `rendered`
    sessions: dict[Key, Session] = {}
    tested, start = [], 0
    for key, testing, rows in spans:
        session = Session(shape.label(key, labels), key[0], start, start + len(rows))
        start = session.stop
        if testing:
            tested.append(session)
        else:
            sessions[key] = session
    classes, categories = shape.classes(source.clips, labels)
    return CORe50Data(
        name=scene_name(written.scene) if written else _name(source.clips),
        frames=Selection(
            source.frames, torch.from_numpy(np.concatenate([rows for _, _, rows in spans]))
        ),
        train=tuple(sessions.values()),
        test=tuple(tested),
        classes=classes,
        categories=categories,
        folder=folder,
        clips={key: clip for key, clip in source.whole.items() if key[0] not in shape.test},
        sessions=sessions,
        note=f"skipped {bad.skipped} that could not be decoded, the first: {bad.problems[0]}"
        if bad.skipped
        else "",
        skipped=bad.skipped,
        origin=Origin(folder, tuple(thing for _, thing in sessions)),
    )


def core50_stream(
    data: DataSet, name: str, run: int = 0, *, orders: str | Path | None = None
) -> Stream:
    """A run of a protocol over CORe50: the official order where its folder holds it, else one of our generator.

    Official are "ni", "nc", "nic", "nicv2-79", "nicv2-196" and "nicv2-391" in runs 0 to 9, from the file lists, from LUP.pkl
    with paths.pkl, or from nicv2_official_orders.json. `stream.source` says which it was. With category labels the order is
    that of the objects. A packed copy looks in the folder that it was packed from. `orders` is another folder with those files;
    it serves any data set whose class i is object i + 1. Data sets that are not CORe50's get the generator without `orders`.
    """
    key = name.lower().replace("_", "-")
    things = (
        data.origin.objects if data.origin else tuple(session.label + 1 for session in data.train)
    )
    sessions = {
        (session.number, thing): session for session, thing in zip(data.train, things, strict=True)
    }
    home = data.origin.folder if data.origin else None
    if isinstance(data, CORe50Data):
        clips, home = data.clips, data.folder
    else:
        own = data.origin is not None and orders is None
        clips = {
            key: Clip(None, np.arange(0 if own else len(session)))
            for key, session in sessions.items()
        }
    folders = [home, home.parent] if home else []
    for folder in dict.fromkeys(folders if orders is None else [_folder(orders)]):
        if found := official_order(folder, key, run, clips):
            order, where = found
            return Stream(
                data,
                [[sessions[key] for key in batch if key in sessions] for batch in order],
                key,
                run,
                where,
            )
    if all(session.label == thing - 1 for session, thing in zip(data.train, things, strict=True)):
        return protocol(name, data, run)
    drawn = protocol(name, _by_object(data, things), run)
    back = {session.start: session for session in data.train}
    return Stream(
        data,
        [[back[session.start] for session in batch] for batch in drawn.batches],
        drawn.name,
        run,
    )


def _by_object(data: DataSet, things: Sequence[int]) -> DataSet:
    """Of a data set whose labels are categories: the same sessions labelled by object."""
    of = {thing - 1: session.label for thing, session in zip(things, data.train, strict=True)}
    train = tuple(
        replace(session, label=thing - 1) for thing, session in zip(things, data.train, strict=True)
    )
    objects = range(max(things))
    return DataSet(
        data.name,
        data.frames,
        train,
        (),
        tuple(f"o{i + 1}" for i in objects),
        tuple(of.get(i, 0) for i in objects),
    )


@dataclass(frozen=True)
class _Shape:
    """How many objects a category has, and which sessions are the test set."""

    each: int = PER_CATEGORY
    test: tuple[int, ...] = TEST_SESSIONS

    @staticmethod
    def of(scene: Scene) -> _Shape:
        return _Shape(scene.objects, held_out(scene.sessions))

    def label(self, key: Key, labels: str) -> int:
        return key[1] - 1 if labels == "object" else (key[1] - 1) // self.each

    def classes(self, clips: Clips, labels: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Names and categories of the classes, up to the last object that there is."""
        objects = max(thing for _, thing in clips)
        if labels == "category":
            names = category_names(-(-objects // self.each))
            return names, tuple(range(len(names)))
        return object_names(objects, self.each), tuple(i // self.each for i in range(objects))


def _check_counts(clips: Clips, written: Written, folder: Path) -> None:
    for (session, thing), clip in clips.items():
        if len(clip.rows) != written.scene.frames:
            raise FileError(
                f"{folder / written.place(thing, session)} holds {len(clip.rows)} of its {written.scene.frames} pictures: "
                f"delete it and finish it with the same command: {written.command(folder)}"
            )


def _folder(path: str | Path) -> Path:
    folder = Path(path).expanduser()
    if folder.is_file() and folder.suffix in (".npz", ".npy"):
        folder = folder.parent
    if not folder.is_dir():
        raise FileError(
            f"there is no folder {folder}. To download CORe50 into it: primavista data core50 {folder}"
        )
    return folder.resolve()


def _test_frames(clips: Clips, test: str | Path, shape: _Shape) -> list[tuple[Key, int]]:
    """The test frames in the order of the official list: session, then object as a text, then frame."""
    keys = sorted(
        (key for key in clips if key[0] in shape.test), key=lambda key: (key[0], str(key[1]))
    )
    full = [(key, i) for key in keys for i in range(len(clips[key].rows))]
    if test == "full":
        return full
    if test in ("reduced", "published"):
        chosen = full[::EVERY]
        missing = -len(chosen) % PADDED if test == "published" and chosen else 0
        return [chosen[i % len(chosen)] for i in range(len(chosen) + missing)]
    path = Path(test).expanduser()
    if not path.is_file():
        raise InputError(
            f"test must be 'reduced', 'full', 'published' or the path of a file list; got '{test}'"
        )
    return [_find(frame, clips, path, shape) for frame in read_list(path)]


def _find(frame: tuple[int, int, int], clips: Clips, path: Path, shape: _Shape) -> tuple[Key, int]:
    session, thing, number = frame
    if session not in shape.test:
        raise FileError(
            f"{path} tests on s{session}, a training session; test sessions are {', '.join(map(str, shape.test))}"
        )
    clip = clips.get((session, thing))
    numbers = np.empty(0) if clip is None or clip.numbers is None else clip.numbers
    place = int(np.searchsorted(numbers, number))
    if place == len(numbers) or numbers[place] != number:
        raise FileError(
            f"{path} names frame {number} of s{session}/o{thing}, which is not on disk: complete the data set"
        )
    return (session, thing), place


def _name(clips: Clips) -> str:
    count = sum(len(clip.rows) for clip in clips.values())
    return "core50" if count == FRAMES else f"core50 ({count:,} of {FRAMES:,} frames)"
