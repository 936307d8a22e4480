"""Packing: every frame of a data set is decoded once, in chunks, and an interrupted run resumes."""

from __future__ import annotations

import json
import os
import shutil
from fnmatch import fnmatch
from pathlib import Path

from primavista.errors import InputError, file_errors
from primavista.media.frames import Frames
from primavista.progress import Progress
from primavista.storage import disk
from primavista.storage.disk import FileLock, remove_leftovers, write_atomically
from primavista.streams.dataset import DataSet
from primavista.streams.store.index import (
    DONE,
    FRAMES,
    INDEX,
    LOCK,
    PART,
    StoreIndex,
    chunk_checksum,
    dump_index,
    load_index,
    make_index,
)
from primavista.streams.store.reading import Store, finished_chunks, open_store

KEPT = "What is done is kept: make room, or choose a folder that you can write to, and pack again"


def pack(
    data: DataSet,
    path: str | Path,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """Decode every frame of a data set once into a store.

    If the run is stopped or killed, or the disk is full, the finished chunks are kept, and the same
    call resumes to the same bytes. A store that is complete already is opened if it holds the same
    data set.

    Args:
        data: The data set.
        path: The folder of the store; it is made if it does not exist.
        workers: The number of processes. By default there is one per core if there are enough
            frames to pay for starting them. Frames that cannot be sent to another process (made by
            a lambda, for example) are decoded in this one.
        progress: Called with (done, total), in frames.

    Returns:
        The opened store.

    Raises:
        InputError: If the folder holds something else, or the disk is too small.
        FileError: If the folder cannot be written, or another process is packing it.
    """
    folder, index = Path(path).expanduser(), make_index(data)
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1; got {workers}")
    # a complete store has an index and, if the power was cut at the very end, the unfinished one
    if not (folder / INDEX).exists() or (folder / PART).exists():
        with file_errors("write", f"the store {folder}", KEPT):
            folder.mkdir(parents=True, exist_ok=True)
            with packing_lock(folder):
                remove_leftovers(folder)
                if not (folder / INDEX).exists():
                    _begin(index, folder)
                    _fill(data.frames, index, folder, workers, progress or _silent)
                for name in (DONE, PART):
                    disk.remove(folder / name)
    _check_same(index, load_index(folder / INDEX)[0], folder)
    return open_store(folder)


def packing_lock(folder: Path) -> FileLock:
    """Return the lock that lets one process at a time write a store.

    Args:
        folder: The folder of the store. The lock file in it is removed when the lock is released.
    """
    return FileLock(folder / LOCK, 0.0, f"is packing {folder}", remove_if=lambda: True)


def _silent(done: int, total: int | None, /) -> None:
    """Report no progress."""


def _begin(index: StoreIndex, folder: Path) -> None:
    """Claim an empty folder for a data set, or check that it was claimed for this one."""
    if (folder / PART).exists():
        _check_same(index, load_index(folder / PART)[0], folder)
        _check_disk_space(folder, index)
    else:
        if not all(map(_is_ours, os.listdir(folder))):
            raise InputError(f"{folder} is not empty and not a store: choose a folder of its own")
        _check_disk_space(folder, index)
        write_atomically(folder / PART, dump_index(index))
    _reserve(folder / FRAMES, index)
    disk.sync_folder(folder)  # the name of the frames before that of the index


def _is_ours(name: str) -> bool:
    """True for the lock, and for a temporary index that a killed process left behind."""
    return name == LOCK or fnmatch(name, f".{PART}*.part")


def _fill(
    frames: Frames, index: StoreIndex, folder: Path, workers: int | None, progress: Progress
) -> None:
    """Decode the chunks that are not done, then put the index in its place."""
    from primavista.streams.store.workers import decode_chunks  # only packing needs torch

    checksums = _intact_chunks(folder, index)
    missing = [chunk for chunk in range(index.chunks) if chunk not in checksums]
    done = sum(stop - start for start, stop in map(index.bounds, checksums))
    progress(done, index.count)
    with disk.opened(folder / DONE) as log:
        os.lseek(log, 0, os.SEEK_END)
        for chunk, digest in decode_chunks(frames, index, folder, missing, workers):
            checksums[chunk] = digest
            disk.write(log, json.dumps({"chunk": chunk, "sha256": digest}).encode() + b"\n")
            disk.sync(log)
            start, stop = index.bounds(chunk)
            done += stop - start
            progress(done, index.count)
    ordered = [checksums[chunk] for chunk in range(index.chunks)]
    write_atomically(folder / INDEX, dump_index(index, ordered))


def _intact_chunks(folder: Path, index: StoreIndex) -> dict[int, str]:
    """The checksums of the chunks that are marked done and really lie on disk."""
    intact = {}
    for chunk, digest in finished_chunks(folder).items():
        if chunk < index.chunks and chunk_checksum(folder, index, chunk) == digest:
            intact[chunk] = digest
    return intact


def _check_disk_space(folder: Path, index: StoreIndex) -> None:
    """Refuse a store that the disk cannot hold before any space is taken."""
    taken = 0
    if (folder / FRAMES).exists():
        found = os.stat(folder / FRAMES)
        taken = min(found.st_size, getattr(found, "st_blocks", 0) * 512)
    need = index.file_bytes - taken
    free = shutil.disk_usage(folder).free
    if need > free:
        raise InputError(
            f"the store {folder} needs {need:,} bytes more for {index.count:,} frames of "
            f"{index.width} x {index.height}, and {free:,} are free: make room, choose another "
            "disk, or pack fewer or smaller frames"
        )


def _reserve(path: Path, index: StoreIndex) -> None:
    """Give the file its full size, so that chunks can be written in any order."""
    with disk.opened(path) as file:
        disk.write(file, index.header)
        disk.truncate(file, index.file_bytes)


def _check_same(index: StoreIndex, found: StoreIndex, folder: Path) -> None:
    if index != found:
        raise InputError(
            f"{folder} holds another data set ({found.name}, {found.count} frames of "
            f"{found.width} x {found.height}): choose another path, or delete it first"
        )
