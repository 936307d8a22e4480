"""The packed store: the frames of any data set, decoded once into one memory-mapped array.

A store is a folder: `frames.npy` (uint8, N x H x W x 3; `numpy.load` reads it too) and `index.json` (names, classes,
sessions, a sha256 for each 256 frames). The index is written last: its presence means finished.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from primavista.errors import FileError, InputError, PrimavistaError
from primavista.frames import Frames
from primavista.storage.atomic import write_atomically
from primavista.streams.dataset import DataSet
from primavista.streams.packed import (
    DONE,
    FRAMES,
    INDEX,
    LOCK,
    PART,
    Packed,
    Plan,
    dump,
    load,
    packing_lock,
    plan_of,
    rows,
)
from primavista.streams.packing import decoded

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Store(DataSet):
    """A data set whose frames lie in a finished store; several processes may read it at once."""

    path: Path

    def to(self, device: str | torch.device) -> DataSet:
        """The same data set with all frames as one tensor on `device`."""
        packed = self.frames
        assert isinstance(packed, Packed)
        frames = torch.empty(packed.plan.shape, dtype=torch.uint8, device=device)
        for chunk in range(packed.plan.chunks):
            start, stop = packed.plan.bounds(chunk)
            frames[start:stop] = packed[torch.arange(start, stop)].to(device, non_blocking=True)
        return packed.plan.data_set(frames)


@dataclass(frozen=True)
class Report:
    """What `verify` found: which chunks (of `plan.chunk` frames) are damaged, and whose frames those are."""

    frames: int
    chunks: int
    bad: tuple[int, ...]
    sessions: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every bit is as it was packed."""
        return not self.bad


def pack(
    data: DataSet, path: str | Path, workers: int | None = None, progress: Progress | None = None
) -> Store:
    """Decode every frame of `data` once into a store at `path`, with `workers` processes (default: one a core if it pays).

    `progress(done, total)` counts frames. Stopped, killed or out of disk, it keeps the chunks that are done: the same call goes
    on from there, to the same bytes. A store that is finished already is opened, if it holds the same data set.
    Frames that cannot be sent to another process (made by a lambda, say) are decoded in this one.
    """
    folder, plan, tell = (
        Path(path).expanduser(),
        plan_of(data),
        progress or (lambda done, total: None),
    )
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1; got {workers}")
    if not (folder / INDEX).exists():
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with packing_lock(folder):
                if not (folder / INDEX).exists():
                    _fill(data.frames, plan, folder, workers, tell)
    _check_same(plan, load(folder / INDEX)[0], folder)
    return open_store(folder)


def open_store(path: str | Path) -> Store:
    """The data set of a finished store, without reading its frames."""
    folder = Path(path).expanduser()
    if not (folder / INDEX).is_file():
        if (folder / PART).exists():
            raise FileError(
                f"{folder} is an unfinished store: {_finished(folder)}. Pack the same data set to the same path to finish "
                "it (primavista data pack SOURCE STORE), or delete the folder"
            )
        raise FileError(
            f"{folder} is no packed store: it has no {INDEX}. Make one with: primavista data pack SOURCE STORE"
        )
    plan, sums = load(folder / INDEX)
    try:
        size = os.stat(folder / FRAMES).st_size
    except OSError as error:
        raise FileError(
            f"{folder / FRAMES}: {error.strerror or error}. Pack the data set again"
        ) from error
    if size != plan.file_bytes or len(sums) != plan.chunks:
        raise FileError(
            f"{folder / FRAMES} has {size} bytes, not {plan.file_bytes}: it is damaged. Pack the data set again"
        )
    made = plan.data_set(Packed(folder, plan))
    return Store(
        made.name,
        made.frames,
        made.train,
        made.test,
        made.classes,
        made.categories,
        folder,
        origin=made.origin,
    )


def with_store(data: DataSet, path: str | Path) -> DataSet:
    """The same data set, of its own kind, with its frames from the store that it was packed into.

    CORe50 keeps its official orders so: `with_store(CORe50(folder), store)`.
    """
    store = open_store(path)
    if rows(data) != rows(store) or data.classes != store.classes:
        raise InputError(
            f"{path} was not packed from this data set ({data.name}): it holds other sessions ({store.name})"
        )
    return DataSet(
        name=data.name,
        frames=store.frames,
        train=data.train,
        test=data.test,
        classes=data.classes,
        categories=data.categories,
        origin=data.origin,
        note=data.note,
        skipped=data.skipped,
    )


def verify(path: str | Path, progress: Progress | None = None) -> Report:
    """Read a finished store and compare every chunk with its checksum."""
    store = open_store(path)
    plan, sums = load(store.path / INDEX)
    bad = []
    for chunk in range(plan.chunks):
        if _sum(store.path, plan, chunk) != sums[chunk]:
            bad.append(chunk)
        if progress:
            progress(plan.bounds(chunk)[1], plan.count)
    spans = [plan.bounds(chunk) for chunk in bad]
    hit = [
        s
        for s in (*store.train, *store.test)
        if any(s.start < stop and start < s.stop for start, stop in spans)
    ]
    return Report(
        plan.count,
        plan.chunks,
        tuple(bad),
        tuple(f"{store.classes[s.label]}, session {s.number}" for s in hit),
    )


def _fill(frames: Frames, plan: Plan, folder: Path, workers: int | None, tell: Progress) -> None:
    """Decode the chunks that are not done, then put the index in its place."""
    if (folder / PART).exists():
        _check_same(plan, load(folder / PART)[0], folder)
        _check_room(folder, plan)
    else:
        if {entry.name for entry in os.scandir(folder)} - {LOCK, f".{PART}.part"}:
            raise InputError(f"{folder} is not empty and not a store: choose a folder of its own")
        _check_room(folder, plan)
        write_atomically(folder / PART, dump(plan))
    _reserve(folder / FRAMES, plan)
    sums = {
        c: s for c, s in _marks(folder).items() if c < plan.chunks and _sum(folder, plan, c) == s
    }
    write_atomically(folder / DONE, b"".join(_mark(c, s) for c, s in sums.items()))
    todo = [c for c in range(plan.chunks) if c not in sums]
    done = sum(stop - start for start, stop in map(plan.bounds, sums))
    tell(done, plan.count)
    with open(folder / DONE, "ab") as marks:
        for chunk, digest in decoded(frames, plan, folder, todo, workers):
            sums[chunk] = digest
            marks.write(_mark(chunk, digest))
            marks.flush()
            os.fsync(marks.fileno())
            start, stop = plan.bounds(chunk)
            done += stop - start
            tell(done, plan.count)
    write_atomically(folder / INDEX, dump(plan, [sums[c] for c in range(plan.chunks)]))
    for name in (PART, DONE):
        (folder / name).unlink(missing_ok=True)


def _sum(folder: Path, plan: Plan, chunk: int) -> str:
    start, stop = plan.bounds(chunk)
    with open(folder / FRAMES, "rb") as file:
        file.seek(len(plan.header) + start * plan.frame_bytes)
        return hashlib.sha256(file.read((stop - start) * plan.frame_bytes)).hexdigest()


def _check_room(folder: Path, plan: Plan) -> None:
    """Refuse what the disk cannot hold before a byte of it is taken."""
    have = os.stat(folder / FRAMES) if (folder / FRAMES).exists() else None
    need = plan.file_bytes - (min(have.st_size, getattr(have, "st_blocks", 0) * 512) if have else 0)
    free = shutil.disk_usage(folder).free
    if need > free:
        raise InputError(
            f"the store {folder} needs {need:,} bytes more for {plan.count:,} frames of {plan.width} x {plan.height}, and "
            f"{free:,} are free: make room, choose another disk, or pack fewer or smaller frames"
        )


def _reserve(path: Path, plan: Plan) -> None:
    """The whole file at once: a disk that is too small is found out now, not hours later."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.write(plan.header)
        file.flush()
        file.truncate(plan.file_bytes)
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, plan.file_bytes)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # not every file system can
                    raise


def _marks(folder: Path) -> dict[int, str]:
    """Chunks that were marked done; a last line that was cut off in writing does not count."""
    marks: dict[int, str] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / DONE).read_bytes().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                marks[int(entry["chunk"])] = str(entry["sha256"])
    return marks


def _mark(chunk: int, digest: str) -> bytes:
    return json.dumps({"chunk": chunk, "sha256": digest}).encode() + b"\n"


def _finished(folder: Path) -> str:
    try:
        plan, _ = load(folder / PART)
        return f"{len(_marks(folder))} of {plan.chunks} chunks of {plan.name} are done"
    except (FileError, OSError):
        return "it was stopped at its very beginning"


def _check_same(plan: Plan, found: Plan, folder: Path) -> None:
    if plan != found:
        raise InputError(
            f"{folder} holds another data set ({found.name}, {found.count} frames of {found.width} x {found.height}): "
            "choose another path, or delete it first"
        )


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except PrimavistaError:
        raise
    except OSError as error:
        raise FileError(
            f"cannot write the store {folder}: {error.strerror or error}. What is done is kept: make room, or choose a folder "
            "that you may write, and pack again"
        ) from error
