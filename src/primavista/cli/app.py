"""The command line: all commands. The options that come before them are in `arguments.py`.

A command is imported when it runs, and torch when a command needs it, so that each answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from primavista.cli.arguments import options
from primavista.cli.commands import CommandGroup, document

# the module of each command and of each group of commands, whose group is called `app`
COMMANDS = {
    **{name: name for name in ("teach", "learn", "predict", "watch", "evaluate", "inspect")},
    **dict.fromkeys(("rename", "forget", "merge", "undo"), "change"),
    **{name: name for name in ("run", "export", "page", "doctor", "bench", "data")},
}


class LazyCommands(TyperGroup):
    """Imports the module of a command when the command is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        names: Any = dict.fromkeys(COMMANDS)
        self.commands = names  # for the help and for suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command or a group of commands; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"primavista.cli.{COMMANDS[cmd_name]}")
        group = getattr(module, "app", None)
        if group is None:
            group = CommandGroup("", add_completion=False)
            group.add(getattr(module, cmd_name))
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command


app = CommandGroup(
    """Learn to recognise objects from short videos, one small batch at a time, without
    storing any frames.

    To teach objects with a camera, begin with `primavista teach kitchen.pv`; with videos,
    `primavista learn kitchen.pv --label mug mug.mp4`. To compare strategies, begin with
    `primavista run`, which draws its own object videos. `primavista doctor` reports what this
    machine has and what is missing.""",
    cls=LazyCommands,
)
document(options)
app.callback(invoke_without_command=True)(options)
