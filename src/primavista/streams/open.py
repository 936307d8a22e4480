"""The one way to open data: a source, such as a folder or `rendered:objects=2`, and its streams.

dataset = open_dataset("~/data/core50")
for batch in stream(dataset, "nicv2-391", run=0):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from primavista.errors import InputError
from primavista.progress import Progress
from primavista.streams.core50 import CORe50, is_core50, official_batches
from primavista.streams.dataset import DataSet, Stream, TestFrames
from primavista.streams.folder import folder
from primavista.streams.listed import is_listed, listed
from primavista.streams.protocols import Parameter, parse_protocol, written_values
from primavista.streams.rendered.scene import Scene
from primavista.streams.store import is_store, open_store

DEFAULT_SIZE = 128  # pixels
SCENE_FIELDS = tuple(item.name for item in fields(Scene))

Kind = Literal["rendered", "store", "core50", "list", "folder"]


@dataclass(frozen=True)
class DataSource:
    """A source of data that was recognised but not opened yet.

    Args:
        kind: "rendered" (videos that the package draws), "store" (a packed store), "core50" (a
            CORe50 folder), "list" (a folder with `pictures.csv`) or "folder" (pictures and videos
            by class and session).
        path: The folder or file; None for rendered videos.
        scene: The values that the source text gives for the fields of `Scene`.
        text: The source as the user wrote it, for messages.
    """

    kind: Kind
    path: Path | None = None
    scene: Mapping[str, int] = field(default_factory=dict)
    text: str = ""

    def __str__(self) -> str:
        return self.text or str(self.path or self.kind)


def parse_source(text: str | Path) -> DataSource:
    """Recognise what a source text names, without opening it.

    Args:
        text: "rendered", "rendered:objects=2,frames=12" (the keys are the fields of `Scene`), or
            the path of a packed store, of CORe50, of a folder with a list of pictures, or of a
            folder of pictures and videos.

    Returns:
        The source. A path that does not exist counts as a folder; opening it raises an error.

    Raises:
        InputError: If a rendered source has an unknown key or a value that is not an integer.
    """
    source = str(text)
    if source == "rendered" or source.startswith("rendered:"):
        return DataSource("rendered", scene=_scene_values(source), text=source)
    path = Path(text).expanduser()
    recognised = (kind for kind, one in READERS.items() if one.recognises(path))
    return DataSource(next(recognised, "folder"), path, text=source)


def open_dataset(
    source: str | Path | DataSource,
    *,
    size: int | None = None,
    test: TestFrames | None = None,
    test_sessions: Sequence[str] | None = None,
    split: int = 0,
    skip_bad: bool = False,
    max_frames: int | None = None,
    fps: float | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> DataSet:
    """Open any data set: rendered videos, a packed store, official files, or a folder of your own.

    Args:
        source: A source text or path as in `parse_source`, or a source that was parsed before.
        size: The side of the frames in pixels; 128 by default. A packed store has a fixed size.
        test: For CORe50, which test frames to use; see `CORe50`.
        test_sessions: For a folder, the names of the sessions to test on; see `folder`.
        split: For a folder, which random choice of test sessions; 0 is the fixed one.
        skip_bad: Leave out and count what cannot be decoded (data sets of picture files).
        max_frames: For a folder, the number of frames kept per video, evenly spread.
        fps: For a folder, the number of frames per second to read from each video.
        cache: For a folder, where decoded videos are kept.
        progress: Called with (done, total) while pictures are checked or sessions are read.

    Returns:
        The data set. `dataset.note` says what the user should know about it.

    Raises:
        InputError: If an option does not apply to this kind of source.
        FileError: If the data cannot be read.
    """
    found = source if isinstance(source, DataSource) else parse_source(source)
    options: dict[str, Any] = {
        "size": size,
        "test": test,
        "test_sessions": test_sessions,
        "split": split,
        "skip_bad": skip_bad,
        "max_frames": max_frames,
        "fps": fps,
        "cache": cache,
    }
    check_source_options(found, options)
    if found.path is None:
        from primavista.streams.rendered.dataset import rendered  # slow, and with torch

        return rendered(scene_of(found, size))
    taken = {key: options[key] for key in _given(options)}
    if found.kind != "store":
        taken["size"] = size or DEFAULT_SIZE
    if found.kind == "folder":
        taken["test"] = taken.pop("test_sessions", "quarter")
    if found.kind == "folder" or skip_bad:
        taken["progress"] = progress
    return READERS[found.kind].read(found.path, **taken)


def stream(
    dataset: DataSet,
    protocol: str,
    run: int = 0,
    *,
    orders: str | Path | None = None,
    **parameters: Parameter,
) -> Stream:
    """Order the training sessions of a data set into batches.

    The official order of the run is used if its files are there, and one of our generator
    otherwise. Official orders exist for "ni", "nc", "nic", "nicv2-79", "nicv2-196" and "nicv2-391"
    in runs 0 to 9. They are read from the file lists in the folder of CORe50 or the one above it. A
    packed copy looks in the folder that it was packed from.

    Args:
        dataset: Any data set.
        protocol: "ni", "nc", "nic", "nicv2-<batches>", "class-incremental", "domain-incremental",
            with parameters after a colon if you like: "class-incremental:first=50".
        run: The number of the random order.
        orders: Another folder with the official files. It serves any data set whose class i is
            object i + 1 of CORe50.
        **parameters: Parameters of the protocol, such as `first=50`.

    Returns:
        The stream. `stream.source` is "generated" or the file that the order comes from.

    Raises:
        InputError: If there is no such protocol, or the data set has too few sessions for it.
        FileError: If the official files are there but damaged, or do not fit the data set.
    """
    found = parse_protocol(protocol, **parameters)
    # only CORe50, or a data set that comes with `orders`, has an official order
    official = official_batches(dataset, str(found), run, orders)
    if official is not None:
        batches, source = official
        return Stream(dataset, batches, str(found), run, source)
    return found.stream(dataset, run)


def scene_of(source: DataSource, size: int | None = None) -> Scene:
    """Make the scene of a rendered source.

    Args:
        source: A source of the kind "rendered".
        size: The side of the frames, if the source text does not give one. The default is 128.

    Returns:
        The scene; fields that the source text does not give have their defaults.

    Raises:
        InputError: If a value is out of range.
    """
    return Scene(**{"size": size or DEFAULT_SIZE, **source.scene})


class Reader(NamedTuple):
    """A kind of data set.

    Args:
        name: Its name in messages.
        options: The options of `open_dataset` that it takes.
        recognises: A function that returns True if a path holds such files.
        read: A function of the path and the options; it also reports `progress` if it takes time.
    """

    name: str
    options: set[str]
    recognises: Callable[[Path], bool]
    read: Callable[..., DataSet]


_VIDEO_OPTIONS = {"size", "skip_bad", "max_frames", "fps", "cache", "test_sessions", "split"}
# In this order; what none of them recognises is a folder of the user's own.
READERS: dict[Kind, Reader] = {
    "store": Reader("a packed store", set(), is_store, open_store),
    "core50": Reader("a CORe50 folder", {"size", "test", "skip_bad"}, is_core50, CORe50),
    "list": Reader("a folder with a list", {"size", "skip_bad"}, is_listed, listed),
    "folder": Reader("a class/session folder", _VIDEO_OPTIONS, Path.is_dir, folder),
}
_TAKES = {"rendered": ("rendered videos", {"size"})}
_TAKES |= {kind: (reader.name, reader.options) for kind, reader in READERS.items()}


def check_source_options(
    source: DataSource,
    options: Mapping[str, object],
    spelling: Callable[[str], str] = str,
) -> None:
    """Check that a kind of source takes the options that were given.

    Args:
        source: The source.
        options: The options of `open_dataset` by name; None, False and empty ones are not given.
        spelling: How the user writes an option, for the message.

    Raises:
        InputError: For the first option that does not apply. The message says what it is for.
    """
    name, taken = _TAKES[source.kind]
    for option in _given(options):
        if option not in taken:
            others = " or ".join(name for name, takes in _TAKES.values() if option in takes)
            raise InputError(
                f"{spelling(option)} is for {others}; {source} is {name}: leave it out"
            )


def _given(options: Mapping[str, object]) -> Iterable[str]:
    return [name for name, value in options.items() if value not in (None, False, 0, [], ())]


def _scene_values(source: str) -> dict[str, int]:
    values = written_values(source.partition(":")[2], source)
    found = {key: value for key, value in values.items() if isinstance(value, int)}
    wrong = [key for key in values if key not in found or key not in SCENE_FIELDS]
    if wrong:
        raise InputError(
            f"{wrong[0]!r} in {source!r}: write rendered:objects=2,frames=12; "
            f"the keys are {', '.join(SCENE_FIELDS)}"
        )
    return found
