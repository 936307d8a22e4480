"""The command line: the commands, and how errors end it.

Nothing here imports torch until a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import primavista.cli.bench as bench
import primavista.cli.data as data
from primavista import __version__
from primavista.cli.arguments import printable, register_named
from primavista.cli.change import forget, merge, rename, undo
from primavista.cli.doctor import doctor
from primavista.cli.evaluate import evaluate
from primavista.cli.export import export
from primavista.cli.inspect import inspect
from primavista.cli.learn import learn
from primavista.cli.predict import predict
from primavista.cli.run import run
from primavista.cli.teach import teach
from primavista.cli.watch import watch
from primavista.errors import InputError, PrimavistaError
from primavista.references import is_reference

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Learn to recognise objects from short videos, one small batch at a time, without
    storing any frames.

    To teach objects with a camera, begin with `primavista teach kitchen.pv`; with videos,
    `primavista learn kitchen.pv --label mug mug.mp4`. To compare strategies, begin with
    `primavista run`, which draws its own object videos. `primavista doctor` reports what this
    machine has and what is missing.""",
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(teach, learn, predict, watch, evaluate, inspect, rename, forget, merge, undo),
    *(run, export, doctor),
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    register: Annotated[
        list[str] | None,
        typer.Option(
            help="A strategy or backbone of your own that a file may use: package.module:Name. "
            "Its code is imported. Repeatable."
        ),
    ] = None,
) -> None:
    """Handle the options that come before a command."""
    if version:
        print(f"primavista {__version__}")
        raise typer.Exit
    for text in register or ():
        if not is_reference(text):
            raise InputError(f"--register {text}: expected package.module:Name")
    register_named(*(register or ()))


def main() -> None:
    """Run the command line; an expected error is one message and exit code 1."""
    # Before torch is imported: waiting threads sleep instead of taking the cores from others,
    # which is 10 times faster on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a letter that the terminal cannot show is not a reason to stop
            stream.reconfigure(errors="replace")
    try:
        _run_and_flush()
    except PrimavistaError as error:
        _fail("\n".join(printable(line) for line in str(error).split("\n")))
    except OSError as error:
        _fail_to_write(error)
    except KeyboardInterrupt:
        sys.exit(130)


def _run_and_flush() -> None:
    """Run the command and flush its output, so that an error of writing is noticed here."""
    try:
        app()
    finally:
        if sys.stdout is not None:  # it is None if the shell closed it: >&-
            sys.stdout.flush()


def _fail_to_write(error: OSError) -> None:
    """End the command after an error of writing to the standard output; raise any other error."""
    if error.filename is not None:
        raise error
    # The rest of the output goes nowhere; otherwise Python would try to write it again at exit.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # the reader, such as `head`, has closed the pipe
        sys.exit(1)
    _fail(f"cannot write to stdout: {error.strerror or error}")


def _fail(text: str) -> None:
    Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)
    sys.exit(1)
