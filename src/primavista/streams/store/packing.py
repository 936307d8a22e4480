"""Packing: every frame of a data set is decoded once, in chunks, into a store."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

import numpy as np

from primavista.arrays import as_numpy, is_torch_array
from primavista.errors import CHOOSE_FOLDER, InputError, PrimavistaError, file_errors
from primavista.media import decode
from primavista.media.frames import Frames
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

    The store is there once it is complete: nothing is kept of a run that is stopped. A store that
    is complete already is opened if it holds the same data set.

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
    # a complete store has a temporary file if the power was cut at the very end
    if not _is_complete(folder) or any(folder.glob(".*.part")):
        with file_errors("write", f"the store {folder}", CHOOSE_FOLDER):
            folder.mkdir(parents=True, exist_ok=True)
            with packing_lock(folder):
                remove_leftovers(folder)
                if not _is_complete(folder):
                    _fill(data.frames, index, folder, workers, progress)
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


def _is_complete(folder: Path) -> bool:
    """True if there is a store; its frames get their name last."""
    return (folder / INDEX).exists() and (folder / FRAMES).exists()


def _fill(
    frames: Frames, index: StoreIndex, folder: Path, workers: int | None, progress: Progress | None
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
        for digest in _decode_chunks(frames, index, part, workers):
            checksums.append(digest)
            if progress:
                progress(min(len(checksums) * index.chunk, index.count), index.count)
        write_atomically(folder / INDEX, dump_index(index, checksums))
    disk.sync_folder(folder)


def _check_same(index: StoreIndex, found: StoreIndex, folder: Path) -> None:
    if index != found:
        raise InputError(
            f"{folder} holds another data set ({found.name}, {found.count} frames of "
            f"{found.width} x {found.height}): choose another path, or delete it first"
        )


def _decode_chunks(
    frames: Frames, index: StoreIndex, path: Path, workers: int | None
) -> Iterator[str]:
    """Write chunks; yield the sha256 of each, in order, once its frames are safely on disk."""
    job = frames, index, path
    count = workers or (usable_cores() if index.chunks >= WORTHWHILE_CHUNKS else 1)
    if min(count, index.chunks) > 1 and _can_be_sent(frames):
        yield from _in_processes(job, min(count, index.chunks))
    else:
        yield from (_write_chunk(*job, chunk) for chunk in range(index.chunks))


def _can_be_sent(frames: Frames) -> bool:
    """True if the frames can be pickled, and are not in memory already."""
    if isinstance(frames, np.ndarray) or is_torch_array(frames):
        return False
    try:
        return len(pickle.dumps(frames)) < LARGE
    except Exception:
        return False


_Job = tuple[Frames, StoreIndex, Path]  # what is decoded, and the file to write
_job: _Job


def _in_processes(job: _Job, workers: int) -> Iterator[str]:
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (job,)) as pool:
        try:
            yield from pool.map(_work, range(job[1].chunks))
        except BrokenProcessPool as error:
            raise PrimavistaError(
                "a worker process of pack ended early: it was out of memory, stopped from outside, "
                'or started by a script that calls pack without `if __name__ == "__main__":` above.'
                " Call it again, with workers=1 perhaps"
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


def _write_chunk(frames: Frames, index: StoreIndex, path: Path, chunk: int) -> str:
    start, stop = index.bounds(chunk)
    images = np.ascontiguousarray(as_numpy(frames[np.arange(start, stop)]))
    if images.dtype != np.uint8 or images.shape != (stop - start, *index.shape[1:]):
        raise InputError(
            f"frames {start} to {stop} are {images.dtype} of shape {images.shape}; "
            "all frames of a store must be uint8 and have one size"
        )
    data = images.reshape(-1).data
    with disk.opened(path, make=False) as file:
        os.lseek(file, len(index.header) + start * index.frame_bytes, os.SEEK_SET)
        disk.write(file, data)
        disk.sync(file)
    return hashlib.sha256(data).hexdigest()
