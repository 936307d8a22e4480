"""Decoding of a store's chunks, in this process or in worker processes."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

import numpy as np
import torch
from torch import Tensor

from primavista.engine.frames import read_frames
from primavista.errors import InputError, PrimavistaError
from primavista.media import decode
from primavista.media.frames import Frames
from primavista.storage import disk
from primavista.streams.store.index import FRAMES, StoreIndex

# Chunks that pay for starting workers, which take about three seconds to import torch.
WORTHWHILE_CHUNKS = 16
# Bytes. What is larger when pickled is not sent to workers: its frames are decoded already.
LARGE = 64 * 2**20


def decode_chunks(
    frames: Frames, index: StoreIndex, folder: Path, chunks: list[int], workers: int | None
) -> Iterator[tuple[int, str]]:
    """Decode chunks and write them to the file of frames, in any order.

    Args:
        frames: The frames of the data set.
        index: The index of the store.
        folder: The folder of the store, whose file of frames exists.
        chunks: The numbers of the chunks to decode.
        workers: The number of processes. None starts one per core if there are enough chunks.

    Yields:
        The number of a chunk and its sha256, once its frames are safely on disk.

    Raises:
        InputError: If the frames do not all have the size that the index gives.
        PrimavistaError: If a worker process ends early.
    """
    count = workers or (usable_cores() if len(chunks) >= WORTHWHILE_CHUNKS else 1)
    if min(count, len(chunks)) > 1 and _can_be_sent(frames):
        yield from _in_processes(frames, index, folder, chunks, min(count, len(chunks)))
        return
    for chunk in chunks:
        yield chunk, _write_chunk(frames, index, folder, chunk)


def usable_cores() -> int:
    """Return the number of processors that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_processes(
    frames: Frames, index: StoreIndex, folder: Path, chunks: list[int], workers: int
) -> Iterator[tuple[int, str]]:
    job = (frames, index, folder)
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (job,)) as pool:
        waiting: dict[Future[str], int] = {pool.submit(_work, chunk): chunk for chunk in chunks}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool as error:
            raise PrimavistaError(
                "a worker process of pack ended early: it was out of memory, stopped from outside, "
                'or started by a script that calls pack without `if __name__ == "__main__":` above.'
                " What is done is kept; resume with the same call, or with workers=1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_job: tuple[Frames, StoreIndex, Path]


def _start_worker(job: tuple[Frames, StoreIndex, Path]) -> None:
    """Prepare a worker: one thread, and an end when the parent process ends, however it ends."""
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
    images = read_frames(frames, torch.arange(start, stop), torch.device("cpu")).contiguous()
    if images.shape != (stop - start, *index.shape[1:]):
        raise InputError(
            f"frames {start} to {stop} have shape {tuple(images.shape)}; "
            "all frames of a store must have one size"
        )
    data = images.numpy().reshape(-1).data
    with disk.opened(folder / FRAMES, make=False) as file:
        os.lseek(file, len(index.header) + start * index.frame_bytes, os.SEEK_SET)
        disk.write(file, data)
        disk.sync(file)
    return hashlib.sha256(data).hexdigest()


def _can_be_sent(frames: Frames) -> bool:
    """True if the frames can be pickled, and are not in memory already."""
    if isinstance(frames, Tensor | np.ndarray):
        return False
    try:
        return len(pickle.dumps(frames)) < LARGE
    except Exception:
        return False
