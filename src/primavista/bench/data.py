"""The data of a benchmark: `run.json` describes it in full, so that any process can open it."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from primavista.backbones.onnx import usable_cores
from primavista.engine.representation import free_memory
from primavista.errors import CHOOSE_FOLDER, InputError, file_errors
from primavista.progress import Progress
from primavista.storage.disk import FileLock
from primavista.streams.core50 import REDUCED_EVERY
from primavista.streams.dataset import CORe50Facts, DataSet, Stream, TestFrames
from primavista.streams.open import (
    DataSource,
    open_dataset,
    parse_source,
)
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import VERSION, Scene
from primavista.streams.store import Store, open_store, pack

Positive = Annotated[int, Field(ge=1)]
TestSetName = Literal["reduced", "full"]
PUBLISHED_SIZE = 128  # pixels, of the frames in the paper
GPU_SHARE = 0.5  # of the free GPU memory that frames may take


class StrictModel(BaseModel):
    """A frozen pydantic model that refuses unknown fields, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RenderedData(StrictModel):
    """Videos of objects that the package draws.

    Args:
        kind: "rendered".
        name: The name in reports.
        categories: The number of categories.
        objects: The number of objects per category.
        sessions: The number of videos per object.
        frames: The number of frames per video.
        size: The side of the frames in pixels.
        seed: The seed of everything that is drawn.
        renderer: The version of the renderer; another version draws other pixels.
    """

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
        """The scene for the renderer."""
        return Scene(
            self.categories, self.objects, self.sessions, self.frames, self.size, self.seed
        )


class FilesData(StrictModel):
    """Data on disk.

    Args:
        kind: Which kind of data.
        name: The name in reports; by default that of the folder for data of the user's own, and
            otherwise the kind.
        path: The folder or archive.
    """

    kind: str
    name: str = ""
    path: str

    @model_validator(mode="before")
    @classmethod
    def _named(cls, table: Any) -> Any:
        if not isinstance(table, dict) or table.get("name"):
            return table
        kind, path = table.get("kind"), str(table.get("path", ""))
        return {**table, "name": (kind in ("store", "folder", "list") and Path(path).name) or kind}

    @property
    def options(self) -> dict[str, Any]:
        """The options of `open_dataset`."""
        return self.model_dump(exclude={"kind", "name", "path", "orders"})


class CORe50Data(FilesData):
    """CORe50 on disk.

    Args:
        kind: "core50".
        size: The side of the frames in pixels.
        test: Which test frames, as in `CORe50`; None is the official reduced list.
        orders: Another folder with the official orders.
    """

    kind: Literal["core50"]
    size: Positive = 128
    test: TestFrames | None = None
    orders: str | None = None


class StoreData(FilesData):
    """A packed store.

    Args:
        kind: "store".
        orders: A folder with the official orders of CORe50.
    """

    kind: Literal["store"]
    orders: str | None = None


class FolderData(FilesData):
    """A folder of the user's own: one folder per class, in it one folder or video per session.

    Args:
        kind: "folder".
        size: The side of the frames in pixels.
        test: The names of the test sessions; None is every fourth session of each class.
        split: "fixed", or "run": each run has other test sessions, as many as the fixed split has.
            Run 0 has the fixed one.
    """

    kind: Literal["folder"]
    size: Positive = 128
    test: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    split: Literal["fixed", "run"] = "fixed"

    @model_validator(mode="after")
    def _one_split(self) -> FolderData:
        if self.split == "run" and self.test is not None:
            raise ValueError('test names the test sessions of every run: leave out split = "run"')
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options of `open_dataset` but `split`, which depends on the run."""
        return {"size": self.size, "test_sessions": self.test}


class ListedData(FilesData):
    """A folder with a list of pictures.

    Args:
        kind: "list".
        size: The side of the frames in pixels.
    """

    kind: Literal["list"]
    size: Positive = 128


Data = Annotated[
    RenderedData | CORe50Data | StoreData | FolderData | ListedData,
    Field(discriminator="kind"),
]


def data_settings(source: str, **settings: Any) -> dict[str, Any]:
    """Return the table `data` of a plan for a source that the command line names.

    Args:
        source: "rendered", "rendered:objects=2,frames=12", or the path of any kind of data set.
        **settings: Fields of `RenderedData`; the size is used for folders too.

    Raises:
        InputError: If the text is wrong, or if there is no such folder.
    """
    found = parse_source(source)
    if found.kind == "rendered":
        return {"kind": "rendered", **settings, **found.scene}
    assert found.path is not None
    path = found.path.resolve()
    if not path.is_dir() and found.kind == "folder":
        raise InputError(
            f"there is no folder {path}: give a data set, a packed store, "
            "or rendered:objects=2,frames=12"
        )
    table: dict[str, Any] = {"kind": found.kind, "path": str(path)}
    if found.kind != "store" and "size" in settings:
        table["size"] = settings["size"]
    return table


def open_cell_data(
    data: Data,
    cache: Path,
    device: str = "cpu",
    workers: int | None = 1,
    progress: Progress | None = None,
    resident: bool = True,
    split: int = 0,
) -> DataSet:
    """Open the data of a cell.

    Rendered data is drawn once, by the device that learns from it, into a store under `cache`.

    Args:
        data: The data.
        cache: The folder for rendered data.
        device: The device that learns.
        workers: How many threads draw; None is one per processor.
        progress: Called while frames are drawn, with their number and total.
        resident: Whether a store goes into the memory of the GPU, if it fits.
        split: Which split into training and test sessions; see `split_of`.

    Raises:
        InputError: If the data was drawn by another version of the renderer.
        FileError: If the data cannot be read, or `cache` cannot be written.
    """
    if data.kind == "rendered":
        opened = _open_rendered(data, cache, device, workers, progress)
    else:
        options = data.options
        if data.kind == "folder":
            options["split"] = split
        opened = open_dataset(DataSource(data.kind, Path(data.path)), **options)
    if resident and device == "cuda" and isinstance(opened, Store) and _fits_on_gpu(opened):
        return opened.to(device)
    return opened


def split_of(data: Data, run: int) -> int:
    """Return which split into training and test sessions a run has.

    Args:
        data: The data of the run.
        run: The number of the run.
    """
    return run if data.kind == "folder" and data.split == "run" else 0


@lru_cache(maxsize=2)
def kept_data(data: Data, cache: Path, device: str, split: int = 0) -> DataSet:
    """Return `open_cell_data`, kept open for the next cell of this process.

    Args:
        data: The data.
        cache: The folder for rendered data.
        device: The device that learns.
        split: Which split into training and test sessions.
    """
    return open_cell_data(data, cache, device, split=split)


def choose_test_set(data: Data, test: TestSetName, thin: int) -> tuple[Data, int]:
    """Return the data and the thinning that give a test set.

    CORe50 has an official reduced test set, the folder and a packed copy alike. On other data, one
    frame in `thin` of each test session is taken.

    Args:
        data: The data; the index of a packed store is read.
        test: The whole test set, or the reduced one.
        thin: The thinning of data without an official reduced test set.

    Returns:
        The data, and `test_thin` of the cell.

    Raises:
        InputError: If the whole test set is asked of a packed CORe50 that does not have it.
    """
    if data.kind == "core50":
        return (data if test == "reduced" else data.model_copy(update={"test": "full"})), 1
    store = open_store(data.path) if data.kind == "store" else None
    if store is None or store.core50 is None:
        return data, 1 if test == "full" else thin
    if store.core50.test_set == "full":
        return data, 1 if test == "full" else REDUCED_EVERY
    if test == "full":
        frames = sum(map(len, store.test))
        source = store.origin or "CORE50"
        raise InputError(
            f"the full test set is asked for, and {store.path} holds the "
            f"{store.core50.test_set} test set of CORe50 ({frames:,} frames): pack another store "
            f"with all test frames (primavista data pack {source} STORE --full-test), "
            'run on the folder of CORe50, or set test = "reduced" in the plan'
        )
    return data, 1


class DataFacts(BaseModel):
    """The data that a cell learned from and was tested on, as `result.json` has it.

    Fields of later versions are ignored.

    Args:
        core50: The facts of CORe50; None for other data.
        size: The side of the frames in pixels.
        train_sessions: The number of training sessions of the data set.
        train_frames: Their number of frames.
        test_frames: The number of frames in each test.
        test_thin: One test frame in `test_thin` was taken.
        order: "official" if the authors' order was used, else "generated".
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    core50: CORe50Facts | None = None
    size: int
    train_sessions: int
    train_frames: int
    test_frames: int
    test_thin: int = 1
    order: Literal["official", "generated"] = "generated"


def data_facts(stream: Stream, test_thin: int, size: int) -> DataFacts:
    """Return the facts of the data of a run, for `result.json`.

    Args:
        stream: The run.
        test_thin: One test frame in `test_thin` is taken.
        size: The side of the frames in pixels.
    """
    data = stream.data
    return DataFacts(
        core50=data.core50,
        size=size,
        train_sessions=len(data.train),
        train_frames=sum(map(len, data.train)),
        test_frames=len(stream.test(test_thin).labels),
        test_thin=test_thin,
        order="generated" if stream.source == "generated" else "official",
    )


def why_not_comparable(facts: DataFacts | None) -> str:
    """Say why a run cannot be compared with the authors' results on CORe50; empty if it can.

    It can on the complete CORe50 at 128 px, tested on an official test set.

    Args:
        facts: `data` of the run's `result.json`; None if the run is not done.

    Returns:
        The reason, as the rest of a sentence about the run.

    >>> facts = DataFacts(size=128, train_sessions=400, train_frames=24_000, test_frames=450)
    >>> why_not_comparable(facts)
    'the data is not CORe50'
    """
    if facts is None:
        return "the result does not say what its data was"
    core50 = facts.core50
    if core50 is None:
        return "the data is not CORe50"
    if not core50.complete:
        frames = f"{facts.train_sessions} training sessions, {facts.train_frames:,} frames"
        return f"the data is a part of CORe50 ({frames})"
    if facts.size != PUBLISHED_SIZE:
        return f"the frames have {facts.size} px, not {PUBLISHED_SIZE}"
    is_reduced = core50.test_set == "full" and facts.test_thin == REDUCED_EVERY
    if facts.test_thin != 1 and not is_reduced:
        return f"the test set is not an official one ({facts.test_frames:,} frames)"
    return ""


def _open_rendered(
    data: RenderedData, cache: Path, device: str, workers: int | None, progress: Progress | None
) -> DataSet:
    if data.renderer != VERSION:
        raise InputError(
            f"these frames were drawn by version {data.renderer} of the renderer, "
            f"and this is version {VERSION}: choose another folder, "
            "or install the version of primavista that drew them"
        )
    with file_errors("make", cache, CHOOSE_FOLDER):
        cache.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(data.model_dump_json().encode()).hexdigest()[:8]
    if device != "cpu":  # it rounds differently: here and there a pixel is one level off
        key, workers = f"{key}-{device}", 1
    scene, place = rendered(data.scene, device), cache / f"rendered-{key}"
    with FileLock(cache / f".{key}.lock", wait=None):
        drawn = pack(scene, place, workers or usable_cores(), progress)
    free_memory()  # drawing takes gigabytes of a GPU, which the cells need now
    return drawn


def _fits_on_gpu(store: Store) -> bool:
    size = os.stat(store.path / "frames.npy").st_size
    return size < GPU_SHARE * torch.cuda.mem_get_info()[0]
