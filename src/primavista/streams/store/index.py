"""The index of a packed store: what it holds, where each frame lies, and the checksums."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from primavista.errors import FileError, file_errors
from primavista.media.frames import Frames, frames_at
from primavista.streams.dataset import CORe50Facts, DataSet, Session

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
        index = TypeAdapter(StoreIndex).validate_json(json.dumps(record["plan"]), strict=True)
        return index, list(record["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} is damaged or not the index of a packed store ({error}): "
            "pack the data set again"
        ) from error


def chunk_checksum(folder: Path, index: StoreIndex, chunk: int) -> str:
    """Return the sha256 of a chunk as it lies on disk.

    Args:
        folder: The folder of the store.
        index: Its index.
        chunk: The number of the chunk, from 0.
    """
    start, stop = index.bounds(chunk)
    with open(folder / FRAMES, "rb") as file:
        file.seek(len(index.header) + start * index.frame_bytes)
        return hashlib.sha256(file.read((stop - start) * index.frame_bytes)).hexdigest()


def _checksum(record: dict[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
