"""The files of sessions as frames: pictures decoded on demand, videos decoded once into arrays."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primavista.arrays import chosen_rows, like_indices
from primavista.errors import FileError, file_errors
from primavista.media.images import ImageArray, read_image
from primavista.media.video import BadFiles, Clip, open_frames
from primavista.progress import Progress
from primavista.storage.disk import write_atomically
from primavista.streams.dataset import consecutive_sessions

VERSION = 2  # of what is kept of a decoded video


@dataclass(frozen=True)
class DecodedVideo:
    """A video that was decoded into an array file.

    Args:
        path: The .npy file with the frames, uint8, N x size x size x 3.
        count: The number of frames in it.
        thinned: What was left out because the video is long, as a text; empty if nothing was.
    """

    path: Path
    count: int
    thinned: str


@dataclass(frozen=True)
class SessionFiles:
    """The files of one session: pictures, or one video.

    Args:
        label: The index of the class.
        number: The number of the session among those of its class.
        pictures: The picture files in order; empty for a video.
        is_test: True if the session is for testing.
        name: The name of the session.
        video: The decoded video; None for pictures.
    """

    label: int
    number: int
    pictures: tuple[Path, ...] = ()
    is_test: bool = False
    name: str = ""
    video: DecodedVideo | None = None

    @property
    def count(self) -> int:
        """The number of frames."""
        return self.video.count if self.video else len(self.pictures)


class FolderFrames:
    """The frames of several sessions, one after the other.

    Pictures are decoded each time they are asked for; decoded videos are memory-mapped.

    Args:
        sessions: The files of each session.
        size: The side of the frames in pixels.
    """

    def __init__(self, sessions: Sequence[SessionFiles], size: int) -> None:
        self.sessions, self.size = tuple(sessions), size
        self.starts = np.array([0, *accumulate(files.count for files in self.sessions)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, indices: Any) -> Any:
        asked = chosen_rows(indices, len(self))
        session = np.searchsorted(self.starts, asked, "right") - 1
        pictures = np.empty((len(asked), self.size, self.size, 3), np.uint8)
        for i in np.unique(session).tolist():
            here = np.flatnonzero(session == i)
            pictures[here] = self._read(self.sessions[i], asked[here] - self.starts[i])
        return like_indices(pictures, indices)

    def _read(self, files: SessionFiles, positions: NDArray[Any]) -> ImageArray:
        if files.video is None:
            images = [read_image(files.pictures[i], self.size) for i in positions.tolist()]
            return np.stack(images)
        return np.asarray(map_video(files.video.path)[positions])


def readable_pictures(files: Iterable[Path], size: int, bad: BadFiles) -> tuple[Path, ...]:
    """Decode every picture once if bad files are skipped; return those that can be decoded."""
    if not bad.skip:
        return tuple(files)
    good = []
    for file in files:
        with bad.guard():
            read_image(file, size)
            good.append(file)
    return tuple(good)


def readable_sessions(
    sessions: Sequence[SessionFiles], size: int, bad: BadFiles, progress: Progress | None
) -> list[SessionFiles]:
    """Leave out the pictures that cannot be decoded, and sessions without any other.

    Args:
        sessions: Sessions of pictures.
        size: The side of the frames in pixels.
        bad: Where damaged pictures are counted. If it does not skip them, nothing is decoded now.
        progress: Called with (done, total), in sessions, while pictures are checked.
    """
    if not bad.skip:
        return list(sessions)
    kept = []
    for done, one in enumerate(sessions, 1):
        good = readable_pictures(one.pictures, size, bad)
        if good:
            kept.append(replace(one, pictures=good))
        if progress:
            progress(done, len(sessions))
    return kept


def file_facts(files: Sequence[SessionFiles], size: int) -> dict[str, Any]:
    """Return the arguments of `DataSet` that follow from the files of its sessions.

    Args:
        files: The files of all sessions, in the order of the frames.
        size: The side of the frames in pixels.
    """
    train, test = consecutive_sessions(
        (one.label, one.number, one.count, one.is_test) for one in files
    )
    return {"frames": FolderFrames(files, size), "train": train, "test": test}


@dataclass(frozen=True)
class VideoCache:
    """A folder of decoded videos, all read with the same options.

    Args:
        folder: Where the array files lie; it is made when the first video is decoded.
        size: The side of the frames in pixels.
        max_frames: The number of frames kept per video, evenly spread.
        fps: The number of frames per second to read; None reads all.
        bad: Where frames that cannot be decoded are counted, if they are skipped.
    """

    folder: Path
    size: int
    max_frames: int
    fps: float | None
    bad: BadFiles

    def decoded(self, video: Path) -> DecodedVideo:
        """Decode a video, or find it decoded.

        Args:
            video: The file.

        Returns:
            The array file and what was said when the video was decoded.

        Raises:
            FileError: If the video, or what was kept of it, cannot be read, or if the folder of the
                cache cannot be written.
        """
        target = self.folder / f"{self._key(video)}.npy"
        if not target.exists():
            clip = open_frames(
                video,
                size=self.size,
                max_frames=self.max_frames,
                fps=self.fps,
                skip_bad=self.bad.skip,
            )
            _save(target, clip)
        try:
            record = json.loads(target.with_suffix(".json").read_text())
            thinned = str(record["thinned"])
            self.bad.skipped += int(record["skipped"])
            self.bad.problems += record["problems"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileError(
                f"the record of the decoded video {target} is damaged ({error}): delete {target}"
            ) from error
        return DecodedVideo(target, len(map_video(target)), thinned)

    def _key(self, video: Path) -> str:
        """A key that changes with the file and with the options."""
        with file_errors("read", video):
            found = os.stat(video)
        facts = [VERSION, str(video.resolve()), found.st_size, found.st_mtime_ns]
        facts += [self.size, self.max_frames, self.fps, self.bad.skip]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def map_video(path: Path) -> ImageArray:
    """Memory-map the frames of a decoded video.

    Args:
        path: The .npy file of a `DecodedVideo`.

    Returns:
        The frames, uint8, N x size x size x 3, read-only.

    Raises:
        FileError: If the file is damaged or gone.
    """
    try:
        frames: ImageArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(
            f"the decoded video {path} is damaged or gone ({error}): "
            "delete it and open the folder again"
        ) from error
    return frames


def _save(target: Path, clip: Clip) -> None:
    """Write the record first: the array file means that both are there."""
    record = {"skipped": clip.skipped, "problems": clip.problems, "thinned": clip.thinned}
    advice = "Make room, or pass another folder as cache"
    with file_errors("keep decoded videos in", target.parent, advice):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target.with_suffix(".json"), json.dumps(record).encode())
        content = io.BytesIO()
        np.save(content, clip.frames, allow_pickle=False)
        write_atomically(target, content.getbuffer())
