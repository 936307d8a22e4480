"""Decoding of a store's chunks, here or in worker processes."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.errors import InputError, PrimavistaError
from primavista.frames import Frames, read_frames
from primavista.streams import decode
from primavista.streams.packed import FRAMES, Plan

PAYS = 15.0  # seconds: importing torch in each worker takes about three
LARGE = (
    64 * 2**20
)  # bytes: an array of frames that is not sent to workers, since there is nothing to decode


def decoded(
    frames: Frames, plan: Plan, folder: Path, todo: list[int], workers: int | None
) -> Iterator[tuple[int, str]]:
    """Each chunk with its checksum once its frames are safely in the file.

    Without `workers`, there is one a core, where decoding in this process would take longer than starting them pays for.
    """
    todo, count = list(todo), workers or cores()
    portable = count > 1 and len(todo) > 1 and _portable(frames)
    while todo:
        if portable and workers is not None:
            break
        began = time.perf_counter()
        chunk = todo.pop(0)
        yield chunk, _write_chunk(frames, plan, folder, chunk)
        if portable and (time.perf_counter() - began) * len(todo) > PAYS:
            break
    if todo:
        yield from _in_processes(frames, plan, folder, todo, min(count, len(todo)))


def _in_processes(
    frames: Frames, plan: Plan, folder: Path, todo: list[int], workers: int
) -> Iterator[tuple[int, str]]:
    job = (frames, plan, folder)
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (job,)) as pool:
        waiting: dict[Future[str], int] = {pool.submit(_work, chunk): chunk for chunk in todo}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool as error:
            raise PrimavistaError(
                "a worker process of pack ended early: out of memory, stopped from outside, or started by a script that calls "
                'pack without `if __name__ == "__main__":` above. What is done is kept; go on with the same call, or workers=1'
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_job: tuple[Frames, Plan, Path]


def _begin(job: tuple[Frames, Plan, Path]) -> None:
    """In a worker: one thread, and an end when the process that started it ends, however that ends."""
    global _job
    _job = job
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all: the process that started them ends them
    torch.set_num_threads(1)
    decode.threads = 1
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _work(chunk: int) -> str:
    return _write_chunk(*_job, chunk)


def _write_chunk(frames: Frames, plan: Plan, folder: Path, chunk: int) -> str:
    start, stop = plan.bounds(chunk)
    images = read_frames(frames, torch.arange(start, stop), torch.device("cpu")).contiguous()
    if images.shape != (stop - start, *plan.shape[1:]):
        raise InputError(
            f"frames {start} to {stop} have shape {tuple(images.shape)}; all frames of a store have one size"
        )
    data = images.numpy().reshape(-1).data
    with open(folder / FRAMES, "r+b", buffering=0) as file:
        file.seek(len(plan.header) + start * plan.frame_bytes)
        sent = 0
        while sent < len(data):
            sent += file.write(data[sent:]) or 0
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Stop before a large array is copied."""
        size = value.nbytes if isinstance(value, np.ndarray | Tensor) else 0
        if size > LARGE or (isinstance(value, Tensor) and value.device.type != "cpu"):
            raise pickle.PicklingError("frames that are in memory already")
        return NotImplemented


def _portable(frames: Frames) -> bool:
    """Whether the frames can be sent to a worker, and are not decoded already."""
    if isinstance(frames, Tensor):
        return False
    try:
        _Pickler(io.BytesIO()).dump(frames)
    except Exception:
        return False
    return True


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
