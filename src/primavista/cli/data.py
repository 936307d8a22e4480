"""`primavista data`: make, pack, check and look at data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from primavista.cli.arguments import VideoFps
from primavista.cli.commands import CommandGroup
from primavista.cli.progress import progress_bar
from primavista.errors import CHOOSE_FOLDER, InputError, file_errors

if TYPE_CHECKING:
    from primavista.streams.dataset import DataSet

app = CommandGroup(
    """Data sets: draw one, pack any into one fast file, check it, look at it.

    A SOURCE is the official files of CORe50, a folder of your own
    (`<class>/<session>/<frame>.png` pictures or `<class>/<session>.mp4` videos), a folder with a
    list of pictures (`pictures.csv`), a packed store, or `rendered`: videos drawn on the spot, as
    large as you say (`rendered:objects=2,frames=12`; also categories, sessions, size, seed).""",
    add_completion=False,
)


@app.add
def render(
    folder: Path,
    format: Literal["png", "mp4"] = "png",
    categories: Annotated[int, typer.Option(min=1)] = 10,
    objects: Annotated[int, typer.Option(min=1)] = 5,
    sessions: Annotated[int, typer.Option(min=1)] = 11,
    frames: Annotated[int, typer.Option(min=1)] = 60,
    size: Annotated[int, typer.Option(min=8, max=2048)] = 128,
    seed: int = 0,
    device: str = "auto",
) -> None:
    """Draw a data set and write it as a folder of objects: `cup 1/s1/000.png`, or `cup 1/s1.mp4`.

    Example: `primavista data render my-objects --objects 2 --frames 30`

    Args:
        folder: The folder to write; it may exist if it is empty.
        format: png is exact; mp4 writes a video per session.
        categories: Categories of objects.
        objects: Objects in each category.
        sessions: Videos of each object.
        frames: Frames per video (CORe50 has 300).
        size: Side of the frames in pixels.
        seed: Another seed draws other objects and places.
    """
    from primavista.engine.representation import choose_device
    from primavista.streams.rendered.dataset import write
    from primavista.streams.rendered.renderer import Scene

    scene = Scene(categories, objects, sessions, frames, size, seed)
    with progress_bar("drawing frames") as progress:
        write(scene, folder, format, progress, choose_device(device))
    typer.echo(f"{categories * objects} objects x {sessions} videos x {frames} frames in {folder}")


@app.add
def pack(
    source: str,
    store: Path,
    size: Annotated[int | None, typer.Option(min=8, max=4096)] = None,
    test: list[str] | None = None,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    full_test: bool = False,
    skip_bad: bool = False,
    max_frames: Annotated[int | None, typer.Option(min=1)] = None,
    fps: VideoFps = None,
    cache: Path | None = None,
) -> None:
    """Decode a data set once into a packed store: one memory-mapped file that streams start from.

    Several processes may read a store.

    Example: `primavista data pack ~/data/core50 ~/data/core50.store`

    Args:
        store: Folder of the store to create.
        size: Side of the frames in pixels (default: 128).
        test: Name of a test session (class/session folders); repeatable.
        workers: Threads (default: one per core).
        full_test: CORe50: all test frames instead of the official 1 in 20.
        max_frames: Frames kept of each video, evenly spread (default: 600).
        cache: Folder for decoded videos (default: ~/.cache/primavista/videos).
    """
    from primavista.backbones.onnx import usable_cores
    from primavista.streams import store as stores

    options: dict[str, Any] = {
        "skip_bad": skip_bad,
        "max_frames": max_frames,
        "fps": fps,
        "cache": cache,
    }
    options |= {"test": "full" if full_test else None, "test_sessions": test}
    data = open_data(source, size, **options)
    with progress_bar("packing frames") as progress:
        packed = stores.pack(data, store, workers or usable_cores(), progress)
    typer.echo(f"{describe_dataset(packed)} in {store}")


@app.add
def verify(store: Path) -> None:
    """Read a packed store and compare every piece with its checksum; exit code 1 if one differs.

    Example: `primavista data verify ~/data/core50.store`

    Args:
        store: Folder of a packed store.
    """
    from primavista.streams import store as stores

    with progress_bar("checking frames") as progress:
        damaged = stores.damaged_sessions(store, progress)
    if damaged:
        few = "; ".join(damaged[:8]) + (" ..." if len(damaged) > 8 else "")
        raise InputError(f"{store} is damaged (frames of {few}): delete it and pack again")
    typer.echo(f"all {len(stores.open_store(store).frames)} frames of {store} are as packed")


@app.add
def sheet(
    source: str,
    picture: Path,
    skip_bad: bool = False,
) -> None:
    """Make a contact sheet: one row per class, one column per session, test sessions in blue.

    There are at most 20 rows and 11 columns.

    Example: `primavista data sheet rendered:objects=2,frames=3 sheet.png`

    Args:
        picture: PNG file to write.
    """
    from primavista.streams.pictures import contact_sheet

    image = contact_sheet(open_data(source, skip_bad=skip_bad))
    with file_errors("write", picture, CHOOSE_FOLDER):
        image.save(picture, "PNG")
    typer.echo(f"wrote {picture}")


@app.add
def matrix(
    source: str,
    picture: Annotated[Path | None, typer.Argument()] = None,
    protocol: str = "nicv2",
    order: Annotated[int, typer.Option("--run", min=0)] = 0,
    orders: Path | None = None,
    skip_bad: bool = False,
) -> None:
    """Draw which class comes in which batch of a stream, as the paper's figure of NICv2 does.

    The table of batches is printed. Official orders are used if they are there.

    Example: `primavista data matrix rendered order.svg --protocol nicv2-391`

    Args:
        picture: SVG, PNG or PDF file to write; without it, only the table is printed.
        protocol: ni, nc, nic, nicv2-N, class-incremental or domain-incremental; parameters follow a
            colon: class-incremental:first=50,classes_per_batch=10.
        order: Number of the random order.
        orders: Folder with the official orders (default: that of CORe50).
    """
    from primavista.report.plot import plot
    from primavista.streams.open import stream as open_stream
    from primavista.streams.pictures import protocol_row

    data = open_data(source, skip_bad=skip_bad)
    stream = open_stream(data, protocol, order, orders=orders)
    row = protocol_row(stream)
    table = Table(*row)
    table.add_row(*row.values())
    Console().print(table)
    if picture is not None:
        path = plot(stream, width="page").save(picture)
        batches = f"{len(stream)} batches ({stream.source})"
        typer.echo(f"wrote {path}: {stream.name}, run {order}, {batches}")


def open_data(source: str, size: int | None = None, **options: Any) -> DataSet:
    """Open the data set that a SOURCE names, and print its note on standard error.

    Args:
        source: A source text as in `primavista.streams.open.parse_source`.
        size: The side of the frames in pixels.
        **options: Other options of `open_dataset`; one that does not apply to this kind of source
            is refused by its name on the command line.
    """
    from primavista.streams.open import check_source_options, open_dataset, parse_source

    found, given = parse_source(source), {"size": size, **options}
    check_source_options(found, given, _option)
    with progress_bar("reading the data set") as progress:
        data = open_dataset(found, progress=progress, **given)
    if data.note:
        typer.echo(data.note, err=True)
    return data


def _option(name: str) -> str:
    """Return the command-line option for an argument of `open_dataset`."""
    names = {"test": "--full-test", "test_sessions": "--test"}
    return names.get(name) or f"--{name.replace('_', '-')}"


def describe_dataset(data: DataSet) -> str:
    """Return a data set in one line; of CORe50, the line also says which test set it has."""
    sessions = f"{len(data.train)} training and {len(data.test)} test sessions"
    line = f"{data.name}: {len(data.frames)} frames, {len(data.classes)} classes, {sessions}"
    if data.core50 is None:
        return line
    tested = f"{sum(map(len, data.test)):,} frames"
    return f"{line}, the {data.core50.test_set} test set ({tested})"
