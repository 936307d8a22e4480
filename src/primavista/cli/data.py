"""`primavista data`: data sets made, fetched, packed, checked and looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from primavista.errors import FileError, InputError

if TYPE_CHECKING:
    from primavista.streams.dataset import DataSet

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Data sets: draw one, fetch CORe50, pack any into one fast file, check it, look at it.

    Where a command takes a SOURCE, it is a CORe50 folder, a folder of your own (`<class>/<session>/<frame>.png` pictures or
    `<class>/<session>.mp4` videos), a packed store, or `rendered`: videos drawn on the spot, as large as you say
    (`rendered:objects=2,frames=12`; also categories, sessions, size, seed).""",
)
Source = Annotated[
    str,
    typer.Argument(help="A CORe50 folder, a class/session folder, a packed store, or `rendered`."),
]
Size = Annotated[
    int | None, typer.Option(help="Side of the frames in pixels (default: 128).", min=8, max=4096)
]
MaxFrames = Annotated[
    int | None, typer.Option(help="Frames kept of each video, evenly spread (default: 600).", min=1)
]
Fps = Annotated[
    float | None,
    typer.Option(help="Frames a second to take of each video (default: all).", min=0.001),
]
Labels = Annotated[
    Literal["object", "category"] | None,
    typer.Option(help="CORe50: 50 objects (default) or 10 categories."),
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Where videos are decoded to (default: ~/.cache/primavista/videos)."),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="Leave out and count what cannot be decoded, instead of stopping."
    ),
]
console = Console(stderr=True, highlight=False)


@app.command()
def render(
    folder: Annotated[Path, typer.Argument(help="Folder to write; made if it is not there.")],
    format: Annotated[
        Literal["png", "jpg", "mp4"], typer.Option(help="png is exact; mp4 writes s1/o1.mp4.")
    ] = "png",
    categories: Annotated[int, typer.Option(help="Kinds of things.", min=1)] = 10,
    objects: Annotated[int, typer.Option(help="Objects in each category.", min=1)] = 5,
    sessions: Annotated[int, typer.Option(help="Videos of each object.", min=1)] = 11,
    frames: Annotated[int, typer.Option(help="Frames a video (CORe50 has 300).", min=1)] = 60,
    size: Annotated[int, typer.Option(help="Side of the frames in pixels.", min=8, max=2048)] = 128,
    seed: Annotated[int, typer.Option(help="Another seed, other objects and places.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Draw a data set and write it in CORe50's layout: `s1/o1/C_01_01_000.png`, or `s1/o1.mp4`.

    Stopped, it goes on where it was when the same command is given again.

    Example: `primavista data render my-objects --objects 2 --frames 30`
    """
    from primavista.engine.device import choose_device
    from primavista.streams.rendered.dataset import write
    from primavista.streams.rendered.renderer import Scene

    scene = Scene(categories, objects, sessions, frames, size, seed)
    with going_on(), bar("drawing frames") as progress:
        write(scene, folder, format, progress, choose_device(device))
    typer.echo(f"{categories * objects} objects x {sessions} videos x {frames} frames in {folder}")


@app.command()
def core50(
    folder: Annotated[Path, typer.Argument(help="Folder to download to; made if it is not there.")],
) -> None:
    """Download CORe50 (128 x 128) from its official site; stopped, the same command goes on where it was.

    Example: `primavista data core50 ~/data/core50`
    """
    from primavista.streams.core50.download import download

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {}

        def progress(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        download(folder.expanduser(), progress)
    typer.echo(f"CORe50 is in {folder}. Next: primavista data pack {folder} STORE")


@app.command()
def pack(
    source: Source,
    store: Annotated[Path, typer.Argument(help="Folder of the store to make.")],
    size: Size = None,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Session names for testing (class/session folders); repeat it."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes (default: one a core, where that pays).", min=1)
    ] = None,
    full_test: Annotated[
        bool, typer.Option("--full-test", help="CORe50: all test frames, not the official 1 in 20.")
    ] = False,
    labels: Labels = None,
    skip_bad: SkipBad = False,
    max_frames: MaxFrames = None,
    fps: Fps = None,
    cache: Cache = None,
) -> None:
    """Decode a data set once into a packed store: one memory-mapped file, so that streams start at once.

    Stopped or killed, the same command finishes it. Several processes may read a finished store.

    Example: `primavista data pack ~/data/core50 ~/data/core50.store`
    """
    from primavista.streams import store as stores

    with going_on():
        data = open_data(
            source,
            size,
            test=test,
            official="full" if full_test else None,
            labels=labels,
            skip_bad=skip_bad,
            max_frames=max_frames,
            fps=fps,
            cache=cache,
        )
        with bar("packing frames") as progress:
            packed = stores.pack(data, store, workers, progress)
    typer.echo(f"{describe(packed)} in {store}")


@app.command()
def verify(store: Annotated[Path, typer.Argument(help="Folder of a packed store.")]) -> None:
    """Read a packed store and compare every piece with its checksum; exit code 1 where one differs.

    Example: `primavista data verify ~/data/core50.store`
    """
    from primavista.streams import store as stores

    with bar("checking frames") as progress:
        report = stores.verify(store, progress)
    if report.ok:
        typer.echo(f"all {report.frames} frames of {store} are as they were packed")
        return
    few = "; ".join(report.sessions[:8]) + (" ..." if len(report.sessions) > 8 else "")
    raise InputError(
        f"{len(report.bad)} of {report.chunks} pieces of {store} are damaged (frames of {few}): delete it and pack again"
    )


@app.command()
def sheet(
    source: Source,
    picture: Annotated[Path, typer.Argument(help="PNG file to write.")],
    classes: Annotated[int, typer.Option(help="Rows at most.", min=1)] = 20,
    sessions: Annotated[int, typer.Option(help="Columns at most.", min=1)] = 11,
    thumb: Annotated[
        int, typer.Option(help="Side of a thumbnail in pixels.", min=8, max=1024)
    ] = 64,
    size: Size = None,
    labels: Labels = None,
    skip_bad: SkipBad = False,
    max_frames: MaxFrames = None,
    fps: Fps = None,
    cache: Cache = None,
) -> None:
    """Make a contact sheet of a data set: a row a class, a column a session, test sessions numbered in blue.

    Example: `primavista data sheet rendered:objects=2,frames=3 sheet.png`
    """
    from primavista.streams.pictures import contact_sheet

    data = open_data(
        source, size, labels=labels, skip_bad=skip_bad, max_frames=max_frames, fps=fps, cache=cache
    )
    step = max(1, -(-len(data.classes) // classes))
    image = contact_sheet(
        data, classes=range(0, len(data.classes), step), columns=sessions, tile=thumb
    )
    try:
        image.save(picture, "PNG")
    except OSError as error:
        raise FileError(
            f"cannot write {picture}: {error.strerror or error}. Choose a folder that you may write"
        ) from error
    typer.echo(f"wrote {picture}")


@app.command()
def matrix(
    source: Source,
    picture: Annotated[
        Path | None, typer.Argument(help="SVG, PNG or PDF file to write; none: the table alone.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="ni, nc, nic, nicv2-79, nicv2-196, nicv2-391 or nicv2-N.")
    ] = "nicv2",
    order: Annotated[int, typer.Option("--run", help="Which of the random orders.", min=0)] = 0,
    orders: Annotated[
        Path | None, typer.Option(help="Folder with official orders (default: where CORe50 is).")
    ] = None,
    size: Size = None,
    labels: Labels = None,
    skip_bad: SkipBad = False,
    max_frames: MaxFrames = None,
    fps: Fps = None,
    cache: Cache = None,
) -> None:
    """Draw which class comes in which batch of a stream: the paper's figure of NICv2, and print its table of batches.

    Official orders are used where they are.

    Example: `primavista data matrix rendered order.svg --protocol nicv2-391`
    """
    from rich.console import Console
    from rich.table import Table

    from primavista.streams.open import stream as open_stream
    from primavista.streams.pictures import protocol_row, save_order

    data = open_data(
        source, size, labels=labels, skip_bad=skip_bad, max_frames=max_frames, fps=fps, cache=cache
    )
    stream = open_stream(data, protocol, order, orders=orders)
    row = protocol_row(stream)
    table = Table(
        "protocol", "batches", "initial: classes", "images", "incremental: classes", "images (mean)"
    )
    low, high = row.incremental_classes
    later = f"{low}" if low == high else f"{low} to {high}"
    counts = [str(n) for n in (row.batches, row.initial_classes, row.initial_images)]
    table.add_row(row.protocol, *counts, later, f"{row.incremental_images:.0f}")
    Console().print(table)
    if picture is not None:
        typer.echo(
            f"wrote {save_order(stream, picture)}: {stream.name}, run {order}, {len(stream)} batches ({stream.source})"
        )


def open_data(
    source: str,
    size: int | None = None,
    *,
    test: list[str] | None = None,
    official: Literal["full", "reduced"] | None = None,
    labels: Literal["object", "category"] | None = None,
    skip_bad: bool = False,
    max_frames: int | None = None,
    fps: float | None = None,
    cache: Path | None = None,
) -> DataSet:
    """The data set that a SOURCE names: a packed store, a CORe50 or class/session folder, or `rendered:key=value,...`.

    An option that the source does not take is an error. `size` is 128 where it is not given; of a drawn folder, its own.
    """
    from primavista.streams.open import check_options, open_dataset, parse_source

    found = parse_source(source)
    given: dict[str, Any] = {
        "size": size,
        "labels": labels,
        "test": official,
        "test_sessions": test,
        "skip_bad": skip_bad,
        "max_frames": max_frames,
        "fps": fps,
        "cache": cache,
    }
    check_options(found, given, _option)
    with _reading(found.kind, skip_bad) as progress:
        data = open_dataset(found, progress=progress, **given)
    if data.note:
        typer.echo(data.note, err=True)
    return data


def _option(name: str) -> str:
    """An argument of `open_dataset` as an option of the command line."""
    names = {"test": "--full-test", "test_sessions": "--test"}
    return names.get(name) or f"--{name.replace('_', '-')}"


@contextmanager
def _reading(kind: str, skip_bad: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar for what takes time to open: folders, and pictures that are checked."""
    if kind == "folder":
        with bar("reading sessions") as progress:
            yield progress
    elif kind == "core50" and skip_bad:
        with bar("checking pictures") as progress:
            yield progress
    else:
        yield None


@contextmanager
def going_on() -> Iterator[None]:
    """Around what may be stopped and goes on when the same command is given again; says so."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(
            "[yellow]stopped.[/yellow] What is done is kept: the same command goes on from there."
        )
        raise typer.Exit(130) from None


def describe(data: DataSet) -> str:
    """A data set in one line."""
    sessions = f"{len(data.train)} training and {len(data.test)} test sessions"
    return f"{data.name}: {len(data.frames)} frames, {len(data.classes)} classes, {sessions}"


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with the time left; gives `progress(done, total)`."""
    columns = (
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
