"""The files of a packed store: one uint8 .npy array, and an index that says what lies where."""

from __future__ import annotations

import hashlib
import io
import json
import mmap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.errors import FileError
from primavista.storage.lock import FileLock
from primavista.streams.dataset import DataSet, Origin, Session

Rows = tuple[tuple[int, int, int, int], ...]
FORMAT = 1
CHUNK = 256  # frames: what one worker decodes at a time, and what one checksum covers
FRAMES, INDEX, PART, DONE, LOCK = (
    "frames.npy",
    "index.json",
    "index.part.json",
    "done.jsonl",
    "lock",
)


@dataclass(frozen=True)
class Plan:
    """What a store holds, before any frame is decoded: two packings of the same data have equal plans.

    `probe` is a checksum of a few frames, so that another data set of the same shape is noticed. Of CORe50 the folder that it
    was packed from (with its official orders, perhaps) and the object of each training session are noted.
    """

    name: str
    classes: tuple[str, ...]
    categories: tuple[int, ...]
    train: Rows
    test: Rows
    count: int
    height: int
    width: int
    probe: str
    chunk: int = CHUNK
    format: int = FORMAT
    folder: str = field(default="", compare=False)
    objects: tuple[int, ...] = field(default=(), compare=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the array."""
        return self.count, self.height, self.width, 3

    @property
    def chunks(self) -> int:
        """How many pieces it is made of."""
        return -(-self.count // self.chunk)

    def bounds(self, chunk: int) -> tuple[int, int]:
        """The first frame of a chunk, and the one after its last."""
        return chunk * self.chunk, min((chunk + 1) * self.chunk, self.count)

    @property
    def frame_bytes(self) -> int:
        """Of one frame."""
        return self.height * self.width * 3

    @property
    def header(self) -> bytes:
        """What stands before the frames in the .npy file, so that `numpy.load` reads it too."""
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": self.shape}
        )
        return file.getvalue()

    @property
    def file_bytes(self) -> int:
        """Of the whole array file."""
        return len(self.header) + self.count * self.frame_bytes

    def data_set(self, frames: Any) -> DataSet:
        """The data set with these frames."""
        train, test = (tuple(Session(*row) for row in rows) for rows in (self.train, self.test))
        return DataSet(
            self.name, frames, train, test, self.classes, self.categories, origin=self.origin
        )

    @property
    def origin(self) -> Origin | None:
        """Of CORe50: where it was packed from."""
        return (
            Origin(Path(self.folder), self.objects)
            if self.folder and len(self.objects) == len(self.train)
            else None
        )


def plan_of(data: DataSet) -> Plan:
    """The plan of a data set; decodes three of its frames."""
    count = len(data.frames)
    if not count or not (data.train or data.test):
        raise FileError(f"the data set {data.name} has no frames to pack")
    some = data.frames[torch.tensor(sorted({0, count // 2, count - 1}))].cpu().contiguous()
    train, test = rows(data)
    height, width = some.shape[1:3]
    return Plan(
        data.name,
        data.classes,
        data.categories,
        train,
        test,
        count,
        height,
        width,
        hashlib.sha256(some.numpy().tobytes()).hexdigest(),
        folder=str(data.origin.folder) if data.origin else "",
        objects=data.origin.objects if data.origin else (),
    )


def rows(data: DataSet) -> tuple[Rows, Rows]:
    """Label, number, start and stop of the training sessions, and of those for testing."""
    train, test = (
        tuple((s.label, s.number, s.start, s.stop) for s in sessions)
        for sessions in (data.train, data.test)
    )
    return train, test


def dump(plan: Plan, sums: list[str] | None = None) -> bytes:
    """The text of the index; with the checksums of the chunks where it is finished."""
    record: dict[str, Any] = {"plan": asdict(plan)} | ({} if sums is None else {"sha256": sums})
    own = hashlib.sha256(_canonical(record).encode()).hexdigest()
    return (json.dumps(record | {"checksum": own}, indent=1) + "\n").encode()


def load(path: Path) -> tuple[Plan, list[str]]:
    """Plan and checksums from the file of an index."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        record = json.loads(text)
        own = record.pop("checksum")
        if record["plan"]["format"] > FORMAT:
            raise FileError(
                f"{path} is of a newer primavista: update it (pip install -U primavista)"
            )
        if own != hashlib.sha256(_canonical(record).encode()).hexdigest():
            raise ValueError("its checksum does not match")
        plan = Plan(**{key: _tuples(value) for key, value in record["plan"].items()})
        return plan, list(record.get("sha256", []))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} is damaged or not the index of a packed store ({error}): pack the data set again"
        ) from error


class Packed:
    """Frames of a finished store: memory-mapped, read-only, opened when first used, one mapping a process."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.plan = path, plan
        self._map: mmap.mmap | None = None
        self._array: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return self.plan.count

    def __getitem__(self, indices: Tensor) -> Tensor:
        chosen = indices.detach().cpu().numpy()
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        array = self.array
        self._announce(chosen)
        return torch.from_numpy(array[chosen])

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The mapping: N x H x W x 3."""
        if self._array is None:
            try:
                with open(self.path / FRAMES, "rb") as file:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise FileError(f"cannot read {self.path / FRAMES}: {error}") from error
            self._array = np.frombuffer(self._map, np.uint8, offset=len(self.plan.header)).reshape(
                self.plan.shape
            )
        return self._array

    def _announce(self, chosen: np.ndarray[Any, Any]) -> None:
        """Let the system read all that will be asked for at once: from a cold disk, many times faster than page by page."""
        if self._map is None or not hasattr(mmap, "MADV_WILLNEED") or not len(chosen):
            return
        order = np.unique(chosen % self.plan.count)
        runs = np.split(order, np.flatnonzero(np.diff(order) > 1) + 1)
        for run in runs:
            start = len(self.plan.header) + int(run[0]) * self.plan.frame_bytes
            stop = len(self.plan.header) + (int(run[-1]) + 1) * self.plan.frame_bytes
            start -= start % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.path, self.plan)


def packing_lock(folder: Path) -> FileLock:
    """Return the lock that lets one process at a time write a store.

    Args:
        folder: The folder of the store. The lock file in it is removed when the lock is released.
    """
    return FileLock(folder / LOCK, 0.0, f"is packing {folder}", remove_if=lambda: True)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
