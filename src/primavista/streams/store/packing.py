"""Packing: every frame of a data set is decoded once, in chunks, into a store."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from primavista.errors import CHOOSE_FOLDER, InputError, file_errors
from primavista.media.frames import Frames, frames_at
from primavista.progress import Progress
from primavista.storage import disk
from primavista.storage.disk import FileLock, remove_leftovers, replacing, write_atomically
from primavista.streams.dataset import DataSet
from primavista.streams.store.index import (
    FRAMES,
    INDEX,
    LOCK,
    StoreIndex,
    dump_index,
    load_index,
    make_index,
)
from primavista.streams.store.reading import Store, open_store


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


def usable_cores() -> int:
    """Return the number of processors that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
