"""Frames from videos, images, folders and cameras: finds the files and samples them."""

from __future__ import annotations

import logging
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from primavista.arrays import chosen_rows, like_indices
from primavista.errors import FileError, InputError, file_errors
from primavista.media.addresses import STALL, is_live, live_name
from primavista.media.addresses import VIDEOS as VIDEOS
from primavista.media.decode import picture_frames
from primavista.media.frames import Frames, LearnerInput, are_paths, model_frames, refuse_if_rgb
from primavista.media.images import IMAGES as IMAGES
from primavista.media.images import (
    LEARNER_SIZE,
    ImageArray,
    Region,
    missing_for,
    without_skip,
)
from primavista.media.video_file import video_facts, video_frames
from primavista.progress import Progress

if TYPE_CHECKING:
    from primavista.media.camera import CameraView

MAX_PROBLEMS = 100
log = logging.getLogger("primavista")


# What `open_frames` reads, as a user names it: a path or a camera, or several paths.
MediaSource = str | Path | Sequence[str | Path]


@dataclass(frozen=True, repr=False, eq=False)
class Clip:
    """Decoded frames, uint8, N x size x size x 3, as `open_frames` returns them.

    Args:
        frames: The frames.
        source: What they were read from, for messages.
        note: What was thinned or left out; empty if nothing was.
        skipped: The number of files or frames that could not be decoded (with `skip_bad`).
        problems: Why, one line each, for the first hundred.
        thinned: What was thinned alone.
    """

    is_rgb: ClassVar[bool] = True
    frames: ImageArray
    source: str
    note: str = ""
    skipped: int = 0
    problems: Sequence[str] = ()
    thinned: str = ""

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, indices: Any) -> Any:
        return like_indices(self.frames[chosen_rows(indices, len(self))], indices)

    def __repr__(self) -> str:
        return f"Clip({len(self)} frames of {self.source})"


@dataclass(frozen=True)
class Lesson:
    """One video (or the pictures) of one object, not opened yet.

    Args:
        label: The name of the object.
        source: Its files, or the address of a camera. It is not part of the `repr`, since an
            address may hold a password.
        name: What messages call the source.
    """

    label: str
    source: str | tuple[Path, ...] = field(repr=False)
    name: str = ""


class ReportedError(FileError):
    """Raised if nothing of a source could be read and each reason has been logged already."""


class BadFiles:
    """Counts files and frames that could not be read, or raises their errors.

    Args:
        skip: Count them; otherwise the first one raises its error.
        quiet: Do not log them.
    """

    def __init__(self, skip: bool = False, quiet: bool = False) -> None:
        self.skip, self.quiet, self.skipped = skip, quiet, 0
        self.problems: list[str] = []

    @property
    def note(self) -> str:
        """The number that were skipped, and the first reason; empty if there were none."""
        if not self.skipped:
            return ""
        return f"skipped {self.skipped} that could not be decoded, the first: {self.problems[0]}"

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Guard the reading of one file or frame.

        Yields:
            Nothing; a `FileError` of the block is counted if files are skipped, and raised
            otherwise.
        """
        try:
            yield
        except FileError as error:
            if not self.skip:
                raise
            self.skipped += 1
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.append(without_skip(error))
            if not self.quiet and not isinstance(error, ReportedError):
                log.warning("skipped: %s", without_skip(error))


class FrameSampler:
    """Keeps at most `limit` frames, evenly spread over all that were offered.

    Every k-th frame is kept from the start, with the least k that keeps no more than `limit` of the
    frames that are expected; frames that would be dropped later are not decoded at all. If more
    frames come than were expected, k is doubled as often as needed.

    Args:
        limit: The largest number of frames to keep.
        bad: Where frames that cannot be decoded are counted.
        expected: How many frames will be offered; 0 if that is not known.
        progress: Called with the number of frames offered, and their total if it is known.
    """

    def __init__(
        self, limit: int, bad: BadFiles, expected: int = 0, progress: Progress | None = None
    ) -> None:
        self.limit, self.bad, self.expected, self.progress = limit, bad, expected, progress
        self.step, self.offered = max(1, -(-expected // limit)), 0
        self.frames: list[ImageArray] = []

    def offer(self, frames: Iterable[Any], convert: Callable[[Any], ImageArray]) -> None:
        """Offer frames, in order; those that are not kept are not converted either.

        Args:
            frames: What `convert` takes, or errors in place of frames.
            convert: Makes a frame of it.
        """
        for one in frames:
            self.offered += 1
            if self.progress is not None:
                total = max(self.expected, self.offered) if self.expected else None
                self.progress(self.offered, total)
            with self.bad.guard():
                if isinstance(one, FileError):
                    raise one
                if self._wants(self.offered - 1):
                    self.frames.append(convert(one))

    def _wants(self, index: int) -> bool:
        if index % self.step == 0 and len(self.frames) == self.limit:
            del self.frames[1::2]
            self.step *= 2
        return index % self.step == 0 and len(self.frames) < self.limit


def open_frames(
    source: MediaSource,
    *,
    size: int = LEARNER_SIZE,
    max_frames: int = 600,
    fps: float | None = None,
    skip_bad: bool = False,
    seconds: float = 5.0,
    region: Region | None = None,
    stall: float = STALL,
    progress: Progress | None = None,
) -> Clip:
    """Read the frames of a video, an image, a folder, a list of these, or a camera.

    An animated image is read like a short video. What is left out of a folder is logged.

    There is one pass, and never more than `max_frames` frames are in memory: every k-th frame is
    kept, with the least k for the number of frames that the files say they hold. If they do not say
    it, or if more come, every second frame is dropped and k is doubled whenever `max_frames` are
    kept. So the frames that are kept are evenly spread over the whole. A camera that is lost before
    the time is over is an error: an incomplete lesson is not returned.

    Args:
        source: The path or paths, or a camera: "camera:0", "/dev/video0",
            "rtsp://door/live", "http://door/video.mjpg" or "env:NAME", which names the environment
            variable that holds the address.
        size: The side of the frames in pixels; that of a new learner by default.
        max_frames: The largest number of frames to keep.
        fps: The number of frames per second to read from videos and animations; all by default.
        skip_bad: Leave out and count damaged files. Of a video that breaks off, the frames before
            stay.
        seconds: How long to read from a camera.
        region: The part of the picture to look at: left, top, right and bottom in shares of its
            sides, from 0 to 1; None for all of it.
        stall: After how many seconds without a frame a camera is lost.
        progress: Called with the number of frames looked at, and their total if it is known; for a
            camera with seconds.

    Returns:
        The frames at model size, with a note on what was left out.

    Raises:
        InputError: If an argument is out of range, or the source is not a kind that can be read.
        FileError: If a file is missing or damaged, or a camera is lost; the message names it.
    """
    _check(size, max_frames, fps, seconds)
    bad = BadFiles(skip_bad)
    if isinstance(source, str) and is_live(source):
        from primavista.media.camera import CameraView

        view = CameraView(source, size, fps, region, stall)
        sampler = FrameSampler(max_frames, bad)
        sampler.offer(_filmed(view, seconds, progress), np.asarray)
        return _clip(sampler, view.name)
    paths = find_media(source, bad)
    sampler = FrameSampler(max_frames, bad, _count(paths, fps), progress)
    for path in paths:
        with bad.guard():
            if is_image(path):
                sampler.offer(_frames_of_image(path, size, fps, region), _decoded)
            else:
                step = {"first": sampler.offered, "every": sampler.step}
                with closing(video_frames(path, size, fps, region, **step)) as frames:
                    sampler.offer((frame for _, frame in frames), np.asarray)
    return _clip(sampler, _describe(source))


def _frames_of_image(
    path: Path, size: int, fps: float | None, region: Region | None
) -> Iterator[Callable[[], ImageArray]]:
    """Yield the frames of an image file; it is not opened if the first one is not wanted."""
    frames = picture_frames(path, size, fps, region)
    is_opened = False

    def first() -> ImageArray:
        nonlocal is_opened
        is_opened = True
        return next(frames)[1]()

    yield first
    if is_opened:
        yield from (frame for _, frame in frames)


def _decoded(frame: Callable[[], ImageArray]) -> ImageArray:
    return frame()


def learner_frames(frames: LearnerInput, size: int, bgr: bool = False) -> Frames:
    """Convert what a learner was given to frames at model size, in RGB.

    Args:
        frames: A path, several paths, one image, or several images.
        size: The side of the frames that the learner takes, in pixels.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Raises:
        InputError: If these are not images, or if they are known to be RGB and `bgr` is set.
        FileError: If the path cannot be read.
    """
    if not are_paths(frames) and not isinstance(frames, str | Path):
        return model_frames(frames, size, bgr)[0]
    if bgr:
        refuse_if_rgb(frames)
    return open_frames(frames, size=size)


def _filmed(view: CameraView, seconds: float, progress: Progress | None) -> Iterator[Any]:
    """The frames of a camera, none of which may be dropped; it must film to the end."""
    from primavista.media.camera import LESSON_FRAMES, camera_frames, check_filmed

    times: list[float] = []
    for at, image in camera_frames(view, seconds, keep=LESSON_FRAMES):
        times.append(at)
        if progress is not None:
            progress(int(at - times[0]), math.ceil(seconds))
        yield image
    check_filmed(view, times[0] + seconds - times[-1], seconds)


def find_media(
    source: str | Path | Sequence[str | Path], bad: BadFiles | None = None
) -> list[Path]:
    """Find the image and video files that a source names, in natural order (2 before 10).

    Args:
        source: A path, a folder, or a list of these.
        bad: Where items of a list that cannot be read are counted; by default they are errors.

    Returns:
        The paths of the files.

    Raises:
        InputError: If the source is empty or of an unknown kind.
        FileError: If there are no such files.
    """
    bad = bad or BadFiles()
    if isinstance(source, str | Path):
        return _expand(_not_a_camera(source))
    if not isinstance(source, Sequence) or not all(isinstance(item, str | Path) for item in source):
        raise InputError(
            "open_frames takes a path, a folder, a list of paths or 'camera:0'; "
            f"got {type(source).__name__}.\n"
            "  wrong: learner.learn(open_frames(array), 'mug')\n"
            "  right: learner.learn(array, 'mug')   # frames that are already in memory"
        )
    paths: list[Path] = []
    for item in source:
        with bad.guard():
            paths.extend(_expand(_not_a_camera(item)))
    if not paths and not bad.problems:
        raise InputError("the list of sources is empty: give at least one path")
    return paths


def clips_of_object(folder: Path) -> dict[Path, tuple[Path, ...]]:
    """Find the clips in the folder of one object: its pictures, its videos, its folders.

    Args:
        folder: The folder; pictures directly in it are one clip.

    Returns:
        The files of each clip by the path of the clip, which is a video or a folder of pictures.

    Raises:
        FileError: If the folder cannot be read, or holds neither images nor videos.
    """
    pictures = media_in(folder, IMAGES)
    found = {folder: tuple(pictures)} if pictures else {}
    parts = [*subfolders(folder), *media_in(folder, VIDEOS)]
    for part in sorted(parts, key=lambda path: natural(path.name)):
        files = media_in(part, IMAGES) if part.is_dir() else [part]
        if not files:
            advice = "remove it, or name the folders in it one by one"
            raise FileError(f"{nothing_in(part, 'images')}: {advice}")
        found[part] = tuple(files)
    if not found:
        raise nothing_in(folder)
    return found


def nothing_in(folder: Path, kinds: str = "images and no videos", deep: bool = False) -> FileError:
    """Return the error for a folder that holds nothing that can be read; it says what is there.

    Args:
        folder: The folder.
        kinds: What is missing.
        deep: Count the files in its folders, too; see `left_out`.
    """
    told = left_out(folder, (), deep)
    there = f"; there are {told}" if told else ""
    return FileError(f"the folder {folder} holds no {kinds} that can be read{there}")


def lessons_of_object(folder: Path, label: str) -> list[Lesson]:
    """Return one lesson per clip in the folder of an object; log what is left out of it.

    Args:
        folder: The folder, as for `clips_of_object`.
        label: The name of the object.

    Raises:
        FileError: If the folder cannot be read, or holds neither images nor videos.
    """
    clips = clips_of_object(folder)
    tell_left_out(folder, chain.from_iterable(clips.values()))
    return [Lesson(label, files, str(path)) for path, files in clips.items()]


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key that reads numbers as numbers.

    Args:
        name: The text to sort by.

    >>> sorted(["s10", "s2", "S1"], key=natural)
    ['S1', 's2', 's10']
    """
    parts = re.findall(r"\d+|\D+", name)
    return (*((0, int(p), p) if p.isdecimal() else (1, 0, p.lower()) for p in parts), (2, 0, name))


def media_in(folder: Path, suffixes: Sequence[str] = (*IMAGES, *VIDEOS)) -> list[Path]:
    """List the files of a folder with certain suffixes, in natural order, without hidden ones.

    Args:
        folder: The folder.
        suffixes: The suffixes in lower case; by default all images and videos that can be read.

    Returns:
        The paths of the files.

    Raises:
        FileError: If the folder cannot be read.
    """
    return [
        folder / entry.name
        for entry in _entries(folder)
        if _can_be_read(entry.name, suffixes) and not _is_folder(entry)
    ]


def _can_be_read(name: str | Path, suffixes: Sequence[str]) -> bool:
    suffix = Path(name).suffix.lower()
    return suffix in suffixes and not missing_for(suffix)


def left_out(folder: Path, used: Iterable[Path], deep: bool = False) -> str:
    """Count the files of a folder that are not used, by their suffixes and with the reason.

    Hidden files do not count.

    Args:
        folder: The folder.
        used: The paths of the files that are used, as they were found in the folder.
        deep: Count the files of folders in which nothing is used, too, and not those folders. Links
            to folders are not followed.

    Returns:
        The counts, as a text; empty if nothing is left out.
    """
    files = set(used)
    inside = {parent for path in files for parent in path.parents}
    counts: Counter[str] = Counter()
    folders = 0
    waiting = [folder]
    while waiting:
        for entry in _entries(waiting.pop()):
            path = Path(entry.path)
            if not _is_folder(entry):
                counts[_suffix_and_reason(path)] += path not in files
            elif path in inside or (deep and not entry.is_symlink()):
                waiting.append(path)
            else:
                folders += 1
    ranked = sorted((+counts).items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {what}" for what, count in ranked]
    if folders:
        parts.append("1 folder" if folders == 1 else f"{folders} folders")
    return ", ".join(parts)


def _suffix_and_reason(path: Path) -> str:
    suffix = path.suffix.lower()
    if not suffix or not suffix.isprintable():
        return "of no known kind"
    if suffix not in (*IMAGES, *VIDEOS):
        return suffix
    return f"{suffix} ({missing_for(suffix) or 'not where this layout has them'})"


def tell_left_out(folder: Path, used: Iterable[Path], deep: bool = False) -> None:
    """Log what is left out of a folder, if anything is; the arguments are those of `left_out`."""
    told = left_out(folder, used, deep)
    if told:
        log.warning("left out of %s: %s", folder, told)


def subfolders(path: Path) -> list[Path]:
    """List the folders in a folder, in natural order; hidden ones are left out.

    Args:
        path: The folder.

    Returns:
        The paths of its subfolders.

    Raises:
        FileError: If the folder cannot be read.
    """
    return [path / entry.name for entry in _entries(path) if _is_folder(entry)]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with file_errors("read the folder", folder, "Check the path and its permissions"):
        found = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    return sorted(found, key=lambda entry: natural(entry.name))


def _not_a_camera(item: str | Path) -> str:
    """Return an item of a list as text; a camera is refused there."""
    text = str(item)
    if is_live(text):
        raise InputError(f"{live_name(text)} is a camera: give it alone, not in a list with files")
    return text


def _expand(source: str) -> list[Path]:
    """The files that one source names: itself, or those of a folder."""
    if not source.strip():  # as from a variable that was not set; the folder itself is "."
        raise InputError('the name of a source is empty: give a path, or "." for this folder')
    path = Path(source).expanduser()
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot open {source}: {reason}. Check the path") from error
    if stat.S_ISDIR(mode):
        found = media_in(path)
        if not found:
            raise nothing_in(path)
        tell_left_out(path, found)
        return found
    if not stat.S_ISREG(mode):
        raise FileError(
            f"{path} is neither a file nor a folder (a device or a pipe): "
            "for a camera write camera:0 or /dev/video0"
        )
    if path.suffix.lower() not in (*IMAGES, *VIDEOS):
        raise InputError(
            f"{path} is not a known kind of file: "
            f"images are {_list(IMAGES)}, videos {_list(VIDEOS)}"
        )
    return [path]


def _count(paths: Sequence[Path], fps: float | None) -> int:
    """The number of frames that the files say they hold at this rate; 0 if one does not say."""
    counts = []
    for path in paths:
        if is_image(path):
            counts.append(1)
            continue
        try:
            rate, frames = video_facts(path)
        except FileError:
            return 0  # reading it will say what is wrong
        counts.append(round(frames * min(1, fps / float(rate))) if fps else frames)
    return sum(counts) if all(counts) else 0


def _clip(sampler: FrameSampler, source: str) -> Clip:
    bad = sampler.bad
    if not sampler.frames:
        why = f": {bad.problems[0]}" if bad.problems else ""
        kind = ReportedError if bad.problems else FileError
        raise kind(f"no frame of {source} could be decoded ({bad.skipped} skipped){why}")
    thinned = ""
    if sampler.step > 1:
        thinned = (
            f"kept {len(sampler.frames)} of {sampler.offered} frames (1 in {sampler.step}): "
            f"max_frames is {sampler.limit}"
        )
        log.info("%s: %s", source, thinned)
    return Clip(
        frames=np.stack(sampler.frames),
        source=source,
        note="; ".join(filter(None, (thinned, bad.note))),
        skipped=bad.skipped,
        problems=tuple(bad.problems),
        thinned=thinned,
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
    """Return True if the suffix of a path is that of an image, not of a video.

    Args:
        path: The path; the file need not exist.
    """
    return path.suffix.lower() in IMAGES


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _list(suffixes: Sequence[str]) -> str:
    return " ".join(suffix[1:] for suffix in suffixes)


def _describe(source: MediaSource) -> str:
    """Return what messages call the files of a source."""
    if isinstance(source, str | Path):
        return str(source)
    return str(source[0]) if len(source) == 1 else f"{len(source)} sources from {source[0]}"
