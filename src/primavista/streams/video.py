"""Frames from videos, images, folders and cameras: the one place that finds and decodes them."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.errors import FileError, InputError
from primavista.streams.decode import (
    Item,
    camera_frames,
    read_image,
    video_frames,
    video_rate,
    without_skip,
)

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
VIDEOS = (".mp4", ".mkv", ".avi", ".webm", ".mov", ".m4v")
MAX_PROBLEMS = 100
Array = np.ndarray[Any, Any]
Source = str | Path | Sequence[str | Path]
Watch = Callable[[int, int], None]
log = logging.getLogger("primavista")


class Clip:
    """Decoded frames, uint8, N x size x size x 3: what `open_frames` gives.

    `note` says what was thinned or left out ("" where nothing was), `thinned` the former alone, `skipped` counts what could
    not be decoded
    (with `skip_bad`), `problems` says why, one line each (the first hundred).
    """

    def __init__(
        self,
        frames: Tensor,
        source: str,
        note: str = "",
        skipped: int = 0,
        problems: Sequence[str] = (),
        thinned: str = "",
    ) -> None:
        self.frames, self.source, self.note, self.thinned = frames, source, note, thinned
        self.skipped, self.problems = skipped, tuple(problems)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self.frames[indices]

    def __repr__(self) -> str:
        return f"Clip({len(self)} frames of {self.source})"


def open_frames(
    source: Source,
    *,
    size: int = 128,
    max_frames: int = 600,
    fps: float | None = None,
    skip_bad: bool = False,
    seconds: float = 5.0,
    watch: Watch | None = None,
) -> Clip:
    """The frames of a video, an image, a folder of them, a glob, a list of these, or a camera ("camera:0"), at model size.

    One pass, and never more than `max_frames` frames in memory: every k-th is kept, and when they are full every second of
    them is dropped and k doubled, so what is kept stays evenly spread over the whole. `fps` thins videos by time first.
    `seconds` bounds a camera. A damaged file is an error that names it; with `skip_bad` it is left out and counted (of a video
    that breaks off, the frames before stay). `watch` is told how many frames have been looked at, of how many (0: not known).
    """
    _check(size, max_frames, fps, seconds)
    keep, bad = FrameSampler(max_frames), BadFiles(skip_bad)
    if isinstance(source, str) and source.startswith("camera:"):
        keep.offer(camera_frames(source, size, seconds, fps), bad)
    else:
        paths = find_media(source, bad)
        if all(map(is_image, paths)):
            keep.expect(len(paths))
        if watch is not None:
            total = _count(paths, fps)
            keep.watch = lambda looked: watch(looked, total)
        for path in paths:
            with bad.guard():
                keep.offer(
                    [partial(read_image, path, size)]
                    if is_image(path)
                    else video_frames(path, size, fps),
                    bad,
                )
    return _clip(keep, bad, _describe(source))


def find_media(source: Source, bad: BadFiles | None = None) -> list[Path]:
    """The image and video files that `source` names, in natural order (2 before 10)."""
    bad = bad or BadFiles()
    if isinstance(source, str | Path):
        return _expand(str(source))
    if not isinstance(source, Sequence) or not all(isinstance(item, str | Path) for item in source):
        raise InputError(
            f"open_frames takes a path, a folder, a glob, a list of paths or 'camera:0'; got {type(source).__name__}.\n"
            "  wrong: learner.learn(open_frames(array), 'mug')\n"
            "  right: learner.learn(array, 'mug')   # frames that are already in memory"
        )
    paths: list[Path] = []
    for item in source:
        with bad.guard():
            paths.extend(_expand(str(item)))
    if not paths and not bad.problems:
        raise InputError("the list of sources is empty: give at least one path")
    return paths


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key that reads numbers as numbers.

    >>> sorted(["s10", "s2", "S1"], key=natural)
    ['S1', 's2', 's10']
    """
    parts = re.findall(r"\d+|\D+", name)
    return (*((0, int(p), p) if p.isdecimal() else (1, 0, p.lower()) for p in parts), (2, 0, name))


def media_in(folder: Path, suffixes: Sequence[str] = (*IMAGES, *VIDEOS)) -> list[Path]:
    """The files of a folder with one of these suffixes, in natural order; hidden ones are left out."""
    try:
        entries = [e for e in os.scandir(folder) if not e.name.startswith(".")]
    except OSError as error:
        raise FileError(
            f"cannot read the folder {folder}: {error.strerror or error}. Check the path and its permissions"
        ) from error
    names = [
        e.name for e in entries if Path(e.name).suffix.lower() in suffixes and not _is_folder(e)
    ]
    return [folder / name for name in sorted(names, key=natural)]


def _expand(source: str) -> list[Path]:
    if not source.strip():  # as from a variable that was not set; the folder itself is "."
        raise InputError('the name of a source is empty: give a path, or "." for this folder')
    if re.match(r"[a-z]{2,}://", source):
        raise InputError(f"{source} is an address: download it first and give the path of the file")
    path = Path(source).expanduser()
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        found = _glob(path) if any(c in source for c in "*?[") else []
        if found:
            return found
        reason = getattr(error, "strerror", None) or str(error)
        hint = (
            "the pattern matches no image or video"
            if any(c in source for c in "*?[")
            else f"{reason}. Check the path"
        )
        raise FileError(f"cannot open {source}: {hint}") from error
    if stat.S_ISDIR(mode):
        found = media_in(path)
        if not found:
            raise FileError(
                f"the folder {path} holds no images ({_list(IMAGES)}) and no videos ({_list(VIDEOS)})"
            )
        return found
    if not stat.S_ISREG(mode):
        raise FileError(
            f"{path} is neither a file nor a folder (a device or a pipe): for a camera write camera:0"
        )
    if path.suffix.lower() not in (*IMAGES, *VIDEOS):
        raise InputError(
            f"{path} is no known kind of file: images are {_list(IMAGES)}, videos {_list(VIDEOS)}"
        )
    return [path]


def _glob(pattern: Path) -> list[Path]:
    """Files only; `**` follows no links, so that a loop of them ends."""
    fixed = list(pattern.parts)
    first = next(i for i, part in enumerate(fixed) if any(c in part for c in "*?["))
    root = Path(*fixed[:first]) if first else Path()
    try:
        found = [
            p
            for p in root.glob(str(Path(*fixed[first:])))
            if p.suffix.lower() in (*IMAGES, *VIDEOS) and p.is_file()
        ]
    except (OSError, ValueError, NotImplementedError):
        return []
    return sorted(found, key=lambda p: natural(str(p)))


class FrameSampler:
    """At most `limit` frames, evenly spread over all that were offered."""

    def __init__(self, limit: int) -> None:
        self.limit, self.step, self.offered = limit, 1, 0
        self.frames: list[Array] = []
        self.watch: Callable[[int], None] = lambda offered: None

    def expect(self, count: int) -> None:
        """Where the count is known, frames that would be dropped later are not decoded at all."""
        while -(-count // self.step) > self.limit:
            self.step *= 2

    def offer(self, frames: Iterable[Item], bad: BadFiles) -> None:
        """Offer it these; those that are not kept are not converted either."""
        for read in frames:
            self.offered += 1
            self.watch(self.offered)
            with bad.guard():
                if isinstance(read, FileError):
                    raise read
                if self._wants(self.offered - 1):
                    self.frames.append(read())

    def _wants(self, index: int) -> bool:
        if index % self.step == 0 and len(self.frames) == self.limit:
            del self.frames[1::2]
            self.step *= 2
        return index % self.step == 0 and len(self.frames) < self.limit


class ToldError(FileError):
    """Nothing of a source could be read, and each reason has been logged."""


class BadFiles:
    """What could not be read: an error, or counted where that was asked for."""

    def __init__(self, skip: bool = False, quiet: bool = False) -> None:
        self.skip, self.quiet, self.skipped = skip, quiet, 0
        self.problems: list[str] = []

    @property
    def note(self) -> str:
        """How many were skipped, and the first reason; empty if there were none."""
        if not self.skipped:
            return ""
        return f"skipped {self.skipped} that could not be decoded, the first: {self.problems[0]}"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around the reading of one file or frame."""
        try:
            yield
        except FileError as error:
            if not self.skip:
                raise
            self.skipped += 1
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.append(without_skip(error))
            if not self.quiet and not isinstance(error, ToldError):
                log.warning("skipped: %s", without_skip(error))


def _count(paths: Sequence[Path], fps: float | None) -> int:
    """How many frames these files say that they hold, at so many a second; 0 where one does not say."""
    counts = []
    for path in paths:
        if is_image(path):
            counts.append(1)
            continue
        try:
            rate, frames = video_rate(path)
        except FileError:
            return 0  # reading it will say what is wrong
        counts.append(round(frames * min(1, fps / float(rate))) if fps else frames)
    return sum(counts) if all(counts) else 0


def _clip(keep: FrameSampler, bad: BadFiles, source: str) -> Clip:
    if not keep.frames:
        why = f": {bad.problems[0]}" if bad.problems else ""
        kind = ToldError if bad.problems else FileError
        raise kind(f"no frame of {source} could be decoded ({bad.skipped} skipped){why}")
    notes, thinned = [], ""
    if keep.step > 1:
        thinned = f"kept {len(keep.frames)} of {keep.offered} frames (1 in {keep.step}): max_frames is {keep.limit}"
        notes.append(thinned)
        log.info("%s: %s", source, thinned)
    if bad.skipped:
        notes.append(bad.note)
    return Clip(
        torch.from_numpy(np.stack(keep.frames)),
        source,
        "; ".join(notes),
        bad.skipped,
        bad.problems,
        thinned,
    )


def _check(size: int, max_frames: int, fps: float | None, seconds: float) -> None:
    if not 1 <= size <= 4096:
        raise InputError(f"size must lie from 1 to 4096 pixels; got {size}")
    if max_frames < 1:
        raise InputError(f"max_frames must be at least 1; got {max_frames}")
    if fps is not None and not 0 < fps < float("inf"):
        raise InputError(f"fps must be over 0; got {fps}")
    if not 0 < seconds <= 3600:
        raise InputError(f"seconds must lie from 0 to 3600; got {seconds}")


def is_image(path: Path) -> bool:
    """By its name: an image file, not a video."""
    return path.suffix.lower() in IMAGES


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _list(suffixes: Sequence[str]) -> str:
    return " ".join(suffix[1:] for suffix in suffixes)


def _describe(source: Source) -> str:
    if isinstance(source, str | Path):
        return str(source)
    return str(source[0]) if len(source) == 1 else f"{len(source)} sources from {source[0]}"
