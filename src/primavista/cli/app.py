"""The command line: all commands. The options that come before them are in `arguments.py`.

Nothing here imports torch until a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

import primavista.cli.bench as bench
import primavista.cli.data as data
from primavista.cli.arguments import options
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
app.callback(invoke_without_command=True)(options)
for command in COMMANDS:
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
