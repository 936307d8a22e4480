"""The command line. Nothing here imports torch until a command needs it, so that `--help` answers at once."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import primavista.cli.bench as bench
import primavista.cli.data as data
from primavista import __version__
from primavista.cli.change import forget, rename, undo
from primavista.cli.doctor import doctor
from primavista.cli.export import export
from primavista.cli.inspect import inspect
from primavista.cli.learn import learn
from primavista.cli.predict import predict
from primavista.cli.run import run
from primavista.cli.sources import shown
from primavista.cli.teach import teach
from primavista.errors import PrimavistaError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Learn to recognise objects from short videos, one small batch at a time, keeping none of the frames.

    Begin with `primavista run`: the paper's strategies side by side on object videos that are drawn on the spot.
    `primavista doctor` says what this machine has and what is missing.""",
)
app.command()(teach)
app.command()(learn)
app.command()(predict)
app.command()(inspect)
app.command()(rename)
app.command()(forget)
app.command()(undo)
app.command()(run)
app.command()(export)
app.command()(doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Options of every command."""
    if version:
        print(f"primavista {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; an error that we know is one message and exit code 1."""
    # before torch is imported: threads that wait sleep, instead of taking the cores from others (10 times faster under load)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a letter that the terminal cannot show is no reason to stop
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:  # as where it is closed: >&-
                sys.stdout.flush()
    except PrimavistaError as error:
        _fail("\n".join(map(shown, str(error).split("\n"))))
    except OSError as error:
        if error.filename is not None:
            raise
        with suppress(
            OSError
        ):  # what is still to be written goes nowhere, or Python would try again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # the reader has seen enough
            sys.exit(1)
        _fail(f"cannot write what there is to say: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(text: str) -> None:
    Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)
    sys.exit(1)
