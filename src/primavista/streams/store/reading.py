"""Reading and checking packed stores."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from primavista.arrays import chosen_rows, like_indices
from primavista.errors import FileError, file_errors
from primavista.media.images import ImageArray
from primavista.progress import Progress
from primavista.streams.dataset import DataSet
from primavista.streams.store.index import (
    FRAMES,
    INDEX,
    StoreIndex,
    chunk_checksum,
    load_index,
)

if TYPE_CHECKING:
    import torch


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
    for chunk in range(index.chunks):
        start, stop = index.bounds(chunk)
        if chunk_checksum(store.path, index, chunk) != checksums[chunk]:
            damaged += [
                f"{store.classes[session.label]}, session {session.number}"
                for session in (*store.train, *store.test)
                if session.start < stop and start < session.stop
            ]
        if progress:
            progress(stop, index.count)
    return list(dict.fromkeys(damaged))
