"""Packing: every frame of a data set is decoded once, in chunks, and an interrupted run resumes."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

import numpy as np

from primavista.arrays import as_numpy, is_torch_array
from primavista.errors import InputError, PrimavistaError, file_errors
from primavista.media import decode
from primavista.media.frames import Frames
from primavista.progress import Progress
from primavista.storage import disk
from primavista.storage.disk import FileLock, remove_leftovers, write_atomically
from primavista.streams.dataset import DataSet
from primavista.streams.store.index import (
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
from primavista.streams.store.reading import Store, open_store

KEPT = "What is done is kept: make room, or choose a folder that you can write to, and pack again"
# Chunks that pay for starting workers, which take about three seconds to import torch.
WORTHWHILE_CHUNKS = 16
# Bytes. What is larger when pickled is not sent to workers: its frames are decoded already.
LARGE = 64 * 2**20


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
                    _fill(data.frames, index, folder, workers, progress)
                disk.remove(folder / PART)
    _check_same(index, load_index(folder / INDEX)[0], folder)
    return open_store(folder)


def packing_lock(folder: Path) -> FileLock:
    """Return the lock that lets one process at a time write a store.

    Args:
        folder: The folder of the store. The lock file in it is removed when the lock is released.
    """
    return FileLock(folder / LOCK, 0.0, f"is packing {folder}", remove_if=lambda: True)


def usable_cores() -> int:
    """Return the number of processors that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fill(
    frames: Frames, index: StoreIndex, folder: Path, workers: int | None, progress: Progress | None
) -> None:
    """Decode the chunks that are not done, then put the index in its place."""
    checksums = _begin(index, folder)
    if progress:
        progress(min(len(checksums) * index.chunk, index.count), index.count)
    with disk.opened(folder / PART) as part:
        os.lseek(part, 0, os.SEEK_END)
        missing = range(len(checksums), index.chunks)
        for digest in _decode_chunks(frames, index, folder, missing, workers):
            checksums.append(digest)
            disk.write(part, _lines([digest]))
            disk.sync(part)
            if progress:
                progress(min(len(checksums) * index.chunk, index.count), index.count)
    write_atomically(folder / INDEX, dump_index(index, checksums))


def _begin(index: StoreIndex, folder: Path) -> list[str]:
    """Claim an empty folder for a data set, or go on in one that was claimed for it.

    Return the checksums of the finished chunks, as far as they really lie on the disk.
    """
    finished: list[str] = []
    if (folder / PART).exists():
        found, finished = load_index(folder / PART)
        _check_same(index, found, folder)
        _check_disk_space(folder, index)
    else:
        if any(name != LOCK for name in os.listdir(folder)):
            raise InputError(f"{folder} is not empty and not a store: choose a folder of its own")
        _check_disk_space(folder, index)
        write_atomically(folder / PART, dump_index(index))
    with disk.opened(folder / FRAMES) as file:  # its full size, so that chunks come in any order
        disk.write(file, index.header)
        disk.truncate(file, index.file_bytes)
    disk.sync_folder(folder)  # the name of the frames before that of the index
    intact = 0
    while intact < len(finished) and chunk_checksum(folder, index, intact) == finished[intact]:
        intact += 1
    write_atomically(folder / PART, dump_index(index), _lines(finished[:intact]))
    return finished[:intact]


def _lines(checksums: list[str]) -> bytes:
    return "".join(f"{digest}\n" for digest in checksums).encode()


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


def _check_same(index: StoreIndex, found: StoreIndex, folder: Path) -> None:
    if index != found:
        raise InputError(
            f"{folder} holds another data set ({found.name}, {found.count} frames of "
            f"{found.width} x {found.height}): choose another path, or delete it first"
        )


def _decode_chunks(
    frames: Frames, index: StoreIndex, folder: Path, chunks: Sequence[int], workers: int | None
) -> Iterator[str]:
    """Write chunks; yield the sha256 of each, in order, once its frames are safely on disk."""
    count = workers or (usable_cores() if len(chunks) >= WORTHWHILE_CHUNKS else 1)
    if min(count, len(chunks)) > 1 and _can_be_sent(frames):
        yield from _in_processes((frames, index, folder), chunks, min(count, len(chunks)))
    else:
        for chunk in chunks:
            yield _write_chunk(frames, index, folder, chunk)


def _can_be_sent(frames: Frames) -> bool:
    """True if the frames can be pickled, and are not in memory already."""
    if isinstance(frames, np.ndarray) or is_torch_array(frames):
        return False
    try:
        return len(pickle.dumps(frames)) < LARGE
    except Exception:
        return False


_Job = tuple[Frames, StoreIndex, Path]
_job: _Job


def _in_processes(job: _Job, chunks: Sequence[int], workers: int) -> Iterator[str]:
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (job,)) as pool:
        try:
            yield from pool.map(_work, chunks)
        except BrokenProcessPool as error:
            raise PrimavistaError(
                "a worker process of pack ended early: it was out of memory, stopped from outside, "
                'or started by a script that calls pack without `if __name__ == "__main__":` above.'
                " What is done is kept; resume with the same call, or with workers=1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker(job: _Job) -> None:
    """Prepare a worker: one thread, and an end when the parent process ends, however it ends."""
    import torch  # opening a store needs none

    global _job
    _job = job
    # Ctrl-C reaches all processes; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    decode.threads = 1
    parent = parent_process()
    if parent is not None:
        Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _work(chunk: int) -> str:
    return _write_chunk(*_job, chunk)


def _write_chunk(frames: Frames, index: StoreIndex, folder: Path, chunk: int) -> str:
    start, stop = index.bounds(chunk)
    images = np.ascontiguousarray(as_numpy(frames[np.arange(start, stop)]))
    if images.dtype != np.uint8 or images.shape != (stop - start, *index.shape[1:]):
        raise InputError(
            f"frames {start} to {stop} are {images.dtype} of shape {images.shape}; "
            "all frames of a store must be uint8 and have one size"
        )
    data = images.reshape(-1).data
    with disk.opened(folder / FRAMES, make=False) as file:
        os.lseek(file, len(index.header) + start * index.frame_bytes, os.SEEK_SET)
        disk.write(file, data)
        disk.sync(file)
    return hashlib.sha256(data).hexdigest()
