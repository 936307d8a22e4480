"""Progress bars on standard error, and what Ctrl-C means to commands that can be resumed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import typer
from rich import progress
from rich.console import Console
from rich.markup import escape

from primavista.cli.arguments import printable

if TYPE_CHECKING:
    from primavista.progress import Progress


class ShowStage(Protocol):
    """A function that shows what is being done, and how far it is."""

    def __call__(self, text: str, done: int = 0, total: int | None = None, /) -> None:
        """Show that `done` of `total` units of a stage are done; None or 0 if that is unknown."""


@contextmanager
def stages(lessons: int = 0) -> Iterator[tuple[progress.Progress, ShowStage]]:
    """Show a bar for the current stage, below one for several lessons; nothing off a terminal."""
    # lines that are printed above a bar are not broken at the width of the terminal
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (
        progress.SpinnerColumn(),
        "{task.description}",
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        "left",
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as bars:
        bars.add_task("lessons", total=lessons, visible=lessons > 1)
        task, stage = bars.add_task("", total=None), ""

        def show(text: str, done: int = 0, total: int | None = None, /) -> None:
            nonlocal stage
            if text != stage:
                stage = text
                bars.reset(task, total=total or None, description=escape(printable(text)))
            completed = min(done, total) if total else done
            bars.update(task, completed=completed, total=total or None)

        yield bars, show


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Show how far one thing is, for example "packing frames"; yield a `Progress`."""
    with stages() as (_, show):
        show(what)
        yield partial(show, what)


@contextmanager
def resumable() -> Iterator[None]:
    """Tell the user, if the block is interrupted, that the same command resumes; exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped. What is done is kept: the same command resumes from there.", err=True)
        raise typer.Exit(130) from None
