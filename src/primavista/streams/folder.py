"""Anybody's own data: `<class>/<session>/<frame>.png` pictures and `<class>/<session>.mp4` videos, mixed as they come."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from primavista.errors import FileError, InputError
from primavista.streams.dataset import DataSet, Session
from primavista.streams.decode import read_image
from primavista.streams.rendered.written import WrittenScene, read_scene, scene_classes, scene_name
from primavista.streams.split import held_out
from primavista.streams.video import IMAGES, VIDEOS, BadFiles, Clip, media_in, natural, open_frames

MAX_FRAMES = 600  # of a video
VERSION = 2  # of what is kept of a decoded video
log = logging.getLogger("primavista")


@dataclass(frozen=True)
class Segment:
    """The frames of one session: picture files, or an array file that a video was decoded into."""

    name: str
    count: int
    pictures: tuple[Path, ...] = ()
    array: Path | None = None
    thinned: str = ""


class FolderFrames:
    """`Frames` of several segments, one after the other: pictures are decoded when asked for, arrays memory-mapped."""

    def __init__(self, segments: Sequence[Segment], size: int) -> None:
        self.segments, self.size = tuple(segments), size
        self.starts = np.array([0, *accumulate(s.count for s in self.segments)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, indices: Tensor) -> Tensor:
        asked = torch.arange(len(self))[indices.cpu()].numpy()
        where = np.searchsorted(self.starts, asked, "right") - 1
        pictures = np.empty((len(asked), self.size, self.size, 3), np.uint8)
        for i in np.unique(where).tolist():
            here = np.flatnonzero(where == i)
            pictures[here] = self._read(self.segments[i], asked[here] - self.starts[i])
        return torch.from_numpy(pictures)

    def _read(self, segment: Segment, places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if segment.array is None:
            return np.stack([read_image(segment.pictures[i], self.size) for i in places.tolist()])
        return np.asarray(_array(segment.array)[places])


def folder(
    path: str | Path,
    *,
    test: Literal["quarter", "none"] | Sequence[str] = "quarter",
    size: int = 128,
    max_frames: int | None = None,
    fps: float | None = None,
    skip_bad: bool = False,
    cache: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DataSet:
    """The data set of a folder: a folder a class, in it a folder of pictures or a video a session, in natural order.

    Of videos that `primavista data render` wrote, a folder a session (`s1/o1.mp4`), the names, categories and test sessions are
    those of the scene: the same data set as `rendered(scene)`.
    `test="quarter"` takes every fourth session of each class from its third (of two, the second; of 11, CORe50's 3, 7, 10) for
    testing; a list of session names takes those of every class; "none" takes none. Each class is a category of its own.
    Pictures are decoded whenever they are asked for: `pack` a data set that is used more than once. Videos are decoded now, at
    most `max_frames` (600; of a scene all) of each, into `cache` (default ~/.cache/primavista/videos), once until they change.
    With `skip_bad`, every picture is decoded once now, and those that cannot be are left out and counted. `progress(done,
    total)` counts sessions.
    """
    root, bad = Path(path).expanduser(), BadFiles(skip_bad)
    written = read_scene(root)
    found = _find(root, bad)
    limit = (
        max(MAX_FRAMES, written.scene.frames if written else 0)
        if max_frames is None
        else max_frames
    )
    reader = _Reader(size, limit, fps, bad, Path(cache).expanduser() if cache else _default_cache())
    keys, segments, rows = sorted(found, key=natural), [], []
    total, done, start = sum(map(len, found.values())), 0, 0
    for label, name in enumerate(keys):
        for number, (session, place) in enumerate(found[name], 1):
            segment = reader.session(session, place)
            done += 1
            if progress:
                progress(done, total)
            if segment is not None:
                segments.append(segment)
                rows.append(Session(label, number, start, start + segment.count))
                start += segment.count
    held = _held_out(rows, segments, test, [len(found[name]) for name in keys])
    classes = keys if written is None else _scene_names(root, written, keys)
    if written and fps is None and not skip_bad:
        _check_counts(root, written, rows, segments)
    thinned = [
        f"{classes[r.label]}/{s.name} {s.thinned}"
        for r, s in zip(rows, segments, strict=True)
        if s.thinned
    ]
    data = _data_set(root, classes, rows, held, FolderFrames(segments, size), bad, segments)
    if thinned:
        more = f", and {len(thinned) - 1} more videos likewise" if len(thinned) > 1 else ""
        data = replace(data, note=f"{data.note}; {thinned[0]}{more} (--max-frames)")
    log.info("%s: %s", root, data.note)
    if written is None:
        return data
    return replace(data, name=scene_name(written.scene), categories=scene_classes(written.scene)[1])


def _scene_names(root: Path, written: WrittenScene, keys: list[str]) -> list[str]:
    """The names of a scene's objects, if the folder holds those and nothing else."""
    names = list(scene_classes(written.scene)[0])
    if keys != [f"o{i + 1}" for i in range(len(names))]:
        raise FileError(
            f"{root} holds other folders beside those of its scene (scene.json): move them away"
        )
    return names


def _check_counts(
    root: Path, written: WrittenScene, rows: list[Session], segments: list[Segment]
) -> None:
    for row, segment in zip(rows, segments, strict=True):
        if segment.count < written.scene.frames and not segment.thinned:
            place = root / written.location(row.label + 1, row.number)
            raise FileError(
                f"{place} holds {segment.count} of its {written.scene.frames} frames: "
                f"delete it and finish it with the same command: {written.command(root)}"
            )


def _data_set(
    root: Path,
    classes: list[str],
    rows: list[Session],
    held: list[bool],
    frames: FolderFrames,
    bad: BadFiles,
    segments: list[Segment],
) -> DataSet:
    if not rows:
        why = f", the first: {bad.problems[0]}" if bad.problems else ""
        raise FileError(
            f"{root} holds no session that can be read ({bad.skipped} skipped{why}). {LAYOUT}"
        )
    chosen = [
        f"{classes[r.label]}/{s.name}" for r, s, h in zip(rows, segments, held, strict=True) if h
    ]
    few = ", ".join(chosen[:12]) + (f" and {len(chosen) - 12} more" if len(chosen) > 12 else "")
    note = f"{len(chosen)} of {len(rows)} sessions are the test set: {few or 'none'}"
    note += (
        f"; skipped {bad.skipped} that could not be decoded, the first: {bad.problems[0]}"
        if bad.problems
        else ""
    )
    return DataSet(
        name=root.resolve().name,
        frames=frames,
        train=tuple(r for r, h in zip(rows, held, strict=True) if not h),
        test=tuple(r for r, h in zip(rows, held, strict=True) if h),
        classes=tuple(classes),
        categories=tuple(range(len(classes))),
        note=note,
        skipped=bad.skipped,
    )


def _held_out(
    rows: list[Session], segments: list[Segment], test: str | Sequence[str], counts: list[int]
) -> list[bool]:
    if test == "none":
        return [False] * len(rows)
    if test == "quarter":
        return [r.number in held_out(counts[r.label]) for r in rows]
    if isinstance(test, str):
        raise InputError(
            f'test is "quarter", "none" or a list of session names; got {test!r}. Right: test=["{test}"]'
        )
    names = {s.name for s in segments}
    if missing := [name for name in test if name not in names]:
        raise InputError(
            f"there are no sessions {', '.join(missing)}; there are {', '.join(sorted(names, key=natural)[:20])}"
        )
    return [s.name in set(test) for s in segments]


Found = dict[str, list[tuple[str, Path]]]
LAYOUT = "Expected are <class>/<session>/<frame>.png pictures or <class>/<session>.mp4 videos"


def _find(root: Path, bad: BadFiles) -> Found:
    """The sessions of each class by name: folders of pictures, and videos."""
    found: Found = {}
    for place in subfolders(root):
        with bad.guard():
            places = sorted(
                [*subfolders(place), *media_in(place, VIDEOS)], key=lambda p: natural(p.name)
            )
            if not places:
                loose = (
                    " directly in it: put those of each video in a folder of their own"
                    if media_in(place, IMAGES)
                    else ""
                )
                raise FileError(
                    f"the class {place} has no sessions{' but pictures' if loose else ''}{loose}. {LAYOUT}"
                )
            found[place.name] = [(_name(p), p) for p in places]
    if not found and not bad.problems:
        raise FileError(f"{root} holds no classes. {LAYOUT}")
    return objects_outside(found)


def objects_outside(found: Found) -> Found:
    """CORe50 has its sessions outside: s1/o1 becomes o1/s1."""
    objects = [name for sessions in found.values() for name, _ in sessions]
    if not all(re.fullmatch(r"s\d+", name) for name in found) or not all(
        re.fullmatch(r"o\d+", name) for name in objects
    ):
        return found
    turned: Found = {}
    for session in sorted(found, key=natural):
        for name, place in found[session]:
            turned.setdefault(name, []).append((session, place))
    return turned


def _name(place: Path) -> str:
    return place.stem if place.suffix.lower() in VIDEOS and not place.is_dir() else place.name


def subfolders(place: Path) -> list[Path]:
    """The folders in a folder, in natural order; hidden ones are left out."""
    try:
        names = [
            e.name
            for e in os.scandir(place)
            if not e.name.startswith(".") and (place / e.name).is_dir()
        ]
    except OSError as error:
        raise FileError(
            f"cannot read the folder {place}: {error.strerror or error}. Check the path and permissions"
        ) from error
    return [place / name for name in sorted(names, key=natural)]


@dataclass(frozen=True)
class _Reader:
    size: int
    max_frames: int
    fps: float | None
    bad: BadFiles
    cache: Path

    def session(self, name: str, place: Path) -> Segment | None:
        """The frames of one session, or nothing where none can be decoded and that was asked for."""
        with self.bad.guard():
            return self._pictures(name, place) if place.is_dir() else self._video(name, place)
        return None

    def _pictures(self, name: str, place: Path) -> Segment:
        files = media_in(place, IMAGES)
        if self.bad.skip:
            files = [file for file in files if self._reads(file)]
        if not files:
            raise FileError(f"the session {place} has no pictures that can be read. {LAYOUT}")
        return Segment(name, len(files), tuple(files))

    def _reads(self, file: Path) -> bool:
        with self.bad.guard():
            read_image(file, self.size)
            return True
        return False

    def _video(self, name: str, place: Path) -> Segment:
        target = self.cache / f"{self._key(place)}.npy"
        if not target.exists():
            clip = open_frames(
                place,
                size=self.size,
                max_frames=self.max_frames,
                fps=self.fps,
                skip_bad=self.bad.skip,
            )
            _save(target, clip)
        record = _record(target)
        self.bad.skipped += record["skipped"]
        self.bad.problems += record["problems"]
        return Segment(name, len(_array(target)), array=target, thinned=record["thinned"])

    def _key(self, place: Path) -> str:
        """Another file, or the same one changed, has another key."""
        try:
            found = os.stat(place)
        except OSError as error:
            raise FileError(f"cannot read {place}: {error.strerror or error}") from error
        what = [
            VERSION,
            str(place.resolve()),
            found.st_size,
            found.st_mtime_ns,
            self.size,
            self.max_frames,
            self.fps,
            self.bad.skip,
        ]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def _save(target: Path, clip: Clip) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        record = {"skipped": clip.skipped, "problems": clip.problems, "thinned": clip.thinned}
        target.with_suffix(".json").write_text(json.dumps(record))
        with open(part, "wb") as file:
            np.save(file, clip.frames.numpy())
        os.replace(part, target)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot keep decoded videos in {target.parent}: {reason}. Make room, or pass another folder as cache"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _record(target: Path) -> dict[str, Any]:
    """What was said when the video was decoded."""
    try:
        record = json.loads(target.with_suffix(".json").read_text())
        return {
            "skipped": int(record["skipped"]),
            "problems": list(record["problems"]),
            "thinned": str(record["thinned"]),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"the record of the decoded video {target} is damaged ({error}): delete {target}"
        ) from error


def _array(path: Path) -> np.ndarray[Any, Any]:
    try:
        frames: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(
            f"the decoded video {path} is damaged or gone ({error}): delete it and open the folder again"
        ) from error
    return frames


def _default_cache() -> Path:
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "primavista" / "videos"
    )
