"""The packed store: the frames of any data set, decoded once into one memory-mapped array.

A store is a folder with two files: `frames.npy` (uint8, N x H x W x 3; `numpy.load` reads it too)
and `index.json` (names, classes, sessions, one sha256 per 256 frames). The frames get
their name last, so that both files mean that the store is complete.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from primavista.arrays import chosen_rows, like_indices
from primavista.errors import CHOOSE_FOLDER, FileError, InputError, file_errors
from primavista.media.frames import Frames, frames_at
from primavista.media.images import ImageArray
from primavista.progress import Progress
from primavista.storage import disk
from primavista.storage.disk import FileLock, remove_leftovers, replacing, write_atomically
from primavista.streams.dataset import CORe50Facts, DataSet, Session

if TYPE_CHECKING:
    import torch

FORMAT = 1
CHUNK = 256  # frames: what one thread decodes at a time, and what one checksum covers
FRAMES = "frames.npy"
INDEX = "index.json"
LOCK = "lock"


@dataclass(frozen=True)
class StoreIndex:
    """The contents of a store, known before any frame is decoded.

    Two packings of the same data have equal indices.

    Args:
        name: The name of the data set.
        classes: The name of each class.
        categories: The category of each class.
        train: The training sessions.
        test: The test sessions.
        count: The number of frames.
        height: The height of every frame in pixels.
        width: The width of every frame in pixels.
        probe: A checksum of a few frames, by which another data set of the same shape is noticed.
        chunk: The number of frames per chunk.
        format: The version of the file format.
        folder: For CORe50, the folder that it was packed from, which may hold official orders.
        core50: The facts of CORe50; None for other data.
    """

    name: str
    classes: tuple[str, ...]
    categories: tuple[int, ...]
    train: tuple[Session, ...]
    test: tuple[Session, ...]
    count: int
    height: int
    width: int
    probe: str
    chunk: int = CHUNK
    format: int = FORMAT
    folder: str = field(default="", compare=False)
    core50: CORe50Facts | None = field(default=None, compare=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array of frames."""
        return self.count, self.height, self.width, 3

    @property
    def chunks(self) -> int:
        """The number of chunks; the last one may be shorter."""
        return -(-self.count // self.chunk)

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return the first frame of a chunk, and the one after its last.

        Args:
            chunk: The number of the chunk, from 0.
        """
        return chunk * self.chunk, min((chunk + 1) * self.chunk, self.count)

    @property
    def frame_bytes(self) -> int:
        """The size of one frame in bytes."""
        return self.height * self.width * 3

    @property
    def header(self) -> bytes:
        """The header of the .npy file, by which `numpy.load` reads it too."""
        file = io.BytesIO()
        facts = {"descr": "|u1", "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, facts)
        return file.getvalue()

    @property
    def file_bytes(self) -> int:
        """The size of the whole .npy file in bytes."""
        return len(self.header) + self.count * self.frame_bytes

    def facts(self, frames: Frames) -> dict[str, Any]:
        """Return the arguments of `DataSet` for this index with the given frames."""
        return {
            "name": self.name,
            "frames": frames,
            "train": self.train,
            "test": self.test,
            "classes": self.classes,
            "categories": self.categories,
            "origin": Path(self.folder) if self.folder else None,
            "core50": self.core50,
        }


def make_index(data: DataSet) -> StoreIndex:
    """Make the index of a data set; this decodes three of its frames.

    Args:
        data: The data set, with at least one frame and one session.

    Returns:
        The index of the store that the data set would be packed into.

    Raises:
        FileError: If there are no frames.
    """
    count = len(data.frames)
    if not count or not (data.train or data.test):
        raise FileError(f"the data set {data.name} has no frames to pack")
    rows = np.array(sorted({0, count // 2, count - 1}))
    some = np.ascontiguousarray(frames_at(data.frames, rows))
    height, width = some.shape[1:3]
    return StoreIndex(
        name=data.name,
        classes=data.classes,
        categories=data.categories,
        train=data.train,
        test=data.test,
        count=count,
        height=height,
        width=width,
        probe=hashlib.sha256(some.tobytes()).hexdigest(),
        folder=str(data.origin or ""),
        core50=data.core50,
    )


def dump_index(index: StoreIndex, checksums: list[str]) -> bytes:
    """Write an index as JSON text with a checksum of its own.

    Args:
        index: The index.
        checksums: The sha256 of each chunk.

    Returns:
        The content of `index.json`.
    """
    record: dict[str, Any] = {"plan": asdict(index), "sha256": checksums}
    own = _checksum(record)
    return (json.dumps(record | {"checksum": own}, indent=1) + "\n").encode()


def load_index(path: Path) -> tuple[StoreIndex, list[str]]:
    """Read the file of an index.

    Args:
        path: `index.json` of a store.

    Returns:
        The index, and the sha256 of each chunk.

    Raises:
        FileError: If the file cannot be read, is damaged, or comes from a newer version.
    """
    with file_errors("read", path):
        text = path.read_bytes()
    try:
        record = json.loads(text)
        own = record.pop("checksum")
        if record["plan"]["format"] > FORMAT:
            raise FileError(
                f"{path} is of a newer primavista: update it (pip install -U primavista)"
            )
        if own != _checksum(record):
            raise ValueError("its checksum does not match")
        from pydantic import TypeAdapter  # a stream in memory is evaluated without it

        index = TypeAdapter(StoreIndex).validate_json(json.dumps(record["plan"]), strict=True)
        return index, list(record["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} is damaged or not the index of a packed store ({error}): "
            "pack the data set again"
        ) from error


def _checksum(record: dict[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class PackedFrames:
    """The frames of a finished store, memory-mapped and read-only.

    The file is opened when it is first used; each process has one mapping, and pickling sends the
    path alone.

    Args:
        path: The folder of the store.
        index: Its index.
    """

    def __init__(self, path: Path, index: StoreIndex) -> None:
        self.path, self.index = path, index

    def __len__(self) -> int:
        return self.index.count

    def __getitem__(self, indices: Any) -> Any:
        chosen = chosen_rows(indices, len(self))
        self._prefetch(chosen)
        return like_indices(self.array[chosen], indices)

    @cached_property
    def _map(self) -> mmap.mmap:
        with file_errors("read", self.path / FRAMES), open(self.path / FRAMES, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def array(self) -> ImageArray:
        """The memory-mapped array, N x H x W x 3."""
        flat = np.frombuffer(self._map, np.uint8, offset=len(self.index.header))
        return flat.reshape(self.index.shape)

    def _prefetch(self, chosen: NDArray[Any]) -> None:
        """Let the system read all these frames at once.

        From a cold disk this is many times faster than reading them page by page.
        """
        if not hasattr(mmap, "MADV_WILLNEED") or not len(chosen):
            return
        order = np.unique(chosen)
        runs = np.split(order, np.flatnonzero(np.diff(order) > 1) + 1)
        header, size = len(self.index.header), self.index.frame_bytes
        for run in runs:
            start = header + int(run[0]) * size
            stop = header + (int(run[-1]) + 1) * size
            start -= start % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedFrames, (self.path, self.index)


@dataclass(frozen=True, repr=False)
class Store(DataSet):
    """A data set whose frames lie in a finished store. Several processes may read it at once.

    Args:
        path: The folder of the store; the other arguments are those of `DataSet`.
    """

    path: Path

    def to(self, device: str | torch.device) -> DataSet:
        """Copy all frames into one tensor.

        Args:
            device: Where to put the tensor.

        Returns:
            The same data set with its frames on `device`.
        """
        import torch

        packed = self.frames
        assert isinstance(packed, PackedFrames)
        frames = torch.empty(packed.index.shape, dtype=torch.uint8, device=device)
        for chunk in range(packed.index.chunks):
            start, stop = packed.index.bounds(chunk)
            frames[start:stop] = packed[torch.arange(start, stop)].to(device, non_blocking=True)
        return DataSet(**packed.index.facts(frames))


def is_store(path: Path) -> bool:
    """Return True if a folder holds a packed store.

    Args:
        path: The folder; it need not exist.
    """
    return (path / INDEX).exists()


def open_store(path: str | Path) -> Store:
    """Open a finished store without reading its frames.

    Args:
        path: The folder of the store.

    Returns:
        The data set that was packed into it.

    Raises:
        FileError: If it is not a store, or damaged. The message says what to do.
    """
    folder = Path(path).expanduser()
    if not (folder / INDEX).is_file():
        raise FileError(
            f"{folder} is not a packed store: it has no {INDEX}. "
            "Make one with: primavista data pack SOURCE STORE"
        )
    index, checksums = load_index(folder / INDEX)
    with file_errors("read", folder / FRAMES, "Pack the data set again"):
        size = os.stat(folder / FRAMES).st_size
    if size != index.file_bytes or len(checksums) != index.chunks:
        raise FileError(
            f"{folder / FRAMES} has {size} bytes, not {index.file_bytes}: it is damaged. "
            "Pack the data set again"
        )
    return Store(path=folder, **index.facts(PackedFrames(folder, index)))


def damaged_sessions(path: str | Path, progress: Progress | None = None) -> list[str]:
    """Compare every chunk of a finished store with its checksum.

    Args:
        path: The folder of the store.
        progress: Called with (done, total), in frames.

    Returns:
        The sessions, as text, that have frames in damaged chunks; empty if every bit is as it was
        packed.

    Raises:
        FileError: If the store cannot be opened.
    """
    store = open_store(path)
    index, checksums = load_index(store.path / INDEX)
    damaged: list[str] = []
    with open(store.path / FRAMES, "rb") as file:
        file.seek(len(index.header))
        for chunk, expected in enumerate(checksums):
            start, stop = index.bounds(chunk)
            data = file.read((stop - start) * index.frame_bytes)
            if hashlib.sha256(data).hexdigest() != expected:
                damaged += [
                    f"{store.classes[session.label]}, session {session.number}"
                    for session in (*store.train, *store.test)
                    if session.start < stop and start < session.stop
                ]
            if progress:
                progress(stop, index.count)
    return list(dict.fromkeys(damaged))


def pack(
    data: DataSet,
    path: str | Path,
    workers: int = 1,
    progress: Progress | None = None,
) -> Store:
    """Decode every frame of a data set once into a store.

    The store is there once it is complete: nothing is kept of a run that is stopped. A store that
    is complete already is opened if it holds the same data set.

    Args:
        data: The data set.
        path: The folder of the store; it is made if it does not exist.
        workers: The number of threads that decode frames. The data sets of this package may be read
            by several threads at once; frames of your own must allow that if there is more than
            one.
        progress: Called with (done, total), in frames.

    Returns:
        The opened store.

    Raises:
        InputError: If the folder holds something else, or the disk is too small.
        FileError: If the folder cannot be written, or another process is packing it.
    """
    folder, index = Path(path).expanduser(), make_index(data)
    if workers < 1:
        raise InputError(f"workers must be at least 1; got {workers}")
    # a complete store has a temporary file if the power was cut at the very end
    if not _is_complete(folder) or any(folder.glob(".*.part")):
        with file_errors("write", f"the store {folder}", CHOOSE_FOLDER):
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / LOCK, 0.0, f"is packing {folder}", remove_if=lambda: True):
                remove_leftovers(folder)
                if not _is_complete(folder):
                    _fill(data.frames, index, folder, workers, progress)
    found, _ = load_index(folder / INDEX)
    if index != found:
        raise InputError(
            f"{folder} holds another data set ({found.name}, {found.count} frames of "
            f"{found.width} x {found.height}): choose another path, or delete it first"
        )
    return open_store(folder)


def _is_complete(folder: Path) -> bool:
    """True if there is a store; its frames get their name last."""
    return (folder / INDEX).exists() and (folder / FRAMES).exists()


def _fill(
    frames: Frames, index: StoreIndex, folder: Path, workers: int, progress: Progress | None
) -> None:
    """Decode all chunks into an empty folder."""
    if set(os.listdir(folder)) - {LOCK, INDEX}:
        raise InputError(f"{folder} is not empty and not a store: choose a folder of its own")
    free = shutil.disk_usage(folder).free
    if index.file_bytes > free:
        raise InputError(
            f"the store {folder} needs {index.file_bytes:,} bytes for {index.count:,} frames of "
            f"{index.width} x {index.height}, and {free:,} are free: make room, choose another "
            "disk, or pack fewer or smaller frames"
        )
    with replacing(folder / FRAMES) as part:
        with disk.opened(part) as file:  # its full size, so that chunks come in any order
            disk.write(file, index.header)
            disk.truncate(file, index.file_bytes)
        if progress:
            progress(0, index.count)
        checksums = []
        write_chunk = partial(_write_chunk, frames, index, part)
        with _one_torch_thread(), ThreadPoolExecutor(workers) as pool:
            try:
                for digest in pool.map(write_chunk, range(index.chunks)):
                    checksums.append(digest)
                    if progress:
                        progress(min(len(checksums) * index.chunk, index.count), index.count)
            finally:
                pool.shutdown(cancel_futures=True)
        write_atomically(folder / INDEX, dump_index(index, checksums))
    disk.sync_folder(folder)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let torch use one thread per thread of ours, which draws small pictures fastest.

    On a busy machine two threads can be ten times slower.
    """
    import torch  # opening a store needs none

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _write_chunk(frames: Frames, index: StoreIndex, path: Path, chunk: int) -> str:
    """Decode the frames of a chunk and write them safely to disk; return their sha256."""
    start, stop = index.bounds(chunk)
    images = np.ascontiguousarray(frames_at(frames, np.arange(start, stop)))
    if images.shape != (stop - start, *index.shape[1:]):
        raise InputError(
            f"frames {start} to {stop} have shape {images.shape}; "
            "all frames of a store must have one size"
        )
    data = images.reshape(-1).data
    with disk.opened(path, make=False) as file:
        os.lseek(file, len(index.header) + start * index.frame_bytes, os.SEEK_SET)
        disk.write(file, data)
        disk.sync(file)
    return hashlib.sha256(data).hexdigest()
