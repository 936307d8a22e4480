"""The data of a benchmark: named in full in `run.json`, opened in whatever process needs it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from primavista.errors import CHOOSE_FOLDER, InputError, file_errors
from primavista.storage.lock import FileLock
from primavista.streams import open as streams
from primavista.streams.dataset import DataSet
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import VERSION, Scene
from primavista.streams.store import Store, open_store, pack

Positive = Annotated[int, Field(ge=1)]
Progress = Callable[[int, int], None]
SHARE = 0.5  # of the free GPU memory that frames may take


class StrictModel(BaseModel):
    """Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RenderedData(StrictModel):
    """Object videos drawn by us: see `Scene`."""

    kind: Literal["rendered"] = "rendered"
    name: str = "rendered"
    categories: Positive = 10
    objects: Positive = 5
    sessions: Positive = 11
    frames: Positive = 60
    size: Annotated[int, Field(ge=8)] = 128
    seed: int = 0
    renderer: Positive = VERSION

    @property
    def scene(self) -> Scene:
        """What to draw."""
        return Scene(
            self.categories, self.objects, self.sessions, self.frames, self.size, self.seed
        )


class CORe50Data(StrictModel):
    """CORe50 on disk; `orders` is another folder with the official orders, `test` as in `CORe50`."""

    kind: Literal["core50"]
    name: str = "core50"
    path: str
    size: Positive = 128
    test: str | None = None
    labels: Literal["object", "category"] = "object"
    orders: str | None = None


class StoreData(StrictModel):
    """A packed store."""

    kind: Literal["store"]
    name: str = "store"
    path: str
    orders: str | None = None


class FolderData(StrictModel):
    """A folder a class, in it a folder or a video a session."""

    kind: Literal["folder"]
    name: str = "folder"
    path: str
    size: Positive = 128


Data = Annotated[RenderedData | CORe50Data | StoreData | FolderData, Field(discriminator="kind")]


def parse_source(source: str, **settings: Any) -> dict[str, Any]:
    """The data named on the command line: `rendered`, `rendered:objects=2,frames=12`, or the path of any kind of data set."""
    found = streams.parse_source(source)
    if found.kind == "rendered":
        return {"kind": "rendered", **settings, **found.scene}
    assert found.path is not None
    path = found.path.resolve()
    if not path.is_dir():
        raise InputError(
            f"there is no folder {path}: give a data set, a packed store, "
            "or rendered:objects=2,frames=12"
        )
    name = {} if found.kind == "core50" else {"name": path.name}
    sized = found.kind != "store" and "size" in settings
    size = {"size": settings["size"]} if sized else {}
    return {"kind": found.kind, "path": str(path), **name, **size}


def open_data(
    data: Data,
    cache: Path,
    device: str = "cpu",
    workers: int | None = 1,
    progress: Progress | None = None,
    resident: bool = True,
) -> DataSet:
    """The data set, its frames on the GPU where they fit, if `resident`.

    Rendered ones are drawn once, by the device that learns from them, into a store under `cache`.
    """
    opened = _opened(data, cache, device, workers, progress)
    if (
        resident
        and device == "cuda"
        and isinstance(opened, Store)
        and _bytes(opened) < SHARE * torch.cuda.mem_get_info()[0]
    ):
        return opened.to(device)
    return opened


@lru_cache(maxsize=2)
def kept_data(data: Data, cache: Path, device: str) -> DataSet:
    """`open_data`, kept open for the next cell of this process."""
    return open_data(data, cache, device)


def is_core50(data: Data) -> bool:
    """Whether the paper's values for CORe50 hold."""
    return data.kind == "core50" or (
        data.kind == "store" and open_store(data.path).name.startswith("core50")
    )


def _opened(
    data: Data, cache: Path, device: str, workers: int | None, progress: Progress | None
) -> DataSet:
    if data.kind == "rendered":
        if data.renderer != VERSION:
            raise InputError(
                f"these frames were drawn by version {data.renderer} of the renderer, and this is version {VERSION}: choose "
                "another folder, or install the primavista that drew them"
            )
        with file_errors("make", cache, CHOOSE_FOLDER):
            cache.mkdir(parents=True, exist_ok=True)
        key = hashlib.sha256(data.model_dump_json().encode()).hexdigest()[:8]
        if device != "cpu":  # it rounds otherwise: here and there a pixel is one level off
            key, workers = f"{key}-{device}", 1
        with FileLock(cache / f".{key}.lock", wait=None), _one_thread():
            return pack(rendered(data.scene, device), cache / f"rendered-{key}", workers, progress)
    source = streams.DataSource(data.kind, Path(data.path))
    if data.kind == "core50":
        return streams.open_dataset(source, size=data.size, labels=data.labels, test=data.test)
    return streams.open_dataset(source, size=data.size if data.kind == "folder" else None)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small pictures are drawn fastest by one thread a process; two on a busy machine can be ten times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bytes(store: Store) -> int:
    return os.stat(store.path / "frames.npy").st_size
